"""Learned temporal distances from sampled states to sampled goals of one trained run, for the distance explorer.

The dual representation of a goal is its distances from all states (section 1.3 of the method), so this table shows it
to a reader who points at a goal. In mazes states are drawn at their coordinates, and exact shortest paths are there to
compare with. Where a goal has two coordinates of its own, states are drawn at those of the goal that they attain;
elsewhere by the two principal components of their distances to the goals. Where there are pictures of states, the page
shows which of them are near to the goal and which are far from it.
"""

import hashlib
import itertools
import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from dualgoal import jsons
from dualgoal.envs import registry, tasks
from dualgoal.errors import UserError
from dualgoal.files import write_atomic
from dualgoal.paper import stats
from dualgoal.report import paths, pictures
from dualgoal.report.pictures import Pictures
from dualgoal.runs import directory

PLACED = {
    "maze": "",
    "goals": " States are placed by the two coordinates of the goal that they attain.",
    "embedding": " States are placed by their distances to the goals (principal components).",
}  # the sentence for each kind of table
FILE = "distances.json"
STATES, GOALS = 400, 60
PIXEL_STATES, PIXEL_GOALS = 160, 24
WALKING = ("pointmaze", "antmaze", "humanoidmaze")  # mazes in which the goal is a place, so path lengths are exact

Numbers = tuple[float | None, ...]
Values = dict[str, Any]  # fields of a table


@dataclass(frozen=True)
class ExplorerTable:
    """What the explorer shows of a run, in a file and in a page; None where a number is not finite."""

    format: Literal[1]
    run: str
    task: str
    seed: int
    step: int
    kind: Literal["maze", "goals", "embedding"]
    points: tuple[tuple[float | None, float | None], ...]  # of states
    goals: tuple[int, ...]  # which of the states
    learned: tuple[Numbers, ...]  # by goal and state
    exact: tuple[tuple[int | None, ...], ...] | None = None
    sample: str = ""
    walls: tuple[tuple[float, float, float], ...] | None = None
    cell: float | None = None
    correlation: float | None = None
    correlations: Numbers = ()
    profile: tuple[tuple[float, float, float, float], ...] = ()
    starts: tuple[int, ...] = ()
    paths: tuple[tuple[tuple[float, ...], ...], ...] = ()  # by goal and start
    pictures: Pictures | None = None

    def __post_init__(self) -> None:
        """Raise if lengths and places do not belong together, or a number is too large to be drawn."""
        states, exact = len(self.points), self.learned if self.exact is None else self.exact
        shown = self.pictures.states if self.pictures else ()
        walks = [path for row in self.paths for path in row]
        rows = [*self.points, *self.learned, *exact, *(self.walls or ()), *self.profile, *walks, self.correlations]
        sound = (
            0 < len(self.goals) == len(self.learned) == len(exact) == len(self.paths or exact)
            and all(0 <= state < states for state in (*self.goals, *self.starts, *shown))
            and all(len(row) == states for row in (*self.learned, *exact))
            and bool(self.starts) == bool(self.paths)
            and all(len(row) == len(self.starts) for row in self.paths)
            and all(len(path) % 2 == 1 and len(path) >= 3 for path in walks)  # steps and at least one place
            and (self.walls is None or self.cell is not None)
            and all(n is None or is_number(n) for n in itertools.chain([self.cell, self.correlation], *rows))
        )
        if not sound:
            raise UserError("its lists do not belong together, or a number is too large")


class UnusableData(UserError):
    """No states can be taken from the dataset that was asked for."""


class Sampled(NamedTuple):
    """States to show, the goals they attain, and where they come from if that is a file."""

    observations: np.ndarray
    targets: np.ndarray
    file: str | None = None
    rows: np.ndarray | None = None


def explore(
    path: str | Path, *, data: str | Path | None = None, states: int = STATES, goals: int = GOALS
) -> ExplorerTable:
    """Distances at a run's newest checkpoint, with coordinates and, in mazes, exact distances."""
    from dualgoal.runs.policy import load

    path = Path(path)
    policy = load(path)
    if policy.facts.sizes.pixels:  # an image costs as much as a hundred vectors
        states, goals = min(states, PIXEL_STATES), min(goals, PIXEL_GOALS)
    family = tasks.family(policy.run.task)
    maze = _maze(policy) if family in tasks.MAZES and not policy.facts.sizes.pixels else None
    rng = np.random.default_rng(0)
    sampled = _sample(policy, path, data, maze, states, rng)
    observations, targets = sampled.observations, sampled.targets
    chosen = _spread(observations[:, :2], goals) if maze else rng.permutation(len(observations))[:goals]
    learned = _learned(policy, observations, targets[chosen])
    kind = "maze" if maze else "goals" if policy.facts.sizes.goal_shape == (2,) else "embedding"
    points = {"maze": observations[:, :2], "goals": targets}.get(kind)
    points = embedding(learned) if points is None else points
    exact = _exact(maze, points, chosen) if maze and family in WALKING else None
    values = _values(policy, sampled, kind, points, chosen, learned, exact, maze)
    values |= _paths(policy, points, chosen) if maze else _pictures(policy, sampled, chosen)
    return jsons.typed_file(values, ExplorerTable, str(path))


def _learned(policy: Any, observations: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Distances (goals, states). Images are processed goal by goal, because all pairs at once would fill the memory."""
    if policy.facts.sizes.pixels:
        return np.stack([policy.distance(observations, goal) for goal in targets])
    states, goals = np.tile(observations, (len(targets), 1)), np.repeat(targets, len(observations), axis=0)
    return policy.distance(states, goals).reshape(len(targets), len(observations))


def _values(
    policy: Any, sampled: Sampled, kind: str, points: np.ndarray, chosen: np.ndarray, learned: np.ndarray, exact: Any,
    maze: Any,
) -> Values:  # fmt: skip
    return {
        "format": 1,
        "run": policy.run.id,
        "task": policy.run.task,
        "seed": policy.seed,
        "step": policy.step,
        "kind": kind,
        "sample": hashlib.sha256(np.ascontiguousarray(sampled.observations).tobytes()).hexdigest()[:16],
        "points": _rounded(points, 3),
        "goals": [int(g) for g in chosen],
        "learned": _rounded(learned, 1),
        "exact": None if exact is None else _rounded(exact, 0),
        "walls": None if maze is None else walls(maze),
        "cell": None if maze is None else maze.unit,
        **({} if exact is None else agreement(learned, exact)),
    }


def _paths(policy: Any, points: np.ndarray, chosen: np.ndarray) -> Values:
    """Where the policy walks, if a state is a place; the starts are the first of the goals, which are spread widely."""
    if policy.facts.sizes.observation_shape != (2,) or policy.facts.sizes.goal_shape or not policy.run.has_policy:
        return {}
    starts = chosen[: paths.STARTS]
    return {"starts": [int(s) for s in starts], "paths": paths.walk(policy, points[starts], points[chosen])}


def _pictures(policy: Any, sampled: Sampled, chosen: np.ndarray) -> Values:
    """Pictures of the goals and of some other states, where there are any."""
    others = np.setdiff1d(np.arange(len(sampled.observations)), chosen)
    shown = np.concatenate([chosen, others])[: pictures.COUNT]
    images = None
    if policy.facts.sizes.pixels:
        images = pictures.of_images(sampled.observations[shown])
    elif sampled.file is not None and sampled.rows is not None:
        images = pictures.of_scenes(policy.run.task, sampled.file, sampled.rows[shown])
    return {} if images is None else {"pictures": vars(pictures.side_by_side(images, shown))}


def sentence(table: ExplorerTable, task: str, label: str) -> str | None:
    """The numbers of a table in words; None where there is nothing to compare with."""
    if table.correlation is None:
        return None
    words = f"On {task}, the distances that {label} learned have a rank correlation of {table.correlation:.2f} with "
    words += f"shortest paths ({len(table.goals)} goals x {len(table.points)} states, seed {table.seed})"
    rows = zip(table.goals, table.paths, strict=False)
    walks = [path for goal, row in rows for start, path in zip(table.starts, row, strict=True) if start != goal]
    if walks:
        share = 100 * sum(path[0] > 0 for path in walks) / len(walks)
        words += f"; its policy reaches the goal in {share:.0f} % of {len(walks)} pairs of a start and a goal within "
        words += f"{paths.STEPS} steps"
    return f"{words}."


def agreement(learned: np.ndarray, exact: np.ndarray) -> Values:
    """Rank correlation of learned and exact distances, over all pairs and per goal, and quartiles by exact distance."""
    per_goal = [stats.rank_correlation(a, b) for a, b in zip(learned, exact, strict=True)]
    profile = []
    for value in np.unique(exact[np.isfinite(exact)]):
        there = learned[(exact == value) & np.isfinite(learned)]
        if there.size:
            profile.append([float(value), *(float(round(q, 1)) for q in np.quantile(there, [0.25, 0.5, 0.75]))])
    return {
        "correlation": stats.rank_correlation(learned, exact),
        "correlations": [None if c is None else round(c, 3) for c in per_goal],
        "profile": profile,
    }


def walls(maze: Any) -> list[list[float]]:
    """Left, bottom and side of every wall cell, in metres."""
    half = maze.unit / 2
    centres = [maze.centre((int(i), int(j))) for i, j in np.argwhere(maze.walls)]
    return [[x - half, y - half, maze.unit] for x, y in centres]


def embedding(learned: np.ndarray) -> np.ndarray:
    """States placed by their distances to the goals: the two principal components of these vectors, (states, 2)."""
    finite = np.where(np.isfinite(learned), learned, np.nanmax(np.where(np.isfinite(learned), learned, np.nan)))
    vectors = finite.T - finite.T.mean(axis=0)
    left, size, _ = np.linalg.svd(vectors, full_matrices=False)
    points = left[:, :2] * size[:2]
    return points if points.shape[1] == 2 else np.pad(points, ((0, 0), (0, 2 - points.shape[1])))


def _sample(
    policy: Any, path: Path, data: str | Path | None, maze: Any, count: int, rng: np.random.Generator
) -> Sampled:
    """States to show, and the goals they attain: rows of `data`, else of the run's dataset, spread evenly in mazes;
    without either a grid, if a state is a place and a goal is a state."""
    problem, place = None, policy.facts.dataset.file if data is None else data
    if place is not None:
        try:
            return _from_data(place, policy, maze, count, rng)
        except UserError as error:
            if data is not None:
                raise UnusableData(str(error)) from error
            problem = error
    sizes = policy.facts.sizes
    if maze is not None and sizes.observation_shape == (2,) and not sizes.goal_shape:
        places = _grid(maze, count)
        return Sampled(places, places)
    why = problem or f"{path}: the states to show come from the dataset, which is not recorded"
    raise UserError(f"{why}; give --data") from problem


def _from_data(place: str | Path, policy: Any, maze: Any, count: int, rng: np.random.Generator) -> Sampled:
    from dualgoal.data.dataset import load

    dataset = load(place, policy.run.task)
    policy.facts.sizes.require_fit(place, dataset.observation_shape, dataset.goal_shape)
    rows = np.sort(rng.choice(dataset.rows, size=min(dataset.rows, 10 * count if maze else count), replace=False))
    if maze:
        rows = rows[_spread(np.asarray(dataset.observations[rows])[:, :2], count)]
    file = dataset.provenance["file"]
    return Sampled(np.asarray(dataset.observations[rows]), np.asarray(dataset.attained[rows]), file, rows)


def _grid(maze: Any, count: int) -> np.ndarray:
    """Places evenly spread over the free cells."""
    per_side = max(1, round(math.sqrt(count / len(maze.cells))))
    offsets = (np.arange(per_side) + 0.5) / per_side - 0.5
    centres = np.array([maze.centre(cell) for cell in maze.cells])
    shifts = np.stack(np.meshgrid(offsets, offsets), axis=-1).reshape(-1, 2) * maze.unit * 0.9
    return (centres[:, None] + shifts).reshape(-1, 2).astype(np.float32)


def _spread(points: np.ndarray, count: int) -> np.ndarray:
    """Indices of `count` points, each the farthest from those chosen before it."""
    chosen = [0]
    gap = np.full(len(points), np.inf)
    while len(chosen) < min(count, len(points)):
        gap = np.minimum(gap, np.linalg.norm(points - points[chosen[-1]], axis=1))
        chosen.append(int(gap.argmax()))
    return np.array(chosen)


def _exact(maze: Any, points: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Shortest paths in cells, (goals, states); NaN where a point lies in a wall."""
    cells = [maze.cell(xy) for xy in points]
    out = np.full((len(chosen), len(points)), np.nan)
    for row, g in enumerate(chosen):
        if maze.free(cells[g]):
            table = maze.distances(cells[g])
            found = [table[cell] if maze.free(cell) else -1 for cell in cells]
            out[row] = [np.nan if steps < 0 else steps for steps in found]
    return out


def _maze(policy: Any) -> Any:
    """The maze of a run: one that came with its data, or the task's; None if the name only looks like a maze's."""
    try:
        return registry.maze(policy.run.task, policy.facts.dataset.maze)
    except UserError:  # no simulator here: the table has no walls and no exact distances
        return None


def _rounded(values: np.ndarray, digits: int) -> list[Any]:
    """Nested lists of rounded numbers, None where not finite."""
    rows = np.asarray(values, float).tolist()
    short = lambda v: round(v, digits) if digits else int(v)
    return [[short(v) if math.isfinite(v) else None for v in row] for row in rows]


def save(path: str | Path, **options: Any) -> Path:
    """Compute the table and write it to the run directory, so that a report can be built without the data."""
    target = Path(path) / FILE
    write_atomic(
        target,
        json.dumps(asdict(explore(path, **options)), separators=(",", ":"), allow_nan=False).encode(),
    )
    return target


def kept(path: Path) -> ExplorerTable | None:
    """The table in a run directory, if it is valid and of the newest checkpoint (or there is no checkpoint)."""
    try:
        table, there = jsons.read_as(ExplorerTable, path / FILE), directory.steps(path)
    except (OSError, UserError):
        return None
    return table if not there or there[-1] == table.step else None


def is_number(value: Any) -> bool:
    """Whether this is a number that can be drawn; a damaged file may hold anything."""
    return isinstance(value, int | float) and not isinstance(value, bool) and -1e15 < value < 1e15  # and not NaN

"""The distance table against policies whose distances are known, and one trained for a few steps."""

import base64
import io
import json
from dataclasses import asdict, replace
from types import SimpleNamespace

import numpy as np
import pytest

from dualgoal import jsons
from dualgoal.envs import ogbench, rendering
from dualgoal.envs.tasks import TASKS
from dualgoal.errors import UserError
from dualgoal.report import distances, page, paths, pictures
from dualgoal.runs.facts import Sizes
from run_files import FACTS, write_run
from tiny import tiny_run

MEDIUM = "pointmaze-medium-navigate-v0"


class Known:
    """A policy of the explorer's interface whose distance is any function of two rows."""

    def __init__(self, task, shape, distance, file=None):
        self.run, self.seed, self.step = SimpleNamespace(task=task, id="abc"), 0, 7
        dataset = replace(FACTS.dataset, file=str(file) if file else None)
        self.facts = replace(FACTS, sizes=Sizes(tuple(shape), 2, discrete=False), dataset=dataset)
        self._one = distance

    def distance(self, obs, goal):
        obs, goal = np.broadcast_arrays(obs, goal)
        return np.array([self._one(o, g) for o, g in zip(obs, goal, strict=True)])


def use(monkeypatch, policy):
    monkeypatch.setattr(policy.run, "has_policy", False, raising=False)  # no paths: it cannot act
    monkeypatch.setattr("dualgoal.runs.policy.load", lambda path, seed=None: policy)


def as_read(values):
    """A table from what a file holds."""
    return jsons.typed_file(json.loads(json.dumps(values, allow_nan=False)), distances.ExplorerTable, "distances.json")


def steps_between(maze, a, b):
    return float(maze.distances(maze.cell(b))[maze.cell(a)])


def test_a_maze_without_its_data_is_shown_on_a_grid_and_exact_distances_correlate(monkeypatch, tmp_path):
    maze = ogbench.maze(MEDIUM)
    use(monkeypatch, Known(MEDIUM, (2,), lambda o, g: 20 * steps_between(maze, o, g)))
    table = distances.explore(tmp_path, states=120, goals=8)
    assert as_read(asdict(table)) == table
    assert table.kind == "maze" and table.correlation == pytest.approx(1) and len(table.goals) == 8
    assert all(maze.free(maze.cell(point)) for point in table.points)
    assert len(table.walls) == int(maze.walls.sum()) and table.correlations == (1.0,) * 8
    assert table.profile[3] == (3.0, 60.0, 60.0, 60.0)
    g = table.goals[2]
    assert table.learned[2][g] == 0 and table.exact[2][g] == 0


def test_a_wrong_distance_does_not_correlate(monkeypatch, tmp_path):
    maze = ogbench.maze(MEDIUM)
    use(monkeypatch, Known(MEDIUM, (2,), lambda o, g: -steps_between(maze, o, g)))
    assert distances.explore(tmp_path, states=60, goals=5).correlation == pytest.approx(-1)


def test_manipulation_is_embedded_by_its_distances(monkeypatch, tmp_path):
    rng = np.random.default_rng(0)
    rows = 300
    ring = rng.uniform(0, 2 * np.pi, rows)
    observations = np.stack([np.cos(ring), np.sin(ring), *rng.normal(size=(26, rows))], axis=1).astype(np.float32)
    file = tmp_path / "cube-single-play-v0.npz"
    terminals = np.arange(rows) % 100 == 99
    np.savez_compressed(file, observations=observations, actions=np.zeros((rows, 5), np.float32), terminals=terminals)
    use(monkeypatch, Known("cube-single-play-v0", (28,), lambda o, g: float(np.linalg.norm(o[:2] - g[:2])), file))
    table = distances.explore(tmp_path, states=100, goals=20)
    assert table.kind == "embedding" and table.exact is None and table.correlation is None
    points = np.array(table.points)
    radius = np.linalg.norm(points, axis=1)
    assert radius.std() < 0.25 * radius.mean()  # a circle of states comes out as a circle


def test_without_data_manipulation_says_what_to_give(monkeypatch, tmp_path):
    use(monkeypatch, Known("cube-single-play-v0", (28,), lambda o, g: 0.0))
    with pytest.raises(UserError, match="give --data"):
        distances.explore(tmp_path)
    use(monkeypatch, Known("cube-single-play-v0", (28,), lambda o, g: 0.0, tmp_path / "moved.npz"))
    with pytest.raises(UserError, match=r"moved.npz: no such dataset; .*; give --data"):
        distances.explore(tmp_path)


def test_no_other_data_take_the_place_of_those_asked_for(monkeypatch, tmp_path, capsys):
    file, rows = tmp_path / f"{MEDIUM}.npz", {"observations": np.zeros((4, 2)), "actions": np.zeros((4, 2))}
    np.savez(file, **rows, terminals=np.arange(4) == 3)
    np.savez(tmp_path / "other.npz", **rows | {"observations": np.zeros((4, 3))}, terminals=np.arange(4) == 3)
    use(monkeypatch, Known(MEDIUM, (2,), lambda o, g: 1.0, file))
    run = write_run(tmp_path / "run", tiny_run(), [])  # not a dual one, of which other reasons are worth no line
    for data, why in (("other.npz", r"'observations' have shape \(3,\)"), ("nowhere", "nowhere")):
        with pytest.raises(distances.UnusableData, match=why):
            distances.explore(run, data=tmp_path / data)
    assert len(distances.explore(run, states=4, goals=2).points) == 4
    out = page.write_report([run], tmp_path / "r.html", data_path=tmp_path / "other.npz")
    said = capsys.readouterr().err.splitlines()
    assert any(line.startswith(f"left out of {out}: {run}: no distance explorer: other.npz: ") for line in said), said
    assert "no distance explorer: other.npz: " in out.read_text()


def test_infinite_distances_become_gaps(monkeypatch, tmp_path):
    use(monkeypatch, Known(MEDIUM, (2,), lambda o, g: np.inf if o[0] > 10 else 1.0))
    table = distances.explore(tmp_path, states=60, goals=4)
    assert any(None in row for row in table.learned)
    json.dumps(asdict(table), allow_nan=False)


def test_the_kept_table_serves_until_there_is_a_newer_checkpoint(monkeypatch, tmp_path):
    maze = ogbench.maze(MEDIUM)
    use(monkeypatch, Known(MEDIUM, (2,), lambda o, g: steps_between(maze, o, g)))
    distances.save(tmp_path, states=40, goals=3)
    assert distances.kept(tmp_path).step == 7
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "step-000000008.json").write_text("{}")
    assert distances.kept(tmp_path) is None


class Straight:
    """A policy that walks towards the goal in a straight line, whatever is in the way."""

    def __init__(self, task):
        self.run, self.facts = SimpleNamespace(task=task), SimpleNamespace(dataset=SimpleNamespace(maze=None))

    def act(self, obs, goal, draw):
        way = goal - obs
        return way / np.maximum(np.abs(way).max(axis=1, keepdims=True), 1e-6)


def test_paths_are_walked_in_the_simulator(monkeypatch):
    """Along a corridor the goal is reached in the steps that the distance takes; a wall is not walked through."""
    maze = ogbench.maze(MEDIUM)
    along, behind = (1, 1), next(c for c in maze.cells if c[0] == 1 < c[1] and maze.walls[1, c[1] - 1])
    start, near = np.array(maze.centre(along)), np.array(maze.centre((1, 2)))
    monkeypatch.setattr(paths, "STEPS", 60)
    (there,), (blocked,) = paths.walk(Straight(MEDIUM), start[None], np.stack([near, maze.centre(behind)]))
    steps = np.ceil((maze.unit - 1.0) / 0.2)  # 0.2 metres a step until one metre is left
    assert there[0] == pytest.approx(steps, abs=1) and len(there) == 5  # a straight line has two corners
    assert there[1:3] == pytest.approx(start, abs=0.1) and abs(there[3] - (near[0] - 1)) < 0.3
    assert blocked[0] == -60 and blocked[-2] < maze.centre(behind)[0] - maze.unit
    turned = np.array([[0, 0], [1, 0], [2, 0], [2, 1], [2, 2]])
    assert paths._corners(turned) == [0, 2, 4]


@pytest.mark.parametrize("spoil", [
    lambda t: t.update(starts=[0]),
    lambda t: t.update(starts=[0], paths=[[[5, 0.0]]]),
    lambda t: t.update(starts=[9], paths=[[[5, 0.0, 1.0]]]),
    lambda t: t.update(starts=[0], paths=[[[5, None, 1.0]]]),
    lambda t: t.pop("points"),
    lambda t: t.update(goals=[99999]),
    lambda t: t["learned"].pop(),
    lambda t: t["points"][0].append(3),
    lambda t: t.update(kind="<script>"),
    lambda t: t["learned"][0].__setitem__(0, "x"),
    lambda t: t.update(walls=[["x", 0, 1]]),
    lambda t: t.update(correlation="high"),
    lambda t: t.update(walls=5, profile=7),
    lambda t: t.update(sample=5),
    lambda t: t.update(format=2),
    lambda t: t.update(cell=None),
    lambda t: t.update(learned=[[0, 1e300]]),
    lambda t: t["pictures"].pop("jpeg"),
    lambda t: t["pictures"].update(states=[2]),
    lambda t: t["pictures"].update(columns=0),
    lambda t: t["pictures"].update(height=1e9),
    lambda t: t["pictures"].update(jpeg="/9j/);background:url(//host"),
    lambda t: t["pictures"].update(jpeg="PHN2Zz4="),
    lambda t: t["pictures"].update(jpeg=5),
])  # fmt: skip
def test_a_foreign_table_is_not_shown(spoil):
    table = {"format": 1, "run": "abc", "task": MEDIUM, "kind": "maze", "seed": 0, "step": 1, "exact": None,
             "points": [[0, 0], [1, 1]], "goals": [0], "learned": [[0, 1]], "walls": [[0, 0, 4]], "cell": 4.0,
             "pictures": vars(pictures.side_by_side(np.zeros((2, 8, 8, 3), np.uint8), np.arange(2)))}  # fmt: skip
    as_read(table)
    spoil(table)
    with pytest.raises(UserError):
        as_read(table)


def test_images_are_shown_by_their_distances_and_in_smaller_numbers(monkeypatch, tmp_path):
    task, rows = "visual-cube-single-play-v0", 200
    shade = np.linspace(0, 255, rows).astype(np.uint8)
    images = np.broadcast_to(shade[:, None, None, None], (rows, 64, 64, 3))
    file = tmp_path / f"{task}.npz"
    np.savez_compressed(
        file, observations=images, actions=np.zeros((rows, 5), np.float32), terminals=np.arange(rows) % 50 == 49
    )
    use(monkeypatch, Known(task, (64, 64, 3), lambda o, g: abs(float(o[0, 0, 0]) - float(g[0, 0, 0])), file))
    table = distances.explore(tmp_path)
    assert (len(table.points), len(table.goals), table.kind) == (160, 24, "embedding")
    # Shades lie on a line, so the first direction of the embedding orders them.
    along, step = np.array(table.points)[:, 0], np.array(table.learned)[:, table.goals[0]]
    assert np.ptp(along) > 0 and step[0] == 0
    seen = cut(table.pictures)
    assert len(seen) == 160 and seen[0].shape == (64, 64, 3)
    far = np.array(table.learned)[0, table.pictures.states]
    shades = np.abs(seen.mean(axis=(1, 2, 3)) - seen[0].mean())  # the first picture is the first goal's
    np.testing.assert_allclose(shades, far, atol=3)


def cut(found):
    """The pictures in a sheet, as a page cuts them."""
    from matplotlib.image import imread

    sheet = imread(io.BytesIO(base64.b64decode(found.jpeg)), format="jpeg")
    high, wide, columns = found.height, found.width, found.columns
    places = [divmod(slot, columns) for slot in range(len(found.states))]
    return np.stack([sheet[y * high : (y + 1) * high, x * wide : (x + 1) * wide] for y, x in places]).astype(float)


@pytest.mark.parametrize(
    ("task", "moved"),
    [("puzzle-3x3-play-v0", "button_states"), ("scene-play-v0", "button_states"), ("cube-single-play-v0", "qpos")],
)
def test_states_of_an_arm_are_drawn_from_the_simulator_s_states(monkeypatch, tmp_path, task, moved):
    """Rows that differ in the simulator alone give pictures that differ; without its states there are none."""
    if rendering.missing().keys() >= {"egl", "osmesa"}:
        pytest.skip("no headless rendering on this machine")
    env = ogbench.SeededEnv(task)
    env.reset(seed=0, task_id=1)
    rows = 6
    states = {"qpos": np.tile(env.raw.data.qpos, (rows, 1))}
    if moved == "button_states":
        states[moved] = np.tile(np.arange(rows)[:, None] % 2, (1, 9 if task.startswith("puzzle") else 2))
    else:
        states[moved][1::2, 14] += 0.1  # the cube, ten centimetres away from the robot
    env.close()
    file = tmp_path / f"{task}.npz"
    width = TASKS[task].observation_shape[0]
    rest = {"observations": np.arange(rows)[:, None] * np.ones(width), "actions": np.zeros((rows, 5))}
    np.savez(file, **rest, terminals=np.arange(rows) == rows - 1, **states)
    use(monkeypatch, Known(task, (width,), lambda o, g: abs(float(o[0] - g[0])), file))
    table = distances.explore(tmp_path, goals=2)
    assert table.pictures.states[:2] == table.goals
    seen, even = cut(table.pictures), np.array(table.pictures.states) % 2 == 0
    gap = lambda a, b: np.abs(a[:, None] - b[None]).mean(axis=(2, 3, 4))
    assert 3 * gap(seen[even], seen[even]).max() < gap(seen[even], seen[~even]).min()
    for wrong in ({}, {"qpos": states["qpos"][:, 1:]}, {"qpos": states["qpos"].astype(str)}):
        np.savez(file, **rest, terminals=np.arange(rows) == rows - 1, **wrong)
        assert distances.explore(tmp_path, goals=2).pictures is None


def test_a_page_is_made_where_a_renderer_does_not_start(monkeypatch, tmp_path):
    file = tmp_path / "x.npz"
    np.savez(file, qpos=np.zeros((4, 21)))

    def fails(*_):
        raise RuntimeError("no display")

    monkeypatch.setattr(pictures.registry, "draw", fails)
    assert pictures.of_scenes("cube-single-play-v0", file, np.arange(2)) is None
    assert pictures.of_scenes("cube-single-play-v0", tmp_path / "gone.npz", np.arange(2)) is None


@pytest.mark.parametrize(("shape", "becomes"), [
    ((64, 64, 3), (64, 64)), ((96, 200, 1), (32, 66)), ((300, 2, 4), (75, 1)), ((84, 84, 9), (84, 84)),
])  # fmt: skip
def test_pictures_of_images_of_any_shape_are_small_and_coloured(shape, becomes):
    images = np.random.default_rng(0).integers(0, 256, (5, *shape), dtype=np.uint8)
    small = pictures.of_images(images)
    assert pictures.of_images(images[:, :4, :2]).shape[1:3] == (48, 24), "a square for each pixel"
    assert small.shape == (5, *becomes, 3) and small.dtype == np.uint8
    if shape == (84, 84, 9):
        np.testing.assert_array_equal(small, images[..., 6:])  # the newest of three frames

"""Scripted behaviours that collect data, one per family of tasks, in OGBench's mazes and with its oracles (section 9).

A collector is built once per worker and called once per episode with that episode's random generator, which makes every
random choice: start, goals, action noise, and the oracles' plans. It returns the episode as a dict of arrays in the
official format, and counts of what happened (goals reached, plans finished) for the dataset's record.
"""

import bisect
import functools
import math
import types
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from dualgoal.collect import experts
from dualgoal.collect.experts import Expert
from dualgoal.envs import ogbench
from dualgoal.envs.mazes import Cell, Maze
from dualgoal.envs.own_maze import MazeMap
from dualgoal.envs.tasks import MANIPULATION, family, is_pixels
from dualgoal.envs.versions import Quality
from dualgoal.errors import UserError

Episode = dict[str, np.ndarray]
SIZES = {"cube": ("single", "double"), "antsoccer": ("arena",)}  # families of which only these are described
POINT_NOISE, WALK_NOISE = 0.5, 0.2  # standard deviation of the noise on every action coordinate


class Collector(Protocol):
    """Collects one episode of `rows` rows, and counts what happened in it."""

    def __call__(self, rng: np.random.Generator, rows: int) -> tuple[Episode, Counter[str]]: ...


def check(task: str, given: Mapping[str, Expert], own: MazeMap | None = None) -> None:
    """Raise if a task's data cannot be collected here; cheap, so that it can be asked before anything is written."""
    ogbench.check(task, own)
    if not task.endswith(("-navigate-v0", "-play-v0")):
        raise UserError(f"'{task}': only navigate and play datasets can be generated; fetch this one instead")
    sizes = SIZES.get(family(task))
    if sizes and not any(f"-{size}-" in task for size in sizes):
        there = " and ".join(sizes)
        raise UserError(f"'{task}': of this family only {there} can be generated; fetch this one instead")
    if missing := [skill.body for skill in experts.skills(family(task)) if skill.name not in given]:
        raise UserError(
            f"'{task}' needs a policy that walks ({', '.join(missing)}), and none comes with this version; make one "
            f"with 'dualgoal expert train {missing[0]}' and give it with --expert, or fetch the official files"
        )


def make(task: str, quality: Quality | None, given: Mapping[str, Expert], own: MazeMap | None = None) -> Collector:
    """The collector of a task's main dataset (navigate or play), in a maze of one's own if there is one."""
    check(task, given, own)
    if family(task) in MANIPULATION:
        return Play(task, ogbench.build(task, quality=quality, mode="data_collection", terminate_at_goal=False))
    env = ogbench.build(task, quality=quality, own=own, terminate_at_goal=False)
    maze = ogbench.maze(task) if own is None else own.maze()
    assert maze is not None
    if family(task) == "pointmaze":
        return NavigatePoint(maze, env)
    return Soccer(maze, env, given) if family(task) == "antsoccer" else Navigate(maze, env, given["walk"])


@dataclass
class Recorder:
    """The rows of one episode; `info` is what OGBench's step reports about the simulator before the action."""

    rows: int
    arrays: Episode = field(default_factory=dict)

    def add(
        self,
        at: int,
        observation: np.ndarray,
        action: np.ndarray,
        info: dict[str, Any],
        state: np.ndarray | None = None,
    ) -> None:
        """`state` is what an environment of images would observe without them; recorded beside images only."""
        row = {"observations": observation, "actions": action, "qpos": info["prev_qpos"], "qvel": info["prev_qvel"]}
        if "prev_button_states" in info:
            row["button_states"] = info["prev_button_states"]
        if state is not None and observation.dtype == np.uint8:
            row["states"] = state
        if not self.arrays:
            self.arrays = {key: np.empty((self.rows, *np.shape(v)), _dtype(key, v)) for key, v in row.items()}
        for key, value in row.items():
            self.arrays[key][at] = value

    def finish(self) -> Episode:
        terminals = np.zeros(self.rows, dtype=bool)
        terminals[-1] = True
        order = ("observations", "actions", "terminals", "qpos", "qvel", "button_states", "states")
        arrays = {**self.arrays, "terminals": terminals}
        return {key: arrays[key] for key in order if key in arrays}


def _dtype(key: str, value: np.ndarray) -> type:
    if key == "button_states":
        return np.int64
    return np.uint8 if key == "observations" and value.dtype == np.uint8 else np.float32


class NavigatePoint:
    """Point mazes: steer to the next cell's centre, with noise; a new goal as soon as one is reached."""

    def __init__(self, maze: Maze, env: Any):
        self.env, self.maze = env, maze
        self.cells, self.vertices = maze.cells, maze.vertices or maze.cells

    def __call__(self, rng: np.random.Generator, rows: int) -> tuple[Episode, Counter[str]]:
        env, counts = self.env, Counter[str]()
        goal = _start_maze(env, rng, self.cells, self.vertices)
        observation, (x, y) = env.get_ob(), env.get_xy()
        # All at once: drawing it step by step would add a tenth to the cost of a step.
        noise = rng.normal(0.0, POINT_NOISE, (rows, 2))
        out = Recorder(rows)
        for at in range(rows):
            dx, dy = _direction(self.maze, x, y, goal)
            action = np.array(
                (max(-1.0, min(1.0, dx + noise[at, 0])), max(-1.0, min(1.0, dy + noise[at, 1]))), np.float32
            )
            following, _, _, _, info = env.step(action)
            out.add(at, observation, action, info)
            observation, (x, y) = following, following.tolist()
            if info["success"]:
                counts["goals"] += 1
                goal = _new_goal(env, rng, self.vertices)
        return out.finish(), _successful(counts)


class Navigate:
    """Ant and humanoid mazes: the same route, walked by an expert policy that is given the direction."""

    def __init__(self, maze: Maze, env: Any, walk: Expert):
        self.env, self.walk, self.maze = env, walk, maze
        self.cells, self.vertices = maze.cells, maze.vertices or maze.cells

    def __call__(self, rng: np.random.Generator, rows: int) -> tuple[Episode, Counter[str]]:
        env, counts = self.env, Counter[str]()
        goal = _start_maze(env, rng, self.cells, self.vertices)
        observation, out = env.get_ob(), Recorder(rows)
        for at in range(rows):
            state = env.get_ob(ob_type="states")
            x, y = env.get_xy()
            heading = _direction(self.maze, x, y, goal)
            action = _noisy(self.walk(np.concatenate([state[2:], heading]).astype(np.float32)), rng)
            following, _, _, _, info = env.step(action)
            out.add(at, observation, action, info, state)
            observation = following
            if info["success"]:
                counts["goals"] += 1
                goal = _new_goal(env, rng, self.vertices)
        return out.finish(), _successful(counts)


def _successful(counts: Counter[str]) -> Counter[str]:
    """Also counts the episode if it reached a goal, so that a dataset's record says how many did."""
    counts["successful"] = int(counts["goals"] > 0)
    return counts


def _start_maze(env: Any, rng: np.random.Generator, cells: list[Cell], vertices: list[Cell]) -> Cell:
    ogbench.give_generator(env, rng)
    start, goal = _pick(rng, cells), _pick(rng, vertices)
    env.reset(options={"task_info": {"init_ij": start, "goal_ij": goal}})
    return goal


def _pick(rng: np.random.Generator, cells: list[Cell]) -> Cell:
    return cells[int(rng.integers(len(cells)))]


def _new_goal(env: Any, rng: np.random.Generator, cells: list[Cell]) -> Cell:
    goal = _pick(rng, cells)
    # By point, not by cell: OGBench's `set_goal(goal_ij=...)` writes NaN into the drawn target.
    env.set_goal(goal_xy=env.add_noise(env.ij_to_xy(goal)))
    return goal


def _direction(maze: Any, x: float, y: float, goal: Cell) -> tuple[float, float]:
    """Unit vector from a point to the centre of the next cell on the way to `goal` (of the goal cell when there)."""
    target = maze.centre(maze.next_cell(maze.cell((x, y)), goal))
    dx, dy = target[0] - x, target[1] - y
    length = math.hypot(dx, dy) + 1e-6
    return dx / length, dy / length


def _noisy(action: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    noise = rng.normal(0.0, WALK_NOISE, np.shape(action))
    return np.clip(np.asarray(action) + noise, -1.0, 1.0).astype(np.float32)


class Soccer:
    """Antsoccer: walk to the ball, dribble it to the goal, and walk away for a while when stuck."""

    NEAR_BALL, STUCK_STEPS, STUCK_RADIUS, REACHED, LOOKAHEAD = 2.0, 150, 2.0, 0.5, 10.0

    def __init__(self, maze: Maze, env: Any, given: Mapping[str, Expert]):
        self.env, self.walk, self.dribble = env, given["walk"], given["dribble"]
        self.maze, self.cells = maze, maze.cells

    def __call__(self, rng: np.random.Generator, rows: int) -> tuple[Episode, Counter[str]]:
        env, counts = self.env, Counter[str]()
        ogbench.give_generator(env, rng)
        agent, ball, goal = (self.cells[i] for i in rng.choice(len(self.cells), size=3, replace=False))
        env.reset(options={"task_info": {"agent_init_ij": agent, "ball_init_ij": ball, "goal_ij": goal}})
        observation, out = env.get_ob(), Recorder(rows)
        path, detour = np.empty((rows, 2)), None
        for at in range(rows):
            path[at] = env.get_agent_ball_xy()[0]
            detour = self._detour(path[: at + 1], detour, rng, counts)
            action = _noisy(self._act(observation, detour), rng)
            following, _, _, _, info = env.step(action)
            out.add(at, observation, action, info)
            observation = following
            if info["success"]:
                counts["goals"] += 1
                _new_goal(env, rng, self.cells)
        return out.finish(), _successful(counts)

    def _detour(
        self, path: np.ndarray, detour: np.ndarray | None, rng: np.random.Generator, counts: Counter[str]
    ) -> np.ndarray | None:
        """Where to walk instead of to the ball: begins when the last 150 positions are close together, ends there."""
        here = path[-1]
        if detour is not None:
            return None if np.linalg.norm(detour - here) <= self.REACHED else detour
        recent = path[-self.STUCK_STEPS :]
        if len(path) <= self.STUCK_STEPS or np.linalg.norm(recent - here, axis=1).max() > self.STUCK_RADIUS:
            return None
        counts["detours"] += 1
        return np.array(self.maze.centre(_pick(rng, self.cells)))

    def _act(self, ob: np.ndarray, detour: np.ndarray | None) -> np.ndarray:
        agent, ball = self.env.get_agent_ball_xy()
        if detour is not None or np.linalg.norm(ball - agent) > self.NEAR_BALL:
            towards = (ball if detour is None else detour) - agent
            heading = towards / (np.linalg.norm(towards) + 1e-6)
            return self.walk(np.concatenate([ob[2:15], ob[22:36], heading]).astype(np.float32))
        to_goal = np.asarray(self.env.cur_goal_xy) - ball
        far = np.linalg.norm(to_goal)
        if far > self.LOOKAHEAD:
            to_goal = to_goal / far * self.LOOKAHEAD
        return self.dribble(np.concatenate([ob[2:15], ob[17:42], ball - agent, to_goal]).astype(np.float32))


class Play:
    """Cube, scene and puzzle: a scripted plan for a random target, then another, until the episode is full."""

    def __init__(self, task: str, env: Any):
        self.env, self.task = env, task
        self.family = family(task)

    def __call__(self, rng: np.random.Generator, rows: int) -> tuple[Episode, Counter[str]]:
        rejected = 0
        while (result := self._attempt(rng, rows)) is None:
            rejected += 1
        episode, counts = result
        counts["rejected"] += rejected
        return episode, counts

    def _attempt(self, rng: np.random.Generator, rows: int) -> tuple[Episode, Counter[str]] | None:
        env, counts, out = self.env, Counter[str](), Recorder(rows)
        ogbench.give_generator(env, rng)
        observation, info = env.reset()
        stack = float(rng.uniform(0.0, 0.25)) if "double" in self.task else 0.0
        oracles = self._oracles(rng)
        kind, oracle = _next_plan(oracles, observation, info)
        for at in range(rows):
            action = oracle.select_action(observation, info).astype(np.float32)
            state = ogbench.state_of(env) if is_pixels(self.task) else None
            following, _, _, _, info = env.step(action)
            if not self._healthy(info):
                return None
            out.add(at, observation, action, info, state)
            observation = following
            if oracle.done:
                counts[f"plans/{kind}"] += 1
                counts[f"reached/{kind}"] += int(info["success"])
                env.set_new_target(return_info=False, p_stack=stack)  # asking for info would render once more
                kind, oracle = _next_plan(oracles, observation, env.get_reset_info())
        return out.finish(), counts

    def _healthy(self, info: dict[str, Any]) -> bool:
        """Scene only: False once the cube has slipped behind or beside the drawer, which spoils the episode."""
        if self.family != "scene":
            return True
        _, y, z = info["privileged/block_0_pos"]
        return bool(y < 0.29 and (y > -0.3 or 0.06 <= z <= 0.08))

    def _oracles(self, rng: np.random.Generator) -> dict[str, Any]:
        # Imported here: at the top of the file they would come before `envs.ogbench`, which chooses the renderer.
        from ogbench.manipspace.oracles.plan.button_plan import ButtonPlanOracle
        from ogbench.manipspace.oracles.plan.cube_plan import CubePlanOracle
        from ogbench.manipspace.oracles.plan.drawer_plan import DrawerPlanOracle
        from ogbench.manipspace.oracles.plan.window_plan import WindowPlanOracle

        kinds: dict[str, Callable[..., Any]] = {"cube": CubePlanOracle}
        if self.family == "puzzle":
            kinds = {"button": functools.partial(ButtonPlanOracle, gripper_always_closed=True)}
        if self.family == "scene":
            kinds |= {"button": ButtonPlanOracle, "drawer": DrawerPlanOracle, "window": WindowPlanOracle}
        return {kind: own_generator(maker(env=self.env, noise=0.1), rng) for kind, maker in kinds.items()}


def _next_plan(oracles: dict[str, Any], observation: np.ndarray, info: dict[str, Any]) -> tuple[str, Any]:
    kind = str(info["privileged/target_task"])
    oracles[kind].reset(observation, info)
    return kind, oracles[kind]


def own_generator(oracle: Any, rng: np.random.Generator) -> Any:
    """Make a plan oracle draw from `rng` instead of NumPy's global generator.

    Its planning methods are rebuilt, for this instance only, with globals in which `np.random` is `rng` (and
    interpolation is ours). Neither NumPy nor OGBench's modules are changed, so any number of oracles can alternate.
    """
    numpy = types.ModuleType("numpy")
    numpy.__dict__.update(vars(np), random=rng)
    for name in ("reset", "compute_keyframes", "compute_plan"):
        method = getattr(type(oracle), name)
        scope = {**method.__globals__, "np": numpy, "interp1d": _linear}
        rebuilt = types.FunctionType(method.__code__, scope, name, method.__defaults__, method.__closure__)
        setattr(oracle, name, types.MethodType(rebuilt, oracle))
    return oracle


def _linear(times: list[float], values: Any, **_: Any) -> Callable[[float], np.ndarray]:
    """Linear interpolation, asked for at every step of a plan, where SciPy's overhead is 2 % of all collecting time."""
    knots, points = list(times), np.asarray(values, dtype=np.float64)
    slopes = (np.diff(points, axis=0).T / np.diff(knots)).T

    def at(t: float) -> np.ndarray:
        k = min(bisect.bisect_right(knots, t), len(knots) - 1) - 1
        return points[k] + slopes[k] * (t - knots[k])

    return at

"""OGBench environments in which (task, seed) fixes start, goal and everything after (section 7 of the method).

OGBench's own `reset(seed=...)` does not: mazes draw from NumPy's global generator, and manipulation goals take random
steps from a new, unseeded action space. Here each environment has one generator for everything random, and no global
state is touched, not even by construction (`gymnasium.make` draws from the global generator, so it is not used).
"""

import atexit
import contextlib
import functools
import importlib
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dualgoal import imports
from dualgoal.envs import rendering, tasks
from dualgoal.envs.mazes import Maze
from dualgoal.envs.own_maze import MazeMap
from dualgoal.envs.task_env import TaskEnv
from dualgoal.envs.versions import QUICK, Quality
from dualgoal.errors import UserError, unknown

rendering.choose()  # before MuJoCo and dm_control are imported, which read the choice only once

import gymnasium  # noqa: E402
import numpy as np  # noqa: E402

try:
    import mujoco
    import ogbench.locomaze
    import ogbench.manipspace  # noqa: F401
except ImportError as problem:
    raise imports.missing("a task of OGBench", problem.name or "ogbench", "ogbench") from problem

from dualgoal.envs import meshes  # noqa: E402  # it imports MuJoCo


def names() -> list[str]:
    """Every task this package can build, by the name of its main dataset."""
    found = []
    for env_id in gymnasium.registry:
        words = env_id.split("-")
        if "singletask" in words or "teleport" in words or not env_id.endswith("-v0"):
            continue  # single tasks have no goals; teleports draw from the global generator inside `step`
        if tasks.family(env_id) in tasks.MAZES + tasks.MANIPULATION:
            found.append(f"{env_id.removesuffix('v0')}{_main_kind(env_id)}-v0")
    return found


def _main_kind(task: str) -> str:
    return "navigate" if tasks.family(task) in tasks.MAZES else "play"


def exists(task: str) -> bool:
    """Whether OGBench has the environment of a task, whichever kind of dataset it names."""
    words = tasks.plain(task).split("-")
    main = "-".join([*words[:-2], _main_kind(task), words[-1]])
    if tasks.is_oracle(task) and tasks.is_pixels(task):
        return False
    return len(words) > 2 and words[-2] in tasks.DATASET_KINDS and main in names()


def _spec(task: str) -> Any:
    check_name(task)
    words = tasks.plain(task).split("-")
    return gymnasium.spec("-".join([*words[:-2], words[-1]]))


def check_name(task: str, own: MazeMap | None = None) -> None:
    """Raise if there is no such task, or if it cannot be the name of a maze of one's own."""
    if own is None and not exists(task):
        raise unknown("task", task, names())
    if own is not None and (exists(task) or not tasks.may_be_own(task)):
        raise UserError(
            f"'{task}' cannot be the name of your own maze; it begins with pointmaze, antmaze or humanoidmaze, ends in "
            "-navigate-v0 and is not OGBench's, for instance pointmaze-mine-navigate-v0"
        )


def check(task: str, own: MazeMap | None = None) -> None:
    """Raise if a task does not exist or needs rendering that this machine cannot do."""
    check_name(task, own)
    if tasks.is_pixels(task):
        rendering.require(f"'{task}'")


def build(task: str, *, quality: Quality | None = None, own: MazeMap | None = None, **options: Any) -> Any:
    """The bare OGBench environment of a task. It is not seeded before `give_generator` has been called."""
    check(task, own)
    spec = _spec(task if own is None else tasks.template(task))
    module, name = spec.entry_point.split(":")
    maker = getattr(importlib.import_module(module), name)
    options = {**spec.kwargs, **options} | ({"use_oracle_rep": True} if tasks.is_oracle(task) else {})
    if tasks.family(task) in tasks.MAZES:
        env = maker(**options) if own is None else _own_maze(tasks.template(task))(own, **options)
        _tidy_maze(env, quality or Quality())
    else:
        env = _seedable(maker)(**options)
        env.quality = quality or Quality()
    return env


def _tidy_maze(env: Any, quality: Quality) -> None:
    """Remove the model file that every maze leaves in the temporary folder, and draw with this quality (a maze has no
    meshes, so that is the shadows)."""
    with contextlib.suppress(OSError):
        Path(env.fullpath).unlink()
    env.model.vis.quality.shadowsize = quality.shadow_size
    if env.custom_renderer is not None:
        env.custom_renderer.close()
        env.custom_renderer = None  # made anew, with the new size, at the next image
    make_renderer = env.initialize_renderer

    def initialize_renderer() -> None:
        make_renderer()
        _close_at_exit(env)

    env.initialize_renderer = initialize_renderer


@functools.cache
def _own_maze(base: str) -> Any:
    """A class of maze environments that takes its map and its tasks from a `MazeMap`."""

    class OwnMaze(type(build(base))):  # type: ignore[misc]  # OGBench makes its class inside of a function
        def __init__(self, own: MazeMap, loco_env_type: str, maze_env_type: str, **options: Any):
            self._own = own
            super().__init__(**options)

        def update_tree(self, tree: Any) -> None:
            self.maze_map = self._own.maze().walls.astype(int)
            super().update_tree(tree)

        def set_tasks(self) -> None:
            self.task_infos = [
                {
                    "task_name": f"task{number}",
                    "init_ij": ends[:2], "init_xy": self.ij_to_xy(ends[:2]),
                    "goal_ij": ends[2:], "goal_xy": self.ij_to_xy(ends[2:]),
                }
                for number, ends in enumerate(self._own.tasks, 1)
            ]  # fmt: skip

    return OwnMaze


@functools.cache
def _seedable(base: type) -> type:
    """A manipulation environment that keeps one action space (the original makes an unseeded one at each access) and
    draws images with a quality of its own."""

    class Seedable(base):
        quality = Quality()

        @functools.cached_property
        def action_space(self):
            return gymnasium.spaces.Box(-1.0, 1.0, (5,), np.float32)

        def _initialize_renderer(self):
            self._model.vis.quality.shadowsize = self.quality.shadow_size
            cell = self.quality.mesh_cell
            with meshes.coarse(self._model, cell) if cell else contextlib.nullcontext():
                super()._initialize_renderer()
            _close_at_exit(self)

    Seedable.__name__ = f"Seedable{base.__name__}"
    return Seedable


def give_generator(env: Any, rng: np.random.Generator) -> None:
    """Send every random draw of an environment through `rng`: resets, start and goal noise, random settling actions."""
    env.np_random = rng
    env.action_space.seed(int(rng.integers(2**31)))
    if hasattr(env, "maze_map"):
        reach = env._noise * env._maze_unit / 4

        def add_noise(xy):
            return xy[0] + rng.uniform(-reach, reach), xy[1] + rng.uniform(-reach, reach)

        env.add_noise = add_noise


def state_of(env: Any) -> np.ndarray:
    """What a manipulation environment of images would observe now if it were one of states."""
    kind, env._ob_type = env._ob_type, "states"
    try:
        return env.compute_observation()
    finally:
        env._ob_type = kind


def draw(task: str, states: Mapping[str, np.ndarray], side: int) -> np.ndarray:
    """The scenes of states of the simulator, (N, side, side, 3), as the task of images shows them."""
    visual = f"visual-{tasks.plain(task).removeprefix('visual-')}"
    env = build(visual, quality=QUICK, width=side, height=side)
    try:
        give_generator(env, np.random.default_rng(0))
        env.reset(options={"task_id": 1})
        buttons = getattr(env, "_num_buttons", 0)
        takes = {"qpos": env.model.nq} | ({"button_states": buttons} if buttons else {})
        for name, size in takes.items():
            if name not in states or states[name].shape[1:] != (size,) or states[name].dtype.kind not in "bfiu":
                raise UserError(f"'{task}' is drawn from '{name}' with {size} numbers per row")
        drawn = []
        for row in zip(*(states[name] for name in takes), strict=True):
            env.set_state(row[0].astype(float), np.zeros(env.model.nv), *row[1:])
            drawn.append(env.compute_observation())
        return np.stack(drawn)
    finally:
        _close_renderer(env)


_with_renderer: weakref.WeakSet = weakref.WeakSet()


def _close_at_exit(env: Any) -> None:
    """EGL contexts must be closed before EGL is, or every exit prints tracebacks. MuJoCo closes EGL in an exit handler
    that it registers with the first context, so ours, which runs before those registered earlier, comes after that."""
    if not _with_renderer:
        atexit.register(_close_all)
    _with_renderer.add(env)


def _close_all() -> None:
    for env in list(_with_renderer):
        _close_renderer(env)


def _close_renderer(env: Any) -> None:
    for name in ("custom_renderer", "_renderer"):
        renderer = getattr(env, name, None)
        if isinstance(renderer, mujoco.Renderer):
            renderer.close()
            setattr(env, name, None)


class SeededEnv(TaskEnv):
    """One task's environment. `reset(seed, task_id)` fixes the whole episode given the actions."""

    def __init__(self, task: str, *, quality: Quality | None = None, own: MazeMap | None = None):
        self.task = task
        self.raw = build(task, quality=quality, own=own)
        self.max_steps: int = _spec(task if own is None else tasks.template(task)).max_episode_steps
        self.num_tasks: int = self.raw.num_tasks
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, self.raw.action_space.shape, np.float32)
        self.action_dim: int = self.raw.action_space.shape[0]
        self.pixels = tasks.is_pixels(task)
        self._steps = 0
        self._shape: tuple[int, ...] | None = tasks.IMAGE_SHAPE if self.pixels else None

    @property
    def observation_shape(self) -> tuple[int, ...]:
        if self._shape is None:
            self._shape = self.reset(0, 1)[0].shape
        return self._shape

    @functools.cached_property
    def observation_space(self) -> gymnasium.spaces.Box:  # type: ignore[override]
        low, high, kind = (0, 255, np.uint8) if self.pixels else (-np.inf, np.inf, np.float32)
        return gymnasium.spaces.Box(low, high, self.observation_shape, kind)

    def start(self, seed: int, task_id: int | None, options: dict[str, Any]) -> tuple[np.ndarray, dict[str, Any]]:
        """Start evaluation task 1..num_tasks (drawn from the seed if None); `info["goal"]` is the goal observation."""
        rng = np.random.default_rng(seed)
        task_id = self.draw_task(rng, task_id)
        give_generator(self.raw, rng)
        if render_goal := options.get("render_goal", False):
            rendering.require(f"a picture of '{self.task}'")
        self._steps = 0
        obs, info = self.raw.reset(options={"task_id": task_id, "render_goal": render_goal})
        return self._cast(obs), {**info, "goal": self._cast(info["goal"]), "task_id": task_id}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        obs, reward, terminated, _, info = self.raw.step(np.asarray(action))
        self._steps += 1
        info["success"] = bool(info["success"])
        return self._cast(obs), float(reward), bool(terminated), self._steps >= self.max_steps, info

    def render(self) -> np.ndarray:
        """The scene as it is now, (H, W, 3) uint8."""
        rendering.require(f"a picture of '{self.task}'")
        return self.raw.render()

    def close(self) -> None:
        _close_renderer(self.raw)

    def _cast(self, obs: np.ndarray) -> np.ndarray:
        return obs if self.pixels else np.asarray(obs, dtype=np.float32)


@functools.cache
def maze(task: str) -> Maze | None:
    """The map behind a maze task, or None for manipulation. Read from OGBench, where the maps live."""
    kwargs = _spec(task).kwargs
    if tasks.family(task) not in tasks.MAZES:
        return None
    env = build(f"pointmaze-{kwargs['maze_type']}-navigate-v0") if kwargs["maze_type"] != "arena" else build(task)
    walls = np.asarray(env.maze_map) == 1
    walls.setflags(write=False)
    return Maze(walls, unit=float(env._maze_unit), offset=float(env._offset_x))

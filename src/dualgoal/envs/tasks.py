"""The twenty tasks of the paper as data: the sizes and facts of each (section 6.2 of the method).

What a task's name says, its family and whether its observations are images, is read here and nowhere else. The paper's
hyperparameters for a task are in `paper/settings.py`.
"""

from dataclasses import dataclass, replace

from dualgoal import errors

MAZES = ("pointmaze", "antmaze", "humanoidmaze", "antsoccer")
OWN_MAZES = ("pointmaze", "antmaze", "humanoidmaze")  # whose maps can be replaced
MANIPULATION = ("cube", "scene", "puzzle")
LIGHTSOUT = "lightsout"
DATASET_KINDS = ("navigate", "stitch", "explore", "play", "noisy")
IMAGE_SHAPE = (64, 64, 3)
_WALKERS = ("antmaze", "humanoidmaze", "antsoccer")
_IMAGE_PREFIX = "visual-"
_ORACLE = "-oraclerep-v0"


def family(task: str) -> str:
    """The kind of environment that a task's name begins with: pointmaze, antmaze, ..., puzzle, lightsout."""
    return task.removeprefix(_IMAGE_PREFIX).split("-")[0]


def is_oracle(task: str) -> bool:
    """Whether goals are OGBench's oracle representations (`...-oraclerep-v0`): only what a task asks for, such as the
    position in a maze or those of the cubes, instead of a whole observation."""
    return task.endswith(_ORACLE)


def plain(task: str) -> str:
    """The same task with whole observations as goals, whose data both have."""
    return f"{task.removesuffix(_ORACLE)}-v0" if is_oracle(task) else task


def is_ogbench(task: str) -> bool:
    """Whether a task's name is of the form of OGBench's; `envs.ogbench` knows whether there is such a task."""
    words = plain(task).split("-")
    return family(task) in MAZES + MANIPULATION and len(words) > 2 and words[-2] in DATASET_KINDS


def is_pixels(task: str) -> bool:
    """Whether a task's observations are images."""
    return task.startswith(_IMAGE_PREFIX)


def may_be_own(task: str) -> bool:
    """Whether a maze of one's own may have this name: FAMILY-NAME-navigate-v0."""
    return family(task) in OWN_MAZES and task.endswith("-navigate-v0") and len(task.split("-")) > 3


def template(task: str) -> str:
    """The task from which a maze of one's own has everything but its map."""
    return f"{_IMAGE_PREFIX if is_pixels(task) else ''}{family(task)}-medium-navigate-v0"


@dataclass(frozen=True)
class Task:
    """One OGBench task of the paper: sizes of its observations, actions, episodes and released dataset."""

    name: str
    observation_shape: tuple[int, ...]
    action_dim: int
    max_steps: int  # step limit of an evaluation episode
    episodes: int = 1000  # training episodes in the released dataset; the validation file has a tenth
    rows_per_episode: int = 1001

    @property
    def family(self) -> str:
        return family(self.name)

    @property
    def pixels(self) -> bool:
        return is_pixels(self.name)

    @property
    def needs_expert(self) -> bool:
        """Whether data cannot be generated without a trained locomotion policy."""
        return self.family in _WALKERS


TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        Task("pointmaze-medium-navigate-v0", (2,), 2, 1000),
        Task("pointmaze-large-navigate-v0", (2,), 2, 1000),
        Task("antmaze-medium-navigate-v0", (29,), 8, 1000),
        Task("antmaze-large-navigate-v0", (29,), 8, 1000),
        Task("antmaze-giant-navigate-v0", (29,), 8, 1000, episodes=500, rows_per_episode=2001),
        Task("humanoidmaze-medium-navigate-v0", (69,), 21, 2000, rows_per_episode=2001),
        Task("humanoidmaze-large-navigate-v0", (69,), 21, 2000, rows_per_episode=2001),
        Task("antsoccer-arena-navigate-v0", (42,), 8, 1000),
        Task("cube-single-play-v0", (28,), 5, 200),
        Task("cube-double-play-v0", (37,), 5, 500),
        Task("scene-play-v0", (40,), 5, 750),
        Task("puzzle-3x3-play-v0", (55,), 5, 500),
        Task("puzzle-4x4-play-v0", (83,), 5, 500),
        Task("visual-antmaze-medium-navigate-v0", IMAGE_SHAPE, 8, 1000),
        Task("visual-antmaze-large-navigate-v0", IMAGE_SHAPE, 8, 1000),
        Task("visual-cube-single-play-v0", IMAGE_SHAPE, 5, 200),
        Task("visual-cube-double-play-v0", IMAGE_SHAPE, 5, 500),
        Task("visual-scene-play-v0", IMAGE_SHAPE, 5, 750),
        Task("visual-puzzle-3x3-play-v0", IMAGE_SHAPE, 5, 500),
        Task("visual-puzzle-4x4-play-v0", IMAGE_SHAPE, 5, 500),
    )
}

STATE_TASKS: tuple[str, ...] = tuple(name for name, task in TASKS.items() if not task.pixels)
ORACLE_TASKS: tuple[str, ...] = tuple(name.replace("-v0", _ORACLE) for name in STATE_TASKS)
PIXEL_TASKS: tuple[str, ...] = tuple(name for name, task in TASKS.items() if task.pixels)


def get(name: str) -> Task:
    """The task of that name, or a one-line error with the nearest known one."""
    if name in ORACLE_TASKS:
        return replace(TASKS[plain(name)], name=name)
    if name not in TASKS:
        raise errors.unknown("task", name, [*TASKS, *ORACLE_TASKS] if is_oracle(name) else TASKS)
    return TASKS[name]

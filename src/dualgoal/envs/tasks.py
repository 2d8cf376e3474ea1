"""The twenty tasks of the paper as data: section 6.2 of the method, one line per task, defaults by family.

What differs between tasks (discount, representation size, expectile, coefficients, sizes of observations and data) is
here and nowhere else; `presets.py` turns a line into the configuration of a run.
"""

from dataclasses import dataclass

from dualgoal import errors


@dataclass(frozen=True)
class Task:
    """One OGBench task with everything the paper's tables set per environment."""

    name: str
    family: str  # pointmaze, antmaze, humanoidmaze, antsoccer, cube, scene or puzzle
    discount: float
    dim: int  # N, the representation size
    expectile: float  # of the dual representation: 0.9 on navigate data, 0.7 on play data
    beta: float  # weight of VIB's information penalty
    alpha_crl: float  # behavioural-cloning weight of CRL's actor (the paper runs CRL on states only)
    alpha_gciql: float  # the same for GCIQL's actor (OGBench's setting; GCIQL is not in the paper's tables)
    observation_shape: tuple[int, ...]
    action_dim: int
    max_steps: int  # step limit of an evaluation episode
    episodes: int  # training episodes in the released dataset; the validation file has a tenth
    rows_per_episode: int
    pixels: bool
    needs_expert: bool  # data cannot be regenerated without a trained locomotion expert


# family: (alpha_crl, alpha_gciql, needs_expert)
_FAMILIES = {
    "pointmaze": (0.03, 0.003, False),
    "antmaze": (0.1, 0.3, True),
    "humanoidmaze": (0.1, 0.1, True),
    "antsoccer": (0.3, 0.1, True),
    "cube": (3.0, 1.0, False),
    "scene": (3.0, 1.0, False),
    "puzzle": (3.0, 1.0, False),
}


def _task(
    name: str,
    obs: int,
    act: int,
    max_steps: int,
    *,
    discount: float = 0.99,
    dim: int = 256,
    beta: float = 0.001,
    episodes: int = 1000,
    rows: int = 1001,
) -> Task:
    pixels = name.startswith("visual-")
    family = name.removeprefix("visual-").split("-")[0]
    alpha_crl, alpha_gciql, needs_expert = _FAMILIES[family]
    return Task(
        name=name,
        family=family,
        discount=discount,
        dim=dim,
        expectile=0.9 if "-navigate-" in name else 0.7,
        beta=beta,
        alpha_crl=alpha_crl,
        alpha_gciql=alpha_gciql,
        observation_shape=(64, 64, 3) if pixels else (obs,),
        action_dim=act,
        max_steps=max_steps,
        episodes=episodes,
        rows_per_episode=rows,
        pixels=pixels,
        needs_expert=needs_expert,
    )


PIXELS = 64  # stands in the observation column of the visual tasks; their observations are 64 x 64 x 3 images

TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        _task("pointmaze-medium-navigate-v0", 2, 2, 1000, dim=64, beta=0.003),
        _task("pointmaze-large-navigate-v0", 2, 2, 1000, dim=64, beta=0.003),
        _task("antmaze-medium-navigate-v0", 29, 8, 1000),
        _task("antmaze-large-navigate-v0", 29, 8, 1000, beta=0.003),
        _task("antmaze-giant-navigate-v0", 29, 8, 1000, discount=0.995, episodes=500, rows=2001),
        _task("humanoidmaze-medium-navigate-v0", 69, 21, 2000, discount=0.995, rows=2001),
        _task("humanoidmaze-large-navigate-v0", 69, 21, 2000, discount=0.995, rows=2001),
        _task("antsoccer-arena-navigate-v0", 42, 8, 1000),
        _task("cube-single-play-v0", 28, 5, 200),
        _task("cube-double-play-v0", 37, 5, 500),
        _task("scene-play-v0", 40, 5, 750),
        _task("puzzle-3x3-play-v0", 55, 5, 500),
        _task("puzzle-4x4-play-v0", 83, 5, 500),
        _task("visual-antmaze-medium-navigate-v0", PIXELS, 8, 1000),
        _task("visual-antmaze-large-navigate-v0", PIXELS, 8, 1000, beta=0.003),
        _task("visual-cube-single-play-v0", PIXELS, 5, 200),
        _task("visual-cube-double-play-v0", PIXELS, 5, 500),
        _task("visual-scene-play-v0", PIXELS, 5, 750),
        _task("visual-puzzle-3x3-play-v0", PIXELS, 5, 500),
        _task("visual-puzzle-4x4-play-v0", PIXELS, 5, 500),
    )
}

STATE_TASKS: tuple[str, ...] = tuple(name for name, task in TASKS.items() if not task.pixels)
PIXEL_TASKS: tuple[str, ...] = tuple(name for name, task in TASKS.items() if task.pixels)


def get(name: str) -> Task:
    """The task of that name, or a one-line error with the nearest known one."""
    if name not in TASKS:
        raise errors.unknown("task", name, TASKS)
    return TASKS[name]

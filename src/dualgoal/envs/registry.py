"""Environments by the name of their task: the one place that knows which module makes which."""

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from dualgoal.envs import own_maze, tasks
from dualgoal.envs.mazes import Maze
from dualgoal.envs.own_maze import MazeMap
from dualgoal.envs.task_env import TaskEnv
from dualgoal.envs.versions import Mismatch, Quality, mismatches


def make(
    task: str,
    *,
    quality: Quality | None = None,
    made_with: Mapping[str, Any] | None = None,
    own: MazeMap | None = None,
) -> TaskEnv:
    """The evaluation environment of a task. `quality` is how it draws images (None: as in the released datasets),
    `own` the map of a maze of one's own.

    Given a dataset's provenance as `made_with`, it has that dataset's maze, renders images as that dataset's were
    rendered, and warns about other versions of the simulators.
    """
    if tasks.family(task) == tasks.LIGHTSOUT:  # it has no simulator, so there is nothing to compare
        from dualgoal.envs.lightsout import SeededLightsOut

        return SeededLightsOut(task)
    from dualgoal.envs.ogbench import SeededEnv

    if made_with is not None:
        for line in mismatches(made_with, quality):
            warnings.warn(line, Mismatch, stacklevel=2)
        quality = quality or Quality.recorded(made_with)
        own = own or own_maze.recorded(made_with)
    return SeededEnv(task, quality=quality, own=own)


def maze(task: str | None, own: MazeMap | None) -> Maze | None:
    """The cells of a maze of one's own, else those of a task's; None where there is no maze."""
    if own is not None:
        return own.maze()
    if task is None or tasks.family(task) not in tasks.MAZES or not exists(task):
        return None
    from dualgoal.envs import ogbench

    return ogbench.maze(task)


def draw(task: str, states: Mapping[str, np.ndarray], side: int) -> np.ndarray:
    """The scenes of recorded states of an arm's task, (N, side, side, 3), as its task of images shows them. `states`
    has arrays of the simulator, by the names that datasets give them."""
    from dualgoal.envs import ogbench

    return ogbench.draw(task, states, side)


def exists(task: str) -> bool:
    """Whether there is an environment for a task."""
    if tasks.family(task) == tasks.LIGHTSOUT:
        from dualgoal.envs import lightsout

        return lightsout.exists(task)
    if not tasks.is_ogbench(task):
        return False
    from dualgoal.envs import ogbench

    return ogbench.exists(task)

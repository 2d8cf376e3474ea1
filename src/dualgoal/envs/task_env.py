"""What every evaluation environment here is: a Gymnasium environment with numbered tasks."""

import abc
from typing import Any

import gymnasium
import numpy as np

from dualgoal.errors import UserError


class TaskEnv(gymnasium.Env[np.ndarray, Any], abc.ABC):
    """An environment in which (seed, task_id) fixes an episode, given the actions. `info["goal"]` after a reset is the
    goal, `info["success"]` after a step says whether it is reached.

    A task can be given by name, `reset(seed=0, task_id=1)`, or as Gymnasium's wrappers pass it on,
    `reset(seed=0, options={"task_id": 1})`; without one it is drawn from the seed.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}
    render_mode = "rgb_array"
    task: str
    max_steps: int
    num_tasks: int
    action_dim: int

    def reset(
        self, seed: int | None = None, task_id: int | None = None, *, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        rest = dict(options or {})
        task_id = rest.pop("task_id", task_id)
        super().reset(seed=seed)  # what follows this episode is then a function of the seed, too
        seed = int(self.np_random.integers(2**31)) if seed is None else seed
        if task_id is not None and not 1 <= task_id <= self.num_tasks:
            raise UserError(f"{self.task}: task id {task_id} does not exist; it has tasks 1 to {self.num_tasks}")
        return self.start(seed, task_id, rest)

    @abc.abstractmethod
    def start(self, seed: int, task_id: int | None, options: dict[str, Any]) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin the episode that (seed, task_id) fixes. `options` is what else a reset was given; with "render_goal" an
        environment that can draws the goal, too."""

    @abc.abstractmethod
    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]: ...

    def draw_task(self, rng: np.random.Generator, task_id: int | None) -> int:
        """The task, drawn if none was given."""
        return int(rng.integers(1, self.num_tasks + 1)) if task_id is None else task_id

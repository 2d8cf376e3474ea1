"""dualgoal: offline goal-conditioned reinforcement learning with dual goal representations."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dualgoal.runs.policy import Policy

__version__ = "0.1.0"
__all__ = ["__version__", "load"]


def load(run: "str | Path", seed: int | None = None, step: int | None = None) -> "Policy":
    """The policy of a run directory: `act(obs, goal)`, `encode(goal)`, `distance(obs, goal)`, `rollout(env, task)`.

    `seed` is a training seed (default: the run's first), `step` a checkpoint (default: the newest that is intact).
    """
    from dualgoal.runs import policy

    return policy.load(run, seed, step)

"""dualgoal: offline goal-conditioned reinforcement learning with dual goal representations.

The method is from *Dual Goal Representations* by Seohong Park, Deepinder Mann and Sergey Levine (ICLR 2026,
arXiv 2510.06714). The names below are the public interface; they are imported when they are first used, so that
`import dualgoal` takes no time and does not start JAX.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dualgoal.agent import Agent
    from dualgoal.algos import ALGOS
    from dualgoal.api import TrainedRun, train
    from dualgoal.data.dataset import Dataset
    from dualgoal.errors import UserError
    from dualgoal.interface import Algorithm, Representation
    from dualgoal.paper.settings import preset
    from dualgoal.reps import REPS
    from dualgoal.runs.config import Run
    from dualgoal.runs.evaluation import evaluate
    from dualgoal.runs.policy import Policy, load

__version__ = "0.1.0"
__all__ = [
    "ALGOS", "REPS", "Agent", "Algorithm", "Dataset", "Policy", "Representation", "Run", "TrainedRun", "UserError",
    "__version__", "evaluate", "load", "preset", "train",
]  # fmt: skip

_HOMES = {
    "preset": "paper.settings", "train": "api", "TrainedRun": "api", "evaluate": "runs.evaluation",
    "load": "runs.policy", "Run": "runs.config", "Policy": "runs.policy", "Dataset": "data.dataset", "Agent": "agent",
    "Representation": "interface", "Algorithm": "interface", "REPS": "reps", "ALGOS": "algos", "UserError": "errors",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOMES:  # a module, which is imported when it is first used: dualgoal.data.dataset
        return import_module("dualgoal.imports").modules_of("dualgoal")(name)
    return getattr(import_module(f"dualgoal.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)

"""How the runs of a family of tasks are configured, trained and described: the one place that tells families apart.

The paper's tasks are OGBench datasets, with one exception: Lights Out has settings of its own, makes its own data and
is evaluated on the device. Tables, runs and pages look their family up here and treat all families alike.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dualgoal.envs import tasks
from dualgoal.paper import lightsout, settings
from dualgoal.runs.config import Run


@dataclass(frozen=True)
class Family:
    """What differs between families of tasks."""

    configure: Callable[..., Run]  # (task, representation, algorithm, **options) of a cell of a table
    train: Callable[..., Any]  # (run, run directory, *, data_path, workers, quiet, wait, background): trains or resumes
    table_task: Callable[[str], str]  # the row of a table to which a run's task belongs
    paper_data: str  # what the paper trained on
    simulator: bool  # MuJoCo is involved, and its version matters


def _train(run: Run, out: Path, **options: Any) -> None:
    from dualgoal.runs import training  # here, because it needs JAX

    training.train(run, out, **options)


def _train_lights_out(
    run: Run, out: Path, *, data_path: Any, workers: Any, background: Any = None, **options: Any
) -> None:
    """The data are made and the policy is evaluated in this process, so the three named options are ignored."""
    lightsout.train(run, out, **options)


def _board(task: str) -> str:
    """lightsout-4x5-ideal is a view of the board of lightsout-4x5."""
    return "-".join(task.split("-")[:2])


OGBENCH = Family(settings.preset, _train, lambda task: task, "official files", simulator=True)
OTHERS = {
    tasks.LIGHTSOUT: Family(lightsout.configure, _train_lights_out, _board, "random walks of its own", simulator=False)
}


def of_task(task: str) -> Family:
    return OTHERS.get(tasks.family(task), OGBENCH)

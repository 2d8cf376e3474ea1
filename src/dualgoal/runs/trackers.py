"""Optional trackers in addition to the JSONL files, which are always written: TensorBoard and Weights & Biases.

Both work without an account: W&B writes offline unless WANDB_MODE says otherwise.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dualgoal import imports
from dualgoal.errors import require_known
from dualgoal.files import require_no_link
from dualgoal.runs import config

TRACKERS = {"tensorboard": "tensorboardX", "wandb": "wandb"}  # and the packages that they need


class TensorBoard:
    def __init__(self, folder: Path, step: int):
        tensorboard = _package("tensorboard")
        self._writer: Any = tensorboard.SummaryWriter(logdir=str(folder / "tensorboard"), purge_step=step)

    def log(self, step: int, values: dict[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()


class WandB:
    def __init__(self, folder: Path, run: config.Run):
        wandb = _package("wandb")
        mode: Any = os.environ.get("WANDB_MODE", "offline")
        self._run: Any = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "dualgoal"), name="/".join((run.task, *run.names)), dir=str(folder),
            mode=mode, config=config.to_dict(run), id=run.id, resume="allow",
            settings=wandb.Settings(silent=True, console="off"),
        )  # fmt: skip

    def log(self, step: int, values: dict[str, float]) -> None:
        # Evaluations arrive after later losses; W&B drops rows whose own step goes back, so the step is a value.
        self._run.log({"step": step, **values})

    def close(self) -> None:
        self._run.finish()


Tracker = TensorBoard | WandB


def require(names: Iterable[str]) -> None:
    """Raise if there is no tracker of one of these names, or if its package is not installed."""
    for name in names:
        require_known("tracker", name, TRACKERS)
        _package(name)


def _package(name: str) -> Any:
    return imports.optional(TRACKERS[name], "track", f"--track {name}")


def open_trackers(names: tuple[str, ...], folder: Path, run: config.Run, step: int) -> list[Tracker]:
    """The trackers of these names, writing below the run directory from `step` on."""
    for name in names:
        require_no_link(folder / name)
    return [TensorBoard(folder, step) if n == "tensorboard" else WandB(folder, run) for n in dict.fromkeys(names)]

"""What `dualgoal bench` measures, without the libraries that measuring needs."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from dualgoal.errors import UserError
from dualgoal.machine import PrecisionOption
from dualgoal.options import WIDEST, Limit, Range, Sizes, check_options, is_size

SizesOrNone = Annotated[
    tuple[int, ...], Limit(f"whole numbers from 1 to {WIDEST:,}", lambda sizes: all(map(is_size, sizes)))
]


@dataclass(frozen=True)
class Options:
    """Every combination of the lists is measured."""

    task: str = "cube-single-play-v0"
    """Task whose sizes of observations, actions and data are used. The numbers themselves are random."""
    reps: tuple[str, ...] = ("dual",)
    """Representations."""
    algos: tuple[str, ...] = ("gcivl",)
    """Algorithms."""
    seeds: Sizes = (1,)
    """Numbers of seeds that train at the same time."""
    precisions: tuple[PrecisionOption, ...] = ("auto",)
    """Precisions of matrix products."""
    batches: Annotated[SizesOrNone, arg(help_behavior_hint="(default: that of the task)")] = ()
    """Batch sizes."""
    widths: Sizes = (512,)
    """Widths of the hidden layers."""
    seconds: Annotated[float, Range(0, 86_400)] = 2.0
    """Time spent on each measurement, roughly."""
    baseline: bool = True
    """Also time the loop that samples on the host and calls one compiled update per step."""
    parts: bool = True
    """Also time sampling, forward pass, backward pass, and optimiser with target networks."""
    json: bool = False
    """Print JSON."""
    trace: Annotated[Path | None, arg(metavar="PATH", help_behavior_hint="(default: none)")] = None
    """Write a profile of the first combination into this folder, for TensorBoard or Perfetto."""

    def __post_init__(self) -> None:
        check_options(self)
        if not (self.reps and self.algos and self.precisions):
            raise UserError("nothing to measure: each of --reps, --algos, --precisions needs a value")

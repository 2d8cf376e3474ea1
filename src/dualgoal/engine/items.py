"""What an engine carries out, what it asks of a machine, and how one run is carried out there."""

import functools
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from dualgoal.errors import Busy, UserError
from dualgoal.runs import directory, memory, owner
from dualgoal.runs.background import Background

ATTEMPTS = 5  # how often a run may lose its machine without a new checkpoint before it is given up
MEMORY = 0.9  # of a GPU, shared between the runs on it; the rest is for libraries

Say = Callable[[str], None]
Problem = str | None  # why a run could not be done, in one line


class Elsewhere(str):
    """The line about a run that is left to another process, which is training it: no failure."""


@dataclass(frozen=True)
class Item:
    """A run to be done. `call(workers)` trains or resumes it into `out`; it must be picklable, as others execute it.
    `call(workers, background)` leaves evaluations after the last step to `background`."""

    name: str
    out: Path
    call: Callable[..., None]


@dataclass(frozen=True)
class Placement:
    """What one run asks of a machine."""

    gpus: float | None = None  # fewer than 1: that share of one GPU's memory. None: one, if there are any
    cpus: int | None = None  # cores for training and evaluation. None: an even share of the machine
    slurm: tuple[str, ...] = ()  # further options of sbatch, as NAME=VALUE

    def __post_init__(self) -> None:
        if self.gpus is not None and (self.gpus < 0 or (self.gpus > 1 and self.gpus != int(self.gpus))):
            raise UserError(f"--gpus is {self.gpus:g}; expected a whole number, or a fraction below 1")
        if self.cpus is not None and self.cpus < 1:
            raise UserError(f"--cpus is {self.cpus}; expected at least 1")


class Engine(Protocol):
    def execute(self, items: Sequence[Item], say: Say) -> Iterator[tuple[Item, Problem]]:
        """Do every run and yield each as it ends, with its problem if it has one; `say` gets a line per event."""
        ...


def perform(item: Item, workers: int | None, gpus: float = 0.0) -> Problem:
    """Do one run in this process."""
    if 0 < gpus < 1:  # JAX would take most of the GPU; it reads this when it first touches the device
        os.environ[memory.FRACTION] = f"{MEMORY * gpus:.3f}"
    return problem_of(item, lambda: item.call(workers), gpus)


def problem_of(item: Item, do: Callable[[], None], gpus: float = 0.0) -> Problem:
    """Do something for a run; what a user can do something about is noted in its directory."""
    try:
        do()
        return None
    except Busy as problem:
        return Elsewhere(problem.brief)
    except UserError as problem:
        line = str(problem)
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and "RESOURCE_EXHAUSTED" not in str(error):
            raise
        share = f" in {gpus:g} of a GPU; give it more with --gpus" if 0 < gpus < 1 else ""
        line = f"not enough memory for this run{share}, or take fewer seeds"
    owner.note_failure(item.out, line)
    return line


class Patience:
    """Decides whether a run that has lost its machine is started again."""

    def __init__(self) -> None:
        self._saved: dict[str, int] = {}
        self._losses: dict[str, int] = {}

    def again(self, item: Item) -> bool:
        """Yes, unless it has been lost several times since its last checkpoint."""
        saved = max(directory.steps(item.out), default=0)
        if saved > self._saved.get(item.name, -1):
            self._losses[item.name] = 0
        self._saved[item.name] = saved
        self._losses[item.name] += 1
        return self._losses[item.name] < ATTEMPTS


class Here:
    """One run after the other, in this process. The last evaluations of a run go on while the next one trains."""

    def __init__(self, workers: int | None):
        self._workers = workers

    def execute(self, items: Sequence[Item], say: Say) -> Iterator[tuple[Item, Problem]]:
        # Perhaps not evaluated yet: at most two, and one while another trains.
        trained: list[tuple[Item, Background]] = []

        def first() -> tuple[Item, Problem]:
            item, background = trained.pop(0)
            return item, problem_of(item, background.wait)

        try:
            for item in items:
                say(f"{item.name}: {'resuming' if item.out.exists() else 'starting'} {item.out}")
                background = Background()
                problem = problem_of(item, functools.partial(item.call, self._workers, background))
                if problem is None:
                    trained.append((item, background))
                else:
                    yield item, problem
                while len(trained) > 1:
                    yield first()
            while trained:
                yield first()
        finally:
            for _, background in trained:
                background.stop()

"""What a filled table holds: our numbers next to the paper's, with intervals and aggregates. `comparison.py` fills it,
and `formats.py` turns it into text."""

from dataclasses import dataclass

from dualgoal.paper.stats import Interval
from dualgoal.paper.tables import Number

NOISY = "_noisy"  # ending of the names of columns with noisy goals


@dataclass(frozen=True)
class Measured:
    """What we measured for one cell, or for the average of several."""

    mean: float
    std: float
    interval: Interval | None
    scores: tuple[float, ...]  # one per seed
    seeds: int
    steps: int
    episodes: int
    source: str
    curve_mean: float | None = None  # mean over all evaluations of the learning curve, not only the last three
    planned: int | None = None  # steps that the run was to take; more than `steps` if it was not finished
    # For an average row: (max steps, max seeds) over its cells; `steps` and `seeds` hold the minima.
    largest: tuple[int, int] | None = None

    @property
    def finished(self) -> bool:
        """Whether the last planned evaluation is there."""
        return self.planned is None or self.steps >= self.planned


@dataclass(frozen=True)
class Cell:
    """One entry of a table: what we measured, what the paper prints, and how they compare."""

    measured: Measured | None
    paper: Number | None
    highlight: bool = False
    paper_highlight: bool = False
    paper_in_interval: bool | None = None  # None without an interval of a finished run or a number of the paper's


@dataclass(frozen=True)
class Line:
    """A row of a table: a task, or the average of several."""

    name: str
    cells: dict[str, Cell]
    unequal_steps: bool = False  # the measured cells were trained for different numbers of steps: no highlights

    def measured(self) -> dict[str, Measured]:
        """The cells that were run."""
        return {name: cell.measured for name, cell in self.cells.items() if cell.measured}

    def finished(self) -> dict[str, Measured]:
        """The cells that were run to their end, which alone are compared with each other."""
        return {name: cell for name, cell in self.measured().items() if cell.finished}


@dataclass(frozen=True)
class Aggregate:
    """A column over all tasks that every measured column has."""

    mean: float
    mean_interval: Interval | None
    iqm: float
    iqm_interval: Interval | None


@dataclass(frozen=True)
class Improvement:
    """The probability that a seed of Dual beats a seed of another column on the same task."""

    probability: float
    interval: Interval | None
    tasks: int


@dataclass(frozen=True)
class Difference:
    """How far one column is above another on one task, with two 95 % intervals over seeds."""

    task: str
    columns: tuple[str, str]
    mean: float
    bootstrap: Interval | None
    welch: Interval | None
    seeds: tuple[int, int]
    steps: int


@dataclass(frozen=True)
class FilledTable:
    """A table of the paper with our numbers in it."""

    name: str
    label: str
    title: str
    headings: dict[str, str]
    lines: list[Line]
    average: Line | None
    average_tasks: int
    aggregates: dict[str, Aggregate]
    improvement: dict[str, Improvement]  # of Dual over each other column
    differences: list[Difference]  # between columns whose contrast the table is about, where both were run
    settings: list[str]

    def has_measurements(self) -> bool:
        return any(line.measured() for line in self.lines)

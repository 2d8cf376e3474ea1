"""Rows from elsewhere: numbers that others published, or measured with other code, next to ours.

A file is one method from one source, with the protocol behind its numbers; docs/reproduce.md describes its fields. It
is checked when it is read. Where its protocol differs from that of our rows, the table marks the number and says how.
"""

import dataclasses
import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from dualgoal import errors, jsons, texts
from dualgoal.envs.tasks import is_pixels
from dualgoal.errors import UserError
from dualgoal.paper import tables

FOLDER = "elsewhere"  # in the results folder
FORMAT = 1
AVERAGE = "average"
TASKS = tuple(dict.fromkeys(task for table in tables.TABLES.values() for task in table.tasks))


@dataclass(frozen=True)
class Source:
    """Where the numbers were read."""

    citation: str
    url: str | None = None
    quoted: bool = False  # read in the text or code of somebody else, not in the authors' own


@dataclass(frozen=True)
class Protocol:
    """How the numbers were made. A field that its source does not state is None."""

    # What the policy reads of a goal: the whole goal state, a part of it such as a position, or a picture.
    goals: Literal["state", "oracle", "image"]
    tasks: Literal["goal-conditioned", "single-task"] = "goal-conditioned"  # one policy for all goals, or one for each
    tuned: Literal["one setting", "per family", "per task"] | None = None
    data: str | None = None  # "official" for OGBench's own files
    steps: int | None = None
    seeds: int | None = None
    episodes: int | None = None  # per evaluation goal
    note: str | None = None  # any other difference, in words


@dataclass(frozen=True)
class Row:
    """A number for one task, in percent; what is given here overrides the protocol of the file."""

    task: str
    mean: float
    std: float | None = None
    goals: tuple[float, ...] = ()  # success by evaluation goal
    steps: int | None = None
    seeds: int | None = None
    quoted: bool = False


@dataclass(frozen=True)
class Method:
    """One file."""

    format: int
    method: str
    source: Source
    protocol: Protocol
    rows: tuple[Row, ...]
    file: str = ""


def load(path: Path) -> Method:
    """Read and check one file; an error is one line that names the file and the field."""
    cure = "see docs/reproduce.md"
    found = jsons.read_as(Method, Path(path), cure, follow=True, make=jsons.strictly)
    if found.format != FORMAT:
        raise UserError(f"{path}: format is {found.format}; this version reads {FORMAT}")
    for number, row in enumerate(found.rows, 1):
        _check(row, f"{path}: row {number}")
    if len({row.task for row in found.rows}) < len(found.rows):
        raise UserError(f"{path}: two rows for one task; give every setting a file of its own")
    return dataclasses.replace(found, file=Path(path).name)


def _check(row: Row, where: str) -> None:
    if row.task not in TASKS:
        raise UserError(f"{where}: {errors.unknown('task', row.task, TASKS)}")
    for name, values in (("mean", [row.mean]), ("goals", row.goals), ("std", [] if row.std is None else [row.std])):
        if not all(0 <= value <= 100 for value in values):
            raise UserError(f"{where}: {name} is not in percent, from 0 to 100")
    if row.goals and abs(float(np.mean(row.goals)) - row.mean) > 1:
        raise UserError(f"{where}: mean is {row.mean:g}, but its goals average {np.mean(row.goals):.1f}")


def load_all(folder: Path, say: Callable[[str], None] = print) -> list[Method]:
    """Every file of a results folder, in the order of their names; an unreadable one is reported and left out."""
    return jsons.readable(sorted((Path(folder) / FOLDER).glob("*.json")), load, say)


# Differences from our protocol ----------------------------------------------------------------------------------------

FULL = {False: 1_000_000, True: 500_000}  # steps of a full row with states and with images, here and in the paper


def differences(method: Method, row: Row) -> list[str]:
    """How a number was made in another way than a full row of ours, in words."""
    protocol, words = method.protocol, []
    if protocol.goals == "oracle":
        words.append("the policy is told a part of the goal state, such as a position: not comparable")
    if protocol.tasks == "single-task":
        words.append("a policy for each goal: not comparable")
    if protocol.tuned == "per task":
        words.append("tuned for each dataset")
    if protocol.tuned == "one setting":
        words.append("one setting for all tasks")
    if protocol.note:
        words.append(protocol.note)
    steps = row.steps or protocol.steps
    if steps is not None and steps != FULL[is_pixels(row.task)]:
        words.append(f"trained for {steps:,} steps")
    if method.source.quoted or row.quoted:
        words.append("not read in the authors' own table")
    return words


def average(method: Method) -> float | None:
    """The mean over the paper's state tasks; None for a method that lacks one of them."""
    means = {row.task: row.mean for row in method.rows}
    found = [means[task] for task in tables.STATE_TASKS if task in means]
    return float(np.mean(found)) if len(found) == len(tables.STATE_TASKS) else None


def markdown(methods: Sequence[Method], ours: Mapping[str, Mapping[str, str]]) -> str:
    """Tasks by methods: first our columns (heading: task: text), then theirs, with a letter per difference. The average
    over the paper's state tasks is shown for methods that have all of them; in our columns it is the task AVERAGE."""
    letters: dict[str, str] = {}  # by difference: a to z, then aa, bb, ...
    letter = lambda n: string.ascii_lowercase[n % 26] * (1 + n // 26)
    cells: dict[str, dict[str, str]] = {task: {} for task in TASKS}
    for method in methods:
        for row in method.rows:
            marks = [letters.setdefault(d, letter(len(letters))) for d in differences(method, row)]
            text = f"{row.mean:g}" + (f"±{row.std:g}" if row.std is not None else "")
            cells[row.task][method.method] = text + (f" ({', '.join(sorted(marks))})" if marks else "")
    row_of = lambda task, theirs: [
        *(column.get(task, "") for column in ours.values()),
        *(theirs.get(method.method, "") for method in methods),
    ]
    rows = [["task", *ours, *(method.method for method in methods)]]
    rows += [[task, *row_of(task, cells[task])] for task in TASKS if cells[task]]
    if averages := {m.method: f"{mean:.0f}" for m in methods if (mean := average(m)) is not None}:
        rows.append([f"average of {len(tables.STATE_TASKS)} state tasks", *row_of(AVERAGE, averages)])
    table = texts.markdown(rows, right=range(1, len(rows[0])))
    legend = [f"- ({letter}) {words}" for words, letter in letters.items()]
    return "\n".join([*table, "", *legend, "", *_sources(methods), ""])


def _sources(methods: Iterable[Method]) -> list[str]:
    """A line per source, which may have several methods."""
    said: dict[str, list[Method]] = {}
    for method in methods:
        link = f" ([source]({method.source.url}))" if method.source.url else ""
        said.setdefault(f"{method.source.citation}{link}", []).append(method)
    names = lambda found: ", ".join(method.method for method in found)
    files = lambda found: ", ".join(f"`results/{FOLDER}/{method.file}`" for method in found)
    return [f"- {names(found)}: {words}, {files(found)}" for words, found in said.items()]

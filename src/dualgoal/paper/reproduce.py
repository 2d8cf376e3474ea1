"""Reproduce a table of the paper: a plan of runs that comes with the package, and the table that they fill."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dualgoal.engine.items import Say
from dualgoal.files import write_atomic
from dualgoal.paper import comparison, figures, formats, jobs, tables
from dualgoal.paper.jobs import Job, Means


@dataclass(frozen=True)
class Outcome:
    """The filled table, the files that were written, and which runs failed or were left out, and why."""

    filled: comparison.FilledTable
    files: list[Path]
    problems: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The table, what is missing from it, and where it was written."""
        missing = [f"left out: {problem}" for problem in self.problems]
        return "\n".join([formats.text(self.filled), *missing, *(f"written: {file}" for file in self.files)])

    @property
    def json(self) -> str:
        """The same as JSON."""
        return json.dumps(self.filled.to_dict() | {"problems": self.problems}, indent=1, allow_nan=False)


def plan(table: str, *, out: str | Path = "runs", **part: Any) -> list[Job]:
    """The runs of a table and how far each is; `part` is that of `tables.expand`."""
    return jobs.locate(tables.expand(table, **part), Path(out))


def carry_out(
    table: str, *, out: str | Path = "runs", means: Means | None = None, say: Say = print, **part: Any
) -> Outcome:
    """Do every run of a table (or of a part of it) and write the table as text, JSON and LaTeX to OUT/tables.

    A run that fails (for lack of data, say) is reported and the others continue. `part` is that of `plan`.
    """
    found = plan(table, out=out, **part)
    return write_table(table, found, Path(out), jobs.carry_out(found, Path(out), means or Means(), say))


def write_table(table: str, planned: Sequence[Job], out: Path, problems: Sequence[str] = ()) -> Outcome:
    """Write a table and its picture from whatever rows its runs have; unreadable runs become problems."""
    found, left_out = jobs.records(planned)
    filled = comparison.fill_table(table, found, tasks=[job.planned.task for job in planned])
    folder = out / "tables"
    folder.mkdir(parents=True, exist_ok=True)
    outcome = Outcome(filled, [], [*problems, *left_out])
    forms = {"txt": formats.text(filled), "tex": formats.latex(filled), "json": outcome.json + "\n"}
    for suffix, content in forms.items():
        write_atomic(folder / f"{table}.{suffix}", content.encode())
        outcome.files.append(folder / f"{table}.{suffix}")
    outcome.files.extend(figures.draw(filled, found, folder / table))
    return outcome

"""Reproduce a table of the paper: a plan of runs that comes with the package, and the table that they fill."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from dualgoal.engine.items import Say
from dualgoal.paper import comparison, figures, formats, jobs, tables
from dualgoal.paper.jobs import Execution, Job, Outcome, Undone


def plan(table: str, *, out: str | Path = "runs", data: str | Path | None = None, **part: Any) -> list[Job]:
    """The runs of a table and how far each is; `part` is that of `tables.expand`."""
    return jobs.locate(tables.expand(table, **part), Path(out), data)


def carry_out(
    table: str, *, out: str | Path = "runs", execution: Execution | None = None, say: Say = print, **part: Any
) -> Outcome:
    """Do every run of a table (or of a part of it) and write the table as text, JSON and LaTeX to OUT/tables.

    A run that fails (for lack of data, say) is reported and the others continue. `part` is that of `plan`.
    """
    execution = execution or Execution()
    found = plan(table, out=out, data=execution.data, **part)
    return write_table(table, found, Path(out), jobs.carry_out(found, Path(out), execution, say))


def write_table(table: str, planned: Sequence[Job], out: Path, undone: Undone = jobs.ALL_DONE) -> Outcome:
    """Write a table and its picture from whatever rows its runs have; unreadable runs become problems."""
    found, left_out = jobs.records(planned)
    filled = comparison.fill_table(table, found, tasks=[job.planned.task for job in planned])
    stem, undone = out / "tables" / table, replace(undone, failed=[*undone.failed, *left_out])
    made = jobs.write_outcome(stem, formats.text(filled), asdict(filled), undone, formats.latex(filled))
    return replace(made, files=(*made.files, *figures.draw(filled, found, stem)))

"""Reproduce a table of the paper: skip finished runs, resume unfinished ones, train the rest, then write the table.

Two tables that need the same run find the same directory, and a run with more seeds than asked for is used as well.
Evaluations with noisy goals need no training: their rows go to a file of their own in the directory of the run.
"""

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dualgoal.errors import UserError
from dualgoal.files import write_atomic
from dualgoal.jsons import Journal
from dualgoal.paper import comparison, families, figures, formats, row_files, tables
from dualgoal.paper.tables import PlannedRun
from dualgoal.runs import config, directory, rows
from dualgoal.runs.rows import LAST, EvalRow

Train = Callable[..., Any]


@dataclass(frozen=True)
class Job:
    """A planned run, its directory, and how far it is: new, unfinished or finished."""

    planned: PlannedRun
    out: Path
    status: str

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return self.planned.to_dict() | {"out": str(self.out), "status": self.status}


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


def plan(
    table: str,
    *,
    out: str | Path = "runs",
    tasks: Collection[str] | None = None,
    reps: Collection[str] | None = None,
    seeds: Sequence[int] | None = None,
    steps: int | None = None,
    **overrides: Any,
) -> list[Job]:
    """The runs of a table and how far each is."""
    runs = tables.expand(table, tasks=tasks, reps=reps, seeds=seeds, steps=steps, **overrides)
    return [_job(planned, Path(out)) for planned in runs]


def _job(planned: PlannedRun, root: Path) -> Job:
    own = directory.default_folder(config.from_dict(planned.config), root)
    others = [path for path in sorted(own.parent.glob("*")) if path != own]
    for path in [own, *others]:
        if can_fill(path, planned):
            return Job(planned, path, "finished" if is_finished(path, planned) else "unfinished")
    return Job(planned, own, "unfinished" if own.exists() else "new")


def can_fill(path: Path, planned: PlannedRun) -> bool:
    """Whether a run directory holds the planned configuration, with at least its seeds."""
    try:
        run = directory.read_run(path)
    except UserError:
        return False
    wanted = config.from_dict(planned.config)
    return set(wanted.seeds) <= set(run.seeds) and not config.differences(replace(run, seeds=wanted.seeds), wanted)


def is_finished(path: Path, planned: PlannedRun) -> bool:
    """Whether the last evaluation is complete for every seed and, where asked for, the noisy ones."""
    try:
        missing = directory.missing_evaluations(path, [planned.config["steps"]], planned.seeds)
        return not missing and not (planned.noise and _steps_without_noise(path, planned))
    except UserError:
        return False  # resuming the run says what is wrong with it


def _noisy_evaluations(path: Path) -> list[EvalRow]:
    return rows.read_rows(path / directory.NOISY_EVALUATIONS)


def _steps_without_noise(path: Path, planned: PlannedRun) -> list[int]:
    """Steps whose evaluation counts and has not been repeated with noise for every seed."""
    clean = rows.scores(directory.evaluations(path), seeds=planned.seeds).counted()[-LAST:]
    noisy = [row for row in _noisy_evaluations(path) if row.goal_noise == planned.noise]
    goals = directory.read(path).facts.goals or 0
    return rows.missing(noisy, steps=clean, seeds=planned.seeds, goals=goals)


def read_record(path: Path, planned: PlannedRun) -> row_files.Record | None:
    """The rows of a run directory so far, as the record of a planned run; None if it holds another run or none."""
    if not can_fill(path, planned):
        return None
    found = [*directory.evaluations(path), *_noisy_evaluations(path)]
    return row_files.of_run(planned, directory.read_config(path), found, str(path))


def plan_text(jobs: Sequence[dict[str, Any]]) -> str:
    """A dry run as text: one line per run, then how many there are."""
    size = lambda job: f"{len(job['seeds'])} seeds x {job['steps']:>9,} steps"
    lines = [f"{j['task']:<34} {j['column']:<19} {size(j)}  {j['status']:<10} {j['out']}" for j in jobs]
    return "\n".join([*lines, f"{len(jobs)} runs, {sum(len(j['seeds']) for j in jobs)} counting every seed"])


def dry_run(table: str, **part: Any) -> list[dict[str, Any]]:
    """One element per run with its full configuration: what `reproduce TABLE --dry-run --json` prints."""
    return [job.to_dict() for job in plan(table, **part)]


def reproduce_table(
    table: str,
    *,
    out: str | Path = "runs",
    data: str | Path | None = None,
    tasks: Collection[str] | None = None,
    reps: Collection[str] | None = None,
    seeds: Sequence[int] | None = None,
    steps: int | None = None,
    workers: int | None = None,
    quiet: bool = False,
    say: Callable[[str], None] = print,
    train: Train | None = None,
    **overrides: Any,
) -> Outcome:
    """Do every run of a table (or of a part of it) and write the table as text, JSON and LaTeX to OUT/tables.

    A run that fails (for lack of data, say) is reported and the others continue. `train` replaces training in tests.
    """
    jobs = plan(table, out=out, tasks=tasks, reps=reps, seeds=seeds, steps=steps, **overrides)
    problems = []
    for number, job in enumerate(jobs, 1):
        where = f"[{number}/{len(jobs)}] {job.planned.task} {job.planned.column}"
        if job.status == "finished":
            say(f"{where}: finished, in {job.out}")
            continue
        say(f"{where}: {'resuming' if job.status == 'unfinished' else 'starting'} {job.out}")
        try:
            _do(job, data, workers, quiet, train)
        except UserError as error:
            problems.append(f"{job.planned.name}: {error}")
            say(f"{where}: not run: {error}")
    return write_table(table, jobs, Path(out), problems)


def _do(job: Job, data: str | Path | None, workers: int | None, quiet: bool, train: Train | None) -> None:
    """Train or resume one run, with the seeds it already has, and repeat its evaluations with noise if asked for."""
    planned = job.planned
    run = directory.read_run(job.out) if can_fill(job.out, planned) else config.from_dict(planned.config)
    train = train or families.of_task(planned.task).train
    train(run, job.out, data_path=data, workers=workers, quiet=quiet)
    if planned.noise:
        _evaluate_noisy(job, workers)


def _evaluate_noisy(job: Job, workers: int | None) -> None:
    from dualgoal.runs import evaluation

    journal = Journal(job.out / directory.NOISY_EVALUATIONS, EvalRow.from_json, EvalRow.to_json)
    try:
        for step in _steps_without_noise(job.out, job.planned):
            noise, seeds = job.planned.noise, job.planned.seeds
            journal.append(evaluation.evaluate(job.out, step=step, goal_noise=noise, seeds=seeds, workers=workers))
            journal.sync()
    finally:
        journal.close()


def write_table(table: str, jobs: Sequence[Job], out: Path, problems: Sequence[str] = ()) -> Outcome:
    """Write a table and its picture from whatever rows its runs have; unreadable runs become problems."""
    found, left_out = _records(jobs)
    filled = comparison.fill_table(table, found, tasks=[job.planned.task for job in jobs])
    folder = out / "tables"
    folder.mkdir(parents=True, exist_ok=True)
    outcome = Outcome(filled, [], [*problems, *left_out])
    forms = {"txt": formats.text(filled), "tex": formats.latex(filled), "json": outcome.json + "\n"}
    for suffix, content in forms.items():
        write_atomic(folder / f"{table}.{suffix}", content.encode())
        outcome.files.append(folder / f"{table}.{suffix}")
    outcome.files.extend(figures.draw(filled, found, folder / table))
    return outcome


def _records(jobs: Sequence[Job]) -> tuple[list[row_files.Record], list[str]]:
    """The records of the runs that can be read, and why the others cannot."""
    found, problems = [], []
    for job in jobs:
        try:
            found.append(read_record(job.out, job.planned))
        except UserError as error:
            problems.append(f"{job.planned.name}: {error}")
    return [record for record in found if record], problems

"""A table of the paper as runs: what is finished is skipped, what is not is resumed, then the table is written.

Runs lie at OUT/TASK/REP-ALGO-ID, so that two tables which need the same run find the same directory, and a run with
more seeds than asked for serves as well. Noisy goals only evaluate again: their rows go to noise.jsonl in the run.
"""

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dualgoal.errors import UserError
from dualgoal.files import write_atomic
from dualgoal.paper import figures, formats, row_files, tables
from dualgoal.paper import filled as compare
from dualgoal.paper.tables import Cell
from dualgoal.runs import config, directory
from dualgoal.runs import rows as row_reader
from dualgoal.runs.rows import LAST, EvalRow

NOISE_ROWS = directory.NOISY_EVALUATIONS
Train = Callable[..., Any]


@dataclass(frozen=True)
class Job:
    """A cell of a table, where its run lies, and how far it is: new, unfinished or finished."""

    cell: Cell
    out: Path
    status: str

    def to_dict(self) -> dict[str, Any]:
        return self.cell.to_dict() | {"out": str(self.out), "status": self.status}


@dataclass(frozen=True)
class Outcome:
    """What `reproduce` leaves: the filled table, the files it wrote, and what could not be run."""

    filled: compare.Filled
    files: list[Path]
    problems: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The table for people, what could not be run, and where it was written."""
        missing = [f"not run: {problem}" for problem in self.problems]
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
    cells = tables.expand(table, tasks=tasks, reps=reps, seeds=seeds, steps=steps, **overrides)
    return [_job(cell, Path(out)) for cell in cells]


def _job(cell: Cell, root: Path) -> Job:
    own = directory.default_folder(config.from_dict(cell.config), root)
    others = [path for path in sorted(own.parent.glob("*")) if path != own]
    for path in [own, *others]:
        if serves(path, cell):
            return Job(cell, path, "finished" if finished(path, cell) else "unfinished")
    return Job(cell, own, "unfinished" if own.exists() else "new")


def serves(path: Path, cell: Cell) -> bool:
    """Whether a run directory holds this cell's configuration, with at least its seeds."""
    try:
        values = directory.read_config(path)["run"]
    except UserError:
        return False
    seeds = values.get("seeds", [])
    inert = {name: cell.config.get(name) for name in config.INERT}
    same = config.canonical(values | inert | {"seeds": 0}) == config.canonical(cell.config | {"seeds": 0})
    return same and set(cell.seeds) <= set(seeds)


def finished(path: Path, cell: Cell) -> bool:
    """Whether the last evaluation is there for every seed and, where asked for, the noisy ones."""
    missing = directory.missing_evaluations(path, [cell.config["steps"]], cell.seeds)
    return not missing and not (cell.noise and _noise_missing(path, cell))


def _noise_missing(path: Path, cell: Cell) -> list[int]:
    """Steps whose evaluation counts and has not been repeated with noise, for some seed."""
    clean = row_files.scores(directory.evaluations(path), seeds=cell.seeds).counted()[-LAST:]
    noisy = [row for row in row_reader.read_rows(path / NOISE_ROWS) if row.goal_noise == cell.noise]
    goals = directory.read(path).facts.goals or 0
    return row_reader.missing(noisy, steps=clean, seeds=cell.seeds, goals=goals)


def text(jobs: Sequence[dict[str, Any]]) -> str:
    """A dry run for people: one line per run, then how many there are."""
    size = lambda job: f"{len(job['seeds'])} seeds x {job['steps']:>9,} steps"
    lines = [f"{j['task']:<34} {j['column']:<19} {size(j)}  {j['status']:<10} {j['out']}" for j in jobs]
    return "\n".join([*lines, f"{len(jobs)} runs, {sum(len(j['seeds']) for j in jobs)} with seeds"])


def dry_run(table: str, **part: Any) -> list[dict[str, Any]]:
    """One element per run with its full configuration: what `reproduce TABLE --dry-run --json` prints."""
    return [job.to_dict() for job in plan(table, **part)]


def reproduce(
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
    """Do every run of a table (or of a part of it) and write the table as text, JSON and LaTeX under OUT/tables.

    A run that cannot be done (no data, say) is reported and the others go on. `train` is for tests.
    """
    jobs = plan(table, out=out, tasks=tasks, reps=reps, seeds=seeds, steps=steps, **overrides)
    problems = []
    for number, job in enumerate(jobs, 1):
        where = f"[{number}/{len(jobs)}] {job.cell.task} {job.cell.column}"
        if job.status == "finished":
            say(f"{where}: finished, in {job.out}")
            continue
        say(f"{where}: {'resuming' if job.status == 'unfinished' else 'starting'} {job.out}")
        try:
            _do(job, data, workers, quiet, train)
        except UserError as error:
            problems.append(f"{job.cell.name}: {error}")
            say(f"{where}: not run: {error}")
    return finish(table, jobs, Path(out), problems)


def _do(job: Job, data: str | Path | None, workers: int | None, quiet: bool, train: Train | None) -> None:
    if job.cell.table == "lightsout":
        from dualgoal.paper import lightsout

        lightsout.lightsout_run(config.from_dict(job.cell.config), job.out, quiet=quiet)
        return
    values = directory.read_config(job.out)["run"] if serves(job.out, job.cell) else job.cell.config
    (train or _trainer())(config.from_dict(values), job.out, data_path=data, workers=workers, quiet=quiet)
    if job.cell.noise:
        _evaluate_noisy(job, workers)


def _trainer() -> Train:
    from dualgoal.runs.training import train

    return train


def _evaluate_noisy(job: Job, workers: int | None) -> None:
    from dualgoal.files import Journal
    from dualgoal.runs import evaluation

    journal = Journal(job.out / NOISE_ROWS, EvalRow.from_json, EvalRow.to_json)
    try:
        for step in _noise_missing(job.out, job.cell):
            noise, seeds = job.cell.noise, job.cell.seeds
            journal.append(evaluation.evaluate(job.out, step=step, goal_noise=noise, seeds=seeds, workers=workers))
            journal.sync()
    finally:
        journal.close()


def record(job: Job) -> row_files.Record | None:
    """The rows of a run so far as a record of its cell; None when there is no run."""
    if not serves(job.out, job.cell):
        return None
    rows = [*directory.evaluations(job.out), *row_reader.read_rows(job.out / NOISE_ROWS)]
    return row_files.of_run(job.cell, directory.read_config(job.out), rows, str(job.out))


def finish(table: str, jobs: Sequence[Job], out: Path, problems: Sequence[str] = ()) -> Outcome:
    """Write a table and its picture from whatever rows its runs have."""
    found = [r for job in jobs if (r := record(job))]
    filled = compare.fill(table, found, tasks=[job.cell.task for job in jobs])
    folder = out / "tables"
    folder.mkdir(parents=True, exist_ok=True)
    outcome = Outcome(filled, [], list(problems))
    forms = {"txt": formats.text(filled), "tex": formats.latex(filled), "json": outcome.json + "\n"}
    for suffix, content in forms.items():
        write_atomic(folder / f"{table}.{suffix}", content.encode())
        outcome.files.append(folder / f"{table}.{suffix}")
    outcome.files.extend(figures.draw(filled, found, folder / table))
    return outcome

"""Planned runs as work: where each is, how far it is, and how an engine carries it out.

A run that is finished is skipped and one that is not is resumed. Two plans that need the same run find the same
directory, and a run with more seeds than asked for is used as well. Evaluations with noisy goals need no training:
their rows go to a file of their own in the directory of the run.
"""

import functools
import json
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dualgoal import machine, texts
from dualgoal.collect import ahead
from dualgoal.engine import choice
from dualgoal.engine.items import Elsewhere, Item, Placement, Say
from dualgoal.errors import UserError, number_of
from dualgoal.files import make_folder, write_atomic
from dualgoal.jsons import Journal
from dualgoal.paper import families, given_data, row_files
from dualgoal.paper.tables import PlannedRun
from dualgoal.runs import config, directory, overview, owner, rows
from dualgoal.runs.background import Background
from dualgoal.runs.rows import LAST, EvalRow

LOG = "events.log"
LATER = "give this command again when it is done"
LOOK_SECONDS = 2.0  # between two checks of runs that other processes train

Train = Callable[..., Any]


@dataclass(frozen=True)
class Job:
    """A planned run, its directory, and how far it is: new, unfinished or finished."""

    planned: PlannedRun
    out: Path
    status: str

    def to_dict(self) -> dict[str, Any]:
        return self.planned.to_dict() | {"out": str(self.out), "status": self.status}


def locate(planned: Iterable[PlannedRun], root: Path, data: str | Path | None = None) -> list[Job]:
    """Where each planned run is, or would be, and how far it is. Raise if one was trained on other data than these."""
    read_once = functools.cache(_by_seedless_id)  # a folder is read once, however many runs are planned
    taken: dict[Path, int] = {}  # numbers of steps by directory: runs of one plan do not continue each other

    def job(planned: PlannedRun) -> Job:
        run = planned.run
        own = directory.default_folder(run, root)
        there = _read(own)
        longer = there is not None and there.steps > run.steps and not can_fill(own, planned)
        if taken.setdefault(own, run.steps) != run.steps or longer:
            own = own.with_name(f"{own.name}-{run.steps}")
        fits = own if can_fill(own, planned) else None
        if fits is None:
            others = read_once(own.parent).get(_seedless_id(run), ())
            fits = next((path for path in others if can_fill(path, planned)), None)
        if fits is None:
            return Job(planned, own, "unfinished" if own.exists() else "new")
        return Job(planned, fits, "finished" if is_finished(fits, planned) else "unfinished")

    found = [job(one) for one in planned]
    if data is not None:
        given_data.require({job.out: job.planned.task for job in found if job.status != "new"}, data)
    return found


def _by_seedless_id(folder: Path) -> dict[str, list[Path]]:
    """The runs in a folder by what they compute for each of their seeds, whichever these are."""
    found: dict[str, list[Path]] = {}
    for path in sorted(folder.glob("*")):
        if (run := _read(path)) is not None:
            found.setdefault(_seedless_id(run), []).append(path)
    return found


def _read(path: Path) -> config.Run | None:
    try:
        return directory.read_run(path)
    except UserError:
        return None


def _seedless_id(run: config.Run) -> str:
    return replace(run, seeds=(0,)).id


def can_fill(path: Path, planned: PlannedRun) -> bool:
    """Whether a run directory holds the planned configuration, with at least its seeds and its evaluations."""
    run, wanted = _read(path), planned.run
    if run is None:
        return False
    if run.steps > wanted.steps and set(wanted.eval_steps) <= set(run.eval_steps):
        run = replace(run, steps=wanted.steps)  # it was extended, or will be
    return set(wanted.seeds) <= set(run.seeds) and not config.differences(replace(run, seeds=wanted.seeds), wanted)


def is_finished(path: Path, planned: PlannedRun) -> bool:
    """Whether the last evaluation is complete for every seed and, where asked for, the noisy ones; without evaluation,
    whether the last step is saved."""
    try:
        if not planned.run.eval_steps:
            return max(directory.steps(path), default=0) >= planned.config["steps"]
        goals = directory.read(path).facts.goals
        if not goals:
            return False  # the number of goals of an evaluation is unknown
        last = [planned.config["steps"]]
        missing = rows.missing(directory.evaluations(path), steps=last, seeds=planned.seeds, goals=goals)
        return not missing and not (planned.noise and _steps_without_noise(path, planned))
    except UserError:
        return False  # resuming the run will report the error


def _steps_without_noise(path: Path, planned: PlannedRun) -> list[int]:
    """Steps whose evaluation counts and has not been repeated with noise for every seed."""
    until = planned.config["steps"]
    clean = rows.scores(directory.evaluations(path), seeds=planned.seeds, until=until).counted()[-LAST:]
    noisy = [row for row in directory.evaluations(path, directory.NOISY_EVALUATIONS) if row.goal_noise == planned.noise]
    goals = directory.read(path).facts.goals or 0
    return rows.missing(noisy, steps=clean, seeds=planned.seeds, goals=goals)


def read_record(path: Path, planned: PlannedRun) -> row_files.Record | None:
    """The rows of a run directory so far, as the record of a planned run; None if it holds another run or none."""
    if not can_fill(path, planned):
        return None
    found = [*directory.evaluations(path), *directory.evaluations(path, directory.NOISY_EVALUATIONS)]
    found = [row for row in found if row.step <= planned.config["steps"]]  # of a run that was extended
    return row_files.of_run(planned, directory.read_config(path), found, str(path))


def text(jobs: Sequence[dict[str, Any]]) -> str:
    """A dry run as text: one line per run, then how many there are."""
    size = lambda job: f"{number_of(len(job['seeds']), 'seed')} x {job['steps']:,} steps"
    lines = texts.aligned([[j["task"], j["column"], size(j), j["status"], j["out"]] for j in jobs], right=[2])
    seeds = sum(len(j["seeds"]) for j in jobs)
    return "\n".join([*lines, f"{number_of(len(jobs), 'run')}, {seeds:,} counting every seed"])


@dataclass(frozen=True)
class Execution:
    """How a plan is carried out; none of it changes a result."""

    on: str = "here"
    placement: Placement = Placement()
    data: str | Path | None = None
    workers: int | None = None
    quiet: bool = False
    train: Train | None = None  # replaces training, in tests


@dataclass(frozen=True)
class Undone:
    """The runs of a plan that were not done, one line each: those that failed, and those that another process is
    training."""

    failed: Sequence[str] = ()
    elsewhere: Sequence[str] = ()


ALL_DONE = Undone()


def carry_out(jobs: Sequence[Job], out: Path, execution: Execution, say: Say = print) -> Undone:
    """Do every run that is not finished, and that no other process is training."""
    shown = execution.on != "here" and not execution.quiet and sys.stdout.isatty()
    with overview.live([job.out for job in jobs], say, shown) as show:
        return _carry_out(jobs, out, execution, _with_log(out, show))


def _carry_out(jobs: Sequence[Job], out: Path, execution: Execution, say: Say) -> Undone:
    number = {job.out: f"[{i}/{len(jobs)}] {job.planned.task} {job.planned.column}" for i, job in enumerate(jobs, 1)}
    plans = {job.out.absolute(): job.planned for job in jobs}
    todo: list[Job] = []
    others: list[Job] = []  # that another process is training
    failed: list[str] = []
    elsewhere: dict[Path, str] = {}
    for job in {job.out: job for job in jobs}.values():
        if job.status == "finished":
            owner.tidy(job.out)
            say(f"{number[job.out]}: finished, in {job.out}")
        elif execution.on != "here" and (status := owner.at_work(job.out)):
            others.append(job)
            say(f"{number[job.out]}: waiting: process {status.pid} on {status.host} is training it")
        else:
            todo.append(job)
    engine = choice.engine(execution.on, out, execution.placement, execution.workers)
    with ExitStack() as stack:
        prepare = stack.enter_context(ahead.Preparation()) if prepares_data(todo, execution) else None
        while todo or others:
            items = [_item(job, number[job.out], execution) for job in todo]
            if prepare is not None:
                items = _with_data_ahead(items, todo, prepare)
            for item, found in engine.execute(items, say) if items else ():
                if found is None:
                    say(f"{item.name}: done")
                elif isinstance(found, Elsewhere):
                    say(f"{item.name}: trained elsewhere: {found}")
                    elsewhere[item.out.absolute()] = found
                else:
                    say(f"{item.name}: failed: {found}")
                    failed.append(f"{plans[item.out.absolute()].name}: {found}")
            left, others = _left_by_others(others)
            todo = [job for job in left if not is_finished(job.out, job.planned)]
            for job in left:
                say(f"{number[job.out]}: {'left unfinished' if job in todo else 'finished'}, in {job.out}")
    still = {path: why for path, why in elsewhere.items() if not is_finished(path, plans[path])}  # checked again
    return Undone(failed, [f"{plans[path].name}: {why}; {LATER}" for path, why in still.items()])


def _left_by_others(jobs: Sequence[Job]) -> tuple[list[Job], list[Job]]:
    """Wait until some of these runs are no longer being trained; return those, and the rest."""
    while True:
        left = [job for job in jobs if owner.at_work(job.out) is None]
        if left or not jobs:
            return left, [job for job in jobs if job not in left]
        time.sleep(LOOK_SECONDS)


def prepares_data(todo: Sequence[Job], execution: Execution) -> bool:
    """Whether the data of the next task are prepared while a run trains: only if no data were specified, and training
    leaves cores idle, which it does on an accelerator only."""
    several = len({job.planned.task for job in todo}) > 1
    return several and execution.on == "here" and execution.data is None and machine.devices()[0].platform != "cpu"


def _with_data_ahead(items: Sequence[Item], todo: Sequence[Job], prepare: Callable[[str], None]) -> list[Item]:
    """The items; each run first starts preparing the data of the next task. Lights Out has no files of data."""
    tasks = [job.planned.task for job in todo]

    def preparing(item: Item, task: str) -> Item:
        def call(*arguments: Any) -> None:
            prepare(task)
            item.call(*arguments)

        return replace(item, call=call)

    found = []
    for here, item in enumerate(items):
        others = (t for t in tasks[here:] if t != tasks[here] and families.of_task(t) is families.OGBENCH)
        task = next(others, None)
        found.append(item if task is None else preparing(item, task))
    return found


def _item(job: Job, name: str, execution: Execution) -> Item:
    if execution.on == "here":
        return Item(name, job.out, functools.partial(_do, job, execution))
    # In another process: absolute paths, no display, and perhaps a wait for a process that was interrupted.
    data = None if execution.data is None else Path(execution.data).absolute()
    there = replace(execution, data=data, quiet=True)
    return Item(
        name, job.out.absolute(), functools.partial(_do, replace(job, out=job.out.absolute()), there, wait=True)
    )


def _with_log(out: Path, say: Say) -> Say:
    """A `say` that also writes each message to OUT/events.log, with the time."""
    log = make_folder(out) / LOG

    def both(text: str) -> None:
        say(text)
        try:
            with log.open("a") as file:
                file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n")
        except OSError as error:
            print(f"{log}: {error.strerror}", file=sys.stderr)

    return both


def _do(
    job: Job, execution: Execution, workers: int | None, background: Background | None = None, *, wait: bool = False
) -> None:
    """Train or resume one run, with the seeds it already has, and repeat its evaluations with noise if asked for."""
    planned = job.planned
    run = directory.read_run(job.out) if can_fill(job.out, planned) else planned.run
    train = execution.train or families.of_task(planned.task).train
    options: dict[str, Any] = {"wait": True} if wait else {}
    if background is not None and not planned.noise:  # noisy evaluations come after all others
        options["background"] = background
    train(run, job.out, data_path=execution.data, workers=workers, quiet=execution.quiet, **options)
    if planned.noise:
        _evaluate_noisy(job, workers)


def _evaluate_noisy(job: Job, workers: int | None) -> None:
    from dualgoal.runs import evaluation

    file = job.out / directory.NOISY_EVALUATIONS
    with closing(Journal(file, EvalRow.from_json, EvalRow.to_json)) as journal:
        for step in _steps_without_noise(job.out, job.planned):
            noise, seeds = job.planned.noise, job.planned.seeds
            journal.append(evaluation.evaluate(job.out, step=step, goal_noise=noise, seeds=seeds, workers=workers))
            journal.sync()


@dataclass(frozen=True)
class Outcome:
    """The result of a plan: one table, the files that hold it, which runs failed or were left out, and why, and which
    ones another process is training."""

    table: str
    values: dict[str, Any]  # the same as plain values
    files: tuple[Path, ...]
    problems: tuple[str, ...]
    elsewhere: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The table, what is missing from it, and where it was written."""
        missing = [f"left out: {problem}" for problem in self.problems]
        others = [f"trained elsewhere: {line}" for line in self.elsewhere]
        return "\n".join([self.table, *missing, *others, *(f"written: {file}" for file in self.files)])

    @property
    def json(self) -> str:
        """The table and what is missing from it."""
        missing = {"problems": list(self.problems), "elsewhere": list(self.elsewhere)}
        return json.dumps(self.values | missing, indent=1, allow_nan=False)


def write_outcome(
    stem: Path, table: str, values: dict[str, Any], undone: Undone = ALL_DONE, latex: str | None = None
) -> Outcome:
    """Write a table as text, JSON and perhaps LaTeX, to files that differ in their endings."""
    make_folder(stem.parent)
    failed = tuple(dict.fromkeys(undone.failed))  # reading a run may fail with the same error as training it
    outcome = Outcome(table, values, (), failed, tuple(undone.elsewhere))
    forms = {".txt": table, ".tex": latex, ".json": outcome.json}
    written = {stem.with_name(stem.name + ending): text for ending, text in forms.items() if text is not None}
    for file, text in written.items():
        write_atomic(file, (text.rstrip("\n") + "\n").encode())
    return replace(outcome, files=tuple(written))


def records(jobs: Iterable[Job]) -> tuple[list[row_files.Record], list[str]]:
    """The records of the runs that can be read, and why the others cannot."""
    found, problems = [], []
    for job in jobs:
        try:
            found.append(read_record(job.out, job.planned))
        except UserError as error:
            problems.append(f"{job.planned.name}: {error}")
    return [record for record in found if record], problems

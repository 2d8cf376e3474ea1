"""A sweep: any grid of runs from a TOML file (docs/cluster.md), carried out as the paper's tables are, with one table
at the end. An option that a representation or an algorithm does not have adds no runs of it."""

import dataclasses
import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dualgoal import errors, registry
from dualgoal.engine.items import Say
from dualgoal.envs import tasks
from dualgoal.errors import UserError
from dualgoal.files import read_toml
from dualgoal.paper import comparison, families, jobs, settings
from dualgoal.paper.jobs import Execution, Job, Outcome
from dualgoal.paper.tables import PlannedRun
from dualgoal.runs import config, continuing, dotted
from dualgoal.runs.config import Run

KEYS = ("tasks", "reps", "algos", "seeds", "options", "grid")


@dataclass(frozen=True)
class Sweep:
    """The lists of a file. Its name is the file's."""

    name: str
    tasks: tuple[str, ...]
    reps: tuple[str, ...] = ("dual",)
    algos: tuple[str, ...] = ("gcivl",)
    seeds: tuple[int, ...] = (0,)
    options: Mapping[str, Any] = field(default_factory=dict)
    grid: Mapping[str, Sequence[Any]] = field(default_factory=dict)


def read(path: str | Path) -> Sweep:
    """A sweep from a file; an error in it is one line."""
    path = Path(path)
    content = read_toml(path, "the lists of a sweep (see docs/cluster.md)")
    for name in content:
        if name not in KEYS:
            raise UserError(f"{path}: {errors.unknown('key', name, KEYS)}")
    values: dict[str, Any] = {}
    for name, kind in (("tasks", str), ("reps", str), ("algos", str), ("seeds", int)):
        if name in content:
            values[name] = _list(content[name], kind, f"{path}: {name}")
    if "tasks" not in values:
        raise UserError(f"{path}: no tasks; write for instance tasks = ['cube-single-play-v0']")
    for name in ("options", "grid"):
        if not isinstance(content.get(name, {}), dict):
            raise UserError(f"{path}: {name} is {content[name]!r}; expected a table of options")
    # [grid.rep] dim = ... and "rep.dim" = ... are the same.
    options, grid = (config.flat(content.get(name, {})) for name in ("options", "grid"))
    for name, choices in grid.items():
        _list(choices, None, f"{path}: grid.{name}")
    for name in ("task", "rep", "algo", "seeds"):
        if name in options or name in grid:
            raise UserError(f"{path}: '{name}' has a list of its own at the top of the file")
    if both := sorted({*options} & {*grid}):
        raise UserError(f"{path}: {both[0]} is in [options] and in [grid]; keep one")
    return Sweep(path.stem, **values, options=options, grid=grid)


def _list(value: Any, kind: type | None, where: str) -> tuple[Any, ...]:
    if not isinstance(value, list) or not value:
        raise UserError(f"{where} is {value!r}; expected a list with at least one element")
    if kind is not None and any(type(entry) is not kind for entry in value):
        raise UserError(f"{where} is {value!r}; expected {'whole numbers' if kind is int else 'names in quotes'}")
    return tuple(value)


def expand(sweep: Sweep, source: str = "sweep") -> list[PlannedRun]:
    """Every different run of the grid, in the order of the lists."""
    found: dict[tuple[str, int], PlannedRun] = {}
    unused = {*sweep.options, *sweep.grid}
    for task, rep, algo in itertools.product(sweep.tasks, sweep.reps, sweep.algos):
        for values in itertools.product(*sweep.grid.values()):
            chosen = {**sweep.options, **dict(zip(sweep.grid, values, strict=True))}
            known = _options(rep, algo, chosen)
            unused -= known
            given = {name: value for name, value in chosen.items() if name in known}
            # In the form in which training records it, in whatever folder it starts.
            run = continuing.absolute(_configure(task, rep, algo, given | {"seeds": sweep.seeds}))
            varied = [f"{name}={_brief(given[name])}" for name in sweep.grid if name in given]
            label = " ".join([f"{rep}+{algo}", *varied])
            plain = config.to_dict(run)
            planned = PlannedRun(sweep.name, task, label, rep, algo, sweep.seeds, plain, run.id)
            found.setdefault((run.id, run.steps), planned)
    if unused:
        known = {name for rep in sweep.reps for algo in sweep.algos for name in _options(rep, algo, sweep.options)}
        raise UserError(f"{source}: {errors.unknown('option', min(unused), sorted(known))}")
    return list(found.values())


def _configure(task: str, rep: str, algo: str, options: dict[str, Any]) -> Run:
    if tasks.family(task) in families.OTHERS:
        return families.of_task(task).configure(task, rep, algo, **options)
    return settings.for_task(task, rep, algo, has_data=True, **options)


def _options(rep: str, algo: str, chosen: Mapping[str, Any]) -> set[str]:
    """The names of all options of a pair: fields of a run, and dotted ones of its parts and of the parts that these
    hold, which may be among the `chosen` values."""
    parts = {"rep": registry.part("rep", rep), "algo": registry.part("algo", algo)}
    given = config.flat(chosen)
    own = {name for kind, part in parts.items() for name in dotted.option_names(part, given, f"{kind}.")}
    return own | {f.name for f in dataclasses.fields(Run)} - {"task", "rep", "algo", "seeds"}


def _brief(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else json.dumps(value).replace(" ", "")


def plan(path: str | Path, out: str | Path = "runs", *, data: str | Path | None = None) -> list[Job]:
    """The runs of a file and how far each is. Without `data`, runs that are not finished need a task of the paper."""
    found = jobs.locate(expand(read(path), str(path)), Path(out), data)
    for task in (job.planned.task for job in found if job.status != "finished" and data is None):
        if tasks.plain(task) not in tasks.TASKS and tasks.family(task) not in families.OTHERS:
            raise UserError(f"{path}: {errors.unknown('task', task, tasks.TASKS)}; data of your own need --data FOLDER")
    return found


@dataclass(frozen=True)
class SweepLine:
    """A run in the final table. Success is in percent; the interval is over seeds, and None for one seed, for seeds
    that agree and for a run that is not finished."""

    task: str
    label: str
    seeds: int
    steps: int  # that were asked for
    evaluated: int | None  # the last evaluation that counts; None if none is planned
    finished: bool
    mean: float | None
    std: float | None
    interval: tuple[float, float] | None
    out: str


def table(lines: Sequence[SweepLine]) -> str:
    wide = max([len(line.label) for line in lines], default=0)
    trained = max([9, *(len(_steps(line)) for line in lines)])
    above = f"{'task':<34} {'run':<{wide}} {'seeds':>5} {'steps':>{trained}}"
    head = f"{above}  success in %, Student's 95 % interval over seeds"
    return "\n".join([head, *(_row(line, wide, trained) for line in lines)])


def _row(line: SweepLine, wide: int, trained: int) -> str:
    score = "no evaluation" if line.mean is None else f"{line.mean:5.1f}"
    spread = f" ± {line.std:.1f}" if line.seeds > 1 and line.std is not None else ""
    start = f"{line.task:<34} {line.label:<{wide}} {line.seeds:>5} {_steps(line):>{trained}}  {score}{spread}"
    return f"{start}{_between(line)}"


def _steps(line: SweepLine) -> str:
    """The steps of a run; of one that is not finished, how many of them are evaluated."""
    done = line.finished or line.evaluated is None
    return f"{line.steps:,}" if done else f"{line.evaluated:,} of {line.steps:,}"


def _between(line: SweepLine) -> str:
    """What follows the mean: the interval, or why there is none."""
    if not line.finished:
        return "  not finished"
    if line.interval:
        return f"  [{line.interval[0]:.1f}, {line.interval[1]:.1f}]"
    return "  seeds agree" if line.seeds > 1 and line.mean is not None else ""


def carry_out(
    path: str | Path, *, out: str | Path = "runs", execution: Execution | None = None, say: Say = print
) -> Outcome:
    """Do every run of a file that is not finished, and write the table to OUT/tables."""
    execution = execution or Execution()
    found = plan(path, out, data=execution.data)
    undone = jobs.carry_out(found, Path(out), execution, say)
    problems = list(undone.failed)
    lines = [_line(job, problems) for job in found]
    values = {"runs": [dataclasses.asdict(line) for line in lines]}
    stem, undone = Path(out) / "tables" / Path(path).stem, replace(undone, failed=problems)
    return jobs.write_outcome(stem, table(lines), values, undone)


def _line(job: Job, problems: list[str]) -> SweepLine:
    """The line of one run; its rows are read for this and not kept."""
    try:
        record = jobs.read_record(job.out, job.planned)
    except UserError as problem:
        problems.append(f"{job.planned.name}: {problem}")
        record = None
    found = None if record is None else comparison.measure(record)
    planned, finished = job.planned, jobs.is_finished(job.out, job.planned)
    seeds, steps, evaluated = len(planned.seeds), planned.config["steps"], 0 if planned.run.eval_steps else None
    line = SweepLine(planned.task, planned.column, seeds, steps, evaluated, finished, None, None, None, str(job.out))
    if found is None:
        return line
    interval = found.interval if finished else None
    return replace(line, seeds=found.seeds, evaluated=found.steps, mean=found.mean, std=found.std, interval=interval)

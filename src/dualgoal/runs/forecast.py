"""What a training command would do: `train --dry-run`. Nothing is written, and of data only what training cannot be
prepared without is read: not their observations and goals.

Whatever training would refuse before its first step is refused here in the same words, because both are prepared by
`preparation`. What is left are wrong numbers in observations and goals, files that were changed after their record was
written, and what only writing finds: a full disk, or another process that is at the run.
"""

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from dualgoal import machine
from dualgoal.collect.find import cached
from dualgoal.data import dataset
from dualgoal.data.dataset import Dataset
from dualgoal.errors import number_of
from dualgoal.runs import directory, duration, environment, memory, policy, preparation, training
from dualgoal.runs.config import Run
from dualgoal.runs.memory import Memory
from dualgoal.runs.preparation import How, Prepared

MIB = 2**20


@dataclass(frozen=True)
class Needs:
    """What a run takes on this machine."""

    memory: Memory
    seconds: float  # of the training that is left, roughly


@dataclass(frozen=True)
class Forecast:
    """A run, where it would be trained, on what, in how much memory and time; None where data are not here yet."""

    run: Run
    out: Path
    done: int  # steps that are saved there
    room: int
    workers: int
    ready: Prepared | None = None
    needs: Needs | None = None


def look_ahead(run: Run, out: Path, data_path: str | Path | None, how: How) -> Forecast:
    """Find out all of it without writing anything."""
    machine.a_device_per_core()
    run = preparation.before_data(run, out, how)
    done = max(directory.steps(out), default=0)
    workers = how.workers or training.default_workers(machine.devices()[0].platform, None)
    seen = Forecast(run, out, done, memory.room(), workers if run.eval_steps else 0)
    folder = data_path if data_path is not None else cached(run.task)
    if folder is None:
        return seen
    ready = preparation.prepare(run, out, *_outlines(run, out, folder), how)
    with policy.own_parts(run):
        ready.require_memory()
        return dataclasses.replace(seen, ready=ready, needs=_needs(ready, max(0, run.steps - done)))


def _outlines(run: Run, out: Path, path: str | Path) -> tuple[Dataset, Dataset | None]:
    """The data without observations and goals; but the validation episodes whole if evaluation goals are drawn from
    them, and with its SHA-256 if a run goes on, which must be on the same file."""
    found, validation = dataset.load_splits(path, run.task, outline=True)
    if directory.is_run(out):
        found = dataset.with_digest(found)
    if validation is not None and environment.source(run)[0] == "validation" and len(found.goal_shape) == 1:
        validation = dataset.load(validation.provenance["file"], run.task)
    return found, validation


def _needs(ready: Prepared, steps: int) -> Needs:
    agent, seeds, data = ready.loop.agent, len(ready.run.seeds), ready.training
    arrays = {"observations": data.observations, "actions": data.actions}
    arrays |= {} if data.goals is None else {"goals": data.goals}
    needed = memory.estimate(agent, seeds, arrays, data.episodes)
    return Needs(needed, duration.estimate(agent, seeds, steps, ready.shapes))


def text(seen: Forecast) -> str:
    run = seen.run
    complete = f"complete ({number_of(seen.done, 'step')})"
    todo = f"steps {seen.done:,} to {run.steps:,}" if seen.done < run.steps else complete
    lines = [
        f"run         {run.task}  {' + '.join(run.names)}  seeds {' '.join(map(str, run.seeds))}",
        f"id          {run.id}",
        f"directory   {seen.out} ({'new' if not seen.done else 'exists'})",
        f"training    {todo}, batches of {run.batch_size:,}",
        f"evaluation  {_evaluation(seen)}",
    ]
    if seen.ready is None or seen.needs is None:
        return "\n".join([*lines, "data        not here: downloaded, or generated where that fails (or give --data)"])
    needed, seconds, data = seen.needs.memory, seen.needs.seconds, seen.ready.training
    mib = {name: f"{getattr(needed, name) / MIB:,.0f}" for name in ("data", "state", "step", "total")}
    where = f" on each of {needed.devices} devices" if needed.devices > 1 else ""
    return "\n".join([
        *lines,
        f"data        {data.provenance['file']}: {number_of(data.rows, 'row')}, {number_of(data.episodes, 'episode')}",
        f"sizes       {seen.ready.facts.sizes}; {needed.parameters:,} parameters per seed",
        f"memory      about {mib['total']} MiB of {seen.room / MIB:,.0f} free: data {mib['data']}, then{where} "
        f"parameters and optimiser {mib['state']}, a step {mib['step']}",
        *([f"time        {duration.text(seconds)} on this machine, without evaluation"] if seconds else []),
    ])  # fmt: skip


def _evaluation(seen: Forecast) -> str:
    run = seen.run
    if not run.eval_steps:
        return "none"
    found = None if seen.ready is None else seen.ready.facts.goals
    goals = "every goal" if found is None else number_of(found, "goal")
    times, workers = number_of(len(run.eval_steps), "time"), f"{seen.workers} process{'es' * (seen.workers > 1)}"
    return f"{times}, {goals} x {number_of(run.episodes, 'episode')} per seed, in {workers}"

"""What a training command would do: `train --dry-run`. Files are only looked at, and only their headers where possible.

Whatever training would refuse before its first step is refused here in the same words.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dualgoal import machine
from dualgoal.collect.find import cached
from dualgoal.compatibility import check_pair
from dualgoal.data import checks, npz, origin, paths
from dualgoal.data.origin import Origin
from dualgoal.errors import check_range, number_of
from dualgoal.runs import directory, duration, episodes, memory, policy, training, world
from dualgoal.runs.config import Run
from dualgoal.runs.evaluation import Plan, require_sensible
from dualgoal.runs.facts import DataFacts, RunFacts, Sizes
from dualgoal.runs.memory import Memory
from dualgoal.sampler import shapes

MIB = 2**20


@dataclass(frozen=True)
class DataFile:
    """A dataset as its file describes it."""

    path: Path
    sizes: Sizes
    arrays: dict[str, jax.ShapeDtypeStruct]
    episodes: int
    origin: Origin

    @property
    def rows(self) -> int:
        return self.arrays["observations"].shape[0]


@dataclass(frozen=True)
class Forecast:
    """A run, where it would be trained, on what, in how much memory and time; None where data are not here yet."""

    run: Run
    out: Path
    done: int  # steps that are saved there
    data: DataFile | None
    memory: Memory | None
    seconds: float | None  # of the training that is left, roughly
    room: int
    workers: int
    goals: int | None  # of an evaluation, where that is known


def look_ahead(run: Run, out: Path, data_path: str | Path | None, workers: int | None, video: bool = False) -> Forecast:
    """Find out all of it without writing anything."""
    check_range("workers", workers, 1)
    check_pair(run.rep, run.algo, run.frozen_rep is not None)
    training.check_evaluation(run, video)
    machine.a_device_per_core()
    done = 0
    if directory.is_run(out):
        directory.require_same_run(out, directory.read_run(out), run)
        done = max(directory.steps(out), default=0)
    folder = data_path if data_path is not None else cached(run.task)
    data = None if folder is None else look_at(Path(folder).expanduser(), run.task)
    needed, seconds, goals = None, None, None
    if data is not None:
        goals = _goals(run, data, video)
        agent, count = policy.agent_for(run, data.sizes), len(run.seeds)
        needed = memory.estimate(agent, count, data.arrays, data.episodes)
        rows = shapes(data.arrays["observations"], data.arrays["actions"], data.arrays.get("goals"), data.episodes)
        seconds = duration.estimate(agent, count, max(0, run.steps - done), rows)
    count = workers or training.default_workers(machine.devices()[0].platform, None)
    return Forecast(run, out, done, data, needed, seconds, memory.room(), count if run.eval_steps else 0, goals)


def _goals(run: Run, data: DataFile, video: bool) -> int | None:
    """The number of evaluation goals. An environment of the user's own is made, and must fit the data."""
    kind, count = world.source(run)
    listed = world.goal_list(run, data.sizes.goal, None) if kind == "file" else None
    if not run.eval_steps:
        return None
    world.require_named(run, own_maze=data.origin.maze is not None)
    require_sensible(Plan.of(run, 0).conditions, discrete=data.sizes.discrete, pixels=data.sizes.pixels)
    if video:
        episodes.encoder()
    found = count if listed is None else len(listed)
    if run.env is not None:
        known = data.origin
        facts = RunFacts(
            sizes=data.sizes,
            dataset=DataFacts(
                data.rows,
                data.episodes,
                action_range=known.action_range,
                goal_space=known.goal_space,
                observation_keys=known.observation_keys,
            ),  # fmt: skip
            versions={},
            hardware=machine.Hardware.here(machine.arithmetic(run.precision)),
            goal_list=listed,
        )
        found = world.count_goals(run, facts, video=video)
    return (count or world.MANY) if kind == "validation" else found


def look_at(path: Path, task: str) -> DataFile:
    """Shapes and episodes of a dataset."""
    file = paths.find(path, task, "train")
    with npz.Archive(file) as archive:
        checks.members(archive)
        found: dict[str, npz.Member] = {
            name: archive.members[name] for name in ("observations", "actions", "goals") if name in archive.members
        }
        episodes = int(np.count_nonzero(archive.read("terminals")))
        discrete = len(found["actions"].shape) == 1
        width = int(archive.read("actions").max()) + 1 if discrete else found["actions"].shape[1]
    kind = lambda member: (
        member.dtype if member.dtype == np.uint8 else jnp.int32 if discrete and member.key == "actions" else jnp.float32
    )
    arrays: dict[str, Any] = {name: jax.ShapeDtypeStruct(member.shape, kind(member)) for name, member in found.items()}
    goal = arrays["goals"].shape[1:] if "goals" in arrays else ()
    sizes = Sizes(arrays["observations"].shape[1:], width, discrete, goal)
    return DataFile(file, sizes, arrays, episodes, origin.read(paths.DatasetFiles.holding(file)))


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
    if seen.data is None or seen.memory is None or seen.seconds is None:
        return "\n".join([*lines, "data        not here: downloaded, or generated where that fails (or give --data)"])
    needed = seen.memory
    mib = {name: f"{getattr(needed, name) / MIB:,.0f}" for name in ("data", "state", "step", "total")}
    where = f" on each of {needed.devices} devices" if needed.devices > 1 else ""
    return "\n".join([
        *lines,
        f"data        {seen.data.path}: {number_of(seen.data.rows, 'row')}, {number_of(seen.data.episodes, 'episode')}",
        f"sizes       {seen.data.sizes}; {needed.parameters:,} parameters per seed",
        f"memory      about {mib['total']} MiB of {seen.room / MIB:,.0f} free: data {mib['data']}, then{where} "
        f"parameters and optimiser {mib['state']}, a step {mib['step']}",
        *([f"time        {duration.text(seen.seconds)} on this machine, without evaluation"] if seen.seconds else []),
    ])  # fmt: skip


def _evaluation(seen: Forecast) -> str:
    run = seen.run
    if not run.eval_steps:
        return "none"
    goals = "every goal" if seen.goals is None else number_of(seen.goals, "goal")
    times, workers = number_of(len(run.eval_steps), "time"), f"{seen.workers} process{'es' * (seen.workers > 1)}"
    return f"{times}, {goals} x {number_of(run.episodes, 'episode')} per seed, in {workers}"

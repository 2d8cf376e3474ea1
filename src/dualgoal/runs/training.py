"""A run from start to end: data, steps, metrics, checkpoints, evaluations, and resuming after an interruption.

The schedule is a function of the step number alone, and everything written is a function of the state at that step, so
a run that was killed and resumed leaves the same record as one that was not. Checkpoints are evaluated while training
continues; an evaluation that was not finished when the run stopped is done again from its checkpoint.
"""

import dataclasses
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from dualgoal import jsons, machine, progress
from dualgoal.agent import State
from dualgoal.collect.find import load_data
from dualgoal.compatibility import check_pair
from dualgoal.data.dataset import Dataset
from dualgoal.envs import registry, rendering, tasks
from dualgoal.errors import UserError, check_range
from dualgoal.files import cache_folder
from dualgoal.jsons import Row
from dualgoal.loop import TrainingLoop, first_broken
from dualgoal.runs import config, continuing, directory, memory, policy, resume, rows, trackers, trees, world
from dualgoal.runs.config import Run
from dualgoal.runs.evaluation import Plan, WorkerEvaluator
from dualgoal.runs.facts import DataFacts, FrozenRep, RunFacts, Sizes
from dualgoal.runs.interruption import Interruption
from dualgoal.runs.rows import EvalRow
from dualgoal.sampler import to_device

CHUNK_SECONDS = 0.5  # between looks at signals, evaluations and the clock
MOST_ROWS = jsons.ROWS_LIMIT // 500  # of metrics.jsonl; a row has about 460 bytes
KEPT_EVALUATIONS = rows.LAST  # checkpoints behind a score are kept, so that it can be measured again

Say = Callable[[str], None]


@dataclass(frozen=True)
class Evaluation:
    """What a callback hears of: the policy at `step`, one row per seed and goal."""

    step: int
    rows: tuple[EvalRow, ...]

    @property
    def success(self) -> float:
        """In percent, the mean over goals and seeds."""
        return float(np.mean(list(rows.success_by_seed(self.rows).values())))


OnEvaluation = Callable[[Evaluation], object]


class Evaluator(Protocol):
    """Scores checkpoints while training continues; `evaluation.WorkerEvaluator` says what each of these does."""

    @property
    def goals(self) -> int: ...

    @property
    def pending(self) -> list[int]: ...

    def submit(self, path: Path, step: int) -> None: ...

    def collect(self) -> list[tuple[int, list[EvalRow]]]: ...

    def __enter__(self) -> "Evaluator": ...

    def __exit__(self, *_: object) -> None: ...


def train(
    run: Run,
    out: str | Path,
    *,
    data_path: str | Path | None = None,
    workers: int | None = None,
    track_with: Sequence[str] = (),
    video: bool = False,
    quiet: bool = False,
    pin: bool = False,
    datasets: tuple[Dataset, Dataset | None] | None = None,
    evaluator: Evaluator | None = None,
    env: Any = None,
    on_evaluation: "OnEvaluation | None" = None,
    wait: bool = False,
) -> Path:
    """Train `run` into the directory `out`, or resume it there, and return the directory.

    `datasets` (training, validation) take the place of files, `evaluator` that of environments in worker processes;
    `env` is an environment, or a function that makes one, of this process, in which policies are then evaluated.
    `on_evaluation` hears of every evaluation and ends training by returning True. With `wait`, another process that
    writes to `out` is waited for instead of being an error.
    """
    out = Path(out)
    check_range("workers", workers, 1)
    worker_cpus = machine.pin() if pin else None
    if run.deterministic:
        machine.ask_determinism()
    machine.a_device_per_core()
    machine.keep_compiled(cache_folder() / "compiled")
    run = continuing.absolute(run)
    check_pair(run.rep, run.algo, run.frozen_rep is not None)  # before any data is downloaded or made
    if evaluator is None and env is None:
        check_evaluation(run)
    warn: Say = progress.Display().say if quiet else lambda text: print(text, flush=True)
    say: Say = (lambda text: None) if quiet else warn
    training, validation = datasets or load_data(run.task, data_path, say)
    facts = describe(run, training, evaluator.goals if evaluator else None)
    if evaluator is None:
        facts = _with_goals(facts, run, training, validation, env)
    goals, agent = facts.goals or 0, policy.agent_for(run, facts.sizes)  # what does not fit is refused before any file
    if not directory.steps(out):
        _require_few_rows(run, splits=1 if validation is None else 2)
    with ExitStack() as stack:
        record = stack.enter_context(directory.Store(out, run, facts, warn=warn, wait=wait))
        if (done := max(directory.steps(out), default=0)) > run.steps:
            say(f"{out}: complete ({done:,} steps, more than the {run.steps:,} that were asked for)")
            return out
        loop = TrainingLoop(agent, run.seeds)
        with policy.own_parts(run):
            policy.try_acting(loop.agent)
            if run.steps not in directory.steps(out):
                memory.require(out, loop, training, validation)
            start = resume.restore(record, loop, run, goals)
        record.owner.report(start.step, None, "compiling" if start.step < run.steps else "")
        if start.step == run.steps and not start.evaluations:
            record.prune(scored_steps(run, run.steps), saved_steps(run))
            say(f"{out}: complete ({run.steps:,} steps)")
            return out
        say(f"{out}: {f'resuming from step {start.step:,}' if start.step else 'a new run'}, id {run.id}")
        if evaluator is None:
            count = workers or default_workers(facts.hardware.platform, worker_cpus)
            evaluator = WorkerEvaluator(Plan.of(run, goals, video), count, worker_cpus, env)
        stack.enter_context(evaluator)
        opened = trackers.open_trackers(tuple(track_with), out, run, start.step)
        for tracker in opened:
            stack.callback(tracker.close)
        display = progress.display(f"{run.task}  {' + '.join(run.names)}", start.step, run.steps, quiet)
        stack.callback(display.close)
        session = Session(run, record, loop, evaluator, display, opened, on_evaluation)
        held_out = None if validation is None else facts.dataset.as_networks_read(validation)
        session.finish(start, loop.place_data(to_device(facts.dataset.as_networks_read(training))), held_out)
    return out


def _with_goals(facts: RunFacts, run: Run, training: Dataset, validation: Dataset | None, env: Any) -> RunFacts:
    """The goals of the run's evaluations. The environment is made for this, so what does not fit is found now."""
    if env is None and facts.dataset.maze is None:
        require_env(run, may_be_own=False)
    if not run.eval_steps:
        return facts
    facts = dataclasses.replace(facts, goal_list=world.goal_list(run, training.goal_shape, validation))
    return dataclasses.replace(facts, goals=world.count_goals(run, facts, env))


class Session:
    """One process's share of a run."""

    def __init__(
        self,
        run: Run,
        record: directory.Store,
        loop: TrainingLoop,
        evaluator: Evaluator,
        display: progress.Display,
        opened: list[trackers.Tracker],
        on_evaluation: OnEvaluation | None = None,
    ):
        self.run, self.record, self.loop, self.evaluator = run, record, loop, evaluator
        self.display, self.trackers = display, opened
        self.on_evaluation, self.enough = on_evaluation, False
        self.logs = {*_multiples(run.log_every, run)}
        self.saves = saved_steps(run)
        self.stops = sorted(self.logs | self.saves)
        self.since = 0.0  # when the device was last accounted for

    def finish(self, start: resume.Start, training: Any, validation: Dataset | None) -> None:
        """Take the steps that are left, then wait for the evaluations."""
        held_out = None if validation is None else self.loop.place_data(to_device(validation))
        step, state = start.step, start.state
        rate, self.since = 0.0, time.perf_counter()
        with Interruption() as interruption:
            for earlier in start.evaluations:
                self.evaluator.submit(self.record.path, earlier)
            if step < self.run.steps:
                with policy.own_parts(self.run):
                    self.loop.compile(state, training)
                self._leave_if(interruption, step)  # compiling takes long, and nothing has been computed yet
            while step < self.run.steps and not self.enough:
                until = next(s for s in self.stops if s > step)
                count = min(until - step, max(1, int(rate * CHUNK_SECONDS)))
                began = time.perf_counter()
                state, broken = self.loop.advance(state, training, count)
                self._stop_if_broken(broken)
                rate, step = count / (time.perf_counter() - began), step + count
                if step == until:
                    self._keep_schedule(step, state, training, held_out, rate)
                self._collect(step, rate)
                if interruption.requested and step < self.run.steps:
                    self._save(step, state)
                    self._leave_if(interruption, step)
            if step < self.run.steps:
                self._save(step, state)
                self.display.say(f"{self.record.path}: stopped at step {step:,}, as asked; call again to continue")
            while self.evaluator.pending:
                self._collect(step)
                self._leave_if(interruption, step)
                time.sleep(0.05)
        # Also what a process killed while pruning left behind.
        self.record.prune(scored_steps(self.run, step), self.saves if step == self.run.steps else None)

    def _keep_schedule(self, step: int, state: State, training: Any, held_out: Any, rate: float) -> None:
        """What is due after `step`: log, then save, then evaluate what was saved."""
        if step in self.logs:
            self._log(step, "train", self.loop.measure(state, training))
            if held_out is not None:
                self._log(step, "val", self.loop.measure(state, held_out))
            began, self.since = self.since, time.perf_counter()
            spent = {"steps_per_second": rate, "seconds": self.since - began}
            self.record.timing.append([{"step": step, **spent, "time": time.time()}])
        if step in self.saves:
            self._save(step, state)
        if step in self.run.eval_steps:
            self.display.advance(step, f"evaluating step {step:,}")
            self.evaluator.submit(self.record.path, step)  # which takes its time if this process plays

    def _log(self, step: int, split: str, values: dict[str, np.ndarray]) -> None:
        names = sorted(values)
        logged: list[Row] = [
            {"step": step, "seed": seed, "split": split, **{n: float(values[n][i]) for n in names}}
            for i, seed in enumerate(self.run.seeds)
        ]
        self.record.metrics.append(logged)
        if split == "train":
            self.display.losses(values)
        for row in logged:
            self._track(step, {f"{split}/{n}/seed-{row['seed']}": row[n] for n in names})

    def _save(self, step: int, state: State) -> None:
        keep = {*scored_steps(self.run, step), *self.evaluator.pending}
        self.record.save(step, trees.to_host(state), keep=keep)

    def _collect(self, at: int, rate: float | None = None) -> None:
        pending = self.evaluator.pending
        busy = f"evaluating step {pending[0]:,}" if pending else ""
        self.display.advance(at, busy)
        self.record.owner.report(at, rate, busy)
        for step, found in self.evaluator.collect():
            self.record.evals.append(found)
            self.record.evals.sync()
            spent = sum(row.cpu_seconds for row in found)
            self.record.timing.append([{"step": step, "evaluation_cpu_seconds": spent, "time": time.time()}])
            success = rows.success_by_seed(found)
            self.display.success(step, success)
            if self.on_evaluation is not None:
                self.enough |= self.on_evaluation(Evaluation(step, tuple(found))) is True
            for seed, percent in success.items():
                self._track(step, {f"eval/success/seed-{seed}": percent / 100})

    def _track(self, step: int, values: dict[str, float]) -> None:
        for tracker in self.trackers:
            tracker.log(step, values)

    def _stop_if_broken(self, broken: Any) -> None:
        found = first_broken(broken, self.run.seeds)
        if found is None:
            return
        step, name, seed = found
        kept = directory.steps(self.record.path)
        last = f"the checkpoint of step {kept[-1]} is intact" if kept else "there is no checkpoint yet"
        raise UserError(
            f"{self.record.path}: {name} is not finite at step {step} for seed {seed}; {last}: try a smaller --lr"
        )

    def _leave_if(self, interruption: Interruption, step: int) -> None:
        """Grant the request to stop; `step` is saved."""
        if interruption.requested:
            kept = f"step {step:,} is saved in {self.record.path}" if step else "nothing has been trained yet"
            raise interruption.error(f"interrupted; {kept}. To resume, run the same command again")


def scored_steps(run: config.Run, step: int) -> list[int]:
    """The evaluations up to `step` that a score averages; their checkpoints are kept."""
    return [s for s in run.eval_steps if s <= step][-KEPT_EVALUATIONS:]


def saved_steps(run: config.Run) -> set[int]:
    """The steps after which a checkpoint is due; `run.steps` is one of them."""
    return {*run.eval_steps, *_multiples(run.save_every, run)}


def default_workers(platform: str, cpus: list[int] | None) -> int:
    """One worker per core reserved for them (`cpus`), else per core that training is likely to leave free."""
    cores = machine.cores()
    free = len(cpus) if cpus else cores // 2 if platform == "cpu" else cores - 1
    return min(max(1, free), 32)


def _multiples(every: int, run: Run) -> list[int]:
    return [*range(every, run.steps, every), run.steps]


def _require_few_rows(run: Run, splits: int) -> None:
    """Raise if metrics.jsonl would become larger than what is read: the run could not be resumed."""
    rows = len(_multiples(run.log_every, run)) * len(run.seeds) * splits
    if rows > MOST_ROWS:
        raise UserError(f"metrics.jsonl would have {rows:,} rows, more than {MOST_ROWS:,}; give a larger --log-every")


def describe(run: Run, training: Dataset, goals: int | None = None) -> RunFacts:
    """What goes into config.json besides the configuration; `goals` is the number of evaluation goals."""
    source, data = None, DataFacts.of(training)
    if run.frozen_rep:
        first = directory.read(run.frozen_rep)
        source = FrozenRep(run.frozen_rep, first.run.id)
        if first.facts.dataset.standards != data.standards:
            raise UserError(f"{run.frozen_rep}: its data were standardised in another way; give both stages one --data")
    return RunFacts(
        sizes=Sizes.of(training),
        dataset=data,
        versions=machine.versions(),
        hardware=machine.Hardware.here(machine.arithmetic(run.precision)),
        goals=goals,
        git=machine.commit(),
        frozen_rep=source,
    )


def check_evaluation(run: Run) -> None:
    """Find out before training what would go wrong after it."""
    if not run.eval_steps:
        return
    world.source(run)  # what it says must be readable
    require_env(run, may_be_own=tasks.may_be_own(run.task))
    if run.env is None and tasks.is_pixels(run.task):
        rendering.require(f"evaluation of '{run.task}'")
        if run.goal_noise:
            raise UserError("goal noise is for vectors; evaluate image goals without it")


def require_env(run: Run, may_be_own: bool) -> None:
    """Raise if there is nowhere to evaluate; `may_be_own` says that the data may come with a maze of their own."""
    if run.eval_steps and run.env is None and not may_be_own and not registry.exists(run.task):
        raise UserError(
            f"no environment for task '{run.task}'; give --episodes 0 to train without evaluation, or your own by --env"
        )

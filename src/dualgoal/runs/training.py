"""A run from start to end: data, steps, metrics, checkpoints, evaluations, and going on after an interruption.

The schedule is a function of the step number alone, and everything written is a function of the state at that step, so
a run that was killed and continued leaves the same record as one that was not. Evaluation goes on beside training, on
checkpoints; one that was not finished when the run stopped is done again from its checkpoint.
"""

import dataclasses
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

import jax
import numpy as np

from dualgoal import machine
from dualgoal.agent import Encoders, State, check_pair
from dualgoal.data import dataset
from dualgoal.errors import UserError
from dualgoal.files import Row, cache_folder
from dualgoal.loop import TrainingLoop, first_broken
from dualgoal.runs import checkpoint, config, directory, evaluation, policy, progress, rows, trees, worker
from dualgoal.runs import trackers as track
from dualgoal.runs.facts import DataFacts, FrozenRep, RunFacts, Sizes
from dualgoal.runs.rows import EvalRow
from dualgoal.sampler import to_device

CHUNK_SECONDS = 0.5  # between looks at signals, evaluations and the clock
KEPT_EVALUATIONS = 3  # a score is the mean of the last three

Say = Callable[[str], None]


def train(
    run: config.Run,
    out: str | Path,
    *,
    data_path: str | Path | None = None,
    workers: int | None = None,
    track_with: Sequence[str] = (),
    video: bool = False,
    quiet: bool = False,
    pin: bool = False,
    datasets: tuple[dataset.Dataset, dataset.Dataset | None] | None = None,
    evaluator: "Evaluator | None" = None,
) -> Path:
    """Train `run` into the directory `out`, or go on with it, and return the directory.

    `datasets` (training, validation) take the place of files, `evaluator` that of environments in worker processes.
    """
    out = Path(out)
    worker_cpus = machine.pin() if pin else None
    if run.deterministic:
        machine.ask_determinism()
    machine.a_device_per_core()
    machine.keep_compiled(cache_folder() / "compiled")
    run = replace(run, frozen_rep=str(Path(run.frozen_rep).resolve())) if run.frozen_rep else run
    check_pair(run.rep, run.algo)  # before any data is fetched or made
    if evaluator is None:
        check_evaluation(run)
    warn: Say = progress.Quiet().say if quiet else lambda text: print(text, flush=True)
    say: Say = (lambda text: None) if quiet else warn
    training, validation = datasets or load_data(run.task, data_path, say)
    goals = evaluator.goals if evaluator else evaluation.count_goals(run.task) if run.eval_steps else None
    facts = describe(run, training, goals)
    agent = policy.agent_for(run, dataclasses.asdict(facts.sizes))
    with ExitStack() as stack:
        record = stack.enter_context(directory.Store(out, run, facts, warn=warn))
        program = TrainingLoop(agent, run.seeds)
        step, state = _restore(record, program, run, goals)
        missing = _missing(record, run, facts.goals, step)
        if step == run.steps and not missing:
            say(f"{out}: complete ({run.steps:,} steps)")
            return out
        say(f"{out}: {f'going on from step {step:,}' if step else 'a new run'}, id {run.id}")
        workers = workers or _default_workers(facts.hardware.platform, worker_cpus)
        pool: Any = stack.enter_context(evaluator or evaluation.Pool(workers, worker_cpus))
        trackers = track.open_trackers(tuple(track_with), out, run, step)
        for tracker in trackers:
            stack.callback(tracker.close)
        title = f"{run.task}  {config.part_name('rep', run.rep)} + {config.part_name('algo', run.algo)}"
        display = progress.display(title, step, run.steps, quiet)
        stack.callback(display.close)
        session = Session(run, record, program, pool, display, trackers, facts.goals, video)
        session.go(state, step, program.place_data(to_device(training)), validation, missing)
    return out


class Evaluator(Protocol):
    """Scores checkpoints while the run goes on; `evaluation.Pool` is one."""

    @property
    def goals(self) -> int:
        """Number of evaluation goals."""
        ...

    @property
    def pending(self) -> list[int]: ...

    def submit(self, step: int, jobs: list[worker.Job]) -> None: ...

    def collect(self, wait: bool = False) -> list[tuple[int, list[EvalRow]]]: ...

    def __enter__(self) -> "Evaluator": ...

    def __exit__(self, *_: object) -> None: ...


class Session:
    """One process's share of a run."""

    def __init__(
        self,
        run: config.Run,
        record: directory.Store,
        program: TrainingLoop,
        pool: "Evaluator",
        display: progress.Display,
        trackers: list[track.Tracker],
        goals: int | None,
        video: bool = False,
    ):
        self.run, self.record, self.program, self.pool = run, record, program, pool
        self.display, self.trackers, self.goals, self.video = display, trackers, goals, video
        self.stops = sorted({*run.eval_steps, *_multiples(run.save_every, run), *_multiples(run.log_every, run)})
        self.saves = {*run.eval_steps, *_multiples(run.save_every, run)}
        self.logs = set(_multiples(run.log_every, run))

    def go(self, state: State, step: int, training: Any, validation: Any, missing: list[int]) -> None:
        """Take the steps that are left, then wait for the evaluations."""
        validation = None if validation is None else self.program.place_data(to_device(validation))
        for late in missing:
            self._submit(late)
        rate, watch = 0.0, Interrupt()
        with watch:
            while step < self.run.steps:
                until = next(s for s in self.stops if s > step)
                count = min(until - step, max(1, int(rate * CHUNK_SECONDS)))
                began = time.perf_counter()
                state, broken = self.program.advance(state, training, count)
                self._stop_if_broken(broken)
                rate, step = count / (time.perf_counter() - began), step + count
                if step == until:
                    self._at(step, state, training, validation, rate)
                self.display.advance(step, f"evaluating step {self.pool.pending[0]:,}" if self.pool.pending else "")
                self._collect()
                if watch.asked and step < self.run.steps:
                    self._save(step, state)
                    raise KeyboardInterrupt(self._how_to_go_on(step))
            while self.pool.pending:
                self.display.advance(step, f"evaluating step {self.pool.pending[0]:,}")
                self._collect()
                if watch.asked:
                    raise KeyboardInterrupt(self._how_to_go_on(step))
                time.sleep(0.05)

    def _at(self, step: int, state: State, training: Any, validation: Any, rate: float) -> None:
        """What the schedule asks for after `step`: log, then save, then evaluate what was saved."""
        if step in self.logs:
            self._log(step, "train", self.program.measure(state, training))
            if validation is not None:
                self._log(step, "val", self.program.measure(state, validation))
            self.record.timing.append([{"step": step, "steps_per_second": rate, "time": time.time()}])
        if step in self.saves:
            self._save(step, state)
        if step in self.run.eval_steps:
            self._submit(step)

    def _log(self, step: int, split: str, values: dict[str, np.ndarray]) -> None:
        names = sorted(values)
        logged: list[Row] = [
            {"step": step, "seed": seed, "split": split, **{n: float(values[n][i]) for n in names}}
            for i, seed in enumerate(self.run.seeds)
        ]
        self.record.metrics.append(logged)
        if split == "train":
            self.display.losses(step, values)
        for row in logged:
            self._track(step, {f"{split}/{n}/seed-{row['seed']}": row[n] for n in names})

    def _save(self, step: int, state: State) -> None:
        scored = [s for s in self.run.eval_steps if s <= step][-KEPT_EVALUATIONS:]
        self.record.save(step, trees.to_host(state), keep={*scored, *self.pool.pending})

    def _submit(self, step: int) -> None:
        noise = {"goal_noise": self.run.goal_noise, "action_noise": self.run.action_noise}
        goals, count = self.goals or 0, self.run.episodes
        jobs = evaluation.jobs_for(self.record.path, step, self.run.seeds, goals, count, self.video, **noise)
        self.pool.submit(step, jobs)

    def _collect(self) -> None:
        for step, found in self.pool.collect():
            self.record.evals.append(found)
            self.record.evals.sync()
            self.display.evaluation(step, found)
            for seed, score in rows.success_by_seed(found).items():
                self._track(step, {f"eval/success/seed-{seed}": score / 100})

    def _track(self, step: int, values: dict[str, float]) -> None:
        for tracker in self.trackers:
            tracker.log(step, values)

    def _stop_if_broken(self, broken: Any) -> None:
        found = first_broken(broken, self.run.seeds)
        if found is None:
            return
        step, name, seed = found
        kept = directory.steps(self.record.path)
        last = f"checkpoint of step {kept[-1]} is intact" if kept else "no checkpoint was due before"
        raise UserError(
            f"{self.record.path}: {name} is not finite at step {step} for seed {seed}; {last}: try a smaller --lr"
        )

    def _how_to_go_on(self, step: int) -> str:
        return f"stopped; {self.record.path} holds step {step:,}. Run the same command again to go on"


class Interrupt:
    """Turns the first Ctrl-C (or SIGTERM) into a question that the loop answers; the second one is real."""

    def __init__(self) -> None:
        self.asked = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Interrupt":
        if threading.current_thread() is threading.main_thread():
            self._before = {s: signal.signal(s, self._note) for s in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True


def _default_workers(platform: str, cpus: list[int] | None) -> int:
    """One worker per core that is theirs (`cpus`), else per core that training is likely to leave free."""
    cores = machine.cores()
    free = len(cpus) if cpus else cores // 2 if platform == "cpu" else cores - 1
    return min(max(1, free), 32)


def _multiples(every: int, run: config.Run) -> list[int]:
    return [*range(every, run.steps, every), run.steps]


def _restore(record: directory.Store, program: TrainingLoop, run: config.Run, goals: int | None) -> tuple[int, State]:
    """The newest state from which everything that follows can be done, with the record cut back to it."""
    shapes = trees.shapes(program.template)
    found = record.newest(shapes)
    while found is not None:
        lost = [s for s in _missing(record, run, goals, found[0]) if not _intact(record, s)]
        if not lost:
            break
        found = record.newest(shapes, before=lost[0])
    step = found[0] if found else 0
    record.rewind(step, set(_missing(record, run, goals, step)))
    if found is not None:
        return step, program.place(trees.fill(program.template, found[1]))
    return 0, start_from(run.frozen_rep, program, run) if run.frozen_rep else program.init()


def _missing(record: directory.Store, run: config.Run, goals: int | None, step: int) -> list[int]:
    """Evaluations up to `step` that are not complete."""
    due = [s for s in run.eval_steps if s <= step]
    return rows.missing(record.evals.rows(), steps=due, seeds=run.seeds, goals=goals or 0)


def _intact(record: directory.Store, step: int) -> bool:
    try:
        checkpoint.verify(directory.checkpoint_path(record.path, step))
    except checkpoint.Damaged as damage:
        record.warn(f"{record.path}: checkpoint {damage}; its evaluation needs it, so an earlier one is used")
        return False
    return True


def start_from(source_path: str, program: TrainingLoop, run: config.Run) -> State:
    """A fresh state whose representation comes from another run, seed by seed (or one seed for all)."""
    source = directory.read_run(Path(source_path))
    if source.rep != run.rep:
        raise UserError(
            f"{source_path}: its representation is {source.rep}, this run asks for {run.rep}; use the same options"
        )
    if len(source.seeds) > 1 and not set(run.seeds) <= set(source.seeds):
        raise UserError(
            f"{source_path}: has seeds {list(source.seeds)}, this run needs {list(run.seeds)}; train those first"
        )
    loaded = [policy.load(source_path, s if s in source.seeds else source.seeds[0]).params for s in run.seeds]
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *[(p.rep, p.encoders) for p in loaded])
    state = program.init()
    rep, encoders = stacked
    if encoders is not None and state.params.encoders is not None:
        encoders = Encoders(state.params.encoders.state, encoders.goal)
    return program.place(state._replace(params=state.params._replace(rep=rep, encoders=encoders)))


def load_data(task: str, path: str | Path | None, say: Say) -> tuple[dataset.Dataset, dataset.Dataset | None]:
    """Training rows, and validation rows where there are any; says where they come from."""
    where = Path(path) if path is not None else find_data(task, say)
    training, validation = dataset.load_splits(where, task)
    say(f"{training.provenance['file']}: {training.rows:,} rows, {training.episodes:,} episodes")
    return training, validation


def find_data(task: str, say: Say) -> Path:
    """A dataset for a task when none was given: cached, else fetched, else generated."""
    from dualgoal.collect import generate as collect
    from dualgoal.data import download
    from dualgoal.envs import tasks

    folders = [cache_folder() / name for name in ("datasets", "generated")]
    for folder in folders:
        if (folder / f"{task}.npz").is_file():
            say(f"data for {task}: cached")
            return folder
    known = tasks.get(task)
    try:
        say(f"data for {task}: fetching (or give --data)")
        return download.fetch_dataset(task, folders[0]).parent
    except UserError as problem:
        if known.needs_expert:
            raise
        say(f"{problem}; generating {known.episodes} episodes instead")
        return collect.generate_dataset(task, known.episodes, folders[1]).parent


def describe(run: config.Run, training: dataset.Dataset, goals: int | None = None) -> RunFacts:
    """What goes into config.json besides the configuration; `goals` is the number of evaluation goals."""
    source = run.frozen_rep and FrozenRep(run.frozen_rep, directory.read_run(run.frozen_rep).id)
    return RunFacts(
        sizes=Sizes.of(training),
        dataset=DataFacts.of(training),
        versions=machine.versions(),
        hardware=machine.Hardware.here(machine.arithmetic(run.precision, training.observation_shape)),
        goals=goals,
        git=machine.commit(),
        frozen_rep=source or None,
    )


def check_evaluation(run: config.Run) -> None:
    """Find out before training what would go wrong after it."""
    if not run.eval_steps:
        return
    from dualgoal.envs import ogbench, rendering, tasks

    if run.task not in tasks.TASKS and run.task not in ogbench.names():
        raise UserError(f"no environment for task '{run.task}'; give --episodes 0 to train without evaluation")
    if tasks.is_pixels(run.task):
        rendering.require(f"evaluation of '{run.task}'")
        if run.goal_noise:
            raise UserError("goal noise is for vectors; evaluate image goals without it")

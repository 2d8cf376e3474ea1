"""The steps of a run, and what is due after them: metrics, checkpoints, evaluations.

The schedule is a function of the step number alone, and everything written is a function of the state at that step, so
a run that was killed and resumed leaves the same record as one that was not. Checkpoints are evaluated while training
continues; an evaluation that was not finished when the run stopped is done again from its checkpoint.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import jax
import numpy as np

from dualgoal import progress
from dualgoal.agent import State
from dualgoal.data.dataset import Dataset
from dualgoal.errors import UserError, number_of
from dualgoal.jsons import Row
from dualgoal.loop import TrainingLoop, first_broken
from dualgoal.runs import directory, duration, policy, resume, rows, trackers, trees
from dualgoal.runs.config import Run
from dualgoal.runs.rows import EvalRow
from dualgoal.sampler import to_device

CHUNK_SECONDS = 0.5  # between looks at signals, evaluations and the clock
PACE_SECONDS = 5.0  # of training, after which its rate is known well enough
LONG_SECONDS = 6 * 3600
KEPT_EVALUATIONS = rows.LAST  # checkpoints behind a score are kept, so that it can be measured again


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


class Request(Protocol):
    """Perhaps a request to stop: an `Interruption`, or the `Background` of a run."""

    @property
    def requested(self) -> bool: ...

    def error(self, message: str) -> BaseException:
        """What to raise when it is granted."""
        ...


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
        self.logs = {*multiples(run.log_every, run)}
        self.saves = saved_steps(run)
        self.stops = sorted(self.logs | self.saves)
        self.since = 0.0  # when the device was last accounted for
        self.pace: tuple[int, float] | None = None  # step and time from which it is measured how long training takes
        self.paced = False  # whether that is known

    def train(self, start: resume.Start, training: Any, validation: Dataset | None, request: Request) -> int:
        """Take the steps that are left, and return the last one."""
        held_out = None if validation is None else self.loop.place_data(to_device(validation))
        step, state = start.step, start.state
        rate, self.since = 0.0, time.perf_counter()
        for earlier in start.evaluations:
            self.evaluator.submit(self.record.path, earlier)
        if step < self.run.steps:
            with policy.own_parts(self.run):
                self.loop.compile(state, training)
            self._leave_if(request, step)  # compiling takes long, and nothing has been computed yet
            self.loop.prepare_measure(*(data for data in (training, held_out) if data is not None))
        while step < self.run.steps and not self.enough:
            until = next(s for s in self.stops if s > step)
            count = min(until - step, max(1, int(rate * CHUNK_SECONDS)))
            began = time.perf_counter()
            state, broken = self.loop.advance(state, training, count)
            self._stop_if_broken(broken)
            rate, step = count / (time.perf_counter() - began), step + count
            self._say_if_long(step)
            if step == until:
                self._keep_schedule(step, state, training, held_out, rate)
            self._collect(step, rate)
            if request.requested and step < self.run.steps:
                self._save(step, state)
                self._leave_if(request, step)
        if step < self.run.steps:
            self._save(step, state)
            self.display.say(f"{self.record.path}: stopped at step {step:,}, as asked; call again to continue")
        return step

    def evaluate(self, step: int, request: Request) -> None:
        """Wait for the evaluations that are left after the last step."""
        while self.evaluator.pending:
            self._collect(step)
            self._leave_if(request, step)
            time.sleep(0.05)
        # Also what a process killed while pruning left behind.
        self.record.prune(scored_steps(self.run, step), self.saves if step == self.run.steps else None)

    def _say_if_long(self, step: int) -> None:
        """Say once, on a CPU, that what was asked for takes many hours there, and what takes less."""
        if self.pace is None:  # the first steps are no measure: much is done in them for the first time
            self.pace = step, time.perf_counter()
            return
        taken, spent = step - self.pace[0], time.perf_counter() - self.pace[1]
        if self.paced or spent < PACE_SECONDS:
            return
        self.paced = True
        seconds = (self.run.steps - step) * spent / taken
        if jax.default_backend() != "cpu" or seconds < LONG_SECONDS:
            return
        parts = {kind: getattr(self.run, kind) for kind in ("rep", "algo")}
        sizes = " ".join(f"--{kind}.hidden 128 128" for kind, part in parts.items() if hasattr(part, "hidden"))
        self.display.say(
            f"{self.record.path}: {duration.text(seconds)} left on this CPU; for a first look, give another --out, "
            f"--steps 10000 --batch-size 256 --lr 1e-3 {sizes}".rstrip()
        )

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
        if len(pending) > 1:
            busy += f", then {number_of(len(pending) - 1, 'more evaluation')}"
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
        # At the first step nothing has been learned yet, so that the learning rate is not to blame.
        advice = "try a smaller --lr" if step > 1 else "look at the loss and at the size of the data's numbers"
        raise UserError(f"{self.record.path}: {name} is not finite at step {step} for seed {seed}; {last}: {advice}")

    def _leave_if(self, request: Request, step: int) -> None:
        """Grant the request to stop; `step` is saved."""
        if request.requested:
            kept = f"step {step:,} is saved in {self.record.path}" if step else "nothing has been trained yet"
            raise request.error(f"interrupted; {kept}. To resume, run the same command again")


def scored_steps(run: Run, step: int) -> list[int]:
    """The evaluations up to `step` that a score averages; their checkpoints are kept."""
    return [s for s in run.eval_steps if s <= step][-KEPT_EVALUATIONS:]


def saved_steps(run: Run) -> set[int]:
    """The steps after which a checkpoint is due; `run.steps` is one of them."""
    return {*run.eval_steps, *multiples(run.save_every, run)}


def multiples(every: int, run: Run) -> list[int]:
    """Every so many steps of a run, and its last one."""
    return [*range(every, run.steps, every), run.steps]

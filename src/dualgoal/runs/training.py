"""A run from start to end: it is prepared, so that what is wrong with it is found, and then carried out: a `session`
takes the steps, from the beginning or from where an earlier one stopped."""

import functools
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from dualgoal import machine, progress
from dualgoal.collect.find import load_data
from dualgoal.data.dataset import Dataset
from dualgoal.errors import number_of
from dualgoal.files import cache_folder
from dualgoal.runs import directory, environment, policy, preparation, resume, trackers
from dualgoal.runs.background import Background
from dualgoal.runs.config import Run
from dualgoal.runs.evaluation import Plan, WorkerEvaluator
from dualgoal.runs.interruption import Interruption
from dualgoal.runs.preparation import How, Prepared
from dualgoal.runs.resume import Start
from dualgoal.runs.session import Evaluator, OnEvaluation, Session, saved_steps, scored_steps
from dualgoal.sampler import to_device

Say = Callable[[str], None]


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
    on_evaluation: OnEvaluation | None = None,
    wait: bool = False,
    background: Background | None = None,
) -> Path:
    """Train `run` into the directory `out`, or resume it there, and return the directory.

    `datasets` (training, validation) take the place of files, `evaluator` that of environments in worker processes;
    `env` is an environment, or a function that makes one, of this process, in which policies are then evaluated.
    `on_evaluation` hears of every evaluation and ends training by returning True. With `wait`, another process that
    writes to `out` is waited for instead of being an error. With `background`, evaluations that are left after the
    last step are left to it.
    """
    out = Path(out)
    worker_cpus = machine.pin() if pin else None
    if run.deterministic:
        machine.ask_determinism()
    machine.a_device_per_core()
    machine.keep_compiled(cache_folder() / "compiled")
    warn: Say = progress.Display().say if quiet else lambda text: print(text, flush=True)
    say: Say = (lambda text: None) if quiet else warn
    how = How(workers, tuple(track_with), video, evaluator.goals if evaluator else None, env)
    run = preparation.before_data(run, out, how)
    ready = preparation.prepare(run, out, *(datasets or load_data(run.task, data_path, say)), how)
    with ExitStack() as stack:
        record = stack.enter_context(directory.Store(out, run, ready.facts, warn=warn, wait=wait))
        start = _start(ready, record, say)
        if start is None:
            return out
        if evaluator is None:
            count = workers or default_workers(ready.facts.hardware.platform, worker_cpus)
            evaluator = WorkerEvaluator(Plan.of(run, ready.facts.goals or 0, video), count, worker_cpus, env)
        stack.enter_context(evaluator)
        opened = trackers.open_trackers(how.track_with, out, run, start.step)
        for tracker in opened:
            stack.callback(tracker.close)
        display = progress.display(f"{run.task}  {' + '.join(run.names)}", start.step, run.steps, quiet)
        stack.callback(display.close)
        session = Session(run, record, ready.loop, evaluator, display, opened, on_evaluation)
        _carry_out(session, ready, start, background, stack)
    return out


def _start(ready: Prepared, record: directory.Store, say: Say) -> Start | None:
    """Where a run begins or goes on, now that no other process is at it; None if it is complete."""
    run, out = ready.run, ready.out
    if (done := max(directory.steps(out), default=0)) > run.steps:
        say(f"{out}: complete ({number_of(done, 'step')}, more than the {run.steps:,} that were asked for)")
        return None
    with policy.own_parts(run):
        ready.require_memory()
        start = resume.restore(record, ready.loop, run, ready.facts.goals or 0)
    record.owner.report(start.step, None, "compiling" if start.step < run.steps else "")
    if start.step == run.steps and not start.evaluations:
        record.prune(scored_steps(run, run.steps), saved_steps(run))
        say(f"{out}: complete ({number_of(run.steps, 'step')})")
        return None
    say(f"{out}: {f'resuming from step {start.step:,}' if start.step else 'a new run'}, id {run.id}")
    if run.has_policy and not run.eval_steps and not start.step:
        env = "" if environment.is_named(run, ready.facts) else " --env"
        say(f"{out}: the policy will not be evaluated; 'dualgoal eval{env}' does that later")
    return start


def _carry_out(
    session: Session, ready: Prepared, start: Start, background: Background | None, stack: ExitStack
) -> None:
    """Take the steps and evaluate, or leave the last evaluations, and what `stack` holds open for them, to the
    `background`."""
    held_out = None if ready.validation is None else ready.facts.dataset.as_networks_read(ready.validation)
    placed = ready.loop.place_data(to_device(ready.facts.dataset.as_networks_read(ready.training)))
    with Interruption() as interruption:
        step = session.train(start, placed, held_out, interruption)
        if background is None or interruption.requested:
            session.evaluate(step, interruption)
        else:
            session.display.close()
            session.display = progress.Display()  # the next run has a display of its own
            background.begin(stack.pop_all(), functools.partial(session.evaluate, step))


def default_workers(platform: str, cpus: list[int] | None) -> int:
    """One worker per core reserved for them (`cpus`), else per core that training is likely to leave free."""
    cores = machine.cores()
    free = len(cpus) if cpus else cores // 2 if platform == "cpu" else cores - 1
    return min(max(1, free), 32)

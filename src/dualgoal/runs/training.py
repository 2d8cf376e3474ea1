"""A run from start to end: what it needs is checked and opened, then a `session` takes the steps, from the beginning or
from where an earlier one stopped."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from dualgoal import jsons, machine, progress
from dualgoal.collect.find import load_data
from dualgoal.compatibility import check_pair
from dualgoal.data.dataset import Dataset
from dualgoal.data.origin import ActionRange
from dualgoal.envs import rendering, tasks
from dualgoal.errors import UserError, check_range, number_of
from dualgoal.files import cache_folder
from dualgoal.loop import TrainingLoop
from dualgoal.runs import continuing, directory, episodes, memory, policy, resume, trackers, world
from dualgoal.runs.config import Run, differences, require_recordable
from dualgoal.runs.evaluation import Plan, WorkerEvaluator, require_sensible
from dualgoal.runs.facts import DataFacts, FrozenRep, RunFacts, Sizes
from dualgoal.runs.interruption import Interruption
from dualgoal.runs.rest import Rest
from dualgoal.runs.session import Evaluator, OnEvaluation, Session, multiples, saved_steps, scored_steps
from dualgoal.sampler import shapes, to_device

MOST_ROWS = jsons.ROWS_LIMIT // 500  # of metrics.jsonl; a row has about 460 bytes

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
    rest: Rest | None = None,
) -> Path:
    """Train `run` into the directory `out`, or resume it there, and return the directory.

    `datasets` (training, validation) take the place of files, `evaluator` that of environments in worker processes;
    `env` is an environment, or a function that makes one, of this process, in which policies are then evaluated.
    `on_evaluation` hears of every evaluation and ends training by returning True. With `wait`, another process that
    writes to `out` is waited for instead of being an error. With `rest`, evaluations that are left after the last step
    are left to it.
    """
    out = Path(out)
    check_range("workers", workers, 1)
    worker_cpus = machine.pin() if pin else None
    if run.deterministic:
        machine.ask_determinism()
    machine.a_device_per_core()
    machine.keep_compiled(cache_folder() / "compiled")
    run = continuing.absolute(run)
    require_recordable(run)  # this and what follows before any data are downloaded or made
    check_pair(run.rep, run.algo, run.frozen_rep is not None)
    if evaluator is None and env is None:
        check_evaluation(run, video)
    warn: Say = progress.Display().say if quiet else lambda text: print(text, flush=True)
    say: Say = (lambda text: None) if quiet else warn
    training, validation = datasets or load_data(run.task, data_path, say)
    facts = describe(run, training, evaluator.goals if evaluator else None, out)
    if validation is not None:
        _require_alike(facts, validation)
    if evaluator is None:
        facts = _with_goals(facts, run, training, validation, env, video)
    goals = facts.goals or 0
    with policy.own_parts(run):  # what does not work is refused before any file
        loop = TrainingLoop(policy.agent_for(run, facts.sizes), run.seeds)
        if run.steps not in directory.steps(out):
            policy.try_out(loop, shapes(training.observations, training.actions, training.goals, training.episodes))
    if not directory.steps(out):
        _require_few_rows(run, splits=1 if validation is None else 2)
    with ExitStack() as stack:
        record = stack.enter_context(directory.Store(out, run, facts, warn=warn, wait=wait))
        if (done := max(directory.steps(out), default=0)) > run.steps:
            say(f"{out}: complete ({number_of(done, 'step')}, more than the {run.steps:,} that were asked for)")
            return out
        with policy.own_parts(run):
            if run.steps not in directory.steps(out):
                memory.require(out, loop, training, validation)
            start = resume.restore(record, loop, run, goals)
        record.owner.report(start.step, None, "compiling" if start.step < run.steps else "")
        if start.step == run.steps and not start.evaluations:
            record.prune(scored_steps(run, run.steps), saved_steps(run))
            say(f"{out}: complete ({number_of(run.steps, 'step')})")
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
        placed = loop.place_data(to_device(facts.dataset.as_networks_read(training)))
        with Interruption() as interruption:
            step = session.train(start, placed, held_out, interruption)
            if rest is None or interruption.requested:
                session.evaluate(step, interruption)
            else:
                display.close()
                session.display = progress.Display()  # the next run has a display of its own
                rest.begin(stack.pop_all(), functools.partial(session.evaluate, step))
    return out


def _with_goals(
    facts: RunFacts, run: Run, training: Dataset, validation: Dataset | None, env: Any, video: bool
) -> RunFacts:
    """The goals of the run's evaluations. The environment is made for this, so what does not fit is found now."""
    facts = dataclasses.replace(facts, goal_list=world.goal_list(run, training.goal_shape, validation))
    if not run.eval_steps:  # goals are still those of whoever evaluates it later
        return facts
    sizes = facts.sizes
    require_sensible(Plan.of(run, 0).conditions, discrete=sizes.discrete, pixels=sizes.pixels)
    if video:
        episodes.encoder()  # which is an extra
    recorded = None if training.discrete else ActionRange.of(training.actions)
    goals = world.count_goals(run, facts, env, video=video, recorded=recorded)
    return dataclasses.replace(facts, goals=goals)


def default_workers(platform: str, cpus: list[int] | None) -> int:
    """One worker per core reserved for them (`cpus`), else per core that training is likely to leave free."""
    cores = machine.cores()
    free = len(cpus) if cpus else cores // 2 if platform == "cpu" else cores - 1
    return min(max(1, free), 32)


def _require_few_rows(run: Run, splits: int) -> None:
    """Raise if metrics.jsonl would become larger than what is read: the run could not be resumed."""
    rows = len(multiples(run.log_every, run)) * len(run.seeds) * splits
    if rows > MOST_ROWS:
        raise UserError(f"metrics.jsonl would have {rows:,} rows, more than {MOST_ROWS:,}; give a larger --log-every")


def describe(run: Run, training: Dataset, goals: int | None = None, out: Path | None = None) -> RunFacts:
    """What goes into config.json besides the configuration; `goals` is the number of evaluation goals, and `out` the
    directory of the run."""
    return RunFacts(
        sizes=Sizes.of(training),
        dataset=DataFacts.of(training),
        versions=machine.versions(),
        hardware=machine.Hardware.here(machine.arithmetic(run.precision)),
        goals=goals,
        git=machine.commit(),
        frozen_rep=_first_stage(run, training, out) if run.frozen_rep else None,
    )


def _first_stage(run: Run, training: Dataset, out: Path | None) -> FrozenRep:
    """The run whose representation this one uses, if they fit. Once that is in a checkpoint of this run, the other one
    may be elsewhere."""
    assert run.frozen_rep
    if out is not None and directory.steps(out) and not directory.is_run(Path(run.frozen_rep)):
        known = directory.read(out).facts.frozen_rep
        if known is not None and known.path == run.frozen_rep:
            return known
    first = directory.read(run.frozen_rep)
    _require_representation(run, first.run)
    _require_data(run.frozen_rep, first.facts, training)
    return FrozenRep(run.frozen_rep, first.run.id)


def _require_representation(run: Run, first: Run) -> None:
    """Raise if the frozen representation that a run asks for is not the one that the first stage has trained."""
    others = [text for text in differences(first, run) if text.startswith("rep.")]
    if others:
        raise UserError(f"{run.frozen_rep}: has another representation ({'; '.join(others)}); use the same options")
    if len(first.seeds) > 1 and not set(run.seeds) <= set(first.seeds):
        has, needs = list(first.seeds), list(run.seeds)
        raise UserError(f"{run.frozen_rep}: has seeds {has}, this run needs {needs}; train those first")
    if run.rep.learns_value and first.discount != run.discount:  # its distances are logarithms of values to this base
        raise UserError(
            f"{run.frozen_rep}: its value has the discount {first.discount}, this run {run.discount}; give --discount "
            f"{first.discount}"
        )


def _require_data(path: str, first: RunFacts, training: Dataset) -> None:
    """Raise if states or goals are others than those from which the frozen representation of `path` has learned."""
    if first.sizes != (sizes := Sizes.of(training)):
        raise UserError(
            f"{path}: was trained on {first.sizes}, but these data have {sizes}; give both stages data of one kind"
        )
    first.dataset.require_goals_of(f"data for the frozen {path}", training)
    if first.dataset.standards != DataFacts.of(training).standards:
        raise UserError(f"{path}: its data were standardised in another way; give both stages one --data")


def _require_alike(facts: RunFacts, validation: Dataset) -> None:
    """Raise if losses on the validation data cannot be computed, or would mean something else than in training."""
    sizes, found = facts.sizes, Sizes.of(validation)
    if found.discrete and found.action_dim < sizes.action_dim:  # not every action need occur there
        found = dataclasses.replace(found, action_dim=sizes.action_dim)
    if found != sizes:
        raise UserError(
            f"the validation data have {found}, but the training data {sizes}; give validation data of the same kind"
        )
    facts.dataset.require_goals_of("the validation data", validation)
    if (facts.dataset.action_range is None) != (DataFacts.of(validation).action_range is None):
        raise UserError(
            "the actions of only one of training and validation data were scaled; give both the same scale_actions"
        )


def check_evaluation(run: Run, video: bool = False) -> None:
    """Find out before training what would go wrong after it, or in its films."""
    world.source(run)  # what it says must be readable
    if not run.eval_steps:
        return
    world.require_named(run, own_maze=tasks.may_be_own(run.task))  # whether it is one, the data will say
    if run.env is None and tasks.is_pixels(run.task):
        rendering.require(f"evaluation of '{run.task}'")
        require_sensible(Plan.of(run, 0).conditions, discrete=False, pixels=True)
    elif run.env is None and video and tasks.is_ogbench(run.task):
        rendering.require(f"a film of '{run.task}'")

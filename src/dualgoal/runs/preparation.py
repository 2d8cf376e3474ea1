"""What has to be true of a run before its first step: all of it is checked here, for training and for its dry run.

Training brings the rows of its data, a dry run only their outline (`data.dataset.load`), of which shapes, episodes and
origin are real. Nothing is written.
"""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dualgoal import imports, jsons, machine
from dualgoal.compatibility import check_pair
from dualgoal.data.dataset import Dataset
from dualgoal.envs import rendering, tasks
from dualgoal.errors import UserError, check_range
from dualgoal.loop import TrainingLoop
from dualgoal.runs import continuing, directory, environment, episodes, memory, policy, trackers
from dualgoal.runs.config import Run, differences, require_recordable
from dualgoal.runs.evaluation import Plan, require_sensible
from dualgoal.runs.facts import DataFacts, FrozenRep, RunFacts, Sizes
from dualgoal.runs.session import multiples
from dualgoal.sampler import shapes
from dualgoal.streams import Transitions

MOST_ROWS = jsons.ROWS_LIMIT // 500  # of metrics.jsonl; a row has about 460 bytes


@dataclass(frozen=True)
class How:
    """How a run is carried out, as far as something may be wrong with it."""

    workers: int | None = None
    track_with: tuple[str, ...] = ()
    video: bool = False
    goals: int | None = None  # of an evaluator that needs no environment
    env: Any = None  # of this process, in place of the run's


@dataclass(frozen=True)
class Prepared:
    """A run that may begin or go on in the directory `out`, with its data and what is recorded about it."""

    run: Run
    out: Path
    training: Dataset
    validation: Dataset | None
    facts: RunFacts
    loop: TrainingLoop

    @property
    def shapes(self) -> Transitions:
        """The training data as programs that are traced see them."""
        data = self.training
        return shapes(data.observations, data.actions, data.goals, data.episodes)

    @property
    def has_steps_left(self) -> bool:
        return self.run.steps > max(directory.steps(self.out), default=0)

    def require_memory(self) -> None:
        """Raise if the steps that are left cannot fit. The memory may be held by another process that is at this run,
        so training asks only when it alone writes to the directory."""
        if self.has_steps_left:
            memory.require(self.out, self.loop, self.training, self.validation)


def before_data(run: Run, out: Path, how: How) -> Run:
    """Check what can be checked before any data are downloaded or made, and return the run with absolute paths."""
    check_range("workers", how.workers, 1)
    run = continuing.absolute(run)
    require_recordable(run)
    check_pair(run.rep, run.algo, run.frozen_rep is not None)
    if how.goals is None and how.env is None:
        check_evaluation(run, how.video)
    trackers.require(how.track_with)
    directory.require_place(out, run)
    return run


def prepare(run: Run, out: Path, training: Dataset, validation: Dataset | None, how: How) -> Prepared:
    """Check a run that has passed `before_data` on its data, and build its training loop."""
    facts = describe(run, training, how.goals, out)
    if validation is not None:
        _require_alike(facts, validation)
    if how.goals is None:
        facts = _with_goals(facts, run, training, validation, how)
    with policy.own_parts(run):
        loop = TrainingLoop(policy.agent_for(run, facts.sizes), run.seeds)
        ready = Prepared(run, out, training, validation, facts, loop)
        if ready.has_steps_left:
            policy.try_out(loop, ready.shapes)
    if not directory.steps(out):
        _require_few_rows(run, splits=1 if validation is None else 2)
    if directory.is_run(out):
        directory.require_same(out, directory.read(out), run, facts)
    return ready


def check_evaluation(run: Run, video: bool = False) -> None:
    """Find out before training what would go wrong after it, or in its films."""
    environment.source(run)  # what it says must be readable
    if not run.eval_steps:
        return
    own_maze = tasks.may_be_own(run.task)  # whether it is one, the data will say
    environment.require_named(run, own_maze, training=True)
    if run.env is None and tasks.is_pixels(run.task):
        rendering.require(f"evaluation of '{run.task}'")
        require_sensible(Plan.of(run, 0).conditions, discrete=False, pixels=True)
    elif run.env is None and video and tasks.is_ogbench(run.task):
        rendering.require(f"a film of '{run.task}'")


def _with_goals(facts: RunFacts, run: Run, training: Dataset, validation: Dataset | None, how: How) -> RunFacts:
    """The goals of the run's evaluations. The environment is made for this, so what does not fit is found now."""
    facts = dataclasses.replace(facts, goal_list=environment.goal_list(run, training.goal_shape, validation))
    if not run.eval_steps:  # goals are still those of whoever evaluates it later
        return facts
    sizes = facts.sizes
    require_sensible(Plan.of(run, 0).conditions, discrete=sizes.discrete, pixels=sizes.pixels)
    if how.video:
        episodes.encoder()  # which is an extra
    goals = environment.count_goals(run, facts, how.env, video=how.video, data=training)
    return dataclasses.replace(facts, goals=goals)


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
        env_sha256=imports.file_digest(run.env) if run.env else None,
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
    if out is not None and not directory.steps(out):
        directory.choose_step(Path(run.frozen_rep))  # from which this run is to begin
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

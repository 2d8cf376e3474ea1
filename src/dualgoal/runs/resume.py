"""Where a run starts: from fresh parameters, from another run's representation, or where it stopped.

An interrupted run has checkpoints, and evaluations of which the last ones may be incomplete. Those are done again, each
from its own checkpoint, while training continues from the newest one. If such a checkpoint is damaged, training goes
back to before it and writes it again.
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from dualgoal.agent import State
from dualgoal.loop import TrainingLoop
from dualgoal.nets.encoders import Encoders
from dualgoal.runs import checkpoint, directory, policy, rows, trees
from dualgoal.runs.checkpoint import Arrays
from dualgoal.runs.config import Run


class Start(NamedTuple):
    """Where a run starts, and the evaluations of earlier steps that have to be done (again)."""

    step: int
    state: State
    evaluations: list[int]


def restore(record: directory.Store, loop: TrainingLoop, run: Run, goals: int) -> Start:
    """The state to continue from, with the record cut back to what was true then."""
    evaluated = record.evals.rows()

    def incomplete(until: int) -> list[int]:
        due = [step for step in run.eval_steps if step <= until]
        return rows.missing(evaluated, steps=due, seeds=run.seeds, goals=goals)

    found = _newest_usable(record, loop, incomplete)
    if found is None:
        record.rewind(0)
        fresh = loop.init() if run.frozen_rep is None else _with_representation(run.frozen_rep, loop, run)
        return Start(0, fresh, [])
    step, arrays = found
    record.rewind(step, incomplete(step))
    return Start(step, loop.place(trees.fill(loop.template, arrays)), incomplete(step))


def _newest_usable(
    record: directory.Store, loop: TrainingLoop, incomplete: Callable[[int], list[int]]
) -> tuple[int, Arrays] | None:
    """The newest intact checkpoint up to which every incomplete evaluation still has an intact checkpoint as well."""
    shapes, before = trees.shapes(loop.template), None
    while (found := record.newest(shapes, before)) is not None:
        lost = [step for step in incomplete(found[0]) if not _intact(record, step)]
        if not lost:
            return found
        before = lost[0]
    return None


def _intact(record: directory.Store, step: int) -> bool:
    try:
        checkpoint.verify(directory.checkpoint_path(record.path, step))
    except checkpoint.Damaged as damage:
        record.warn(f"{record.path}: checkpoint {damage}; step {step:,} still has to be evaluated, so it is retrained")
        return False
    return True


def _with_representation(path: str, loop: TrainingLoop, run: Run) -> State:
    """A fresh state whose representation comes from another run, seed by seed (or one seed for all)."""
    source = directory.read_run(Path(path))
    loaded = [policy.load(path, s if s in source.seeds else source.seeds[0]).params for s in run.seeds]
    rep, encoders = jax.tree.map(lambda *leaves: np.stack(leaves), *[(p.rep, p.encoders) for p in loaded])
    state = loop.init()
    if encoders is not None and encoders.goal is not None and state.params.encoders is not None:
        encoders = Encoders(state.params.encoders.state, encoders.goal)
    return loop.place(state._replace(params=state.params._replace(rep=rep, encoders=encoders)))

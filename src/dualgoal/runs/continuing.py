"""Where a run is that a command asks for, so that the same command with more steps continues it.

A preset derives from the number of steps how often a run is evaluated and logged. When a finished run is extended,
what its user did not choose stays as it was: what is recorded is what a run of that length would have recorded.
"""

import contextlib
import dataclasses
import os
from collections.abc import Collection
from pathlib import Path

from dualgoal import imports
from dualgoal.errors import UserError
from dualgoal.runs import config, directory, environment
from dualgoal.runs.config import Run


def absolute(run: Run) -> Run:
    """The same run for processes in other folders: paths in it do not depend on the current one."""
    if run.frozen_rep:
        run = dataclasses.replace(run, frozen_rep=str(Path(run.frozen_rep).resolve()))
    if run.env:
        run = dataclasses.replace(run, env=imports.absolute(run.env))
    if ":" in run.success:
        run = dataclasses.replace(run, success=imports.absolute(run.success))
    if os.path.isfile(goals := environment.goals_name(run.eval_goals)):
        run = dataclasses.replace(run, eval_goals=goals)
    return run


def find(
    run: Run,
    out: str | Path | None,
    left_open: Collection[str] = config.SCHEDULE,
    also: str | Path | None = None,
) -> tuple[Run, Path]:
    """The directory of a run (`out`, else `also` or one below `runs`), and the run as it is recorded there, apart from
    its steps.

    `left_open` are the fields that the user has not chosen. Where no directory holds this run, it is a new one, and
    `train` says what is wrong if `out` holds another: what was chosen, so that the rest is as in `out` here too.
    """
    run = absolute(run)
    usual = directory.default_folder(run)
    siblings = sorted(usual.parent.glob(f"{usual.name.rpartition('-')[0]}-*"))  # of the same parts, with another id
    others = [*([] if also is None else [Path(also)]), usual, *siblings]
    for folder in [Path(out)] if out is not None else others:
        with contextlib.suppress(UserError):
            before = directory.read_run(folder)
            stage = _recorded_stage(before, run, folder)
            same = dataclasses.replace(run, frozen_rep=stage, **{name: getattr(before, name) for name in left_open})
            if out is not None or not config.differences(dataclasses.replace(before, steps=run.steps), same):
                return same, folder
    return run, usual if out is None else Path(out)


def _recorded_stage(before: Run, run: Run, folder: Path) -> str | None:
    """The first stage of `run`, by the path that is recorded in `folder` if it has been moved from there."""
    if not run.frozen_rep or not before.frozen_rep or directory.is_run(Path(before.frozen_rep)):
        return run.frozen_rep
    recorded = directory.read(folder).facts.frozen_rep
    moved = recorded is not None and recorded.id == directory.read_run(run.frozen_rep).id
    return before.frozen_rep if moved else run.frozen_rep

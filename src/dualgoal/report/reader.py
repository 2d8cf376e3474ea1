"""A run as a report shows it: whatever can be used of its directory, its films, and a short name that tells it apart.

Directories may have been copied halfway, edited by hand or never belonged to this program; `directory.inspect` reads
what can be read. Whatever cannot be shown becomes a line in the report instead of an error.
"""

import datetime
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from dualgoal.envs import tasks
from dualgoal.errors import UserError
from dualgoal.report import distances
from dualgoal.runs import config, directory, measured
from dualgoal.runs.config import Run
from dualgoal.runs.rows import Scores, scores

if TYPE_CHECKING:
    from dualgoal.envs.lightsout import View

MAX_NAMED = 3  # how many foreign files are named before the rest is counted
NOT_IN_LABELS = {"seeds", "eval_every", "save_every", "log_every"}
VIDEOS = "videos"
KNOWN = {
    directory.CONFIG,
    directory.METRICS,
    directory.EVALUATIONS,
    directory.NOISY_EVALUATIONS,
    measured.FILE,
    directory.TIMING,
    directory.CHECKPOINTS,
    *directory.OF_THE_OWNER,
    distances.FILE,
    VIDEOS,
    "tensorboard",
    "wandb",
}


@dataclass(frozen=True)
class RunView(directory.Found):
    """A run that can be shown."""

    run: Run

    @property
    def task(self) -> str:
        """What the run was to solve: the name of the dataset, or the puzzle, however the agent sees its boards."""
        return self.run.task if (view := self.board_view()) is None else f"{tasks.LIGHTSOUT}-{view.puzzle}"

    def part(self, kind: Literal["rep", "algo"]) -> str:
        """Name of the representation or the algorithm. On Lights Out exact distances are a representation too, although
        the agent gets them in place of observations."""
        name = config.part_name(kind, getattr(self.run, kind))
        if kind == "rep" and name == "orig" and (view := self.board_view()) is not None:
            exact = "exact distances of goals" if view.goals_only else "exact distances"
            return exact if view.ideal else "images" if view.drawn else "bits"
        return name

    def board_view(self) -> "View | None":
        """How a run on Lights Out sees the boards; None for other tasks."""
        from dualgoal.envs.lightsout import View  # here, because it needs JAX

        if tasks.family(self.run.task) != tasks.LIGHTSOUT:
            return None
        try:
            return View.parse(self.run.task)
        except UserError:
            return None

    def scores(self) -> Scores:
        """Success by seed, step and goal, without noise."""
        return scores(self.evaluations)

    def videos(self) -> list[Path]:
        folder = self.path / VIDEOS
        return [] if folder.is_symlink() else sorted(folder.glob("*.mp4"))

    def last_change(self) -> datetime.date:
        """The day (UTC) of the last evaluation, or of the configuration if there is none."""
        files = [self.path / name for name in (directory.EVALUATIONS, directory.CONFIG)]
        seconds = next(file.stat().st_mtime for file in files if file.exists())
        return datetime.datetime.fromtimestamp(seconds, datetime.UTC).date()


def read(path: str | Path) -> tuple[RunView | None, list[str]]:
    """The run of a directory, if it is one, and one line about everything that is missing, damaged or foreign."""
    path = Path(path)
    if not path.is_dir():
        return None, ["no such directory" if not path.exists() else "not a directory"]
    found = directory.inspect(path)
    problems = list(found.problems)
    if found.run is None:
        return None, problems
    if not found.evaluations and found.run.eval_steps:
        problems.append(f"no evaluation to show ({directory.EVALUATIONS} is missing or empty)")
    if not found.metrics:
        problems.append(f"no losses to show ({directory.METRICS} is missing or empty)")
    problems += _foreign(path)
    return RunView(**vars(found)), problems


def _foreign(path: Path) -> list[str]:
    names = sorted(p.name for p in path.iterdir() if p.name not in KNOWN and not p.name.startswith("."))
    more = f" and {len(names) - MAX_NAMED} more" * (len(names) > MAX_NAMED)
    return [f"not part of a run, ignored: {', '.join(names[:MAX_NAMED])}{more}"] if names else []


def labels(views: Sequence[RunView]) -> list[str]:
    """A short, distinct name for each run: its parts, what it differs in from runs of the same parts, or its folder."""
    parts = [f"{view.part('rep')} + {view.part('algo')}" for view in views]
    flats = [config.flat(config.to_dict(view.run)) for view in views]
    out = []
    for i, view in enumerate(views):
        twins = [j for j in range(len(views)) if parts[j] == parts[i] and views[j].task == view.task]
        names = sorted({name for j in twins for name in flats[j] if name not in NOT_IN_LABELS})
        differing = [n for n in names if len({json.dumps(flats[j].get(n)) for j in twins}) > 1]
        extra = ", ".join(f"{n.removeprefix('rep.').removeprefix('algo.')} {flats[i].get(n)}" for n in differing[:3])
        out.append(f"{parts[i]} ({extra})" if extra else parts[i])
    keys = [(view.task, label) for view, label in zip(views, out, strict=True)]
    folders = [view.path.name for view in views]
    place = lambda path: path.name if folders.count(path.name) == 1 else path
    return [
        f"{label} [{place(view.path)}]" if keys.count((view.task, label)) > 1 else label
        for view, label in zip(views, out, strict=True)
    ]

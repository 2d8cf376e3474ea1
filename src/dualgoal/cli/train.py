"""`dualgoal train`: a run with the paper's settings as defaults, and how to run it.

Which options there are, and their defaults, depend on the task, the representation and the algorithm. A first look at
the words finds those few; the settings they select become the defaults of `Train`, which is then parsed once.
"""

import argparse
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import tyro
from tyro.conf import Positional, arg

from dualgoal.cli.parsing import unset
from dualgoal.cli.verb import Verb
from dualgoal.envs import tasks
from dualgoal.errors import UserError
from dualgoal.paper import settings
from dualgoal.runs import config
from dualgoal.runs.config import Run

TASK_HELP = "OGBench task (see: dualgoal list tasks), or any name together with --data. Comes first."
REP_HELP = "Goal representation: a name (see: dualgoal list reps), or MODULE:CLASS for one of your own."
ALGO_HELP = (
    "Algorithm: a name (see: dualgoal list algos), MODULE:CLASS for one of your own, or none, which trains the "
    "representation alone."
)


@dataclass(frozen=True)
class Train(Run, Verb):
    """An interrupted run resumes when the same command is given again. Defaults are the paper's settings for the
    chosen task, representation and algorithm; the options listed below are those of the ones you name."""

    task: Annotated[Positional[str], arg(metavar="TASK", help=TASK_HELP)]
    rep_name: Annotated[str, arg(name="rep", metavar="NAME", help=REP_HELP)] = "dual"
    algo_name: Annotated[str, arg(name="algo", metavar="NAME", help=ALGO_HELP)] = "gcivl"
    source: Literal["paper", "code"] = "paper"
    """Defaults from the paper's table of hyperparameters, or from the released commands where those differ."""
    data: Annotated[Path | None, unset("cached, else downloaded, else generated", "PATH")] = None
    """Folder with TASK.npz and TASK-val.npz, or the training file."""
    out: Annotated[Path | None, unset("runs/TASK/REP-ALGO-ID", "PATH")] = None
    """Run directory. A run that is already there is resumed."""
    workers: Annotated[int | None, unset("half the cores; with an accelerator, all but one", "INT")] = None
    """Number of evaluation processes."""
    track: Annotated[tuple[Literal["tensorboard", "wandb"], ...], unset("none")] = ()
    """Trackers to log to, in addition to the JSONL files. wandb stays offline unless WANDB_MODE says otherwise."""
    video: bool = False
    """Film one more episode per goal at every evaluation, with the goal next to it."""
    separate_cores: bool = False
    """Train and evaluate on different cores (Linux)."""
    quiet: bool = False
    """Print nothing but problems."""

    @classmethod
    def defaults(cls, words: Sequence[str]) -> Self:
        """The settings for what the words choose, as far as they choose it."""
        chosen = choose(words)
        if chosen.task is None and not {"-h", "--help"} & set(words):
            raise UserError("the task comes first: dualgoal train TASK ... (see: dualgoal list tasks)")
        base = _base(chosen)
        values: dict[str, Any] = {field.name: getattr(base, field.name) for field in dataclasses.fields(Run)}
        values["task"] = tyro.MISSING  # it is required and has no default
        values["rep_name"], values["algo_name"] = config.part_name("rep", base.rep), config.part_name("algo", base.algo)
        return cls(**values)

    @property
    def configuration(self) -> Run:
        """What decides the result, without how it is run."""
        return Run(**{field.name: getattr(self, field.name) for field in dataclasses.fields(Run)})

    def run(self) -> None:
        from dualgoal.runs import directory, training

        run = self.configuration
        training.train(
            run, self.out or directory.default_folder(run), data_path=self.data, workers=self.workers,
            track_with=self.track, video=self.video, quiet=self.quiet, pin=self.separate_cores,
        )  # fmt: skip


class Chosen(argparse.Namespace):
    """The words that decide which options there are."""

    task: str | None
    rep: str | None
    algo: str | None
    steps: str | None
    source: str | None
    frozen_rep: str | None
    data: str | None
    env: str | None


def choose(words: Sequence[str]) -> Chosen:
    """A first look at the words: the task and seven options, nothing else. Tyro checks them all afterwards."""
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name in ("rep", "algo", "steps", "source", "data", "env"):
        first.add_argument(f"--{name}", nargs="?")  # a value that is missing is tyro's to complain about
    first.add_argument("--frozen-rep", "--frozen_rep", nargs="?")
    chosen, _ = first.parse_known_args(list(words), Chosen())
    chosen.task = words[0] if words and not words[0].startswith("-") else None
    return chosen


def _base(chosen: Chosen) -> Run:
    """The paper's settings; for a task that is not in the paper, the library's defaults."""
    from dualgoal.runs import directory

    frozen = directory.read_run(Path(chosen.frozen_rep)).rep if chosen.frozen_rep else None
    rep = chosen.rep or "dual" if frozen is None else config.part_name("rep", frozen)
    task, algo, source = chosen.task or "cube-single-play-v0", chosen.algo or "gcivl", chosen.source or "paper"
    steps = int(chosen.steps) if chosen.steps and chosen.steps.isdecimal() else None
    if task in tasks.TASKS or not chosen.data:  # without data, an unknown task is an error that names the nearest one
        run = settings.preset(task, rep, algo, source=source, **({} if steps is None else {"steps": steps}))
    else:
        options = {} if steps is None else {"steps": steps}
        run = settings.own(task, rep, algo, has_env=chosen.env is not None, **options)
    return run if frozen is None else dataclasses.replace(run, rep=frozen)

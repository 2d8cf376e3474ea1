"""`dualgoal train`: a run with the paper's settings as defaults, and how to run it.

Which options there are, and their defaults, depend on the task, the representation and the algorithm. A first look at
the words, and at the file that `--config` names, finds those few; the settings they select become the defaults of
`Train`, which is then parsed once.
"""

import argparse
import contextlib
import dataclasses
import functools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import tyro
from tyro.conf import Positional, Suppress, arg

from dualgoal import registry
from dualgoal.cli import run_file
from dualgoal.cli.parsing import unset, whole_number
from dualgoal.cli.run_file import RunFile
from dualgoal.cli.verb import Verb
from dualgoal.envs import tasks
from dualgoal.errors import UserError, unknown
from dualgoal.interface import Representation
from dualgoal.paper import settings
from dualgoal.runs import config, directory
from dualgoal.runs.config import Run

TASK_HELP = "OGBench task (see: dualgoal list tasks), or any name together with --data. Comes first."
REP_HELP = "Goal representation: a name (see: dualgoal list reps), or MODULE:CLASS for one of your own."
ALGO_HELP = (
    "Algorithm: a name (see: dualgoal list algos), MODULE:CLASS for one of your own, or none, which trains the "
    "representation alone."
)
CONFIG_HELP = (
    "TOML file with options (see --print-config), or a run directory whose options to take. Options on the command "
    "line override it."
)
FIRST = "the task comes first: dualgoal train TASK ... (see: dualgoal list tasks)"


@dataclass(frozen=True)
class Train(Run, Verb):
    """An interrupted run resumes when the same command is given again, and a finished one is extended when it is given
    with more --steps. Defaults are the paper's settings for the chosen task, representation and algorithm. Name these
    before --help to see their own options and defaults; without them, those of dual and gcivl are listed."""

    task: Annotated[Positional[str], arg(metavar="TASK", help=TASK_HELP)]
    rep_name: Annotated[str, arg(name="rep", metavar="NAME", help=REP_HELP)] = "dual"
    algo_name: Annotated[str, arg(name="algo", metavar="NAME", help=ALGO_HELP)] = "gcivl"
    frozen_rep: Annotated[str | None, unset("none", "RUN")] = None
    env: Annotated[str | None, unset("the task's, if any", "ENV")] = None
    max_steps: Annotated[int | None, unset("as registered", "INT")] = None
    source: Literal["paper", "code"] = "paper"
    """Defaults from the paper's table of hyperparameters, or from the released commands where those differ."""
    data: Annotated[Path | None, unset("cached, else downloaded, else generated", "PATH")] = None
    """Folder with TASK.npz and TASK-val.npz, or the training file."""
    out: Annotated[Path | None, unset("runs/TASK/REP-ALGO-ID", "PATH")] = None
    """Run directory. A run that is already there is resumed, or extended."""
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
    config_file: Annotated[
        Path | None, arg(name="config", metavar="PATH", help=CONFIG_HELP, help_behavior_hint="(default: none)")
    ] = None
    print_config: bool = False
    """Print all options as a file for --config, and do nothing else."""
    dry_run: bool = False
    """Print what would be trained, where, and how much memory it takes, and do nothing else."""
    left_open: Suppress[tuple[str, ...]] = ()
    for_task: Suppress[str] = ""

    @classmethod
    def defaults(cls, words: Sequence[str]) -> Self:
        """The settings for what the words choose, as far as they choose it."""
        chosen = choose(words)
        file = run_file.read(chosen.config) if chosen.config else RunFile(Path())
        chosen.task = chosen.task or file.options.get("task")
        if chosen.task is None and not {"-h", "--help"} & set(words):
            raise UserError(FIRST)
        base = _base(chosen, file)
        values: dict[str, Any] = {field.name: getattr(base, field.name) for field in dataclasses.fields(Run)}
        if "task" not in file.options:
            values["task"] = tyro.MISSING  # it is required and has no default
        values["rep_name"], values["algo_name"] = base.names
        values |= {name: Path(value) if name in ("data", "out") else value for name, value in file.how.items()}
        values["track"] = tuple(values.get("track", ()))
        given = {word.partition("=")[0].lstrip("-").replace("-", "_") for word in words} | set(file.options)
        values["left_open"] = tuple(name for name in config.SCHEDULE if name not in given)
        return cls(**values, for_task=chosen.task or "")

    @property
    def configuration(self) -> Run:
        """What decides the result, without how it is run."""
        if self.task != self.for_task:
            raise UserError(FIRST)  # the settings above are for another
        return Run(**{field.name: getattr(self, field.name) for field in dataclasses.fields(Run)})

    def run(self) -> None:
        from dualgoal.runs import continuing

        run, out = continuing.find(self.configuration, self.out, self.left_open, also=self.config_file)
        if self.print_config:
            how = {name: getattr(self, name) for name in run_file.HOW if name != "source"}  # all it gave is spelled out
            print(run_file.text(run, how))
            return
        if self.dry_run:
            from dualgoal.runs import forecast
            from dualgoal.runs.preparation import How

            asked = How(self.workers, self.track, self.video)
            print(forecast.text(forecast.look_ahead(run, out, self.data, asked)))
            return
        from dualgoal.runs import training

        training.train(
            run, out, data_path=self.data, workers=self.workers, track_with=self.track, video=self.video,
            quiet=self.quiet, pin=self.separate_cores,
        )  # fmt: skip


def choose(words: Sequence[str]) -> argparse.Namespace:
    """A first look at the words: the task and the options that decide which others there are. Tyro checks them all
    afterwards, and complains about values that are missing."""
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name in ("rep", "algo", "steps", "source", "data", "env", "config"):
        first.add_argument(f"--{name}", nargs="?")
    first.add_argument("--frozen-rep", "--frozen_rep", nargs="?")
    chosen, _ = first.parse_known_args(list(words))
    chosen.task = words[0] if words and not words[0].startswith("-") else None
    return chosen


def _base(chosen: argparse.Namespace, file: RunFile) -> Run:
    """The paper's settings, or the library's defaults for a task that is not in the paper, changed by the file."""
    stage = chosen.frozen_rep or file.options.get("frozen_rep")
    frozen = directory.read_run(Path(stage)).rep if stage else None
    rep = chosen.rep or file.names.get("rep", "dual") if frozen is None else config.part_name("rep", frozen)
    if frozen is not None and chosen.rep and registry.part("rep", chosen.rep) is not type(frozen):
        raise UserError(f"--rep {chosen.rep}: the representation of {stage} is {rep}; leave --rep out")
    names = {"rep": rep, "algo": chosen.algo or file.names.get("algo", "gcivl")}
    task, has_data = chosen.task or "cube-single-play-v0", bool(chosen.data or file.how.get("data"))
    if tasks.plain(task) not in tasks.TASKS and not has_data:
        raise _unknown_task(task, file)
    preset = functools.partial(
        settings.for_task, task, **names, has_data=has_data, has_env=bool(chosen.env or file.options.get("env")),
        source=chosen.source or file.how.get("source", "paper"),
    )  # fmt: skip
    steps = _steps(chosen)
    run = preset(**steps)  # by itself, so that what is wrong with the words is not said of the file
    options = file.options_for(names) | steps
    options.pop("task", None)
    try:
        run = preset(**options) if options != steps else run
        return run if frozen is None else _with_frozen(run, frozen, options)
    except UserError as problem:
        raise UserError(f"{file.path}: {problem}") from problem


def _unknown_task(task: str, file: RunFile) -> UserError:
    """What to do about a task that is not in the paper, without data."""
    if os.path.exists(task):
        return UserError(f"'{task}' is a file or folder; name the task, and give the data as --data {task}")
    if file.path.is_dir() and file.options:
        return UserError(f"{file.path}: its data are not where they were; give them as --data")
    return UserError(f"{unknown('task', task, tasks.TASKS)}; to train on data of your own give --data FOLDER")


def _steps(chosen: argparse.Namespace) -> dict[str, Any]:
    """The steps that were given, as an option; a text that is no number is tyro's to complain about."""
    with contextlib.suppress(ValueError):
        return {} if chosen.steps is None else {"steps": whole_number(chosen.steps)}
    return {}


def _with_frozen(run: Run, frozen: Representation, options: Mapping[str, Any]) -> Run:
    """The run with a trained representation, which keeps its options: those that were given must be the same."""
    asked, there = (config.flat({"rep": config.to_dict(part)}) for part in (run.rep, frozen))
    if other := [name for name in config.flat(options) if name in asked and asked[name] != there.get(name)]:
        raise UserError(f"{other[0]} is {asked[other[0]]}, but {there.get(other[0])} in the run of --frozen-rep")
    return dataclasses.replace(run, rep=frozen)

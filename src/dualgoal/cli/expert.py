"""`dualgoal expert ...`: train a policy that walks, and measure one."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Self

import tyro
from tyro.conf import Positional, arg

from dualgoal.cli.parsing import unset
from dualgoal.cli.verb import Verb, show
from dualgoal.experts.recipe import OFFICIAL, Recipe
from dualgoal.options import FromZero, Range

BODY_HELP = "What is to walk: ant, antball or humanoid."


@dataclass(frozen=True)
class Train(Recipe, Verb):
    """Soft actor-critic with OGBench's settings for the body as defaults: simulation on the cores, learning on the GPU
    if there is one. An interrupted run resumes when the same command is given again."""

    body: Annotated[Positional[str], arg(metavar="BODY", help=BODY_HELP)]
    out: Annotated[Path | None, unset("experts/BODY", "PATH")] = None
    """Folder for the policy (actor.safetensors), its record, progress and checkpoints."""
    threads: Annotated[int | None, unset("all cores", "INT")] = None
    """Threads that simulate; their number changes no result."""
    log_every: int = 10_000
    """Control steps between rows of metrics.jsonl, with which the policy is written."""
    save_every: Annotated[int | None, unset("a tenth of all", "INT")] = None
    """Control steps between checkpoints."""
    start: Annotated[Path | None, unset("random networks", "PATH")] = None
    """What a new run begins with: the folder of an earlier training, or a policy (its file, or the name of a body)."""
    quiet: bool = False
    """Show no progress."""
    begins_with: Annotated[str | None, tyro.conf.Suppress] = None  # --start says it

    @classmethod
    def defaults(cls, words: Sequence[str]) -> Self:
        """The official settings for the body that comes first."""
        recipe = OFFICIAL.get(words[0] if words else "", OFFICIAL["ant"])
        return cls(**{**dataclasses.asdict(recipe), "body": tyro.MISSING})

    def run(self) -> None:
        from dualgoal.experts import training

        recipe = Recipe(**{field.name: getattr(self, field.name) for field in dataclasses.fields(Recipe)})
        print(
            training.train(
                recipe, self.out or Path("experts") / self.body, threads=self.threads, log_every=self.log_every,
                save_every=self.save_every, quiet=self.quiet, start=self.start,
            )
        )  # fmt: skip


@dataclass(frozen=True)
class Eval(Verb):
    """Prints speed along the command, falls per 1,000 steps and, depending on the body, targets reached, balls brought
    to the goal or the time to stand up; without noise on the actions, and with as much as data collection adds."""

    body: Annotated[Positional[Literal["ant", "antball", "humanoid"]], arg(metavar="BODY", help=BODY_HELP)]
    file: Annotated[Path | None, unset("the one that comes with the package", "PATH")] = None
    """A policy (safetensors), or the folder of a training."""
    episodes: Annotated[int, Range(1, 100_000)] = 100
    """Simulations."""
    seed: FromZero = 0
    """Random seed."""
    threads: Annotated[int | None, unset("all cores", "INT"), Range(1, 1024)] = None
    """Threads that simulate; their number changes no result."""
    aim: Annotated[float | None, unset("what the file says", "FLOAT"), Range(0)] = None
    """Metres to which a policy's last two inputs, the way to go, are scaled; 0: they are left as they are."""
    json: bool = False
    """Print JSON."""

    def run(self) -> None:
        from dualgoal import machine
        from dualgoal.collect import experts
        from dualgoal.experts import evaluation

        policy = experts.of_body(self.body, self.file or experts.require_shipped(self.body))
        policy.aim = policy.aim if self.aim is None else self.aim
        found = evaluation.evaluate(
            self.body, policy, episodes=self.episodes, seed=self.seed, threads=self.threads or machine.cores()
        )
        show(found, self.json, evaluation.table)

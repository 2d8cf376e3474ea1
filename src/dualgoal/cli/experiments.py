"""Commands that stand alone: the theorems, Lights Out, joins of two images, and how fast training is."""

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from dualgoal.bench.options import Options
from dualgoal.cli.parsing import unset
from dualgoal.cli.verb import Verb
from dualgoal.errors import check_range
from dualgoal.options import FromZero
from dualgoal.paper.lightsout import Experiment
from dualgoal.probes import options


@dataclass(frozen=True)
class Theory(Verb):
    """Every row of the table is one statement on one random process, with how far it is from holding exactly."""

    json: bool = False
    """Print JSON."""
    seed: FromZero = 0
    """Seed of the random processes."""
    plot: Annotated[Path | None, unset("check the theorems", "PATH")] = None
    """Draw distance fields into this folder instead."""

    def run(self) -> None:
        from dualgoal.theory import checks

        checks.check_and_print(json=self.json, seed=self.seed, plot=self.plot)


@dataclass(frozen=True, kw_only=True)
class LightsOut(Experiment, Verb):
    """Goals are given as bits, as exact distances or by a learned representation. An interrupted run resumes when the
    same command is given again."""

    out: Path
    """Run directory."""
    eval_every: Annotated[int | None, unset("a tenth of the steps", "INT")] = None
    """Steps between evaluations."""
    pairs: bool = False
    """After training, also try all pairs of boards and compare learned with exact distances (up to 12 buttons)."""
    quiet: bool = False
    """Show no progress."""

    def run(self) -> None:
        from dualgoal.paper.lightsout_evaluation import require_pairs, summary

        if self.pairs:  # before training, not after it
            require_pairs(self.out, self._view().puzzle)
        print(summary(self.train(self.out, quiet=self.quiet), pairs=self.pairs))


@dataclass(frozen=True, kw_only=True)
class Joins(options.Options, Verb):
    """Each join is fitted to exact distances of drawn puzzles. The table says how far the fitted distance follows the
    lights that differ (slope 1: fully, 0: not at all). Rows that the file already has are kept, so an interrupted
    command resumes when it is given again."""

    out: Path
    """Row file (JSON)."""
    quiet: bool = False
    """Print the table only."""

    def run(self) -> None:
        from dualgoal.probes import joins, records

        check_range("steps", self.steps, joins.MEASURED, joins.HELD_OUT)
        tell = (lambda line: None) if self.quiet else functools.partial(print, flush=True)
        print("\n".join(records.table(records.train(self, self.out, tell))))


@dataclass(frozen=True)
class Bench(Options, Verb):
    """Times every combination of the lists. In the same process it times a loop that works as the released code does,
    with sampling on the host and one compiled call per step, so that ratios can be compared between machines."""

    def run(self) -> None:
        from dualgoal.bench import measure

        measure.run_bench(self)

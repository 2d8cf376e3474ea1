"""Commands that stand alone: the theorems, Lights Out, and how fast training is."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from dualgoal.bench.options import Options
from dualgoal.cli.parsing import unset
from dualgoal.cli.verb import Verb
from dualgoal.machine import PrecisionOption


@dataclass(frozen=True)
class Theory(Verb):
    """Every row of the table is one statement on one random process, with how far it is from holding exactly."""

    json: bool = False
    """Print JSON."""
    seed: int = 0
    """Seed of the random processes."""
    plot: Annotated[Path | None, unset("check the theorems", "PATH")] = None
    """Draw distance fields into this folder instead."""

    def run(self) -> None:
        from dualgoal.theory import checks

        checks.main(json=self.json, seed=self.seed, plot=self.plot)


@dataclass(frozen=True)
class LightsOut(Verb):
    """Goals are given as bits, as exact distances or by a learned representation. An interrupted run resumes when the
    same command is given again."""

    out: Path
    """Run directory."""
    size: str = "4x5"
    """Board as ROWSxCOLUMNS: 3x3, 4x5 or 4x6."""
    rep: Literal["orig", "ideal", "dual"] = "ideal"
    """orig: the bits. ideal: exact distances from 64 boards, as in the paper. dual: a learned representation."""
    seeds: tuple[int, ...] = (0, 1, 2, 3)
    """Training seeds."""
    steps: int = 1_000_000
    """Gradient steps."""
    batch_size: int = 1024
    """Transitions per gradient step."""
    hidden: tuple[int, ...] = (1024, 1024, 1024, 1024)
    """Widths of the hidden layers."""
    lr: float = 1e-4
    """Adam's learning rate."""
    tau: float = 0.005
    """How fast the target network follows: its share of the new parameters at every step."""
    eval_every: Annotated[int | None, unset("a tenth of the steps", "INT")] = None
    """Steps between evaluations."""
    scaling: Literal["raw", "standardised"] = "raw"
    """Exact distances as they are, or shifted and scaled to mean 0 and variance 1."""
    network: Literal["heads", "onehot"] = "heads"
    """heads: one output per action. onehot: the action is an input."""
    double: bool = False
    """Use double DQN."""
    loss: Literal["squared", "huber"] = "squared"
    """Error that the Q function is trained with."""
    reached_by: Literal["state", "row"] = "state"
    """When a sampled goal counts as reached. state: the boards are equal. row: it is the same row of the data."""
    precision: PrecisionOption = "auto"
    """Precision of matrix products. auto: bf16 on a GPU that supports it, else float32."""
    trajectories: int = 40_000
    """Episodes of random presses in the data."""
    length: int = 25
    """Presses per episode."""
    data_seed: int = 0
    """Seed of the data."""
    anchor_seed: int = 0
    """Seed of the 64 boards from which exact distances are measured."""
    pairs: bool = False
    """After training, also try all pairs of boards (up to 12 buttons)."""
    quiet: bool = False
    """Show no progress."""

    def run(self) -> None:
        from dualgoal.paper import lightsout

        widths = list(self.hidden)
        options: dict[str, Any] = {
            "batch_size": self.batch_size, "lr": self.lr, "tau": self.tau, "reached_by": self.reached_by,
            "precision": self.precision, "algo.hidden": widths, "algo.network": self.network,
            "algo.double": self.double, "algo.loss": self.loss,
        }  # fmt: skip
        options |= {"eval_every": self.eval_every} if self.eval_every else {}
        options |= {"rep.hidden": widths} if self.rep == "dual" else {}
        run = lightsout.preset(
            self.size, self.rep, seeds=self.seeds, steps=self.steps, scaling=self.scaling,
            anchor_seed=self.anchor_seed, **options,
        )  # fmt: skip
        path = lightsout.lightsout_run(
            run, self.out, trajectories=self.trajectories, length=self.length, data_seed=self.data_seed,
            quiet=self.quiet,
        )  # fmt: skip
        print(lightsout.summary(path, pairs=self.pairs))


@dataclass(frozen=True)
class Bench(Options, Verb):
    """Times every combination of the lists. In the same process it times a loop that works as the released code does,
    with sampling on the host and one compiled call per step, so that ratios can be compared between machines."""

    def run(self) -> None:
        from dualgoal.bench import measure

        measure.run_bench(self)

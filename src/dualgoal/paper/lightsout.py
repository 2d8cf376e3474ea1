"""The Lights Out experiment: DQN on boards given as bits, as exact distances or as a learned representation.

This is the experiment of section 8 of the method. It is an ordinary run with the same agent, sampler, training loop and
run directory as everything else. Two parts are its own: the data are made here, and success is measured on the device,
where the puzzle is a few bit flips (`lightsout_evaluation.py`). Under `ideal` the map to distances from 64 anchor
boards is applied to states and goals before the agent, which then uses `orig`; under `ideal_goals` it is applied to
goals alone, as a goal representation is everywhere else. The others are learned.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from dualgoal.errors import UserError, check_range
from dualgoal.machine import PrecisionOption
from dualgoal.options import FromOne, FromZero, Positive, Range, Rate, Seeds, Share, Sizes, check_options

if TYPE_CHECKING:  # importing them at once would load JAX for every --help
    from dualgoal.envs.lightsout import View
    from dualgoal.runs.config import Run

RepName = Literal["orig", "ideal", "ideal_goals", "dual", "dual_siamese", "dual_pair", "dual_token"]
REPS: tuple[RepName, ...] = get_args(RepName)
EXACT = ("ideal", "ideal_goals")
EPISODES = 15  # per evaluation goal


@dataclass(frozen=True)
class Experiment:
    """DQN on Lights Out with bits, exact distances or a learned representation.

    The defaults are the paper's where it states them. The paper has no learned representation here; its settings are
    our choice.
    """

    # Options that the paper leaves open are A1 to A4, A9 and A10 of the method.

    size: str = "4x5"
    """Board as ROWSxCOLUMNS: 3x3, 4x5 or 4x6. Others have no evaluation goals; see --pairs."""
    rep: RepName = "ideal"
    """orig: boards as they are. ideal: exact distances for states and goals (the paper), ideal_goals: for goals.
    Others: learned."""
    drawn: bool = False
    """Show boards as images instead of bits."""
    seeds: Seeds = (0, 1, 2, 3)
    """Training seeds."""
    steps: FromOne = 1_000_000
    """Gradient steps."""
    batch_size: FromOne = 1024
    """Transitions per gradient step."""
    hidden: Sizes = (1024, 1024, 1024, 1024)
    """Widths of the hidden layers."""
    lr: Positive = 1e-4
    """Adam's learning rate."""
    tau: Rate = 0.005
    """How fast the target network follows: its share of the new parameters at every step."""
    eval_every: Annotated[int | None, Range(0)] = None
    """Steps between evaluations; None: a tenth of the steps."""
    scaling: Literal["raw", "standardised"] = "raw"
    """Exact distances as they are, or shifted and scaled to mean 0 and variance 1."""
    network: Literal["heads", "onehot"] = "heads"
    """heads: one output per action. onehot: the action is an input."""
    double: bool = False
    """Use double DQN."""
    loss: Literal["squared", "huber"] = "squared"
    """Loss of the temporal-difference error."""
    reached_by: Literal["state", "row"] = "state"
    """When a sampled goal counts as reached. state: the boards are equal. row: it is the same row of the data."""
    precision: PrecisionOption = "auto"
    """Precision of matrix products. auto: bf16 on a GPU that supports it, else float32."""
    trajectories: int = 40_000
    """Episodes of random presses in the data."""
    length: int = 25
    """Presses per episode of the data."""
    data_seed: FromZero = 0
    """Seed of the data."""
    corner_presses: Annotated[float, Range(0.001)] = 1.0
    """How often a corner is pressed in the data, relative to any other button."""
    trained_by: Literal["rep", "all"] = "rep"
    """What trains a learned representation. rep: its own loss alone. all: DQN's loss too."""
    hard_goals: Share = 0.0
    """Learned: share of goals in its own loss replaced by the goal of the batch that it takes to be nearest."""
    anchor_seed: FromZero = 0
    """Seed of the 64 boards from which distances are measured."""

    def __post_init__(self) -> None:
        check_options(self)

    def to_run(self, **overrides: Any) -> "Run":
        """The configuration of the run.

        `overrides` are fields of `Run`, or options of a part by dotted names such as "algo.double".
        """
        from dualgoal.envs import lightsout_puzzle
        from dualgoal.runs import config, dotted

        learns = self.rep not in ("orig", *EXACT)
        if self.trained_by == "all" and not learns:
            raise UserError(f"trained_by 'all': {self.rep} has nothing that could be trained; choose a learned one")
        if self.hard_goals and not learns:
            raise UserError(f"hard_goals: {self.rep} has no loss of its own; choose a learned one")
        every = self.eval_every or max(1, self.steps // 10)
        hidden = list(self.hidden)
        learned: dict[str, Any] = {"name": self.rep, "dim": 64, "expectile": 0.9, "hidden": hidden}
        learned |= {"trained_by": self.trained_by, "hard_goals": self.hard_goals}
        algo = {"name": "dqn", "hidden": hidden, "network": self.network, "double": self.double, "loss": self.loss}
        view = self._view()
        has_goals = str(view.puzzle) in lightsout_puzzle.TASKS
        if not has_goals and view.puzzle.buttons > lightsout_puzzle.PAIRS_LIMIT:
            lightsout_puzzle.task_boards(view.puzzle)  # raises, listing boards; a small board is tried on all pairs
        values: dict[str, Any] = {
            "task": view.task,
            "rep": learned if learns else {"name": "orig"},
            "algo": algo,
            "seeds": list(self.seeds),
            "steps": self.steps,
            "batch_size": self.batch_size,
            "discount": 0.95,
            "lr": self.lr,
            "tau": self.tau,
            "reached_by": self.reached_by,
            "precision": self.precision,
            "episodes": EPISODES if has_goals and overrides.get("episodes") != 0 else 0,
            "augment": 0.0,
            **config.schedule(every),
        }
        return dotted.from_options(values, overrides)

    def _view(self) -> "View":
        from dualgoal.envs import lightsout_puzzle
        from dualgoal.envs.lightsout import View

        return View(
            puzzle=lightsout_puzzle.Puzzle.parse(self.size),
            ideal=self.rep in EXACT,
            scaling=self.scaling,
            anchor_seed=self.anchor_seed,
            goals_only=self.rep == "ideal_goals",
            drawn=self.drawn,
        )

    def train(self, out: str | Path, *, quiet: bool = False) -> Path:
        """Train into the run directory `out`, or resume the run there."""
        data = (self.trajectories, self.length, self.data_seed, self.corner_presses)
        return train(self.to_run(), out, *data, quiet=quiet)


def configure(task: str, rep: str, algo: str, **options: Any) -> "Run":
    """The run of a cell of the Lights Out figure. Its Dual is the exact map, not a learned one (section 8)."""
    if rep not in ("orig", "dual") or algo != "dqn":
        known = "orig (bits) and dual (exact distances) under dqn"
        raise UserError(
            f"{task}: tables and sweeps have {known} here, not {rep} under {algo}; take another task for it, or "
            "dualgoal lightsout for other representations"
        )
    experiment = Experiment(
        task.removeprefix("lightsout-"),
        "ideal" if rep == "dual" else "orig",
        steps=options.get("steps", Experiment.steps),  # which also sets the number of steps between evaluations
    )
    return experiment.to_run(**options)


def train(
    run: "Run",
    out: str | Path,
    trajectories: int = Experiment.trajectories,
    length: int = Experiment.length,
    data_seed: int = Experiment.data_seed,
    corner_presses: float = Experiment.corner_presses,
    *,
    quiet: bool = False,
    wait: bool = False,
) -> Path:
    """Train a run of `Experiment.to_run` into `out`, or resume it. A3: one dataset of random presses for all seeds."""
    from dualgoal import machine
    from dualgoal.collect.lightsout import view_dataset
    from dualgoal.envs.lightsout import View
    from dualgoal.paper.lightsout_evaluation import OnDevice
    from dualgoal.runs import policy, training
    from dualgoal.runs.facts import Sizes

    machine.a_device_per_core()  # before the board's arithmetic uses one
    view = View.parse(run.task)
    if run.goal_noise or run.action_noise:
        raise UserError("Lights Out is evaluated without noise: a board is right or wrong")
    check_range("trajectories", trajectories, 1)
    check_range("length", length, 2)
    dataset = view_dataset(view, trajectories, length, data_seed, corner_presses)
    evaluator = OnDevice(run, view, policy.agent_for(run, Sizes.of(dataset)))
    return training.train(run, out, datasets=(dataset, None), evaluator=evaluator, quiet=quiet, wait=wait)

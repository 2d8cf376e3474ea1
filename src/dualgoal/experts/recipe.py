"""How each body is trained: OGBench's settings, except that many simulations run at once."""

import dataclasses
import math
from dataclasses import dataclass

from dualgoal.errors import UserError
from dualgoal.options import FromOne, FromZero, Positive, Rate, Share, Sizes, Weight, check_options


@dataclass(frozen=True)
class Recipe:
    """Everything that decides which policy comes out, together with versions and hardware."""

    body: str
    """What is to walk: ant, antball or humanoid."""
    steps: FromOne = 400_000
    """Control steps, of all simulations together."""
    updates_per_step: Positive = 1.0
    """Gradient steps per control step."""
    envs: FromOne = 64
    """Simulations that run at the same time."""
    horizon: FromOne = 4
    """Steps of each simulation between two rounds of updates; the policy that acts is one round old."""
    random_steps: FromZero = 10_000
    """Steps with random actions at the beginning, without updates."""
    replay: int = 1_000_000
    """Newest transitions that batches are drawn from."""
    hidden: Sizes = (256, 256)
    """Widths of the critic's hidden layers."""
    policy_hidden: Sizes = (256, 256)
    """Widths of the policy's hidden layers."""
    norm: bool = False
    """LayerNorm in the critic."""
    pessimistic: bool = True
    """Bootstrap from the smaller of the two critics, else from their mean."""
    end_is_terminal: bool = False
    """Do not bootstrap at the step limit of an episode, so that what is left undone by then is lost."""
    batch_size: FromOne = 256
    """Transitions per gradient step."""
    lr: Positive = 1e-4
    """Adam's learning rate."""
    discount: Rate = 0.99
    """Discount gamma."""
    tau: Rate = 0.005
    """Rate at which the target critic follows the critic."""
    actor_pace: Positive = 1.0
    """The learning rate of the policy and of the entropy's weight, as a share of lr."""
    alpha: Positive = 1.0
    """Weight of the entropy at the beginning; it is learned."""
    actor_waits: FromZero = 0
    """Gradient steps at the beginning that train only the critics, for a policy that comes without them (--start)."""
    look_ahead: FromOne = 1
    """Steps whose rewards a critic's target adds up before it bootstraps, as far as the round goes."""
    rise: Weight = 0.0
    """Reward for the height of the head, besides the body's own: what a humanoid that stands gets for it per step."""
    pace: Weight = 0.0
    """Metres per second along the command (or against it) beyond which a humanoid's reward does not change; 0: none."""
    upright: Share = 0.0
    """Share of the episodes that begin standing, for a body that otherwise begins lying down."""
    episode: FromZero = 0
    """Steps of an episode; 0: as many as the body's own has."""
    falls_end: bool = False
    """End the episode of a humanoid that falls after it has stood a while (no more reward); the next starts there."""
    command_frame: bool = False
    """Read velocities in the frame of the command, whatever its direction, and in units of about their usual size."""
    seed: FromZero = 0
    """Random seed."""
    begins_with: str | None = None
    """SHA-256 of the file whose networks are trained further; None: they begin at random."""

    def __post_init__(self) -> None:
        check_options(self)
        if self.round > min(self.replay, 1 << 20):
            raise UserError(f"{self.envs} simulations x {self.horizon} steps: more than the replay, or than a million")
        if self.steps > 2**31 - self.round:
            raise UserError(f"steps is {self.steps}; at most {2**31 - self.round:,} can be counted")

    @property
    def round(self) -> int:
        """Control steps between two rounds of updates."""
        return self.envs * self.horizon

    @property
    def rounds(self) -> int:
        """Rounds until at least `steps` are taken."""
        return math.ceil(self.steps / self.round)

    @property
    def updates(self) -> int:
        """Gradient steps after a round."""
        return max(1, round(self.round * self.updates_per_step))

    @property
    def capacity(self) -> int:
        """Rows of the replay: whole rounds, so that the newest overwrites the oldest."""
        return self.replay // self.round * self.round


FOR_SOME = ("rise", "pace", "upright", "falls_end", "command_frame")
"""Settings that mean something for some bodies only; `Body.settings` says for which."""

OFFICIAL = {
    "ant": Recipe("ant"),
    "antball": Recipe(
        "antball", steps=12_000_000, updates_per_step=0.25, envs=256, norm=True, end_is_terminal=True
    ),
    "humanoid": Recipe(
        "humanoid", steps=40_000_000, updates_per_step=0.25, envs=256, hidden=(1024, 1024, 1024), norm=True,
        pessimistic=False,
    ),
}  # fmt: skip
"""Steps, updates, networks and losses as OGBench trains its own; there one simulation at a time."""


def changed(recipe: Recipe) -> dict[str, object]:
    """The settings in which a recipe is not the official one."""
    official = OFFICIAL.get(recipe.body, Recipe(recipe.body))
    names = [field.name for field in dataclasses.fields(Recipe)]
    return {name: getattr(recipe, name) for name in names if getattr(recipe, name) != getattr(official, name)}

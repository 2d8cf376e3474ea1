"""How each body is trained: OGBench's settings, except that many simulations run at once."""

import dataclasses
import math
from dataclasses import dataclass

from dualgoal.errors import UserError, check_range

WIDEST = 1 << 14  # of a layer


@dataclass(frozen=True)
class Recipe:
    """Everything that decides which policy comes out, together with versions and hardware."""

    body: str
    """What is to walk: ant, antball or humanoid."""
    steps: int = 400_000
    """Control steps, of all simulations together."""
    updates_per_step: float = 1.0
    """Gradient steps per control step."""
    envs: int = 64
    """Simulations that run at the same time."""
    horizon: int = 4
    """Steps of each simulation between two rounds of updates; the policy that acts is one round old."""
    random_steps: int = 10_000
    """Steps with random actions at the beginning, without updates."""
    replay: int = 1_000_000
    """Newest transitions that batches are drawn from."""
    hidden: tuple[int, ...] = (256, 256)
    """Widths of the critic's hidden layers."""
    policy_hidden: tuple[int, ...] = (256, 256)
    """Widths of the policy's hidden layers."""
    norm: bool = False
    """LayerNorm in the critic."""
    pessimistic: bool = True
    """Bootstrap from the smaller of the two critics, else from their mean."""
    end_is_terminal: bool = False
    """Do not bootstrap at the step limit of an episode, so that what is left undone by then is lost."""
    batch_size: int = 256
    """Transitions per gradient step."""
    lr: float = 1e-4
    """Adam's learning rate."""
    discount: float = 0.99
    """Discount gamma."""
    tau: float = 0.005
    """Rate at which the target critic follows the critic."""
    actor_pace: float = 1.0
    """The learning rate of the policy and of the entropy's weight, as a share of lr."""
    alpha: float = 1.0
    """Weight of the entropy at the beginning; it is learned."""
    actor_waits: int = 0
    """Gradient steps at the beginning that train only the critics, for a policy that comes without them (--start)."""
    look_ahead: int = 1
    """Steps whose rewards a critic's target adds up before it bootstraps, as far as the round goes."""
    rise: float = 0.0
    """Reward for the height of the head, besides the body's own: what a humanoid that stands gets for it per step."""
    pace: float = 0.0
    """Metres per second along the command (or against it) beyond which a humanoid's reward does not change; 0: none."""
    upright: float = 0.0
    """Share of the episodes that begin standing, for a body that otherwise begins lying down."""
    episode: int = 0
    """Steps of an episode; 0: as many as the body's own has."""
    falls_end: bool = False
    """End the episode of a humanoid that falls after it has stood for a while, so that all later rewards are lost. The
    next episode begins where it lies."""
    command_frame: bool = False
    """Read velocities in the frame of the command, whatever its direction, and in units of about their usual size."""
    seed: int = 0
    """Random seed."""
    begins_with: str | None = None
    """SHA-256 of the file whose networks are trained further; None: they begin at random."""

    def __post_init__(self) -> None:
        least = {
            "steps": 1, "envs": 1, "horizon": 1, "random_steps": 0, "batch_size": 1, "actor_waits": 0, "look_ahead": 1,
            "rise": 0, "pace": 0, "episode": 0, "seed": 0,
        }  # fmt: skip
        for name, smallest in least.items():
            check_range(name, getattr(self, name), smallest, math.inf)
        for name in ("hidden", "policy_hidden"):
            widths = getattr(self, name)
            if not widths or not all(1 <= width <= WIDEST for width in widths):
                raise UserError(f"{name} is {widths}; expected one width or more, each from 1 to {WIDEST:,}")
        check_range("upright", self.upright, 0, 1)
        for name in ("discount", "tau"):
            if not 0 < getattr(self, name) <= 1:
                raise UserError(f"{name} is {getattr(self, name)}; expected a number above 0 and at most 1")
        for name in ("lr", "updates_per_step", "actor_pace", "alpha"):
            if not 0 < getattr(self, name) < math.inf:
                raise UserError(f"{name} is {getattr(self, name)}; expected a number above 0")
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

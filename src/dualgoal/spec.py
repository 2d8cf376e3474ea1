"""A problem as parts see it: the shapes of observations and goals, the kind of actions, and the optimisation."""

from dataclasses import dataclass
from typing import Literal

from dualgoal.errors import UserError
from dualgoal.options import Discount, check_options


@dataclass(frozen=True)
class Spec:
    """Everything about a problem and its optimisation that a representation and an algorithm may read.

    A part is given the spec of what its networks read: features (N,) where image encoders are shared, and for an
    algorithm z in place of goals. Only `Representation.routes` is given the spec of the problem itself.
    """

    observation_shape: tuple[int, ...]
    action_dim: int
    discrete: bool = False
    discount: Discount = 0.99
    batch_size: int = 1024
    lr: float = 3e-4
    tau: float = 0.005
    ema_before_update: bool = True  # targets follow the parameters from before the gradient step
    augment: float = 0.5  # images: probability that a batch is shifted
    reached_by: Literal["row", "state"] = "row"  # when a goal counts as reached: same row, or equal observations
    precision: Literal["float32", "tf32", "bf16"] = "float32"
    goal_shape: tuple[int, ...] = ()  # shape of one goal, or of z for an algorithm; () means: as an observation
    fusion: Literal["concat", "early", "late"] = "concat"  # how one network joins s and g; images: "early" or "late"
    goals_on_sphere: bool = False  # for an algorithm: every z has the length sqrt(N)
    factor_shape: tuple[int, int] | None = None  # for an algorithm: of the representation's `factors`, if it has any
    goals_as_states: bool = True  # goals are states, and features of both alike; for an algorithm: and z is the goal

    def __post_init__(self) -> None:
        if len(self.observation_shape) not in (1, 3):
            raise UserError(f"observation shape {self.observation_shape}: expected (D,) or (H, W, C)")
        check_options(self)
        if not self.goal_shape:
            object.__setattr__(self, "goal_shape", self.observation_shape)
        if self.goal_shape != self.observation_shape:
            object.__setattr__(self, "goals_as_states", False)

    @property
    def pixels(self) -> bool:
        return len(self.observation_shape) == 3

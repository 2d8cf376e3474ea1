"""The vocabulary of the project: what is sampled, what a representation is, what an algorithm is.

A *representation* turns a goal into what an algorithm sees instead of it; an *algorithm* turns states and encoded
goals into losses and actions. Neither knows the other (sections 4 and 5 of the method); `agent.py` joins them.
Both are frozen dataclasses of options; their networks live in a dictionary of modules that `init` returns.
"""

import abc
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
from jaxtyping import Array, Float, PRNGKeyArray

from dualgoal.errors import UserError

Nets = dict[str, eqx.Module]  # the modules of one part by name; `ema` names the ones that have a slow copy
Info = dict[str, Array]


@dataclass(frozen=True)
class GoalMix:
    """Where goals come from (section 2.2): the paper's tuple P = (p_cur, p_geom, p_traj, p_rand).

    Two consumers with equal mixes share one draw per transition unless a mix is `own`; an own stream is also cropped
    on every batch with its own offsets when `crop` is "own" (reference, D14) instead of with the batch's coin.
    """

    current: float
    geometric: float
    uniform: float
    random: float
    own: bool = False
    crop: str = "shared"

    def __post_init__(self):
        shares = (self.current, self.geometric, self.uniform, self.random)
        if any(p < 0 for p in shares) or not math.isclose(sum(shares), 1.0, abs_tol=1e-6):
            raise UserError(f"goal mix {shares} does not sum to one; give four shares >= 0 that add up to 1")
        if self.geometric > 0 and self.uniform > 0:
            raise UserError(f"goal mix {shares} has both geometric and uniform future goals; choose one of them")
        if self.crop not in ("shared", "own"):
            raise UserError(f"goal mix crop '{self.crop}' is neither 'shared' nor 'own'")


@dataclass(frozen=True)
class Window:
    """Four frames of a trajectory window (section 2.3, VIP). `aligned=False`: the reference's shifted windows, D11."""

    aligned: bool = True


Stream = GoalMix | Window

VALUE_GOALS = GoalMix(0.2, 0.5, 0.0, 0.3)
FUTURE_GOALS = GoalMix(0.0, 1.0, 0.0, 0.0)
ACTOR_GOALS = GoalMix(0.0, 0.0, 1.0, 0.0)


class Goals(NamedTuple):
    """One goal per transition, and whether the transition starts at it (r = success - 1, m = 1 - success)."""

    g: Any  # (B, ...) observations, or features of them
    success: Float[Array, " B"]


class Frames(NamedTuple):
    """VIP's tuples (o_0, o_k, o_{k+1}, o_T), each (B, ...)."""

    first: Any
    now: Any
    after: Any
    last: Any


class Batch(NamedTuple):
    """Transitions and one goal stream per consumer: "rep", "value", "actor" (only those that somebody asked for)."""

    s: Any  # (B, ...)
    a: Float[Array, "B A"]  # discrete actions are one-hot
    next_s: Any  # (B, ...)
    streams: dict[str, Goals | Frames]


class Encoded(NamedTuple):
    """What an algorithm sees instead of a goal, and a price per sample for it (VIB's beta * KL; zero elsewhere)."""

    z: Any  # (B, N), or the goal itself
    penalty: Any  # (B,) or 0.0


class Condition(NamedTuple):
    """A goal stream as an algorithm receives it."""

    z: Any
    success: Float[Array, " B"]
    advantage: Any = None  # (B,), the representation's own f(s',g) - f(s,g); only under direct extraction


class Routes(NamedTuple):
    """Which losses ("own", "value", "actor") may move a representation's head, and which pass through it to the
    goal encoder of an image (section 4.7). Everything else is stopped."""

    head: frozenset[str]
    features: frozenset[str]


@dataclass(frozen=True)
class Spec:
    """Everything about a problem and its optimisation that both parts may read."""

    observation_shape: tuple[int, ...]
    action_dim: int
    discrete: bool = False
    discount: float = 0.99
    batch_size: int = 1024
    lr: float = 3e-4
    tau: float = 0.005
    ema_before_update: bool = True  # targets follow the parameters from before the gradient step
    augment: float = 0.5  # pixels: probability that a batch is shifted
    reached_by: str = "row"  # "row": goal row = transition row; "state": equal observations
    precision: str = "float32"
    goal_shape: tuple[int, ...] | None = None  # None: as observations; set by the agent for what comes after encoders
    fusion: str = "concat"  # how heads join s and g when both are images: "early" or "late"; vectors: "concat"

    def __post_init__(self):
        if len(self.observation_shape) not in (1, 3):
            raise UserError(f"observation shape {self.observation_shape}: expected (D,) or (H, W, C)")
        for name, value, allowed in (
            ("precision", self.precision, ("float32", "tf32", "bf16")),
            ("reached_by", self.reached_by, ("row", "state")),
            ("fusion", self.fusion, ("concat", "early", "late")),
        ):
            if value not in allowed:
                raise UserError(f"{name} '{value}' is not one of {', '.join(allowed)}")
        if self.pixels and self.reached_by == "state":
            raise UserError("reached_by 'state' compares vectors; image observations need 'row'")
        if not 0 < self.discount < 1:
            raise UserError(f"discount {self.discount} is outside (0, 1)")

    @property
    def pixels(self) -> bool:
        return len(self.observation_shape) == 3

    @property
    def goals(self) -> tuple[int, ...]:
        return self.goal_shape or self.observation_shape


class Representation(abc.ABC):
    """What changes for any algorithm when goals are represented in a new way. Subclasses are final."""

    shares_encoders: ClassVar[bool] = True  # images: one state and one goal encoder for all heads (late fusion)
    has_value: ClassVar[bool] = False  # whether `value` gives one

    @property
    @abc.abstractmethod
    def ema(self) -> tuple[str, ...]:
        """Names of the networks that have a slow copy."""

    @abc.abstractmethod
    def init(self, key: PRNGKeyArray, spec: Spec) -> Nets:
        """The networks; `spec` describes features, not images."""

    @abc.abstractmethod
    def shape(self, spec: Spec) -> tuple[int, ...]:
        """The shape of z for one goal."""

    @abc.abstractmethod
    def encode(self, nets: Nets, g: Array, s: Array, key: PRNGKeyArray) -> Encoded:
        """Represent goals (B, ...). `s` is there for representations that look at the state; `key` is consumed."""

    @abc.abstractmethod
    def stream(self) -> Stream | None:
        """The goals of its own loss, or None."""

    @abc.abstractmethod
    def routes(self, spec: Spec, has_value: bool) -> Routes:
        """Who trains it, on vectors or pixels, under an algorithm with or without a value loss."""

    @abc.abstractmethod
    def loss(self, nets: Nets, targets: Nets, batch: Batch, key: PRNGKeyArray, spec: Spec) -> tuple[Any, Info]:
        """Its own objective on `batch.streams["rep"]`; not called when `stream` is None."""

    @abc.abstractmethod
    def value(self, nets: Nets, s: Array, g: Array, spec: Spec) -> Any:
        """Its own goal-conditioned value (B,) in units of the -1/0 reward, or None."""


class Algorithm(abc.ABC):
    """An offline goal-conditioned algorithm. It never knows which representation made z. Subclasses are final."""

    direct: bool = False  # asks the agent for the representation's own advantage (section 4.8)

    @property
    @abc.abstractmethod
    def actions(self) -> frozenset[str]:
        """The kinds of action spaces it can use: "continuous", "discrete"."""

    @property
    @abc.abstractmethod
    def ema(self) -> tuple[str, ...]:
        """Names of the networks that have a slow copy."""

    @property
    @abc.abstractmethod
    def streams(self) -> Mapping[str, GoalMix]:
        """Goal streams by role: "value" for value and critic losses, "actor" for policy losses."""

    @abc.abstractmethod
    def init(self, key: PRNGKeyArray, spec: Spec) -> Nets:
        """The networks; `spec.goals` is the shape of z."""

    @abc.abstractmethod
    def losses(
        self, nets: Nets, targets: Nets, batch: Batch, goals: dict[str, Condition], key: PRNGKeyArray, spec: Spec
    ) -> dict[str, tuple[Any, Info]]:
        """Scalar losses by name, each with what is worth logging."""

    @abc.abstractmethod
    def act(self, nets: Nets, s: Array, z: Array, key: PRNGKeyArray, temperature: float, spec: Spec) -> Array:
        """Actions (B, A), or (B,) integers when discrete."""

    @abc.abstractmethod
    def value(self, nets: Nets, s: Array, z: Array) -> Array | None:
        """Its value V(s, z) (B,) under reward -1/0, if it has one."""


def rewards(success: Float[Array, " B"]) -> tuple[Float[Array, " B"], Float[Array, " B"]]:
    """(r, m) of the -1/0 convention: no cost and no bootstrap at the goal."""
    return success - 1, 1 - success

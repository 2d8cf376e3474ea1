"""The vocabulary of the method: what a representation and an algorithm are. What is sampled stands in `draws.py`.

A *representation* turns a goal into what an algorithm reads instead of it (section 4 of the method). An *algorithm*
turns states and goals into losses and actions (section 5). Neither knows the other; `agent.py` joins them. Both are
frozen dataclasses whose fields are options. Their networks are `equinox` modules that they declare themselves.

Sections, and codes such as D5 and A10, are those of docs/method.md, here and in all modules.

An algorithm is not handed encoded goals but `Goal` objects: `goal(s)` is the representation of the goals as seen from
the states `s`, with gradients already stopped wherever the representation does not let them through.
"""

import abc
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

from jaxtyping import Array, Float, PRNGKeyArray

from dualgoal.draws import Batch as Batch  # for parts, which find everything they need here
from dualgoal.draws import Frames as Frames
from dualgoal.draws import Goals as Goals
from dualgoal.draws import Look as Look
from dualgoal.draws import Passed as Passed
from dualgoal.draws import Stream as Stream
from dualgoal.options import AtLeastOne as AtLeastOne
from dualgoal.options import Expectile as Expectile
from dualgoal.options import Share as Share
from dualgoal.options import Size as Size
from dualgoal.options import Sizes as Sizes
from dualgoal.options import Weight as Weight
from dualgoal.options import check_options
from dualgoal.spec import Spec as Spec

Info = dict[str, Array]
Nets = Any  # an eqx.Module whose fields are the networks of one part
Loss = tuple[Array, Info]  # a scalar, and numbers to log
Trains = Literal["value", "actor"]


class Encoded(NamedTuple):
    """What an algorithm reads instead of a goal, and a penalty per sample for it (VIB's beta * KL), if any."""

    z: Any  # (B, *z_shape), such as (B, N), or the goals themselves
    penalty: Float[Array, " B"] | None = None


@dataclass(frozen=True, eq=False)
class Goal:
    """One goal per transition, as an algorithm receives it for one of its roles.

    `goal(s)` represents the goals as seen from the states `s`. Most representations do not look at the state, so it is
    the same array for every `s`; an algorithm still asks for `goal(next_s)` where it evaluates at the next state.
    """

    success: Float[Array, " B"]
    _view: Callable[[Any], Any]
    _as_state: Callable[[], Any] | None = None
    _value: Callable[[Any], Array] | None = None
    _factors: Callable[[Any], tuple[Array, Array]] | None = None
    passed: Passed | None = None
    extra: Any = None

    def __call__(self, s: Any) -> Any:
        """z (B, N): these goals as seen from `s`."""
        return self._view(s)

    @property
    def as_state(self) -> Any:
        """The goals as states, for values V(w, g) whose first argument is a goal."""
        assert self._as_state is not None
        return self._as_state()

    def value(self, s: Any) -> Float[Array, " B"]:
        """The representation's own value V(s, g), without gradients. Only where the representation learns one."""
        assert self._value is not None
        return self._value(s)

    def factors(self, s: Any) -> tuple[Float[Array, "E B N"], Float[Array, "E B N"]]:
        """psi(s) and phi(g), whose inner product is that value, without gradients. Only where it is one."""
        assert self._factors is not None
        return self._factors(s)


class Role(NamedTuple):
    """One purpose for which an algorithm needs goals: where they come from, and whether the loss that reads them trains
    a value or an actor. A representation's `Routes` refer to these two."""

    goals: Stream
    trains: Trains


class Routes(NamedTuple):
    """Which losses may train a representation: its own ("rep"), those that train a value and those that train an actor.

    `head` lists the losses that move the representation's networks, `features` those whose gradients pass through them
    to the image encoders. Everything else is stopped (section 4.7).
    """

    head: frozenset[str]
    features: frozenset[str]


ALL_LOSSES = frozenset({"rep", "value", "actor"})

GoalsByRole = Mapping[str, Goal]


@dataclass(frozen=True)
class Representation(abc.ABC):
    """Everything that depends on how goals are represented, for any algorithm. Subclasses are frozen dataclasses.

    The properties are defaults. A subclass overrides them by an attribute of the class, such as `ema = ("critic",)`, by
    an option of that name with a default, or by a property that depends on options.

    >>> from dualgoal.reps import Dual
    >>> Dual(dim=64).z_shape(Spec((4,), 2))
    (64,)
    """

    set_per_task: ClassVar[Mapping[str, str]] = {}
    """The options that the paper sets per task, each with the name of its field in `TaskSettings` (paper/settings.py);
    the others keep their defaults. Presets read it from the class, so it is no property."""

    @property
    def ema(self) -> tuple[str, ...]:
        """The fields of its networks that have a target copy (a moving average), which arrives in `targets`."""
        return ()

    @property
    def stream(self) -> Stream | None:
        """What its own loss draws; None if it has no loss of its own."""
        return None

    @property
    def learns_value(self) -> bool:
        """Whether `value` gives a goal-conditioned value under the -1/0 reward."""
        return False

    @property
    def factor_shape(self) -> tuple[int, int] | None:
        """The members E and the size N of `factors`, if its value is an inner product of a psi(s) and a phi(g)."""
        return None

    @property
    def learned(self) -> bool:
        """Whether z is the output of a network (Orig's is the goal itself)."""
        return True

    @property
    def looks_at_state(self) -> bool:
        """Whether z depends on the state as well as on the goal."""
        return False

    @property
    def on_sphere(self) -> bool:
        """Whether every z (N,) has the length sqrt(N); an algorithm that predicts a z must scale it likewise."""
        return False

    @property
    def embeds_both(self) -> bool:
        """Whether one and the same network reads states and goals, so that goals must be states."""
        return False

    @property
    def compares_both(self) -> bool:
        """Whether its loss compares states with the goals of other transitions, so that goals must be states."""
        return False

    @property
    def goal_network(self) -> str | None:
        """The field of the one network that turns a goal into z, if one network does; exports then describe it."""
        return None

    @property
    def fusion(self) -> Literal["shared", "one", "early", "late"]:
        """Images: "shared" means one state and one goal encoder for all networks, "one" a single encoder for states and
        goals; "early" and "late" mean that each network has its own: one for both images stacked, or one for each."""
        return "shared"

    def __post_init__(self) -> None:
        check_options(self)

    @abc.abstractmethod
    def init(self, key: PRNGKeyArray, spec: Spec) -> Nets:
        """Its networks. With shared image encoders `spec` describes their features, not images."""

    @abc.abstractmethod
    def z_shape(self, spec: Spec) -> tuple[int, ...]:
        """The shape of z for one goal."""

    @abc.abstractmethod
    def encode(self, nets: Nets, g: Array, s: Array, key: PRNGKeyArray) -> Encoded:
        """Represent goals (B, ...), as seen from the states `s` if `looks_at_state`. `key` serves those that draw z at
        random."""

    @abc.abstractmethod
    def routes(self, spec: Spec, value_loss: bool) -> Routes:
        """Which losses train it, under an algorithm with or without a loss that trains a value. `spec.pixels` says
        whether there are image encoders to train."""

    def loss(self, nets: Nets, targets: Nets, batch: Batch, drawn: Any, key: PRNGKeyArray, spec: Spec) -> Loss:
        """Its own objective on what its `stream` drew."""
        raise TypeError(f"{type(self).__name__} declares a stream, so it must define a loss")

    def value(self, nets: Nets, s: Array, g: Array, spec: Spec) -> Array:
        """Its own value V(s, g) (B,) under the -1/0 reward."""
        raise TypeError(f"{type(self).__name__} says that it learns a value, so it must define it")

    def factors(self, nets: Nets, s: Array, g: Array) -> tuple[Float[Array, "E B N"], Float[Array, "E B N"]]:
        """psi(s) and phi(g): its value is their inner product divided by sqrt(N), averaged over the members."""
        raise TypeError(f"{type(self).__name__} says that its value has factors, so it must define them")


@dataclass(frozen=True)
class Algorithm(abc.ABC):
    """An offline goal-conditioned algorithm, independent of the representation that it is given. Subclasses are frozen
    dataclasses. They override the properties in the same ways as a representation.

    >>> from dualgoal.algos import GCIVL
    >>> list(GCIVL().roles)
    ['value', 'actor']
    """

    set_per_task: ClassVar[Mapping[str, str]] = {}
    """The options that the paper sets per task, each with the name of its field in `TaskSettings` (paper/settings.py);
    the others keep their defaults. Presets read it from the class, so it is no property."""

    @property
    def ema(self) -> tuple[str, ...]:
        """The fields of its networks that have a target copy (a moving average), which arrives in `targets`."""
        return ()

    @property
    def learns_value(self) -> bool:
        """Whether `value` gives a goal-conditioned value under the -1/0 reward."""
        return False

    @property
    def needs_rep_value(self) -> bool:
        """Whether it uses the representation's own value (direct extraction, section 4.8)."""
        return False

    @property
    def needs_factors(self) -> bool:
        """Whether it uses psi(s) and phi(g), of which the representation's own value is the inner product."""
        return False

    @property
    def policy_network(self) -> str | None:
        """The field of the one network that turns a state and z into an action, if one network does; exports then
        describe it."""
        return None

    @property
    def needs_blind(self) -> bool:
        """Whether it needs a representation that does not look at the state."""
        return False

    @property
    def needs_vector(self) -> bool:
        """Whether it needs a z that is a vector, for instance because it predicts z."""
        return False

    def __post_init__(self) -> None:
        check_options(self)

    @property
    @abc.abstractmethod
    def actions(self) -> frozenset[str]:
        """The kinds of action spaces it can use: "continuous", "discrete"."""

    @property
    @abc.abstractmethod
    def roles(self) -> Mapping[str, Role]:
        """The purposes for which it needs goals, by names that it chooses."""

    @abc.abstractmethod
    def init(self, key: PRNGKeyArray, spec: Spec) -> Nets:
        """Its networks; `spec.goal_shape` is the shape of z."""

    @abc.abstractmethod
    def losses(
        self, nets: Nets, targets: Nets, batch: Batch, goals: GoalsByRole, key: PRNGKeyArray, spec: Spec
    ) -> dict[str, Loss]:
        """Losses by name; `goals` has one entry per role."""

    @abc.abstractmethod
    def act(self, nets: Nets, s: Array, z: Array, key: PRNGKeyArray, temperature: float, spec: Spec) -> Array:
        """Actions (B, A), or (B,) integers when discrete."""

    def value(self, nets: Nets, s: Array, z: Array, spec: Spec) -> Array:
        """Its value V(s, z) (B,) under the -1/0 reward."""
        raise TypeError(f"{type(self).__name__} says that it learns a value, so it must define it")


def from_factors(psi: Float[Array, "E B N"], phi: Float[Array, "E B N"]) -> Float[Array, " B"]:
    """The value whose factors these are."""
    return (psi * phi).sum(axis=-1).mean(axis=0) / phi.shape[-1] ** 0.5


def rewards(success: Float[Array, " B"]) -> tuple[Float[Array, " B"], Float[Array, " B"]]:
    """(r, m) of the -1/0 convention: no cost and no bootstrap at the goal."""
    return success - 1, 1 - success

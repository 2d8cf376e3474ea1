"""The vocabulary of the method: what is sampled, what a goal representation is, what an algorithm is.

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

from jaxtyping import Array, Float, Int, PRNGKeyArray

from dualgoal.options import AtLeastOne as AtLeastOne  # for parts, which find everything they need here
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


class Passed(NamedTuple):
    """What is known of a goal that lies on the way from a transition to another goal: how many steps are before and
    after it, and the action that was taken there."""

    before: Int[Array, " B"]
    after: Int[Array, " B"]
    a: Array  # (B, A), or (B,) integers when discrete


class Goals(NamedTuple):
    """One goal per transition, and whether the transition starts at it (reward = success - 1, mask = 1 - success)."""

    g: Any  # (B, ...) observations, or goals of another kind, or features of either
    success: Float[Array, " B"]
    state: Any = None  # (B, ...) observations that attain the goals, where goals are not observations themselves
    passed: Passed | None = None  # of goals drawn `Between` others
    extra: Any = None  # whatever else a stream of another package draws; an algorithm finds it in its `Goal`


class Frames(NamedTuple):
    """Four observations of one trajectory window per sample (o_0, o_k, o_{k+1}, o_T), each (B, ...): what VIP uses."""

    first: Any
    now: Any
    after: Any
    last: Any


class Batch(NamedTuple):
    """Transitions, and what was drawn for the losses. Losses with equal goal distributions share a draw, so `draws` is
    keyed by draw; `Agent.draw_of` says which draw belongs to which loss."""

    s: Any  # (B, ...)
    a: Float[Array, "B A"]  # discrete actions are one-hot
    next_s: Any  # (B, ...)
    draws: dict[str, Goals | Frames]


Look = Callable[[Array, Array], Array]  # reads (T, ...) in rows (B,): images cropped at their offsets


class Stream(abc.ABC):
    """What one loss draws for every transition of a batch: goals, or a window of a trajectory. Subclasses are frozen
    dataclasses, whose methods draw and choose the image encoder for each observation. Parts choose one of the kinds in
    `streams.py`, whose `Transitions` and `Sampled` are the `data` and `at` below; few need another kind."""

    shared: bool = True
    """Whether losses with equal streams use one and the same draw."""
    towards: str | None = None
    """The role whose goals must be drawn first, if this stream depends on them."""

    @property
    def ahead(self) -> bool:
        """Whether it only draws later states of the transition's own episode, or the transition's own state."""
        return False

    @property
    def needs_ahead(self) -> bool:
        """Whether the goals that it is drawn `towards` must lie `ahead`."""
        return False

    @abc.abstractmethod
    def rows(self, data: Any, at: Any, bits: Array, discount: float, towards: Any) -> Any:
        """Row numbers for the transitions `at`, as a pytree of (B,) integers. `bits` are random; `towards` is what was
        drawn for the role that the attribute `towards` names, or None."""

    @abc.abstractmethod
    def offsets(self, offsets: Array, key: PRNGKeyArray) -> Array | None:
        """Where images of this draw are cropped, as augmentation: at the `offsets` of the batch, or at others drawn
        with `key`. None: its images are not cropped."""

    @abc.abstractmethod
    def observe(self, data: Any, at: Any, rows: Any, reached_by: str, look: Look) -> Goals | Frames:
        """The observations in these rows, each read with `look`."""

    @abc.abstractmethod
    def encode(self, drawn: Any, state: Callable[[Any], Any], goal: Callable[[Any], Any]) -> Any:
        """What was drawn, with features in place of images: `state` and `goal` are the encoders that read them. It is
        called twice: first to collect the images, which these functions then return as they are, and again for the
        features. So it only puts things in their places, and computes nothing with them."""


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


def rewards(success: Float[Array, " B"]) -> tuple[Float[Array, " B"], Float[Array, " B"]]:
    """(r, m) of the -1/0 convention: no cost and no bootstrap at the goal."""
    return success - 1, 1 - success

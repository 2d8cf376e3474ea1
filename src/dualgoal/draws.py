"""What is sampled: transitions, what is drawn for each loss, and the streams that draw it."""

import abc
from collections.abc import Callable
from typing import Any, NamedTuple

from jaxtyping import Array, Float, Int, PRNGKeyArray


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

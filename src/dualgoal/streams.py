"""Where goals come from (sections 2.2 and 2.3): mixes of current, future and random states, windows, waypoints, and
states in between.

A stream draws row numbers of the dataset for the transitions of a batch. Rows are integers throughout and come from
four rows of random bits, so a draw is exact at any row number and the same on every device.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax.numpy as jnp
from jax import random
from jaxtyping import Array, Int, PRNGKeyArray, UInt32

from dualgoal.errors import UserError
from dualgoal.interface import AtLeastOne, Frames, Goals, Look, Passed, Stream
from dualgoal.nets.augment import PAD
from dualgoal.options import check_options

Rows = Int[Array, " B"]
Bits = UInt32[Array, " B"]
Block = UInt32[Array, "4 B"]  # what one stream consumes


class Transitions(NamedTuple):
    """A dataset on the device: T rows in E episodes."""

    observations: Array  # (T, ...) float32 or uint8
    actions: Array  # (T, A) float32, or (T,) integers
    starts: Array  # (E,) first row of each episode
    ends: Array  # (E,) last row of each episode; it has no action and is never a goal, but may end a window
    goals: Array | None = None  # (T, ...) the goal that each row attains; None: the observation itself


class Sampled(NamedTuple):
    """The rows of a batch's transitions, and for each the last row of its episode that may be a goal."""

    rows: Rows
    last: Rows


class GoalStream(Stream):
    """A stream that draws one goal for every transition."""

    def offsets(self, offsets: Array, key: PRNGKeyArray) -> Array:
        return offsets

    def observe(self, data: Transitions, at: Sampled, rows: Rows, reached_by: str, look: Look) -> Goals:
        """The goals in these rows, and which transitions start at theirs: in the same row, or in an equal state (where
        goals are not observations: in one that attains an equal goal)."""
        goals = data.observations if data.goals is None else data.goals
        g, same = look(goals, rows), rows == at.rows
        if reached_by == "state":
            here = goals[at.rows]  # images are compared before they are shifted
            same = (goals[rows] == here).all(axis=tuple(range(1, here.ndim)))
        return Goals(g, same.astype(jnp.float32), None if data.goals is None else look(data.observations, rows))

    def encode(self, drawn: Goals, state: Callable[[Any], Any], goal: Callable[[Any], Any]) -> Goals:
        return drawn._replace(g=goal(drawn.g))


@dataclass(frozen=True)
class GoalMix(GoalStream):
    """The paper's goal distribution (p_cur, p_geom, p_traj, p_rand): the current state, a geometrically distributed
    future state, a uniformly distributed future state, or any state of the dataset."""

    current: float
    """Share of goals that are the current state."""
    geometric: float
    """Share of goals that are a geometrically distributed future state."""
    uniform: float
    """Share of goals that are a uniformly distributed future state."""
    random: float
    """Share of goals that are any state of the dataset."""
    shared: bool = True
    """Whether losses with equal goal distributions use the same sampled goals."""
    augment: Literal["batch", "independent"] = "batch"
    """Images. batch: shift goals together with the transitions; independent: always, by separate offsets."""

    def __post_init__(self) -> None:
        shares = (self.current, self.geometric, self.uniform, self.random)
        if any(p < 0 for p in shares) or not math.isclose(sum(shares), 1.0, abs_tol=1e-6):
            raise UserError(f"goal mix {shares} does not sum to one; give four shares >= 0 that add up to 1")
        if self.geometric > 0 and self.uniform > 0:
            raise UserError(f"goal mix {shares} has both geometric and uniform future goals; choose one of them")
        check_options(self)

    @property
    def ahead(self) -> bool:
        return self.random == 0

    def rows(self, data: Transitions, at: Sampled, bits: Block, discount: float, towards: None = None) -> Rows:
        goal = valid_rows(data, bits[0]).rows
        if self.uniform > 0:
            future = uniform_future(at.rows, at.last, bits[1])
        else:
            future = geometric_future(at.rows, at.last, bits[1], discount)
        if self.current < 1:
            share = (self.geometric + self.uniform) / (1 - self.current)
            goal = jnp.where(unit(bits[2]) < share, future, goal)
        return jnp.where(unit(bits[3]) < self.current, at.rows, goal)

    def offsets(self, offsets: Array, key: PRNGKeyArray) -> Array:
        return random_offsets(key, offsets.shape[0]) if self.augment == "independent" else offsets


@dataclass(frozen=True)
class Waypoint(GoalStream):
    """The state `steps` steps on in the same episode, but never past the goal that the role `towards` drew.

    Where that goal is not ahead in the same episode (a random one), or without `towards`, the episode's end is the
    limit. Hierarchical methods use it as the target of their high-level policy and as the goal of their low-level one.
    """

    steps: AtLeastOne
    towards: str | None = None
    ahead = True

    def __post_init__(self) -> None:
        check_options(self)

    def rows(self, data: Transitions, at: Sampled, bits: Block, discount: float, towards: Rows | None = None) -> Rows:
        limit = at.last
        if towards is not None:
            ahead = (towards >= at.rows) & (towards <= at.last)
            limit = jnp.where(ahead, towards, at.last)
        return jnp.minimum(at.rows + self.steps, limit)


class Stop(NamedTuple):
    """A row on the way to the row of a goal."""

    row: Rows
    goal: Rows


@dataclass(frozen=True)
class Between(GoalStream):
    """A state on the way to the goal that the role `towards` drew, uniformly from the transition's own row to the last
    row before that goal, which must lie ahead in the same episode. Divide and conquer joins values at such states."""

    towards: str = "value"
    ahead = needs_ahead = True

    def rows(self, data: Transitions, at: Sampled, bits: Block, discount: float, towards: Rows) -> Stop:
        return Stop(at.rows + below(bits[0], jnp.maximum(towards - at.rows, 1)), towards)

    def observe(  # type: ignore[override]
        self, data: Transitions, at: Sampled, rows: Stop, reached_by: str, look: Look
    ) -> Goals:
        passed = Passed(rows.row - at.rows, rows.goal - rows.row, data.actions[rows.row])
        return super().observe(data, at, rows.row, reached_by, look)._replace(passed=passed)


@dataclass(frozen=True)
class Window(Stream):
    """Four frames of a random trajectory window (VIP). `aligned=False` cuts the windows as the released code does,
    shifted by one row per episode (D11). Windows are never augmented."""

    aligned: bool = True

    def rows(self, data: Transitions, at: Sampled, bits: Block, discount: float, towards: None = None) -> Frames:
        if self.aligned:
            e = below(bits[0], data.starts.shape[0])
            start, length = data.starts[e], data.ends[e] - data.starts[e] + 1
        else:  # windows of L-1 rows from the start of the file, which drift across episodes of L rows
            length = jnp.broadcast_to(data.ends[0] - data.starts[0], bits[0].shape)
            start = below(bits[0], jnp.maximum((data.observations.shape[0] - length - 1) // length + 1, 1)) * length
        first = below(bits[1], jnp.maximum(length - 2, 1))
        last = first + 1 + below(bits[2], length - 1 - first)
        now = first + below(bits[3], last - first)
        return Frames(start + first, start + now, start + now + 1, start + last)

    def offsets(self, offsets: Array, key: PRNGKeyArray) -> None:
        return None

    def observe(self, data: Transitions, at: Sampled, rows: Frames, reached_by: str, look: Look) -> Frames:
        goals = data.observations if data.goals is None else data.goals
        first, now, after = (look(data.observations, r) for r in (rows.first, rows.now, rows.after))
        return Frames(first, now, after, look(goals, rows.last))

    def encode(self, drawn: Frames, state: Callable[[Any], Any], goal: Callable[[Any], Any]) -> Frames:
        return Frames(state(drawn.first), state(drawn.now), state(drawn.after), goal(drawn.last))


VALUE_GOALS = GoalMix(0.2, 0.5, 0.0, 0.3)
FUTURE_GOALS = GoalMix(0.0, 1.0, 0.0, 0.0)
ACTOR_GOALS = GoalMix(0.0, 0.0, 1.0, 0.0)


def random_offsets(key: PRNGKeyArray, batch_size: int) -> Array:
    """One offset per sample for a random image shift; PAD means not shifted."""
    return random.randint(key, (batch_size, 2), 0, 2 * PAD + 1)


# Random integers and rows ---------------------------------------------------------------------------------------------


def below(bits: Bits, n: Any) -> Rows:
    """Integers uniform on {0..n-1}; the modulo favours some by at most n / 2^32."""
    return (bits % jnp.asarray(n, jnp.uint32)).astype(jnp.int32)


def unit(bits: Bits) -> Array:
    """Uniform on [0, 1) in steps of 2^-24."""
    return (bits >> 8).astype(jnp.float32) * jnp.float32(2**-24)


def valid_rows(data: Transitions, bits: Bits) -> Sampled:
    """Rows that have a successor, uniformly.

    Episode e holds one row that is not valid, its last. The n-th valid row therefore lies in the episode whose count of
    valid rows before it, starts[e] - e, is the largest not above n, and it is row n + e.
    """
    episodes = data.starts.shape[0]
    n = below(bits, data.observations.shape[0] - episodes)
    before = data.starts - jnp.arange(episodes, dtype=jnp.int32)
    e = jnp.searchsorted(before, n, side="right", method="scan_unrolled").astype(jnp.int32) - 1
    return Sampled(n + e, data.ends[e] - 1)


def geometric_future(rows: Rows, last: Rows, bits: Bits, gamma: float) -> Rows:
    """rows + Geometric(1 - gamma) on {1, 2, ...}, the tail cut at `last`."""
    offset = jnp.floor(jnp.log1p(-unit(bits)) / math.log(gamma)).astype(jnp.int32) + 1
    return jnp.minimum(rows + offset, last)


def uniform_future(rows: Rows, last: Rows, bits: Bits) -> Rows:
    """Uniform on {rows+1..last}, end points at half weight: last - round(u (last - low)), exact at any row number."""
    return last - rounded_share(bits, last - jnp.minimum(rows + 1, last))


def rounded_share(bits: Bits, n: Rows) -> Rows:
    """round(bits / 2^32 * n) without an error: the 64-bit product from 16-bit halves, whose low word only rounds.

    A float32 product would fall on the wrong side of a half for two rows in a hundred thousand.
    """
    n = n.astype(jnp.uint32)
    high, low, n_high, n_low = bits >> 16, bits & 0xFFFF, n >> 16, n & 0xFFFF
    middle = high * n_low + (low * n_low >> 16)
    lower = low * n_high + (middle & 0xFFFF)
    return (high * n_high + (middle >> 16) + (lower >> 16) + (lower >> 15 & 1)).astype(jnp.int32)

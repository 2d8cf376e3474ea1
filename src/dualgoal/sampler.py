"""Transitions and relabelled goals, drawn on the device as a pure function of (data, key): sections 2.1 to 2.5.

Rows are integers throughout; a row's episode is found by binary search in a table of episodes, so nothing is stored
per row beyond the dataset itself. All randomness of a batch is one block of threefry bits.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import random
from jaxtyping import Array, Int, PRNGKeyArray, UInt32

from dualgoal.interface import Batch, Frames, GoalMix, Goals, Spec, Stream, Window
from dualgoal.nets.encoders import PAD, shift

Rows = Int[Array, " B"]
Bits = UInt32[Array, " B"]
Block = UInt32[Array, "4 B"]  # what one stream consumes


class Data(NamedTuple):
    """A dataset on the device: T rows in E episodes."""

    observations: Array  # (T, ...) float32 or uint8
    actions: Array  # (T, A) float32, or (T,) integers
    starts: Array  # (E,) first row of each episode
    ends: Array  # (E,) last row of each episode; it has no action of its own and is never a goal


def to_device(dataset) -> Data:
    """Copy a `dualgoal.data.Dataset` to the default device, once."""
    index = [jnp.asarray(np.asarray(x), jnp.int32) for x in (dataset.starts, dataset.ends)]
    return Data(jnp.asarray(dataset.observations), jnp.asarray(dataset.actions), *index)


def below(bits: Bits, n) -> Rows:
    """Integers uniform on {0..n-1}; the modulo favours some by at most n / 2^32."""
    return (bits % jnp.asarray(n, jnp.uint32)).astype(jnp.int32)


def unit(bits: Bits) -> Array:
    """Uniform on [0, 1) in steps of 2^-24."""
    return (bits >> 8).astype(jnp.float32) * jnp.float32(2**-24)


def valid_rows(data: Data, bits: Bits) -> tuple[Rows, Rows]:
    """Rows that have a successor, uniformly, and the last row that may be a goal of each one's episode, fin.

    Episode e holds one row that is not valid, its last, so the n-th valid row lies in the episode whose count of valid
    rows before it, starts[e] - e, is the largest not above n, and is row n + e.
    """
    episodes = data.starts.shape[0]
    n = below(bits, data.observations.shape[0] - episodes)
    before = data.starts - jnp.arange(episodes, dtype=jnp.int32)
    e = jnp.searchsorted(before, n, side="right", method="scan_unrolled").astype(jnp.int32) - 1
    return n + e, data.ends[e] - 1


def geometric_future(rows: Rows, fin: Rows, bits: Bits, gamma: float) -> Rows:
    """rows + Geometric(1 - gamma) on {1, 2, ...}, the tail cut at fin."""
    offset = jnp.floor(jnp.log1p(-unit(bits)) / jnp.log(gamma)).astype(jnp.int32) + 1
    return jnp.minimum(rows + offset, fin)


def uniform_future(rows: Rows, fin: Rows, bits: Bits) -> Rows:
    """Uniform on {rows+1..fin}, end points at half weight: fin - round(u (fin - lo)), exact at any row number."""
    return fin - rounded_share(bits, fin - jnp.minimum(rows + 1, fin))


def rounded_share(bits: Bits, n: Rows) -> Rows:
    """round(bits / 2^32 * n) without an error: the 64-bit product from 16-bit halves, its low word only rounding.

    A float32 product would fall on the wrong side of a half for two rows in a hundred thousand.
    """
    n = n.astype(jnp.uint32)
    high, low, n_high, n_low = bits >> 16, bits & 0xFFFF, n >> 16, n & 0xFFFF
    middle = high * n_low + (low * n_low >> 16)
    lower = low * n_high + (middle & 0xFFFF)
    return (high * n_high + (middle >> 16) + (lower >> 16) + (lower >> 15 & 1)).astype(jnp.int32)


def goal_rows(data: Data, rows: Rows, fin: Rows, mix: GoalMix, bits: Block, gamma: float) -> Rows:
    """One goal row per transition (section 2.2)."""
    goal, _ = valid_rows(data, bits[0])
    future = uniform_future(rows, fin, bits[1]) if mix.uniform > 0 else geometric_future(rows, fin, bits[1], gamma)
    if mix.current < 1:
        share = (mix.geometric + mix.uniform) / (1 - mix.current)
        goal = jnp.where(unit(bits[2]) < share, future, goal)
    return jnp.where(unit(bits[3]) < mix.current, rows, goal)


def window_rows(data: Data, window: Window, bits: Block) -> tuple[Rows, Rows, Rows, Rows]:
    """(o_0, o_k, o_{k+1}, o_T) of a window (section 2.3)."""
    if window.aligned:
        e = below(bits[0], data.starts.shape[0])
        start, length = data.starts[e], data.ends[e] - data.starts[e] + 1
    else:  # D11: windows of L-1 rows from the start of the file, which drift across episodes of L rows
        length = jnp.broadcast_to(data.ends[0] - data.starts[0], bits[0].shape)
        start = below(bits[0], jnp.maximum((data.observations.shape[0] - length - 1) // length + 1, 1)) * length
    first = below(bits[1], jnp.maximum(length - 2, 1))
    last = first + 1 + below(bits[2], length - 1 - first)
    now = first + below(bits[3], last - first)
    return start + first, start + now, start + now + 1, start + last


def draws(streams: Mapping[str, Stream]) -> dict[str, str]:
    """Which consumer's draw each consumer uses: those with equal mixes that are not `own` share the first one's."""
    first: dict[Stream, str] = {}
    shared = {name: first.setdefault(stream, name) for name, stream in streams.items()}
    return {name: name if getattr(stream, "own", False) else shared[name] for name, stream in streams.items()}


def by_consumer(drawn: Mapping[str, Any], streams: Mapping[str, Stream]) -> dict[str, Any]:
    """Every consumer's stream, from draws that were made once."""
    return {name: drawn[source] for name, source in draws(streams).items()}


def sample(data: Data, key: PRNGKeyArray, streams: Mapping[str, Stream], spec: Spec) -> Batch:
    """A batch with one goal stream per consumer."""
    k_rows, k_images = random.split(key)
    distinct = {name: streams[name] for name in dict.fromkeys(draws(streams).values())}
    bits = random.bits(k_rows, (1 + 4 * len(distinct), spec.batch_size), jnp.uint32)
    rows, fin = valid_rows(data, bits[0])
    drawn = {}
    for n, (name, stream) in enumerate(distinct.items()):
        drawn[name] = stream_rows(data, rows, fin, stream, bits[1 + 4 * n : 5 + 4 * n], spec)
    batch = Batch(data.observations[rows], actions(data, rows, spec), data.observations[rows + 1], drawn)
    if spec.pixels:
        batch = augmented(batch, k_images, distinct, spec)
    return batch._replace(streams=by_consumer(batch.streams, streams))


def stream_rows(data: Data, rows: Rows, fin: Rows, stream: Stream, bits: Block, spec: Spec) -> Goals | Frames:
    if isinstance(stream, Window):
        return Frames(*(data.observations[r] for r in window_rows(data, stream, bits)))
    goals = goal_rows(data, rows, fin, stream, bits, spec.discount)
    g, same = data.observations[goals], goals == rows
    if spec.reached_by == "state":
        same = (g == data.observations[rows]).all(axis=-1)
    return Goals(g, same.astype(jnp.float32))


def actions(data: Data, rows: Rows, spec: Spec) -> Array:
    a = data.actions[rows]
    return jax.nn.one_hot(a, spec.action_dim, dtype=jnp.float32) if spec.discrete else a


def augmented(batch: Batch, key: PRNGKeyArray, streams: Mapping[str, Stream], spec: Spec) -> Batch:
    """Random shifts (section 2.5): one coin per batch and one offset per sample for its transition and shared goals;
    own streams that say so are cropped always, at their own offsets; windows never (D14)."""
    k_coin, k_offset, *own = random.split(key, 2 + len(streams))
    coin = random.bernoulli(k_coin, spec.augment)
    offsets = random.randint(k_offset, (spec.batch_size, 2), 0, 2 * PAD + 1)
    offsets = jnp.where(coin, offsets, PAD)
    shifted = {}
    for k, (name, stream) in zip(own, streams.items(), strict=True):
        goals = batch.streams[name]
        if isinstance(goals, Goals) and isinstance(stream, GoalMix):
            mine = random.randint(k, (spec.batch_size, 2), 0, 2 * PAD + 1) if stream.crop == "own" else offsets
            goals = goals._replace(g=shift(goals.g, mine))
        shifted[name] = goals
    return Batch(shift(batch.s, offsets), batch.a, shift(batch.next_s, offsets), shifted)

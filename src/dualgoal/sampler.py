"""A batch of transitions and everything the losses draw for it, on the device, as a pure function of (data, key)."""

import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random
from jaxtyping import Array, PRNGKeyArray

from dualgoal.errors import UserError
from dualgoal.interface import Batch, Spec, Stream
from dualgoal.nets.augment import PAD, as_held, look
from dualgoal.streams import Rows, Transitions, random_offsets, valid_rows


def to_device(dataset: Any) -> Transitions:
    """Put a dataset on the default device. On a CPU this makes no copy, as nothing writes to these arrays."""
    starts, ends = (jnp.asarray(np.asarray(x), jnp.int32) for x in (dataset.starts, dataset.ends))
    put = lambda x: jax.device_put(as_held(np.asarray(x)), may_alias=True)
    goals = None if dataset.goals is None else put(dataset.goals)
    return Transitions(put(dataset.observations), put(dataset.actions), starts, ends, goals)


def shapes(observations: Any, actions: Any, goals: Any, episodes: int) -> Transitions:
    """The shapes of what `to_device` returns for a dataset of these arrays: for programs that are only traced."""
    shape: Any = lambda x: None if x is None else jax.ShapeDtypeStruct(x.shape, x.dtype)
    index: Any = jax.ShapeDtypeStruct((episodes,), jnp.int32)
    return Transitions(shape(observations), shape(actions), index, index, shape(goals))


def shared_draws(streams: Mapping[str, Stream]) -> dict[str, str]:
    """Which draw each loss uses: a draw is named after the first loss that uses it, and losses with equal streams use
    the same one unless the stream is not `shared`."""
    first: dict[Stream, str] = {}
    shared = {name: first.setdefault(stream, name) for name, stream in streams.items()}
    return {name: shared[name] if stream.shared else name for name, stream in streams.items()}


def sample(data: Transitions, key: PRNGKeyArray, streams: Mapping[str, Stream], spec: Spec) -> Batch:
    """A batch, with one entry in `draws` for each distinct stream. Every draw has its own block of random bits, in the
    order of the streams, so that adding a loss does not change what the ones before it draw."""
    k_rows, k_images = random.split(key)
    draw_of = shared_draws(streams)
    names = list(dict.fromkeys(draw_of.values()))
    bits = random.bits(k_rows, (1 + 4 * len(names), spec.batch_size), jnp.uint32)
    at = valid_rows(data, bits[0])
    rows: dict[str, Any] = {}
    for name in sorted(names, key=lambda name: streams[name].towards is not None):  # what others depend on first
        n, towards = names.index(name), streams[name].towards
        limit = None if towards is None else rows[draw_of[towards]]
        if towards is not None and not isinstance(limit, jax.Array):
            kind = type(streams[towards]).__name__
            raise UserError(
                f"the goals of '{name}' are drawn towards those of '{towards}', for which {kind} draws more than a "
                "row; draw them towards those of another role"
            )
        rows[name] = streams[name].rows(data, at, bits[1 + 4 * n : 5 + 4 * n], spec.discount, limit)
    offsets, own = crops(k_images, names, streams, spec) if spec.pixels else (None, dict.fromkeys(names))
    looking = lambda offsets: functools.partial(look, offsets=offsets, bf16=spec.precision == "bf16")
    draws = {name: streams[name].observe(data, at, rows[name], spec.reached_by, looking(own[name])) for name in names}
    s, next_s = (looking(offsets)(data.observations, rows) for rows in (at.rows, at.rows + 1))
    return Batch(s, actions(data, at.rows, spec), next_s, draws)


def actions(data: Transitions, rows: Rows, spec: Spec) -> Array:
    a = data.actions[rows]
    return jax.nn.one_hot(a, spec.action_dim, dtype=jnp.float32) if spec.discrete else a


def crops(
    key: PRNGKeyArray, names: list[str], streams: Mapping[str, Stream], spec: Spec
) -> tuple[Array, dict[str, Array | None]]:
    """Random image shifts (section 2.5): with probability `spec.augment` the whole batch is shifted, by one offset per
    sample for its transition and its goals; streams may choose other offsets. Returns the offsets of the transitions
    and of each draw."""
    k_coin, k_offset, *keys = random.split(key, 2 + len(names))
    offsets = jnp.where(random.bernoulli(k_coin, spec.augment), random_offsets(k_offset, spec.batch_size), PAD)
    return offsets, {name: streams[name].offsets(offsets, k) for k, name in zip(keys, names, strict=True)}

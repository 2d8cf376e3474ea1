"""Observations as tokens, and a join of two of them place by place (section 14.4).

An image becomes the encoder's map before it is flattened, one token for every eighth pixel; a vector becomes a single
token. Two observations are joined token by token, so what differs at a place is seen there.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import random
from jaxtyping import Array, Float, PRNGKeyArray

from dualgoal.interface import Spec
from dualgoal.nets.encoders import CHANNELS, Stack, make_stacks, trunk
from dualgoal.nets.heads import MLP, Linear


class Tokens(eqx.Module):
    """One observation to tokens (B, L, C)."""

    stacks: tuple[Stack, ...]  # images; empty for vectors
    mlp: MLP | None  # vectors
    places: int = eqx.field(static=True)
    channels: int = eqx.field(static=True)
    bf16: bool = eqx.field(static=True)

    def __init__(self, key: PRNGKeyArray, spec: Spec, width: int):
        self.bf16 = spec.precision == "bf16"
        if spec.pixels:
            height, wide, channels = spec.observation_shape
            self.stacks, self.mlp = make_stacks(random.split(key, len(CHANNELS)), channels), None
            self.places, self.channels = math.ceil(height / 8) * math.ceil(wide / 8), CHANNELS[-1]
        else:
            self.stacks, self.mlp = (), MLP(key, spec.observation_shape[0], (width,), None, spec)
            self.places, self.channels = 1, width

    @property
    def size(self) -> int:
        """How many numbers an observation's tokens are."""
        return self.places * self.channels

    def __call__(self, x: Array) -> Float[Array, "B L C"]:
        if self.mlp is not None:
            return self.mlp(x)[:, None]
        h = trunk(self.stacks, x, self.bf16)
        return h.reshape(x.shape[0], self.places, self.channels).astype(self.stacks[0].first.w.dtype)


class Join(eqx.Module):
    """relu(W [h_s, h_g, |h_s - h_g|] + b) at every place, flattened."""

    linear: Linear
    bf16: bool = eqx.field(static=True)

    def __init__(self, key: PRNGKeyArray, tokens: Tokens):
        self.linear = Linear(key, 3 * tokens.channels, tokens.channels)
        self.bf16 = tokens.bf16

    def __call__(self, h_s: Float[Array, "B L C"], h_g: Float[Array, "B L C"]) -> Float[Array, "B LC"]:
        x = jnp.concatenate([h_s, h_g, jnp.abs(h_s - h_g)], axis=-1).reshape(-1, 3 * h_s.shape[-1])
        x = x.astype(jnp.bfloat16) if self.bf16 else x
        return jax.nn.relu(self.linear(x, out=h_s.dtype)).reshape(h_s.shape[0], -1)

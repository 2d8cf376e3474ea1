"""Networks of section 3: plain modules on batches (B, in), ensembles as a leading axis of the weights.

An ensemble is one batched matrix product, not a Python loop. Under `bf16` products have bfloat16 factors, but raw
observations enter the first one as two halves (`products.columns`), outputs are float32 and parameters always are.
"""

import math
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import random
from jaxtyping import Array, Float, PRNGKeyArray

from dualgoal.fast.activations import activate
from dualgoal.fast.matmul import Parts, product
from dualgoal.interface import Spec
from dualgoal.nets.encoders import FEATURES, Fusion, Impala, make_fusion

MEMBERS = 2


def glorot(key: PRNGKeyArray, shape: tuple[int, ...], scale: float = 1.0) -> Array:
    """Variance scaling, fan_avg, uniform, over the last two axes."""
    limit = math.sqrt(6 * scale / (shape[-2] + shape[-1]))
    return random.uniform(key, shape, minval=-limit, maxval=limit)


def lecun(key: PRNGKeyArray, shape: tuple[int, ...]) -> Array:
    """Truncated normal of variance 1 / fan_in; 0.8796 is the standard deviation of a normal cut at two."""
    return random.truncated_normal(key, -2.0, 2.0, shape) * (math.sqrt(1 / shape[-2]) / 0.87962566103423978)


class Linear(eqx.Module):
    w: Array
    b: Array

    def __init__(self, key: PRNGKeyArray, inputs: int, outputs: int, members: int | None = None, init=glorot):
        lead = () if members is None else (members,)
        self.w = init(key, (*lead, inputs, outputs))
        self.b = jnp.zeros((*lead, outputs))

    def __call__(self, x: Array | Parts, dtype=None, out=None) -> Array:
        y = product(x, self.w, dtype, out)
        return y + self.b[..., None, :].astype(y.dtype)

    def activated(self, x: Array | Parts, dtype=None) -> Array:
        return layer(x, self.w, self.b[..., None, :], dtype, dtype)


class Dense(eqx.Module):
    """A hidden layer with its LayerNorm. Bias, scale and offset are three rows of one array: on a GPU a kernel reads
    them, and leaves their gradients, in one go."""

    w: Array
    rows: Array

    def __init__(self, key: PRNGKeyArray, inputs: int, outputs: int, members: int | None = None):
        lead = () if members is None else (members,)
        self.w = glorot(key, (*lead, inputs, outputs))
        self.rows = jnp.broadcast_to(jnp.array([0.0, 1.0, 0.0])[:, None], (*lead, 3, outputs))

    b = property(lambda self: self.rows[..., 0, :])
    scale = property(lambda self: self.rows[..., 1, :])
    offset = property(lambda self: self.rows[..., 2, :])

    def activated(self, x: Array | Parts, dtype=None) -> Array:
        return layer(x, self.w, self.rows, dtype, dtype)

    def scored(self, x: Array | Parts, head: Linear, dtype, out) -> Array:
        """What a head of one output makes of the activations."""
        rows = jnp.concatenate([self.rows, head.w.swapaxes(-1, -2)], axis=-2)
        return layer(x, self.w, rows, dtype, out)[..., None] + head.b[..., None, :]


def layer(x: Array | Parts, w: Array, rows: Array, dtype, out) -> Array:
    y = product(x, w, dtype)
    return activate(y, rows, out) if y.ndim == 3 else activate(y[None], rows[None], out)[0]


class MLP(eqx.Module):
    """Dense -> GELU -> LayerNorm over the hidden sizes, then a linear layer unless `outputs` is None ("activated")."""

    layers: tuple[Dense | Linear, ...]
    outputs: int | None = eqx.field(static=True)
    bf16: bool = eqx.field(static=True)

    def __init__(self, key, inputs: int, hidden, outputs: int | None, spec: Spec, members=None, norm: bool = True):
        sizes = (inputs, *hidden) + (() if outputs is None else (outputs,))
        kinds = [Dense if norm else Linear] * len(hidden) + [Linear] * (outputs is not None)
        keys = random.split(key, len(kinds))
        self.layers = tuple(
            kind(k, i, o, members) for kind, k, i, o in zip(kinds, keys, sizes[:-1], sizes[1:], strict=True)
        )
        self.outputs, self.bf16 = outputs, spec.precision == "bf16"

    def __call__(self, *inputs: Float[Array, "*E B _"]) -> Float[Array, "*F B o"]:
        half, full = (jnp.bfloat16, jnp.float32) if self.bf16 else (None, inputs[0].dtype)
        hidden: list[Any] = list(self.layers)
        head = None if self.outputs is None else hidden.pop()
        last = hidden.pop() if hidden and isinstance(hidden[-1], Dense) and self.outputs == 1 else None
        x: Any = inputs
        for one in hidden:
            x = one.activated(x, half)
        if last is not None:
            return last.scored(x, head, half, full)
        return x.astype(full) if head is None else head(x, half, full)


class Value(eqx.Module):
    """V(s, z) -> (E, B) with E members, or Q(s, z, a) when `extra` inputs are given."""

    fuse: Fusion
    mlp: MLP

    def __init__(self, key, spec: Spec, hidden, extra: int = 0, members: int | None = MEMBERS, outputs: int = 1):
        k1, k2 = random.split(key)
        self.fuse = make_fusion(k1, spec)
        self.mlp = MLP(k2, self.fuse.size + extra, hidden, outputs, spec, members)

    def __call__(self, s: Array, z: Array, *extra: Array) -> Array:
        y = self.mlp(*self.fuse(s, z), *extra)
        return y[..., 0] if self.mlp.outputs == 1 else y

    def pair(self, s: Array, z: Array, next_s: Array, next_z: Array) -> tuple[Array, Array]:
        """V(s, z) and V(s', z') in one pass over twice the rows."""
        v = self(jnp.concatenate([s, next_s]), jnp.concatenate([z, next_z]))
        return v[..., : s.shape[0]], v[..., s.shape[0] :]


class Actor(eqx.Module):
    """Mean of a unit-variance Gaussian, or logits: an MLP without LayerNorm, then a linear head whose initial weights
    have a tenth of the usual size, so that a new policy starts near zero.

    `outputs` is the dimension of an action unless given, as for a policy that proposes goals instead of actions.
    """

    fuse: Fusion
    mlp: MLP
    head: Linear

    def __init__(self, key: PRNGKeyArray, spec: Spec, hidden: Sequence[int], outputs: int | None = None):
        k1, k2, k3 = random.split(key, 3)
        outputs = spec.action_dim if outputs is None else outputs
        self.fuse = make_fusion(k1, spec)
        self.mlp = MLP(k2, self.fuse.size, hidden, None, spec, norm=False)
        self.head = Linear(k3, hidden[-1], outputs, init=lambda k, shape: glorot(k, shape, scale=0.01))

    def __call__(self, s: Array, z: Array) -> Float[Array, "B A"]:
        return self.head(self.mlp(*self.fuse(s, z)))


class Flow(eqx.Module):
    """Vector field v(s, z, x_t, t) of the flow policy."""

    fuse: Fusion
    mlp: MLP

    def __init__(self, key, spec: Spec, hidden):
        k1, k2 = random.split(key)
        self.fuse = make_fusion(k1, spec)
        self.mlp = MLP(k2, self.fuse.size + spec.action_dim + 1, hidden, spec.action_dim, spec)

    def __call__(self, s: Array, z: Array, x: Float[Array, "B A"], t: Float[Array, "B 1"]) -> Float[Array, "B A"]:
        return self.mlp(*self.fuse(s, z), x, t)


class Bottleneck(eqx.Module):
    """VIB's encoder: two hidden layers, a linear third, and heads for mean and log std (clipped to [-5, 2])."""

    trunk: MLP
    mean: Linear
    log_std: Linear

    def __init__(self, key, spec: Spec, hidden, dim: int):
        k1, k2, k3 = random.split(key, 3)
        self.trunk = MLP(k1, spec.goal_shape[0], hidden[:-1], hidden[-1], spec)
        self.mean = Linear(k2, hidden[-1], dim, init=lecun)
        self.log_std = Linear(k3, hidden[-1], dim, init=lecun)

    def __call__(self, g: Float[Array, "B D"]) -> tuple[Float[Array, "B N"], Float[Array, "B N"]]:
        h = self.trunk(g)
        return self.mean(h), jnp.clip(self.log_std(h), -5.0, 2.0)


class Embedding(eqx.Module):
    """An MLP to R^N, usually of two members (E, B, N). A tower cannot read a pair of images, so it encodes its own."""

    encoder: Impala | None
    mlp: MLP

    def __init__(
        self, key, shape: tuple[int, ...], dim: int, hidden, spec: Spec, extra: int = 0, members: int | None = MEMBERS
    ):
        k1, k2 = random.split(key)
        self.encoder = Impala(k1, shape, spec) if len(shape) == 3 else None
        self.mlp = MLP(k2, (FEATURES if self.encoder else shape[0]) + extra, hidden, dim, spec, members)

    def __call__(self, x: Array, *extra: Array) -> Float[Array, "*E B N"]:
        return self.mlp(self.encoder(x) if self.encoder else x, *extra)

    def mean(self, x: Array, *extra: Array) -> Float[Array, "B N"]:
        """The members' average, which is what downstream networks get (D2)."""
        return self(x, *extra).mean(axis=0)


class Towers(eqx.Module):
    """psi embeds states and phi goals."""

    psi: Embedding
    phi: Embedding


def two_towers(key: PRNGKeyArray, spec: Spec, dim: int, hidden: tuple[int, ...]) -> Towers:
    """psi and phi with two ensemble members each, as every factored model of the paper has them."""
    k1, k2 = random.split(key)
    psi = Embedding(k1, spec.observation_shape, dim, hidden, spec)
    return Towers(psi, Embedding(k2, spec.goal_shape, dim, hidden, spec))

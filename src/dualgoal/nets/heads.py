"""The networks of section 3 that end in a value, an action or an embedding, and the MLP they are made of.

Networks take batches (B, inputs). An ensemble is one network whose arrays have its members as a leading axis E, so all
members are computed by one batched matrix product. Under `bf16` matrix products and hidden activations are in bfloat16,
while parameters and outputs are in float32; see `fast.matmul` for how raw observations keep their precision.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import random
from jax.typing import DTypeLike
from jaxtyping import Array, Float, PRNGKeyArray

from dualgoal.fast.activations import activate
from dualgoal.fast.matmul import Parts, product
from dualgoal.interface import Spec
from dualgoal.nets.encoders import FEATURES, Fusion, Impala

MEMBERS = 2  # of an ensemble, unless a network says otherwise
EPSILON = 1e-6  # vectors shorter than this are not stretched to the length of the others

Input = Array | Parts  # (*E, B, inputs), or several such arrays whose columns stand next to each other
Vector = Float[Array | np.ndarray, "*E o"]  # NumPy's in a network whose parameters were brought to the host
Init = Callable[[PRNGKeyArray, tuple[int, ...]], Array]


def glorot(key: PRNGKeyArray, shape: tuple[int, ...], scale: float = 1.0) -> Array:
    """Uniform with variance 2 scale / (inputs + outputs)."""
    limit = math.sqrt(6 * scale / (shape[-2] + shape[-1]))
    return random.uniform(key, shape, minval=-limit, maxval=limit)


def lecun(key: PRNGKeyArray, shape: tuple[int, ...]) -> Array:
    """Normal with variance 1 / inputs, truncated at two standard deviations. The truncation itself reduces a standard
    deviation of 1 to 0.8796, for which the divisor compensates."""
    return random.truncated_normal(key, -2.0, 2.0, shape) * (math.sqrt(1 / shape[-2]) / 0.87962566103423978)


class Linear(eqx.Module):
    """x w + b. Followed by GELU (`activated`) it is a hidden layer without LayerNorm."""

    w: Float[Array, "*E i o"]
    b: Float[Array, "*E o"]

    def __init__(self, key: PRNGKeyArray, inputs: int, outputs: int, members: int | None = None, init: Init = glorot):
        lead = () if members is None else (members,)
        self.w = init(key, (*lead, inputs, outputs))
        self.b = jnp.zeros((*lead, outputs))

    def __call__(self, x: Input, dtype: DTypeLike | None = None, out: DTypeLike | None = None) -> Array:
        """The product's factors have the type `dtype` (default: x's), the result `out` (default: `dtype`)."""
        y = product(x, self.w, dtype, out)
        return y + self.b[..., None, :].astype(y.dtype)

    def activated(self, x: Input, dtype: DTypeLike | None = None) -> Array:
        """GELU(x w + b)."""
        return hidden_layer(x, self.w, self.b[..., None, :], dtype, dtype)


class Dense(eqx.Module):
    """A hidden layer with LayerNorm: scale LayerNorm(GELU(x w + b)) + offset.

    Its three vectors are rows of one array, so that a GPU kernel reads them, and writes their gradients, at once.
    """

    w: Float[Array, "*E i o"]
    bias_scale_offset: Float[Array, "*E 3 o"]

    def __init__(self, key: PRNGKeyArray, inputs: int, outputs: int, members: int | None = None):
        lead = () if members is None else (members,)
        self.w = glorot(key, (*lead, inputs, outputs))
        self.bias_scale_offset = jnp.broadcast_to(jnp.array([0.0, 1.0, 0.0])[:, None], (*lead, 3, outputs))

    @property
    def b(self) -> Vector:
        return self.bias_scale_offset[..., 0, :]

    @property
    def scale(self) -> Vector:
        return self.bias_scale_offset[..., 1, :]

    @property
    def offset(self) -> Vector:
        return self.bias_scale_offset[..., 2, :]

    def activated(self, x: Input, dtype: DTypeLike | None = None) -> Array:
        return hidden_layer(x, self.w, self.bias_scale_offset, dtype, dtype)


class ScalarHead(eqx.Module):
    """A hidden layer and a linear layer with one output behind it, `linear(last.activated(x))`.

    On a GPU the two are one kernel, and the activations between them are never written to memory.
    """

    last: Dense
    linear: Linear

    def __call__(self, x: Input, dtype: DTypeLike, out: DTypeLike) -> Array:
        params = jnp.concatenate([self.last.bias_scale_offset, self.linear.w.swapaxes(-1, -2)], axis=-2)
        return hidden_layer(x, self.last.w, params, dtype, out)[..., None] + self.linear.b[..., None, :]


def hidden_layer(x: Input, w: Array, params: Array, dtype: DTypeLike | None, out: DTypeLike | None) -> Array:
    """Matrix product and activation; a single network is an ensemble of one for `activate`."""
    y = product(x, w, dtype)
    return activate(y, params, out) if y.ndim == 3 else activate(y[None], params[None], out)[0]


class MLP(eqx.Module):
    """Hidden layers, then a linear head:

        x -> scale LayerNorm(GELU(x w + b)) + offset -> ... -> x w + b

    Without `norm` hidden layers are GELU(x w + b). Without a head (`outputs` is None) the result is the activations of
    the last hidden layer. A head with one output holds the last hidden layer itself (see `ScalarHead`).
    """

    hidden: tuple[Dense | Linear, ...]
    head: Linear | ScalarHead | None
    outputs: int | None = eqx.field(static=True)
    bf16: bool = eqx.field(static=True)

    def __init__(
        self,
        key: PRNGKeyArray,
        inputs: int,
        hidden: Sequence[int],
        outputs: int | None,
        spec: Spec,
        members: int | None = None,
        norm: bool = True,
    ):
        sizes = (inputs, *hidden)
        keys = random.split(key, len(hidden) + (outputs is not None))
        layer = Dense if norm else Linear
        layers = tuple(layer(keys[n], sizes[n], sizes[n + 1], members) for n in range(len(hidden)))
        head = None if outputs is None else Linear(keys[-1], sizes[-1], outputs, members)
        last = layers[-1] if layers else None
        if head is not None and outputs == 1 and isinstance(last, Dense):
            self.hidden, self.head = layers[:-1], ScalarHead(last, head)
        else:
            self.hidden, self.head = layers, head
        self.outputs, self.bf16 = outputs, spec.precision == "bf16"

    def __call__(self, *inputs: Float[Array, "*E B _"]) -> Float[Array, "*F B o"]:
        """`inputs` are the parts of x, for example states and goals."""
        out = jnp.float32 if self.bf16 else inputs[0].dtype
        dtype = jnp.bfloat16 if self.bf16 else out
        x: Any = inputs
        for layer in self.hidden:
            x = layer.activated(x, dtype)
        return x.astype(out) if self.head is None else self.head(x, dtype, out)

    @property
    def layers(self) -> tuple[Dense | Linear, ...]:
        """All layers in the order in which they are applied."""
        match self.head:
            case None:
                return self.hidden
            case ScalarHead(last=last, linear=linear):
                return (*self.hidden, last, linear)
            case linear:
                return (*self.hidden, linear)


class Value(eqx.Module):
    """V(s, z), or Q(s, z, a) with an action of `extra` numbers: (E, B) for E members, (B,) if `members` is None. With
    more than one of `outputs`, for example a Q for each action, these are a further axis at the end."""

    fuse: Fusion
    mlp: MLP

    def __init__(
        self,
        key: PRNGKeyArray,
        spec: Spec,
        hidden: Sequence[int],
        extra: int = 0,
        members: int | None = MEMBERS,
        outputs: int = 1,
    ):
        k1, k2 = random.split(key)
        self.fuse = Fusion(k1, spec)
        self.mlp = MLP(k2, self.fuse.size + extra, hidden, outputs, spec, members)

    def __call__(self, s: Array, z: Array, *extra: Array) -> Array:
        y = self.mlp(*self.fuse(s, z), *extra)
        return y[..., 0] if self.mlp.outputs == 1 else y

    def pair(self, s: Array, z: Array, next_s: Array, next_z: Array) -> tuple[Array, Array]:
        """V(s, z) and V(s', z') in one pass over twice the rows."""
        v = self(jnp.concatenate([s, next_s]), jnp.concatenate([z, next_z]))
        return v[..., : s.shape[0]], v[..., s.shape[0] :]


class ComparingValue(Value):
    """V(s, [z, |s - z|]), or Q of these and an action, for states and goals that are vectors of one kind."""

    def __init__(self, key: PRNGKeyArray, spec: Spec, hidden: Sequence[int], extra: int = 0):
        super().__init__(key, dataclasses.replace(spec, goal_shape=(2 * spec.goal_shape[0],)), hidden, extra)

    def __call__(self, s: Array, z: Array, *extra: Array) -> Array:
        return super().__call__(s, jnp.concatenate([z, jnp.abs(s - z)], axis=-1), *extra)


class Actor(eqx.Module):
    """The mean of a Gaussian policy with unit variance, or the logits of a discrete one: an MLP, without LayerNorm
    unless `norm` is set, and a linear head with initial weights of a tenth of the usual size, so that a new policy
    starts near zero.

    `outputs` is by default the dimension of an action. A policy over something else, such as subgoals, gives its own.
    """

    fuse: Fusion
    mlp: MLP
    head: Linear

    def __init__(
        self, key: PRNGKeyArray, spec: Spec, hidden: Sequence[int], outputs: int | None = None, norm: bool = False
    ):
        k1, k2, k3 = random.split(key, 3)
        outputs = spec.action_dim if outputs is None else outputs
        self.fuse = Fusion(k1, spec)
        self.mlp = MLP(k2, self.fuse.size, hidden, None, spec, norm=norm)
        self.head = Linear(k3, hidden[-1], outputs, init=lambda k, shape: glorot(k, shape, scale=0.01))

    def __call__(self, s: Array, z: Array) -> Float[Array, "B A"]:
        return self.head(self.mlp(*self.fuse(s, z)))


class Flow(eqx.Module):
    """The velocity v(s, z, x_t, t) of a flow policy, which moves noise (t = 0) to an action (t = 1)."""

    fuse: Fusion
    mlp: MLP

    def __init__(self, key: PRNGKeyArray, spec: Spec, hidden: Sequence[int]):
        k1, k2 = random.split(key)
        self.fuse = Fusion(k1, spec)
        self.mlp = MLP(k2, self.fuse.size + spec.action_dim + 1, hidden, spec.action_dim, spec)

    def __call__(self, s: Array, z: Array, x: Float[Array, "B A"], t: Float[Array, "B 1"]) -> Float[Array, "B A"]:
        return self.mlp(*self.fuse(s, z), x, t)


class Bottleneck(eqx.Module):
    """The stochastic encoder of VIB: hidden layers of which the last is linear, then one head for the mean of z and one
    for the logarithm of its standard deviation, which is clipped to [-5, 2]."""

    trunk: MLP
    mean: Linear
    log_std: Linear

    def __init__(self, key: PRNGKeyArray, spec: Spec, hidden: Sequence[int], dim: int):
        k1, k2, k3 = random.split(key, 3)
        self.trunk = MLP(k1, spec.goal_shape[0], hidden[:-1], hidden[-1], spec)
        self.mean = Linear(k2, hidden[-1], dim, init=lecun)
        self.log_std = Linear(k3, hidden[-1], dim, init=lecun)

    def __call__(self, g: Float[Array, "B D"]) -> tuple[Float[Array, "B N"], Float[Array, "B N"]]:
        h = self.trunk(g)
        return self.mean(h), jnp.clip(self.log_std(h), -5.0, 2.0)


class Embedding(eqx.Module):
    """An MLP to R^N, by default with two members: (E, B, N), or (B, N) if `members` is None.

    It reads one observation (and `extra` numbers, such as an action), not a pair that could be fused. If that is an
    image, the embedding therefore has an encoder of its own.
    """

    encoder: Impala | None
    mlp: MLP

    def __init__(
        self,
        key: PRNGKeyArray,
        shape: tuple[int, ...],
        dim: int,
        hidden: Sequence[int],
        spec: Spec,
        extra: int = 0,
        members: int | None = MEMBERS,
    ):
        k1, k2 = random.split(key)
        self.encoder = Impala(k1, shape, spec) if len(shape) == 3 else None
        self.mlp = MLP(k2, (FEATURES if self.encoder else shape[0]) + extra, hidden, dim, spec, members)

    def __call__(self, x: Array, *extra: Array) -> Float[Array, "*E B N"]:
        return self.mlp(self.encoder(x) if self.encoder else x, *extra)

    def mean(self, x: Array, *extra: Array) -> Float[Array, "B N"]:
        """The average over the members, which other networks read (D2); for a single member, its output."""
        members = self(x, *extra)
        return members.mean(axis=0) if members.ndim == 3 else members


class PairEmbedding(eqx.Module):
    """An MLP from a state and a goal, fused, to R^N: (E, B, N), or (B, N) if `members` is None."""

    fuse: Fusion
    mlp: MLP

    def __init__(self, key: PRNGKeyArray, spec: Spec, dim: int, hidden: Sequence[int], members: int | None = MEMBERS):
        k1, k2 = random.split(key)
        self.fuse = Fusion(k1, spec)
        self.mlp = MLP(k2, self.fuse.size, hidden, dim, spec, members)

    def __call__(self, s: Array, g: Array) -> Float[Array, "*E B N"]:
        return self.mlp(*self.fuse(s, g))


class Towers(eqx.Module):
    """psi embeds states and phi goals, with two ensemble members each, as in every factored model of the paper."""

    psi: Embedding
    phi: Embedding

    def __init__(self, key: PRNGKeyArray, spec: Spec, dim: int, hidden: Sequence[int]):
        k1, k2 = random.split(key)
        self.psi = Embedding(k1, spec.observation_shape, dim, hidden, spec)
        self.phi = Embedding(k2, spec.goal_shape, dim, hidden, spec)


def to_sphere(z: Float[Array, "*B N"]) -> Float[Array, "*B N"]:
    """z sqrt(N) / max(|z|, epsilon): the length sqrt(N) for all. The bound is inside the root, so that the gradient at
    z = 0 is finite."""
    length = jnp.sqrt(jnp.maximum((z**2).sum(axis=-1, keepdims=True), EPSILON**2))
    return z * (math.sqrt(z.shape[-1]) / length)

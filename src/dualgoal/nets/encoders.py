"""Pixels (sections 2.5 and 3.4): the IMPALA encoder, random shifts, and the ways to join a state with a goal.

Heads call `fuse(s, z) -> features` and do not know whether that is two vectors side by side, two images read by one
encoder (early fusion) or each by its own (late fusion).
"""

import functools
import itertools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax, random
from jaxtyping import Array, Float, PRNGKeyArray

from dualgoal.interface import Spec

FEATURES = 512
PAD = 3


class Conv(eqx.Module):
    """3x3, stride 1, SAME, Glorot-uniform over the receptive field."""

    w: Array
    b: Array

    def __init__(self, key: PRNGKeyArray, inputs: int, outputs: int):
        limit = math.sqrt(6 / (9 * inputs + 9 * outputs))
        self.w = random.uniform(key, (3, 3, inputs, outputs), minval=-limit, maxval=limit)
        self.b = jnp.zeros(outputs)

    def __call__(self, x: Float[Array, "B H W i"]) -> Float[Array, "B H W o"]:
        y = lax.conv_general_dilated(
            x, self.w.astype(x.dtype), (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        return y + self.b.astype(x.dtype)[None, None, None]


class Stack(eqx.Module):
    """Convolution, max-pool 3x3 stride 2, one residual block. SAME pooling of an even size pads only after it."""

    first: Conv
    block: tuple[Conv, Conv]

    def __init__(self, key: PRNGKeyArray, inputs: int, outputs: int):
        k1, k2, k3 = random.split(key, 3)
        self.first = Conv(k1, inputs, outputs)
        self.block = (Conv(k2, outputs, outputs), Conv(k3, outputs, outputs))

    def __call__(self, x: Float[Array, "B H W i"]) -> Float[Array, "B h w o"]:
        x = pool(x.shape[1:3], self.first(x))
        return x + self.block[1](jax.nn.relu(self.block[0](jax.nn.relu(x))))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def pool(sides: tuple[int, int], x: Float[Array, "B H W C"]) -> Float[Array, "B h w C"]:
    """The largest of 3x3 at every second pixel, SAME. JAX's own way back scatters; here every pixel asks the at most
    four windows over it whether it was their first largest."""
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")


def pool_forward(sides, x):
    pads = lax.padtype_to_pads(sides, (3, 3), (2, 2), "SAME")
    padded = jnp.pad(x, ((0, 0), *pads, (0, 0)), constant_values=-jnp.inf)
    reach = [2 * ((side + 1) // 2) - 1 for side in sides]
    nine = {4 * i + j: padded[:, i : i + reach[0] : 2, j : j + reach[1] : 2] for i in range(3) for j in range(3)}
    best, which = nine[0], jnp.zeros(nine[0].shape, jnp.uint8)
    for code, here in nine.items():
        best, which = jnp.maximum(best, here), jnp.where(here > best, jnp.uint8(code), which)
    return best, which


def pool_backward(sides, which, dy):
    (top, _), (left, _) = lax.padtype_to_pads(sides, (3, 3), (2, 2), "SAME")
    row, column = ((jnp.arange(side) + start) % 2 for side, start in zip(sides, (top, left), strict=True))

    def window(x: Array, up: int, back: int, none: int = 0) -> Array:
        """For every pixel what the window over it knows that lies `up` and `back` before its last one."""
        for axis, (before, side, start) in enumerate(zip((up, back), sides, (top, left), strict=True), start=1):
            late = jnp.pad(x, [(before * (a == axis), 0) for a in range(4)], constant_values=none)
            x = lax.slice_in_dim(jnp.repeat(late, 2, axis=axis), start, start + side, axis=axis)
        return x

    wide = jnp.promote_types(dy.dtype, jnp.float32)
    dx = jnp.zeros((), wide)
    for up, back in itertools.product(range(2), range(2)):
        code = 4 * (row + 2 * up)[:, None] + (column + 2 * back)[None]  # of the pixel in that window; a 3 is outside
        chosen = window(which, up, back, none=255) == code.astype(jnp.uint8)[None, :, :, None]
        dx = dx + jnp.where(chosen, window(dy, up, back).astype(wide), 0)
    return (dx.astype(dy.dtype),)


pool.defvjp(pool_forward, pool_backward)


class Impala(eqx.Module):
    """Three stacks of 16, 32, 32 channels, ReLU, flatten, Dense 512, GELU; no normalisation (D10)."""

    stacks: tuple[Stack, ...]
    w: Array
    b: Array
    bf16: bool = eqx.field(static=True)

    def __init__(self, key: PRNGKeyArray, shape: tuple[int, ...], spec: Spec):
        keys = random.split(key, 4)
        widths = (shape[-1], 16, 32, 32)
        self.stacks = tuple(Stack(k, i, o) for k, i, o in zip(keys[:3], widths[:-1], widths[1:], strict=True))
        side = [math.ceil(n / 8) for n in shape[:2]]
        flat = side[0] * side[1] * widths[-1]
        limit = math.sqrt(6 / (flat + FEATURES))
        self.w = random.uniform(keys[3], (flat, FEATURES), minval=-limit, maxval=limit)
        self.b = jnp.zeros(FEATURES)
        self.bf16 = spec.precision == "bf16"

    def __call__(self, images: Array) -> Float[Array, "B 512"]:
        return features(self, images)


@functools.partial(jax.jit, inline=True)  # traced once, however many images an agent has; the program is the same
def features(net: Impala, images: Array) -> Array:
    dtype = jnp.bfloat16 if net.bf16 else net.w.dtype
    x = images.astype(dtype) / 255
    for stack in net.stacks:
        x = stack(x)
    x = jax.nn.relu(x).reshape(x.shape[0], -1)
    y = jnp.einsum("bi,io->bo", x, net.w.astype(dtype), preferred_element_type=net.w.dtype)
    return jax.nn.gelu(y + net.b[None], approximate=True)


class Concat(eqx.Module):
    """Vectors: nothing to encode."""

    size: int = eqx.field(static=True)

    def __call__(self, s: Array, z: Array) -> tuple[Array, ...]:
        return s, z


class Early(eqx.Module):
    """One encoder over the stacked pair."""

    encoder: Impala
    size: int = eqx.field(static=True, default=FEATURES)

    def __call__(self, s: Array, z: Array) -> tuple[Array, ...]:
        return (self.encoder(jnp.concatenate([s, z], axis=-1)),)


class Late(eqx.Module):
    """A pair of encoders of this head's own (A7: separate for value and actor)."""

    state: Impala
    goal: Impala
    size: int = eqx.field(static=True, default=2 * FEATURES)

    def __call__(self, s: Array, z: Array) -> tuple[Array, ...]:
        return self.state(s), self.goal(z)


Fusion = Concat | Early | Late


def fuse(key: PRNGKeyArray, spec: Spec) -> Fusion:
    """The way a head joins states and goals of these shapes."""
    if not spec.pixels:
        return Concat(spec.observation_shape[0] + spec.goal_shape[0])
    h, w, c = spec.observation_shape
    if spec.fusion == "early":
        return Early(Impala(key, (h, w, c + spec.goal_shape[-1]), spec))
    k1, k2 = random.split(key)
    return Late(Impala(k1, spec.observation_shape, spec), Impala(k2, spec.goal_shape, spec))


@functools.partial(jax.jit, inline=True)
def shift(images: Array, offsets: Array) -> Array:
    """Pad by PAD pixels with edge replication and crop back at per-sample offsets in {0..2 PAD}^2 (section 2.5).

    Edge replication is a clamp of the index, so no padded copy is made.
    """
    height, width = images.shape[1:3]

    def one(image, offset):
        rows = jnp.clip(jnp.arange(height) + offset[0] - PAD, 0, height - 1)
        columns = jnp.clip(jnp.arange(width) + offset[1] - PAD, 0, width - 1)
        return image[rows][:, columns]

    return jax.vmap(one)(images, offsets)

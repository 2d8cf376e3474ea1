"""Image encoders (section 3.4), and the ways in which a network joins a state with a goal.

A head such as a value network calls `fuse(s, z)` and concatenates whatever comes back. It need not know which inputs
were images and which encoders read them.
"""

import functools
import math
from collections.abc import Iterable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import random
from jax.typing import DTypeLike
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from dualgoal.fast.blocks import in_blocks
from dualgoal.fast.convolution import convolve
from dualgoal.fast.matmul import product
from dualgoal.fast.pooling import max_pool
from dualgoal.fast.trunk import Stacks, feature_maps, ops_for
from dualgoal.interface import Spec

CHANNELS = (16, 32, 32)  # of the encoder's three stacks
FEATURES = 512  # size of the vector that the encoder makes of an image

Images = Shaped[Array, "B H W C"]  # pixels 0..255


class Conv(eqx.Module):
    """3x3 convolution with stride 1 and SAME padding. Weights are Glorot-uniform; fans count all nine pixels."""

    w: Float[Array, "3 3 i o"]
    b: Float[Array, " o"]

    def __init__(self, key: PRNGKeyArray, inputs: int, outputs: int):
        limit = math.sqrt(6 / (9 * inputs + 9 * outputs))
        self.w = random.uniform(key, (3, 3, inputs, outputs), minval=-limit, maxval=limit)
        self.b = jnp.zeros(outputs)

    def __call__(self, x: Float[Array, "B H W i"]) -> Float[Array, "B H W o"]:
        return convolve(x, self.w.astype(x.dtype)) + self.b.astype(x.dtype)[None, None, None]


class Stack(eqx.Module):
    """A convolution, max-pooling that halves both sides, and one residual block of two convolutions."""

    first: Conv
    block: tuple[Conv, Conv]

    def __init__(self, key: PRNGKeyArray, inputs: int, outputs: int):
        k1, k2, k3 = random.split(key, 3)
        self.first = Conv(k1, inputs, outputs)
        self.block = (Conv(k2, outputs, outputs), Conv(k3, outputs, outputs))

    def __call__(self, x: Float[Array, "B H W i"]) -> Float[Array, "B h w o"]:
        x = max_pool(self.first(x))
        return x + self.block[1](jax.nn.relu(self.block[0](jax.nn.relu(x))))


def maps(stacks: tuple[Stack, ...], images: Images, dtype: DTypeLike) -> Float[Array, "B h w 32"]:
    """The output of the stacks for an image: a map with a vector for every eighth pixel."""

    def of_block(images: Images) -> Float[Array, "B h w 32"]:
        x = images.astype(dtype) / 255
        for stack in stacks:
            x = stack(x)
        return jax.nn.relu(x)

    return in_blocks(of_block, images)


def layers(stacks: tuple[Stack, ...]) -> Stacks:
    """The arrays of the stacks, as kernels take them."""
    return tuple(tuple((conv.w, conv.b) for conv in (stack.first, *stack.block)) for stack in stacks)  # type: ignore


def trunk(stacks: tuple[Stack, ...], images: Images, bf16: bool) -> Float[Array, "B h w 32"]:
    """`maps` of images with pixels 0..255, computed by the GPU kernels where they run."""
    ops = ops_for([images.shape], bf16)
    if ops is not None:
        return feature_maps(ops, layers(stacks), (images,))[0]
    return maps(stacks, images, jnp.bfloat16 if bf16 else stacks[0].first.w.dtype)


def make_stacks(keys: Iterable[PRNGKeyArray], channels: int) -> tuple[Stack, ...]:
    sizes = (channels, *CHANNELS)
    return tuple(Stack(k, i, o) for k, i, o in zip(keys, sizes[:-1], sizes[1:], strict=True))


class Impala(eqx.Module):
    """The small IMPALA encoder: three stacks, ReLU, flatten, a linear layer to FEATURES numbers, GELU.

    No LayerNorm, although the paper's text puts one into every network: the released code has none here (D10).
    """

    stacks: tuple[Stack, ...]
    w: Float[Array, "flat 512"]
    b: Float[Array, " 512"]
    bf16: bool = eqx.field(static=True)

    def __init__(self, key: PRNGKeyArray, shape: tuple[int, ...], spec: Spec):
        *keys, k_linear = random.split(key, 4)
        height, width, channels = shape
        self.stacks = make_stacks(keys, channels)
        flat = math.ceil(height / 8) * math.ceil(width / 8) * CHANNELS[-1]
        limit = math.sqrt(6 / (flat + FEATURES))
        self.w = random.uniform(k_linear, (flat, FEATURES), minval=-limit, maxval=limit)
        self.b = jnp.zeros(FEATURES)
        self.bf16 = spec.precision == "bf16"

    def __call__(self, images: Images) -> Float[Array, "B 512"]:
        return self.each(images)[0]

    def each(self, *images: Images) -> tuple[Float[Array, "_ 512"], ...]:
        """The features of several batches of images, computed together where that is faster. Those that need no
        gradient should come last."""
        ops = ops_for([i.shape for i in images], self.bf16)
        if ops is None:
            return tuple(features(self, i) for i in images)
        flat = [x.reshape(len(x), -1) for x in feature_maps(ops, layers(self.stacks), images)]
        return tuple(gelu(product(x, self.w, out=self.w.dtype), self.b) for x in flat)


@functools.partial(jax.jit, inline=True)  # an agent encodes many batches of images: trace the encoder only once
def features(net: Impala, images: Images) -> Float[Array, "B 512"]:
    dtype = jnp.bfloat16 if net.bf16 else net.w.dtype
    x = maps(net.stacks, images, dtype)
    x = x.reshape(x.shape[0], -1)
    return gelu(jnp.einsum("bi,io->bo", x, net.w.astype(dtype), preferred_element_type=net.w.dtype), net.b)


def gelu(y: Float[Array, "B 512"], b: Float[Array, " 512"]) -> Float[Array, "B 512"]:
    return jax.nn.gelu(y + b[None], approximate=True)


class Together:
    """An encoder that first collects all images (`ask`), then returns all features (`answer`) in the same order."""

    def __init__(self, net: Impala) -> None:
        self.net, self.asked, self.given = net, list[Array](), list[Array]()

    def ask(self, images: Array) -> Array:
        self.asked.append(images)
        return images

    def answer(self, images: Array) -> Array:
        self.given = self.given or list(self.net.each(*self.asked))
        return self.given.pop(0)


class Encoders(eqx.Module):
    """The image encoders that all networks of an agent share."""

    state: Impala
    goal: Impala | None  # None: the state's encoder reads goals as well

    @property
    def of_goals(self) -> Impala:
        return self.goal or self.state

    def with_fixed_goals(self) -> "Encoders":
        """The same, without gradients into what reads goals."""
        goal = jax.lax.stop_gradient(self.of_goals)
        return Encoders(goal, None) if self.goal is None else Encoders(self.state, goal)


class Fusion(eqx.Module):
    """How a network joins a state and a goal. Vectors stay as they are. Two images are each read by an encoder of their
    own (late fusion), which no other network shares (A7), or both by one, stacked along their channels (early fusion).
    Of an image and a z that is a vector, only the image is encoded."""

    encoder: Impala | None  # of both together
    state: Impala | None
    goal: Impala | None
    size: int = eqx.field(static=True)  # how many numbers come out, in all parts together

    def __init__(self, key: PRNGKeyArray, spec: Spec):
        self.encoder = self.state = self.goal = None
        state, goal = spec.observation_shape, spec.goal_shape
        if not spec.pixels:
            self.size = state[0] + goal[0]
        elif len(goal) == 1:
            self.state = Impala(key, state, spec)
            self.size = FEATURES + goal[0]
        elif spec.fusion == "early":
            self.encoder = Impala(key, (*state[:2], state[2] + goal[2]), spec)
            self.size = FEATURES
        else:
            k1, k2 = random.split(key)
            self.state, self.goal = Impala(k1, state, spec), Impala(k2, goal, spec)
            self.size = 2 * FEATURES

    def __call__(self, s: Array, z: Array) -> tuple[Array, ...]:
        if self.encoder is not None:
            return (self.encoder(jnp.concatenate([s, z], axis=-1)),)
        return s if self.state is None else self.state(s), z if self.goal is None else self.goal(z)

"""The convolutions of an image encoder as one function with its own gradient rule.

Three things differ from differentiating `plain`, none of which changes the mathematics:

- Several batches of images go through the network together, and the gradient is computed only for those whose features
  received one: features of next states are read by bootstrap targets and need none.
- The operations around a convolution (bias, ReLU, residual sum, mask of a ReLU's gradient) are computed with it.
- On NVIDIA GPUs, under bfloat16, the convolutions are the kernels of `convolution_kernels`; seeds are one more axis of
  their grid. Other machines do not use this; tests run it with plain operations and compare.
"""

import functools
import math
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array

from dualgoal.fast.convolution import turned

SWITCH = "DUALGOAL_IMAGE_KERNELS"  # 0 turns the kernels off, for GPUs on which they do not compile
FAR = range(2**31 + 1, 2**32 + 1)  # bytes of images that a kernel can only address as words: its indices have 32 bits
Layer = tuple[Array, Array]  # weights (3, 3, i, o) and bias
Stacks = tuple[tuple[Layer, Layer, Layer], ...]  # of each stack the first convolution, and the two of its block


class Ops(NamedTuple):
    """The operations that everything here consists of."""

    convolve: Callable[..., Array]  # relu_out(residual + [mask > 0] (scale conv(relu_in(x)) + bias))
    weight_gradient: Callable[..., tuple[Array, Array]]
    prepared: Callable[[Array], Array]  # images (pixels 0..255) in the form that the operations need
    convolve_pooled: Callable[..., tuple[Array, Array]]  # of images: pool_forward of convolve
    pooled_weight_gradient: Callable[..., tuple[Array, Array]]  # of images: weight_gradient of pool_backward
    pool: Callable[..., tuple[Array, Array]]  # as pooling.pool_forward
    unpool: Callable[..., tuple[Array]]  # as pooling.pool_backward


class Saved(NamedTuple):
    """What the gradient of a stack needs: its input, the choices of its pooling, the block's input and hidden layer."""

    x: Array
    chosen: Array
    pooled: Array
    hidden: Array


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def feature_maps(ops: Ops, stacks: Stacks, images: tuple[Array, ...]) -> tuple[Array, ...]:
    """Maps (B, H/8, W/8, o), after a ReLU, of each batch of images (B, H, W, C) with pixels 0..255."""
    y, _ = run(ops, stacks, images)
    return split(y, images)


def run(ops: Ops, stacks: Stacks, images: tuple[Array, ...]) -> tuple[Array, list[Saved]]:
    x = ops.prepared(images[0] if len(images) == 1 else jnp.concatenate(images))
    saved = []
    for n, (first, second, third) in enumerate(stacks):
        if n == 0:
            pooled, chosen = ops.convolve_pooled(x, *first, scale=1 / 255)
        else:
            y = ops.convolve(x, *first)
            pooled, chosen = ops.pool((y.shape[1], y.shape[2]), y)
        hidden = ops.convolve(pooled, *second, relu_in=True, relu_out=True)
        saved.append(Saved(x, chosen, pooled, hidden))
        x = ops.convolve(hidden, *third, residual=pooled, relu_out=n == len(stacks) - 1)
    return x, saved


def split(y: Array, images: tuple[Array, ...]) -> tuple[Array, ...]:
    ends = [sum(len(i) for i in images[:n]) for n in range(len(images) + 1)]
    return tuple(lax.slice_in_dim(y, a, b) for a, b in zip(ends[:-1], ends[1:], strict=True))


def maps_forward(ops: Ops, stacks: Any, images: Any) -> tuple[tuple[Array, ...], Any]:
    value = lambda primal: primal.value
    stacks, images = (jax.tree.map(value, tree, is_leaf=lambda p: hasattr(p, "perturbed")) for tree in (stacks, images))
    y, saved = run(ops, stacks, images)
    return split(y, images), (stacks, saved, y, tuple(len(i) for i in images))


def maps_backward(ops: Ops, kept: Any, cotangents: tuple[Any, ...]) -> tuple[Stacks, None]:
    """Gradients of the weights, from the batches up to the last one that received a gradient."""
    stacks, saved, y, sizes = kept
    last = max((n for n, dy in enumerate(cotangents) if not isinstance(dy, SymbolicZero)), default=-1)
    if last < 0:
        return jax.tree.map(jnp.zeros_like, stacks), None
    filled = [jnp.zeros(dy.shape, dy.dtype) if isinstance(dy, SymbolicZero) else dy for dy in cotangents[: last + 1]]
    dy = jnp.concatenate(filled) if len(filled) > 1 else filled[0]
    count = sum(int(size) for size in sizes[: last + 1])
    dx = jnp.where(y[:count] > 0, dy, 0)
    gradients = []
    for n, (first, second, third) in reversed(list(enumerate(stacks))):
        x, chosen, pooled, hidden = saved[n]
        of_third = ops.weight_gradient(hidden, dx, hidden.shape[-1])
        d_hidden = ops.convolve(dx, turned(third[0]), mask=hidden)
        of_second = ops.weight_gradient(pooled, d_hidden, pooled.shape[-1], relu_in=True)
        d_pooled = ops.convolve(d_hidden, turned(second[0]), mask=pooled, residual=dx)
        if n == 0:
            of_first = ops.pooled_weight_gradient(x, chosen, d_pooled, first[0].shape[2], scale=1 / 255)
        else:
            (d_first,) = ops.unpool((x.shape[1], x.shape[2]), chosen[:count], d_pooled)
            of_first = ops.weight_gradient(x, d_first, first[0].shape[2])
            dx = ops.convolve(d_first, turned(first[0]))
        gradients.append((of_first, of_second, of_third))
    gradients = jax.tree.map(lambda g, p: g.astype(p.dtype), tuple(reversed(gradients)), stacks)
    return gradients, None


feature_maps.defvjp(maps_forward, maps_backward, symbolic_zeros=True)


def ops_for(shapes: Sequence[tuple[Any, ...]], bf16: bool) -> Ops | None:
    """The kernels for batches of images of these shapes (B, H, W, C), or None where they cannot be used. The numbers of
    rows are checked last, because exports leave them open."""
    if not kernels_run(bf16):
        return None
    return kernel_ops() if fits((math.gcd(*(shape[0] for shape in shapes)), *shapes[0][1:])) else None


def kernels_run(bf16: bool) -> bool:
    """Whether kernels for images are used at all: under bfloat16, and on NVIDIA GPUs."""
    return (
        bf16
        and os.environ.get(SWITCH) != "0"
        and jax.default_backend() == "gpu"
        and "rocm" not in jax.devices()[0].client.platform_version
    )


def fits(shape: tuple[int, ...]) -> bool:
    """Whether the kernels can handle such images: sides are powers of two, and rows of the smallest maps (an eighth of
    the side) fill whole programs."""
    batch, height, width, channels = shape
    return powers_of_two(height, width) and width > 8 and batch * (width // 8) % 128 == 0 and channels <= 8


def powers_of_two(*sides: int) -> bool:
    return all(side >= 8 and side & (side - 1) == 0 for side in sides)


@functools.cache
def kernel_ops(interpret: bool = False) -> Ops:
    # Here: other machines need not load Pallas.
    from dualgoal.fast import convolution_kernels, pooled_kernels, weight_kernels

    given = functools.partial(functools.partial, interpret=interpret)
    return Ops(
        given(convolution_kernels.convolve),
        given(weight_kernels.weight_gradient),
        # Pixels become bfloat16, which is exact, before the kernels, which would convert them once per neighbour.
        pooled_kernels.padded,
        given(pooled_kernels.convolve_pooled),
        given(pooled_kernels.pooled_weight_gradient),
        given(pooled_kernels.pool),
        given(pooled_kernels.unpool),
    )

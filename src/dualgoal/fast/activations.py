"""What a hidden layer does after its matrix product (bias, GELU, LayerNorm), as one GPU kernel for each direction.

This is only element-wise arithmetic and sums over rows, but XLA compiles it to five GPU kernels forward and seven
backward, each of which reads and writes whole arrays of activations, and together they took most of a training step.
The kernels of `activation_kernels` read the result of the matrix product once. The forward pass stores nothing else for
the backward pass, which recomputes the rest from it: arithmetic is cheaper than memory traffic.

The formulas are in `activation_formulas`. Wherever the kernels cannot be used (see `kernels_for`), `plain` and
`plain_backward` compute the same in ordinary JAX.
"""

import functools
from collections.abc import Callable
from contextvars import ContextVar
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array

from dualgoal.fast import activation_formulas
from dualgoal.fast.activation_formulas import Hidden, Params, Scores, has_head

KERNELS = ContextVar("KERNELS", default=True)  # False while a network is traced for another framework


def activate(y: Hidden, params: Params, out: DTypeLike | None = None) -> Hidden | Scores:
    """What follows a layer's matrix product y, depending on the number of params:

        1:  h = GELU(y + bias)
        3:  a = scale LayerNorm(h) + offset
        4:  a . head

    It is computed in float32 or better, and the result has the type `out`, by default y's. The last layer of a value
    network has four params: its single output is computed here, so that its activations are never written to memory.
    """
    return layer(jnp.dtype(out or y.dtype), y, params)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def layer(out: jnp.dtype, y: Hidden, params: Params) -> Hidden | Scores:
    kernels = kernels_for(y)
    return kernels.forward(out, y, params) if kernels else plain(out, y, params)


def layer_forward(out: jnp.dtype, y: Hidden, params: Params) -> tuple[Hidden | Scores, tuple[Hidden, Params]]:
    return layer(out, y, params), (y, params)


def layer_backward(out: jnp.dtype, saved: tuple[Hidden, Params], dout: Hidden | Scores) -> tuple[Hidden, Params]:
    y, params = saved
    kernels = kernels_for(y)
    return kernels.backward(y, params, dout) if kernels else plain_backward(y, params, dout)


layer.defvjp(layer_forward, layer_backward)


def kernels_for(y: Hidden) -> ModuleType | None:
    """The GPU kernels if they can handle y. They need NVIDIA's instructions, which AMD's GPUs lack."""
    if not KERNELS.get() or jax.default_backend() != "gpu" or "rocm" in jax.devices()[0].client.platform_version:
        return None
    from dualgoal.fast import activation_kernels  # here, because other machines need not load Pallas

    return activation_kernels if activation_kernels.can_handle(y) else None


# The plain twin -------------------------------------------------------------------------------------------------------


@functools.partial(jax.jit, static_argnums=0, inline=True)  # for callers outside of jit: one dispatch instead of dozens
def plain(out: jnp.dtype, y: Hidden, params: Params) -> Hidden | Scores:
    def member(y: Array, params: Array) -> Array:
        return activation_formulas.forward_rows([y], [[row[None]] for row in params])[0]

    x = for_each_member(member, y, params)
    return (x[..., 0] if has_head(params) else x).astype(out)


@functools.partial(jax.jit, inline=True)
def plain_backward(y: Hidden, params: Params, dout: Hidden | Scores) -> tuple[Hidden, Params]:
    def member(y: Array, params: Array, dout: Array) -> tuple[Array, Array]:
        zeros = [[jnp.zeros(())]] * min(len(params), 3)
        rows, d = [[row[None]] for row in params], dout.reshape(len(y), -1)
        dy, sums = activation_formulas.backward_rows([y], rows, [d], zeros)
        gradient = activation_formulas.params_gradient(list(params), [group.sum(axis=0) for (group,) in sums])
        return dy[0].astype(y.dtype), jnp.stack(gradient)

    return for_each_member(member, y, params, dout)


def for_each_member(function: Callable[..., Any], *arrays: Array) -> Any:
    """vmap; but a single member gets no axis of its own: on a CPU, XLA is slow at summing products of two arrays whose
    first axis has the length 1 (docs/speed.md)."""
    if len(arrays[0]) > 1:
        return jax.vmap(function)(*arrays)
    return jax.tree.map(lambda x: x[None], function(*(array[0] for array in arrays)))

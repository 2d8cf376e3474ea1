"""The operations of `fast.trunk` without kernels, which the kernels are compared with."""

import functools

import jax
import jax.numpy as jnp

from dualgoal.fast import convolution
from dualgoal.fast.pooling import pool_backward, pool_forward
from dualgoal.fast.trunk import Ops


def convolve(
    x, w, bias=None, *, mask=None, residual=None, relu_in=False, relu_out=False, scale=1.0, dtype=jnp.bfloat16
):
    x = x.astype(dtype)
    extra = x.shape[-1] - w.shape[2]
    w = jnp.pad(w, ((0, 0), (0, 0), (0, extra), (0, 0))) if extra else w
    w = w * scale if scale != 1.0 else w
    y = convolution.plain(jax.nn.relu(x) if relu_in else x, w.astype(dtype))
    y = y if bias is None else y + bias.astype(dtype)[None, None, None]
    y = y if mask is None else jnp.where(mask[: len(y)] > 0, y, 0)
    y = y if residual is None else y + residual[: len(y)]
    return jax.nn.relu(y) if relu_out else y


def weight_gradient(x, dy, inputs, *, relu_in=False, scale=1.0, dtype=jnp.bfloat16):
    x = x[: len(dy)].astype(dtype)
    x = jax.nn.relu(x) if relu_in else x
    zeros = jnp.zeros((3, 3, x.shape[-1], dy.shape[-1]), dtype)
    (dw,) = jax.linear_transpose(functools.partial(convolution.plain, x), zeros)(dy)
    return dw[:, :, :inputs] * scale, dy.astype(jnp.float32).sum(axis=(0, 1, 2))


def plain_ops(dtype, least=1):
    """`least`: images have a multiple of so many channels."""

    def with_channels(images):
        channels = -(-images.shape[-1] // least) * least
        return jnp.pad(images, ((0, 0), (0, 0), (0, 0), (0, channels - images.shape[-1])))

    def convolve_pooled(x, w, bias, *, scale):
        return pool_forward(x.shape[1:3], convolve(x, w, bias, scale=scale, dtype=dtype))

    def pooled_weight_gradient(x, chosen, dy, inputs, *, scale):
        (unpooled,) = pool_backward(x.shape[1:3], chosen[: len(dy)], dy)
        return weight_gradient(x, unpooled, inputs, scale=scale, dtype=dtype)

    given = functools.partial(functools.partial, dtype=dtype)
    kernels = given(convolve), given(weight_gradient), with_channels, convolve_pooled, pooled_weight_gradient
    return Ops(*kernels, pool_forward, pool_backward)

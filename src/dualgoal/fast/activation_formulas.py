"""The arithmetic of a hidden layer after its matrix product, and its gradient, for some rows of one ensemble member.

Both `activations.plain` and the GPU kernels call these functions, so each formula is written once. An array of rows is
given as a list of groups of columns, because a kernel holds its rows in such groups; plain JAX uses a single group.
"""

import functools
import math
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

EPS = 1e-6  # of LayerNorm
SQRT_2_OVER_PI = math.sqrt(2 / math.pi)
CUBIC = 0.044715

# Whole arrays: E members of an ensemble, B rows, H hidden units.
Hidden = Float[Array, "E B H"]
Params = Float[Array, "E P H"]  # P = 1: bias; 3: bias, scale, offset; 4: bias, scale, offset, weights of the head
Scores = Float[Array, "E B"]

Groups = list[Array]  # R rows of one member; one array (R, columns) for each group of columns


class Intrinsics(NamedTuple):
    """Operations for which a GPU has instructions of its own."""

    tanh: Callable[[Array], Array] = jnp.tanh
    fma: Callable[[Array, Array, Array], Array] = lambda a, b, c: a * b + c


PORTABLE = Intrinsics()


def has_head(params: Params) -> bool:
    return params.shape[1] == 4


def gelu(u: Array, ops: Intrinsics = PORTABLE) -> Array:
    """GELU in its tanh form."""
    return gelu_and_derivative(u, ops)[0]


def gelu_and_derivative(u: Array, ops: Intrinsics = PORTABLE) -> tuple[Array, Array]:
    """With v = sqrt(2 / pi) (u + 0.044715 u^3), t = tanh(v) and the gate p = (1 + t) / 2

        gelu(u)  = u p
        gelu'(u) = p + u v' (1 - t^2) / 2    where v' = sqrt(2 / pi) (1 + 3 * 0.044715 u^2)

    arranged such that it takes few instructions.
    """
    square, constant = u * u, functools.partial(jnp.full_like, u)
    t = ops.tanh(u * ops.fma(square, constant(SQRT_2_OVER_PI * CUBIC), constant(SQRT_2_OVER_PI)))
    p = ops.fma(t, constant(0.5), constant(0.5))
    minus_half_u_dv = u * ops.fma(square, constant(-1.5 * SQRT_2_OVER_PI * CUBIC), constant(-0.5 * SQRT_2_OVER_PI))
    return u * p, ops.fma(minus_half_u_dv, ops.fma(t, t, constant(-1.0)), p)


def normalise(h: Groups, ops: Intrinsics) -> tuple[Groups, Array]:
    """x = (h - mean) / std for each row, and 1 / std (R, 1), where std^2 = mean(h^2) - mean(h)^2 + EPS.

    Both moments are sums over h itself, so that one pass over the row is enough.
    """
    per_unit = 1 / row_width(h)
    mean, mean_square = row_sum(h) * per_unit, row_dot(h, h, ops) * per_unit
    inverse_std = jax.lax.rsqrt(jnp.maximum(mean_square - mean * mean, 0) + EPS)
    return [ops.fma(group, inverse_std, -mean * inverse_std) for group in h], inverse_std


def forward_rows(y: Groups, params: list[Groups], ops: Intrinsics = PORTABLE) -> Groups:
    """The result of `activate`. With a head it is a single column, and with x = LayerNorm(h)

    (scale x + offset) . head = x . (scale head) + offset . head
    """
    bias, *norm_and_head = params
    h = per_group(lambda y, b: gelu(at_least_float32(y) + b, ops), y, bias)
    if not norm_and_head:
        return h
    scale, offset, *head = norm_and_head
    x = normalise(h, ops)[0]
    if not head:
        return per_group(ops.fma, x, scale, offset)
    weight = per_group(operator.mul, scale, head[0])
    return [row_dot(x, weight, ops) + row_dot(offset, head[0], ops)]


def backward_rows(
    y: Groups, params: list[Groups], dout: Groups, sums: list[Groups], ops: Intrinsics = PORTABLE
) -> tuple[Groups, list[Groups]]:
    """The gradient of y, and `sums` with what these rows add to them.

    Let d be the gradient of the result, H the width, and weight = scale, or scale head if there is a head (then d is
    one number per row). With x = LayerNorm(h) and sums over the H units of a row,

        dx = d weight
        dh = (dx - sum(dx) / H - x sum(dx x) / H) / std        through the mean and the std of the row
        dy = dh gelu'(y + bias)

    `sums` are those of dy, of d x and of d over all rows, from which `params_gradient` makes the gradients of the
    params. Without LayerNorm there is only dy = d gelu'(y + bias) and its sum.
    """
    bias, *norm_and_head = params
    h_and_slope = per_group(lambda y, b: gelu_and_derivative(at_least_float32(y) + b, ops), y, bias)
    h, slope = [h for h, _ in h_and_slope], [slope for _, slope in h_and_slope]
    d = [at_least_float32(group) for group in dout] * (len(y) // len(dout))  # with a head all groups share one column
    if not norm_and_head:
        dy = per_group(operator.mul, d, slope)
        return dy, [per_group(operator.add, sums[0], dy)]

    scale, _, *head = norm_and_head
    weight = per_group(operator.mul, scale, head[0]) if head else scale
    x, inverse_std = normalise(h, ops)
    dx = per_group(operator.mul, d, weight)
    per_unit = 1 / row_width(y)
    mean_term = row_sum(dx) * (per_unit * inverse_std)
    x_factor = row_dot(dx, x, ops) * -per_unit

    def through_norm_and_gelu(x: Array, dx: Array, slope: Array) -> Array:
        return ops.fma(ops.fma(x, x_factor, dx), inverse_std, -mean_term) * slope

    dy = per_group(through_norm_and_gelu, x, dx, slope)
    added = per_group(lambda a, b, c, dy, d, x: (a + dy, ops.fma(d, x, b), c + d), *sums, dy, d, x)
    return dy, [list(groups) for groups in zip(*added, strict=True)]


def params_gradient(params: list[Array], sums: list[Array]) -> list[Array]:
    """The gradients of the params from the sums of dy, d x and d over all rows.

    Without a head these sums already are the gradients of bias, scale and offset. With one, those of scale and offset
    get the factor `head`, and the gradient of the head is the sum of d (scale x + offset).
    """
    if len(params) < 4:
        return sums
    _, scale, offset, head = params
    sum_dy, sum_d_x, sum_d = sums
    return [sum_dy, sum_d_x * head, sum_d * head, scale * sum_d_x + offset * sum_d]


def per_group(function: Callable[..., Any], *arguments: Groups) -> list[Any]:
    return [function(*group) for group in zip(*arguments, strict=True)]


def row_dot(a: Groups, b: Groups, ops: Intrinsics) -> Array:
    """Inner product of each row of a with that of b, (R, 1)."""
    products = a[0] * b[0]
    for n in range(1, len(a)):
        products = ops.fma(a[n], b[n], products)
    return products.sum(axis=-1, keepdims=True)


def row_sum(x: Groups) -> Array:
    return functools.reduce(jnp.add, x).sum(axis=-1, keepdims=True)


def row_width(x: Groups) -> int:
    return sum(group.shape[-1] for group in x)


def at_least_float32(x: Array) -> Array:
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))

"""What a layer costs on a GPU, in few passes over memory: products with well-placed results, and GELU with LayerNorm.

Between two matrix products a layer is only element-wise work and row sums, yet left to the compiler it becomes five
kernels forward and seven backward, and these, not the arithmetic, were most of a training step. Here a program handles
a block of rows: it reads the product once, and on the way back computes everything again from it instead of reading
what was stored. Off the GPU, and for widths that are no power of two, the same function in plain JAX serves.
"""

import functools
import itertools
import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

EPS = 1e-6
BLOCK = 8192  # numbers at a time: 16 per thread of sixteen warps, so nothing spills from registers
WARPS = 16
STEPS = 2  # blocks per program, which loads the parameters once and, on the way back, leaves one partial sum
SLOPE = math.sqrt(2 / math.pi)
CUBE = 0.044715

Parts = tuple[Array, ...]
Hidden = Float[Array, "E B H"]
Rows = Float[Array, "E R H"]  # bias; with LayerNorm scale and offset; with a head of one output its weights
Scores = Float[Array, "E B"]


def product(x: Array | Parts, w: Array, dtype=None, out=None) -> Array:
    """x w: (B, i) or (E, B, i) -> (B, o) or (E, B, o), factors in `dtype`, result in `out`; parts of x side by side.

    Members that share an input get copies of it: a batched product with members in front needs no transposition.
    """
    parts = x if isinstance(x, tuple) else (x,)
    if w.ndim == 3 and parts[0].ndim == 2:
        parts = tuple(jnp.broadcast_to(x[None], (w.shape[0], *x.shape)) for x in parts)
    return multiply(dtype or parts[0].dtype, out or dtype or parts[0].dtype, parts, w)


def columns(x: Array, dtype) -> tuple[Array, ...]:
    """x as columns of a factor in `dtype`; each takes the same rows of the other factor.

    Float32 columns enter a bfloat16 product as two halves, the rounded values and what rounding left: 16 bits of each
    number. Raw observations need them: 8 bits would place a coordinate of 20 m to the nearest 0.1 m.
    """
    if x.dtype != jnp.float32 or dtype != jnp.bfloat16:
        return (x.astype(dtype),)
    high = jax.lax.reduce_precision(x, exponent_bits=8, mantissa_bits=7)
    return high.astype(dtype), (x - high).astype(dtype)


def rows_of(parts: Parts, w: Array) -> list[Array]:
    """The rows of w that belong to each part's columns."""
    return jnp.split(w, list(itertools.accumulate(x.shape[-1] for x in parts[:-1])), axis=-2)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def multiply(dtype, out, parts: Parts, w: Array) -> Array:
    split = [columns(x, dtype) for x in parts]
    rows = [rows for x, rows in zip(split, rows_of(parts, w.astype(dtype)), strict=True) for _ in x]
    equation = "bi,io->bo" if w.ndim == 2 else "ebi,eio->ebo"
    return jnp.einsum(equation, side_by_side(split), jnp.concatenate(rows, axis=-2), preferred_element_type=out)


def side_by_side(split: list[tuple[Array, ...]]) -> Array:
    return jnp.concatenate(list(itertools.chain(*split)), axis=-1)


def multiply_forward(dtype, out, parts, w):
    return multiply(dtype, out, parts, w), (parts, w)


def multiply_backward(dtype, out, saved, dy):
    """The weights' gradient leaves the product in the weights' own order and type: nothing to transpose or convert."""
    parts, w = saved
    e = "" if w.ndim == 2 else "e"
    dy = dy.astype(dtype)
    dx = [
        jnp.einsum(f"{e}bo,{e}io->{e}bi", dy, rows, preferred_element_type=x.dtype)
        for x, rows in zip(parts, rows_of(parts, w.astype(dtype)), strict=True)
    ]
    split = [columns(x, dtype) for x in parts]
    dw = jnp.einsum(f"{e}bi,{e}bo->{e}io", side_by_side(split), dy, preferred_element_type=w.dtype)
    pieces = iter(rows_of(tuple(itertools.chain(*split)), dw))
    return tuple(dx), jnp.concatenate([sum(next(pieces) for _ in x) for x in split], axis=-2)


multiply.defvjp(multiply_forward, multiply_backward)


def gelu(x: Array, tanh=jnp.tanh) -> Array:
    """The tanh form."""
    return gelu_and_slope(x, tanh)[0]


def gelu_and_slope(x: Array, tanh=jnp.tanh) -> tuple[Array, Array]:
    """GELU and its derivative, written for few instructions."""
    square, half = x * x, 0.5 * x
    t = tanh(x * (SLOPE + SLOPE * CUBE * square))
    return half + half * t, 0.5 + 0.5 * t + half * (SLOPE + 3 * SLOPE * CUBE * square) * (1 - t * t)


def normalised(h: Array) -> tuple[Array, Array]:
    """Rows of zero mean and unit variance, and the factor that made them so; both moments in one pass."""
    mean, square = h.mean(axis=-1, keepdims=True), (h * h).mean(axis=-1, keepdims=True)
    factor = jax.lax.rsqrt(jnp.maximum(square - mean * mean, 0) + EPS)
    return (h - mean) * factor, factor


def activate(y: Hidden, rows: Rows, out=None) -> Hidden | Scores:
    """What follows a product, in float32 or better, with a result of type `out` (y's): GELU(y + bias), then, as far as
    there are rows for it, LayerNorm with scale and offset, and the product with a head of one output.

    With a head the last activations of a value network are never written to memory.
    """
    return layer(jnp.dtype(out or y.dtype), y, rows)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def layer(out, y: Hidden, rows: Rows) -> Hidden | Scores:
    return (forward if fits(y) else plain)(out, y, rows)


def layer_forward(out, y, rows):
    return layer(out, y, rows), (y, rows)


def layer_backward(out, saved, dout):
    """From y again: what else a layer computed on the way is not kept."""
    y, rows = saved
    return (backward if fits(y) else plain_back)(y, rows, dout)


layer.defvjp(layer_forward, layer_backward)


def fits(y: Hidden) -> bool:
    """Whether the kernels below can do it."""
    width = y.shape[-1]
    power = 64 <= width <= BLOCK and width & (width - 1) == 0
    even = power and y.shape[1] % (STEPS * BLOCK // width) == 0
    return even and y.dtype != jnp.float64 and jax.default_backend() == "gpu"


# Rows of one member ---------------------------------------------------------------------------------------------------


def rows_forward(y: Array, rows: list[Array], tanh=jnp.tanh) -> Array:
    bias, *rest = (row[None] for row in rows)
    h = gelu(widened(y) + bias, tanh)
    if not rest:
        return h
    scale, offset, *head = rest
    x = normalised(h)[0] * scale + offset
    return (x * head[0]).sum(axis=-1) if head else x


def rows_backward(y: Array, rows: list[Array], d: Array, tanh=jnp.tanh) -> tuple[Array, ...]:
    """The gradient of y, and, to be summed over the batch, of scale and offset where there is no head."""
    bias, *rest = rows
    h, slope = gelu_and_slope(widened(y) + bias[None], tanh)
    d = widened(d)
    if not rest:
        return (d * slope,)
    scale, _, *head = rest
    wide, weight = (d[:, None], scale * head[0]) if head else (d, scale)
    x, factor = normalised(h)
    dx = wide * weight[None]
    inner = dx.mean(axis=-1, keepdims=True) + x * (dx * x).mean(axis=-1, keepdims=True)
    return (dx - inner) * factor * slope, wide * x, d


def rows_gradient(rows: list[Array], sums: list[Array]) -> list[Array]:
    """Gradients of the parameter rows from sums of what `rows_backward` gave."""
    if len(rows) < 4:
        return sums
    _, scale, offset, head = rows
    dbias, dscale, doffset = sums
    return [dbias, dscale * head, doffset * head, scale * dscale + offset * doffset]


def widened(x: Array) -> Array:
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


# In plain JAX ---------------------------------------------------------------------------------------------------------


@functools.partial(jax.jit, static_argnums=0, inline=True)  # outside of jit one call instead of dozens
def plain(out, y: Hidden, rows: Rows) -> Hidden | Scores:
    return jax.vmap(lambda y, rows: rows_forward(y, list(rows)))(y, rows).astype(out)


@functools.partial(jax.jit, inline=True)
def plain_back(y: Hidden, rows: Rows, dout: Hidden | Scores) -> tuple[Hidden, Rows]:
    def member(y, rows, d):
        parts = rows_backward(y, list(rows), d)
        return parts[0].astype(y.dtype), jnp.stack(rows_gradient(list(rows), [part.sum(axis=0) for part in parts]))

    return jax.vmap(member)(y, rows, dout)


# As GPU kernels -------------------------------------------------------------------------------------------------------


def device_tanh(y: Hidden, interpret: bool):
    """The GPU's own tanh instruction is good to 2^-11: more than enough where y is rounded to bfloat16."""
    from jax.experimental.pallas import triton

    return triton.approx_tanh if y.dtype == jnp.bfloat16 and not interpret else jnp.tanh


def forward(out, y: Hidden, rows: Rows, interpret: bool = False) -> Hidden | Scores:
    from jax.experimental import pallas as pl

    tanh, scored, height = device_tanh(y, interpret), rows.shape[1] == 4, BLOCK // y.shape[-1]

    def kernel(y, rows, result):
        parameters = [rows[n, :] for n in range(rows.shape[0])]
        for step in range(STEPS):
            here = pl.ds(step * height, height)
            x = rows_forward(y[here, :], parameters, tanh)
            result[here if scored else (here, slice(None))] = x.astype(result.dtype)

    block, shared, score = specs(pl, y, rows)
    result = jax.ShapeDtypeStruct(y.shape[:2] if scored else y.shape, out)
    run = call(pl, kernel, y, [block, shared], score if scored else block, result, "activate", interpret)
    return run(y, rows)


def backward(y: Hidden, rows: Rows, dout: Hidden | Scores, interpret: bool = False) -> tuple[Hidden, Rows]:
    """Gradients of y and of the rows; the rows' come as partial sums, one per program."""
    from jax.experimental import pallas as pl

    tanh, scored, height = device_tanh(y, interpret), rows.shape[1] == 4, BLOCK // y.shape[-1]

    def kernel(y, rows, dout, dy, drows):
        parameters = [rows[n, :] for n in range(rows.shape[0])]
        sums: tuple | None = None
        for step in range(STEPS):
            here = pl.ds(step * height, height)
            parts = rows_backward(y[here, :], parameters, dout[here if scored else (here, slice(None))], tanh)
            dy[here, :] = parts[0].astype(dy.dtype)
            sums = parts if sums is None else tuple(a + b for a, b in zip(sums, parts, strict=True))
        assert sums is not None
        for n, gradient in enumerate(rows_gradient(parameters, [part.sum(axis=0) for part in sums])):
            drows[n, :] = gradient

    members, count, width = y.shape
    block, shared, score = specs(pl, y, rows)
    partial = jax.ShapeDtypeStruct((members, count // (STEPS * height), *rows.shape[1:]), jnp.float32)
    sums = pl.BlockSpec((None, None, *rows.shape[1:]), lambda e, i: (e, i, 0, 0))
    given = [block, shared, score if scored else block]
    dy, drows = call(pl, kernel, y, given, [block, sums], [y, partial], "activate_back", interpret)(y, rows, dout)
    return dy, drows.sum(axis=1)


def specs(pl, y: Hidden, rows: Rows):
    """A program's rows of one member, that member's parameter rows, and one number for each of the program's rows."""
    height = STEPS * BLOCK // y.shape[-1]
    return (
        pl.BlockSpec((None, height, y.shape[-1]), lambda e, i: (e, i, 0)),
        pl.BlockSpec((None, *rows.shape[1:]), lambda e, i: (e, 0, 0)),
        pl.BlockSpec((None, height), lambda e, i: (e, i)),
    )


def call(pl, kernel, y: Hidden, in_specs, out_specs, out, name: str, interpret: bool):
    from jax.experimental.pallas import triton

    return pl.pallas_call(
        kernel,
        out_shape=jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), out),
        grid=(y.shape[0], y.shape[1] * y.shape[2] // (STEPS * BLOCK)),
        in_specs=in_specs,
        out_specs=out_specs,
        compiler_params=triton.CompilerParams(num_warps=WARPS),
        interpret=interpret,
        name=name,
    )

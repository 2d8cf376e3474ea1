"""What a layer does between two matrix products, GELU and LayerNorm, in one pass over memory on a GPU.

It is only element-wise work and row sums, yet left to the compiler it becomes five kernels forward and seven backward,
and these, not the arithmetic, were most of a training step. Here a program handles some rows: it reads the product
once, and on the way back computes everything again from it instead of reading what was stored. Off the GPU, and for
widths that are no power of two, the same functions of rows serve in plain JAX.
"""

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

EPS = 1e-6
WARPS = 4  # of 32 threads in a program
NUMBERS = 16  # that a thread holds at a time: more would spill from registers
BLOCK = WARPS * 32 * NUMBERS  # numbers at a time
STEPS = 4  # blocks per program, which loads the parameters once
BACK_STEPS = 8  # and, on the way back, leaves one partial sum
SLOPE = math.sqrt(2 / math.pi)
CUBE = 0.044715

Columns = list[Array]  # groups of columns
Hidden = Float[Array, "E B H"]
Rows = Float[Array, "E R H"]  # bias; with LayerNorm scale and offset; with a head of one output its weights
Scores = Float[Array, "E B"]


class Ways(NamedTuple):
    """How a device computes what it has instructions for."""

    tanh: Callable[[Array], Array] = jnp.tanh
    fma: Callable[[Array, Array, Array], Array] = lambda a, b, c: a * b + c


PLAIN = Ways()


def gelu(x: Array, ways: Ways = PLAIN) -> Array:
    """The tanh form."""
    return gelu_and_slope(x, ways)[0]


def gelu_and_slope(x: Array, ways: Ways = PLAIN) -> tuple[Array, Array]:
    """GELU and its derivative, written for few instructions."""
    square, constant = x * x, functools.partial(jnp.full_like, x)
    t = ways.tanh(x * ways.fma(square, constant(SLOPE * CUBE), constant(SLOPE)))
    rise = ways.fma(t, constant(0.5), constant(0.5))
    bend = x * ways.fma(square, constant(-1.5 * SLOPE * CUBE), constant(-0.5 * SLOPE))
    return x * rise, ways.fma(bend, ways.fma(t, t, constant(-1.0)), rise)


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
    even = power and y.shape[1] % (BACK_STEPS * BLOCK // width) == 0
    return even and y.dtype != jnp.float64 and jax.default_backend() == "gpu" and not amd()


def amd() -> bool:
    """AMD's GPUs lack the instructions that are asked for by name."""
    return "rocm" in jax.devices()[0].client.platform_version


# Rows of one member, cut into groups of columns: one group in plain JAX, several in a kernel --------------------------


def rows_forward(y: Columns, rows: list[Columns], ways: Ways = PLAIN) -> Columns:
    """What becomes of y; with a head a single column."""
    bias, *rest = rows
    h = [gelu(widened(y) + b, ways) for y, b in zip(y, bias, strict=True)]
    if not rest:
        return h
    scale, offset, *head = rest
    x = normalised(h, ways)[0]
    if not head:
        return [ways.fma(x, a, b) for x, a, b in zip(x, scale, offset, strict=True)]
    weight = [a * w for a, w in zip(scale, head[0], strict=True)]
    return [inner(x, weight, ways) + inner(offset, head[0], ways)]


def rows_backward(
    y: Columns, rows: list[Columns], d: Columns, sums: list[Columns], ways: Ways = PLAIN
) -> tuple[Columns, list[Columns]]:
    """The gradient of y, and `sums` with what these rows add to them: of bias, x d and d."""
    bias, *rest = rows
    both = [gelu_and_slope(widened(y) + b, ways) for y, b in zip(y, bias, strict=True)]
    wide = [widened(d) for d in d] * (len(y) // len(d))
    if not rest:
        dy = [d * slope for d, (_, slope) in zip(wide, both, strict=True)]
        return dy, [[s + d for s, d in zip(sums[0], dy, strict=True)]]
    scale, _, *head = rest
    weight = [a * w for a, w in zip(scale, head[0], strict=True)] if head else scale
    x, factor = normalised([h for h, _ in both], ways)
    dx = [d * w for d, w in zip(wide, weight, strict=True)]
    share = 1 / width_of(y)
    mean, along = total(dx) * (share * factor), inner(dx, x, ways) * -share
    dy = [
        ways.fma(ways.fma(x, along, dx), factor, -mean) * slope for x, dx, (_, slope) in zip(x, dx, both, strict=True)
    ]
    terms = zip(*sums, dy, wide, x, strict=True)
    added = [(a + dy, ways.fma(d, x, b), c + d) for a, b, c, dy, d, x in terms]
    return dy, [list(column) for column in zip(*added, strict=True)]


def rows_gradient(rows: list[Array], sums: list[Array]) -> list[Array]:
    """Gradients of the parameter rows from the sums that `rows_backward` made, in one group of columns."""
    if len(rows) < 4:
        return sums
    _, scale, offset, head = rows
    dbias, dscale, doffset = sums
    return [dbias, dscale * head, doffset * head, scale * dscale + offset * doffset]


def normalised(h: Columns, ways: Ways) -> tuple[Columns, Array]:
    """Rows of zero mean and unit variance, and the factor that made them so; both moments in one pass."""
    share = 1 / width_of(h)
    mean, square = total(h) * share, inner(h, h, ways) * share
    factor = jax.lax.rsqrt(jnp.maximum(square - mean * mean, 0) + EPS)
    return [ways.fma(h, factor, -mean * factor) for h in h], factor


def inner(a: Columns, b: Columns, ways: Ways) -> Array:
    """Inner products of rows, (R, 1)."""
    products = a[0] * b[0]
    for n in range(1, len(a)):
        products = ways.fma(a[n], b[n], products)
    return products.sum(axis=-1, keepdims=True)


def total(x: Columns) -> Array:
    return functools.reduce(jnp.add, x).sum(axis=-1, keepdims=True)


def width_of(x: Columns) -> int:
    return sum(x.shape[-1] for x in x)


def widened(x: Array) -> Array:
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


# In plain JAX ---------------------------------------------------------------------------------------------------------


@functools.partial(jax.jit, static_argnums=0, inline=True)  # outside of jit one call instead of dozens
def plain(out, y: Hidden, rows: Rows) -> Hidden | Scores:
    x = jax.vmap(lambda y, rows: rows_forward([y], [[row[None]] for row in rows])[0])(y, rows)
    return (x[..., 0] if rows.shape[1] == 4 else x).astype(out)


@functools.partial(jax.jit, inline=True)
def plain_back(y: Hidden, rows: Rows, dout: Hidden | Scores) -> tuple[Hidden, Rows]:
    def member(y, rows, d):
        zeros = [[jnp.zeros(())]] * min(len(rows), 3)
        dy, sums = rows_backward([y], [[row[None]] for row in rows], [d.reshape(len(y), -1)], zeros)
        added = [x.sum(axis=0) for (x,) in sums]
        return dy[0].astype(y.dtype), jnp.stack(rows_gradient(list(rows), added))

    return jax.vmap(member)(y, rows, dout)


# As GPU kernels -------------------------------------------------------------------------------------------------------


def gpu_ways(y: Hidden, interpret: bool) -> Ways:
    """Instructions that the compiler would not choose itself. The GPU's tanh is good to 2^-11: more than enough where y
    is rounded to bfloat16. Products and sums are left apart unless they are asked for as one."""
    from jax.experimental.pallas import triton

    if interpret:
        return PLAIN

    def fma(*factors: Array) -> Array:
        a, b, c = jnp.broadcast_arrays(*factors)
        out = [jax.ShapeDtypeStruct(a.shape, a.dtype)]
        return triton.elementwise_inline_asm(
            "fma.rn.f32 $0, $1, $2, $3;", args=[a, b, c], constraints="=f,f,f,f", pack=1, result_shape_dtypes=out
        )[0]

    return Ways(triton.approx_tanh if y.dtype == jnp.bfloat16 else jnp.tanh, fma)


def cuts(pl, y: Hidden) -> list:
    """Groups of columns such that a warp, whose threads load 16 bytes each, holds whole rows up to 16 numbers a thread:
    then row sums need neither shared memory nor waiting for other warps."""
    load = 16 // y.dtype.itemsize
    count = max(1, min(y.shape[-1] // (32 * load), NUMBERS // load))
    width = y.shape[-1] // count
    return [pl.ds(n * width, width) for n in range(count)]


def forward(out, y: Hidden, rows: Rows, interpret: bool = False) -> Hidden | Scores:
    from jax.experimental import pallas as pl

    ways, scored, height, groups = gpu_ways(y, interpret), rows.shape[1] == 4, BLOCK // y.shape[-1], cuts(pl, y)

    def kernel(y, rows, result):
        parameters = [[rows[n, cut][None] for cut in groups] for n in range(rows.shape[0])]
        for step in range(STEPS):
            here = pl.ds(step * height, height)
            x = rows_forward([y[here, cut] for cut in groups], parameters, ways)
            if scored:
                result[here] = x[0][:, 0].astype(result.dtype)
                continue
            for cut, group in zip(groups, x, strict=True):
                result[here, cut] = group.astype(result.dtype)

    block, shared, score = specs(pl, y, rows, STEPS)
    result = jax.ShapeDtypeStruct(y.shape[:2] if scored else y.shape, out)
    run = call(pl, kernel, y, STEPS, [block, shared], score if scored else block, result, "activate", interpret)
    return run(y, rows)


def backward(y: Hidden, rows: Rows, dout: Hidden | Scores, interpret: bool = False) -> tuple[Hidden, Rows]:
    """Gradients of y and of the rows; the rows' come as partial sums, one per program."""
    from jax.experimental import pallas as pl

    ways, scored, height, groups = gpu_ways(y, interpret), rows.shape[1] == 4, BLOCK // y.shape[-1], cuts(pl, y)

    def kernel(y, rows, dout, dy, drows):
        parameters = [[rows[n, cut][None] for cut in groups] for n in range(rows.shape[0])]
        wide = (height, groups[0].size)
        sums = [[jnp.zeros(wide, jnp.float32) for _ in groups] for _ in range(min(rows.shape[0], 3))]
        if scored:
            sums[2] = [jnp.zeros((height, 1), jnp.float32) for _ in groups]

        def body(step, sums):
            here = pl.ds(step * height, height)
            d = [dout[here][:, None]] if scored else [dout[here, cut] for cut in groups]
            gradient, sums = rows_backward([y[here, cut] for cut in groups], parameters, d, sums, ways)
            for cut, group in zip(groups, gradient, strict=True):
                dy[here, cut] = group.astype(dy.dtype)
            return sums

        sums = jax.lax.fori_loop(0, BACK_STEPS, body, sums)
        for g, cut in enumerate(groups):
            again = [rows[n, cut] for n in range(rows.shape[0])]  # loaded twice rather than held all the while
            for n, gradient in enumerate(rows_gradient(again, [x[g].sum(axis=0) for x in sums])):
                drows[n, cut] = gradient

    members, count, _ = y.shape
    block, shared, score = specs(pl, y, rows, BACK_STEPS)
    partial = jax.ShapeDtypeStruct((members, count // (BACK_STEPS * height), *rows.shape[1:]), jnp.float32)
    sums = pl.BlockSpec((None, None, *rows.shape[1:]), lambda e, i: (e, i, 0, 0))
    given = [block, shared, score if scored else block]
    run = call(pl, kernel, y, BACK_STEPS, given, [block, sums], [y, partial], "activate_back", interpret)
    dy, drows = run(y, rows, dout)
    return dy, drows.sum(axis=1)


def specs(pl, y: Hidden, rows: Rows, steps: int):
    """A program's rows of one member, that member's parameter rows, and one number for each of the program's rows."""
    height = steps * BLOCK // y.shape[-1]
    return (
        pl.BlockSpec((None, height, y.shape[-1]), lambda e, i: (e, i, 0)),
        pl.BlockSpec((None, *rows.shape[1:]), lambda e, i: (e, 0, 0)),
        pl.BlockSpec((None, height), lambda e, i: (e, i)),
    )


def call(pl, kernel, y: Hidden, steps: int, in_specs, out_specs, out, name: str, interpret: bool):
    from jax.experimental.pallas import triton

    return pl.pallas_call(
        kernel,
        out_shape=jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), out),
        grid=(y.shape[0], y.shape[1] * y.shape[2] // (steps * BLOCK)),
        in_specs=in_specs,
        out_specs=out_specs,
        compiler_params=triton.CompilerParams(num_warps=WARPS),
        interpret=interpret,
        name=name,
    )

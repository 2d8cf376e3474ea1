"""What a layer costs on a GPU, in few passes over memory: products with well-placed results, and GELU with LayerNorm.

Between two matrix products a layer is only element-wise work and row sums, yet left to the compiler it becomes five
kernels forward and seven backward, and these, not the arithmetic, were most of a training step. Here a program handles
a block of rows: it reads the product once, and on the way back computes everything again from it instead of reading
what was stored. Off the GPU, and for widths that are no power of two, the same function in plain JAX serves.
"""

import functools
import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

EPS = 1e-6
BLOCK = 8  # rows at a time: with eight warps, 16 numbers per thread at width 512, so nothing spills from registers
WARPS = 8
STEPS = 2  # blocks per program on the way back, where each program leaves one partial sum
SLOPE = math.sqrt(2 / math.pi)
CUBE = 0.044715

Hidden = Float[Array, "E B H"]
Rows = Float[Array, "E 3 H"]  # bias, scale, offset


def product(x: Array, w: Array, dtype=None, out=None) -> Array:
    """x w: (B, i) or (E, B, i) -> (B, o) or (E, B, o), factors in `dtype`, result in `out`.

    Members that share an input get copies of it: a batched product with members in front needs no transposition.
    """
    if w.ndim == 3 and x.ndim == 2:
        x = jnp.broadcast_to(x[None], (w.shape[0], *x.shape))
    return multiply(dtype or x.dtype, out or x.dtype, x, w)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def multiply(dtype, out, x: Array, w: Array) -> Array:
    equation = "bi,io->bo" if w.ndim == 2 else "ebi,eio->ebo"
    return jnp.einsum(equation, x.astype(dtype), w.astype(dtype), preferred_element_type=out)


def multiply_forward(dtype, out, x, w):
    return multiply(dtype, out, x, w), (x, w)


def multiply_backward(dtype, out, saved, dy):
    """The weights' gradient leaves the product in the weights' own order and type: nothing to transpose or convert."""
    x, w = saved
    e = "" if w.ndim == 2 else "e"
    dy = dy.astype(dtype)
    dx = jnp.einsum(f"{e}bo,{e}io->{e}bi", dy, w.astype(dtype), preferred_element_type=x.dtype)
    dw = jnp.einsum(f"{e}bi,{e}bo->{e}io", x.astype(dtype), dy, preferred_element_type=w.dtype)
    return dx, dw


multiply.defvjp(multiply_forward, multiply_backward)


def gelu(x: Array, tanh=jnp.tanh) -> Array:
    """The tanh form."""
    return 0.5 * x * (1 + tanh(SLOPE * (x + CUBE * x**3)))


def gelu_slope(x: Array, tanh=jnp.tanh) -> Array:
    t = tanh(SLOPE * (x + CUBE * x**3))
    return 0.5 * (1 + t) + 0.5 * x * (1 - t**2) * SLOPE * (1 + 3 * CUBE * x**2)


def normalised(h: Array) -> tuple[Array, Array]:
    """Rows of zero mean and unit variance, and the factor that made them so."""
    centred = h - h.mean(axis=-1, keepdims=True)
    factor = jax.lax.rsqrt((centred**2).mean(axis=-1, keepdims=True) + EPS)
    return centred * factor, factor


def gelu_norm(y: Hidden, rows: Rows, out=None) -> Hidden:
    """LayerNorm(GELU(y + bias)) * scale + offset, computed in float32 or better, result in type `out` (y's)."""
    out, width = jnp.dtype(out or y.dtype), y.shape[-1]
    fits = width >= 64 and width & (width - 1) == 0 and y.shape[1] % (BLOCK * STEPS) == 0 and y.dtype != jnp.float64
    if fits and jax.default_backend() == "gpu":
        return fused(out, y, rows)
    return jax.checkpoint(functools.partial(plain, out), prevent_cse=False)(y, rows)


def plain(out, y: Hidden, rows: Rows) -> Hidden:
    bias, scale, offset = (rows[:, n : n + 1] for n in range(3))
    wide = y.astype(jnp.promote_types(y.dtype, jnp.float32))
    x, _ = normalised(gelu(wide + bias))
    return (x * scale + offset).astype(out)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def fused(out, y: Hidden, rows: Rows) -> Hidden:
    return forward(out, y, rows)


def device_tanh(out, interpret: bool):
    """The GPU's own tanh instruction is good to 2^-11: more than enough for results rounded to bfloat16."""
    from jax.experimental.pallas import triton

    return triton.approx_tanh if out == jnp.bfloat16 and not interpret else jnp.tanh


def forward(out, y: Hidden, rows: Rows, interpret: bool = False) -> Hidden:
    from jax.experimental import pallas as pl

    tanh = device_tanh(out, interpret)

    def kernel(y, rows, result):
        x, _ = normalised(gelu(y[...].astype(jnp.float32) + rows[0, :][None], tanh))
        result[...] = (x * rows[1, :][None] + rows[2, :][None]).astype(result.dtype)

    block, shared = specs(pl, BLOCK, y.shape[-1])
    result = jax.ShapeDtypeStruct(y.shape, out)
    return call(pl, kernel, BLOCK, y, [block, shared], block, result, "gelu_norm", interpret)(y, rows)


def backward(out, y: Hidden, rows: Rows, dout: Hidden, interpret: bool = False) -> tuple[Hidden, Rows]:
    """Gradients of y and of the three rows; the rows' come as partial sums, one per program."""
    from jax.experimental import pallas as pl

    tanh = device_tanh(out, interpret)

    def kernel(y, rows, dout, dy, drows):
        bias, scale = rows[0, :][None], rows[1, :][None]
        sums = None
        for step in range(STEPS):
            here = (pl.ds(step * BLOCK, BLOCK), slice(None))
            u, d = y[here].astype(jnp.float32) + bias, dout[here].astype(jnp.float32)
            x, factor = normalised(gelu(u, tanh))
            dx = d * scale
            inner = dx.mean(axis=-1, keepdims=True) + x * (dx * x).mean(axis=-1, keepdims=True)
            du = (dx - inner) * factor * gelu_slope(u, tanh)
            dy[here] = du.astype(dy.dtype)
            parts = (du, d * x, d)
            sums = parts if sums is None else tuple(a + b for a, b in zip(sums, parts, strict=True))
        assert sums is not None
        drows[0, :], drows[1, :], drows[2, :] = (part.sum(axis=0) for part in sums)

    members, count, width = y.shape
    height = BLOCK * STEPS
    block, shared = specs(pl, height, width)
    partial = jax.ShapeDtypeStruct((members, count // height, 3, width), jnp.float32)
    sums = pl.BlockSpec((None, None, 3, width), lambda e, i: (e, i, 0, 0))
    run = call(pl, kernel, height, y, [block, shared, block], [block, sums], [y, partial], "gelu_norm_back", interpret)
    dy, drows = run(y, rows, dout)
    return dy, drows.sum(axis=1)


def specs(pl, height: int, width: int):
    """A block of one member's rows, and its three parameter rows."""
    return (
        pl.BlockSpec((None, height, width), lambda e, i: (e, i, 0)),
        pl.BlockSpec((None, 3, width), lambda e, i: (e, 0, 0)),
    )


def call(pl, kernel, height: int, y: Hidden, in_specs, out_specs, out, name: str, interpret: bool):
    from jax.experimental.pallas import triton

    return pl.pallas_call(
        kernel,
        out_shape=jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), out),
        grid=(y.shape[0], y.shape[1] // height),
        in_specs=in_specs,
        out_specs=out_specs,
        compiler_params=triton.CompilerParams(num_warps=WARPS),
        interpret=interpret,
        name=name,
    )


def fused_forward(out, y, rows):
    return forward(out, y, rows), (y, rows)


def fused_backward(out, saved, dout):
    y, rows = saved
    return backward(out, y, rows, dout)


fused.defvjp(fused_forward, fused_backward)

"""GPU kernels for max-pooling, and for an encoder's first convolution together with its max-pooling, in Pallas.

The result of that convolution is the encoder's largest array by far, and nothing but the pooling reads it. The forward
kernel keeps it in registers: a program handles a tile of pooled pixels, computes the nine convolutions of each one's
window, and writes the largest and its place. The gradient of the weights finds for each pixel the windows that chose
it, so the gradient of the convolution's result is never written either. Where the windows overlap, convolutions are
computed more than once; matrix instructions are cheaper here than memory.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array

from dualgoal.fast.convolution_kernels import Tile, flat, neighbours, summed_over_tiles
from dualgoal.fast.pooling import NO_WINDOW, Sides, code

REACH = 8  # pixels of an image row that are loaded for a window: five are needed, and a power of two is loaded
LAST = 15  # the largest number of a code; codes have four bits
FORWARD = Tile(pixels=64)  # a program holds five rows of pixels in registers
BACKWARD = Tile()
POOL = Tile(pixels=64)


def window_weights(w: Array, channels: int) -> Array:
    """(3, REACH channels, 4 o): for row `down` of the weights, the right factor of a row of pixels that starts one
    before the window; its columns are the outputs at the window's three columns, and zeros."""
    w = jnp.pad(w, ((0, 0), (0, 0), (0, channels - w.shape[2]), (0, 0)))
    shifted = [jnp.pad(w, ((0, 0), (b, REACH - 3 - b), (0, 0), (0, 0))) for b in range(3)]
    side_by_side = jnp.concatenate([*shifted, jnp.zeros_like(shifted[0])], axis=-1)
    return side_by_side.reshape(3, REACH * channels, -1).astype(jnp.bfloat16)


def with_code(y: Array, own: Array) -> Array:
    """The numbers y, whose last four bits now tell where they are in their window, so that one maximum finds the value
    and the place: the first in reading order among equals. The result is rounded to 16 bits less anyway."""
    bits = lax.bitcast_convert_type(y, jnp.int32)
    return lax.bitcast_convert_type((bits & ~LAST) | jnp.where(bits < 0, own, LAST - own), jnp.float32)


def without_code(y: Array) -> tuple[Array, Array]:
    bits = lax.bitcast_convert_type(y, jnp.int32)
    low = bits & LAST
    return lax.bitcast_convert_type(bits - low, jnp.float32), jnp.where(bits < 0, low, LAST - low)


def convolve_pooled(
    x: Array, w: Array, bias: Array, *, scale: float = 1.0, tile: Tile = FORWARD, interpret: bool = False
) -> tuple[Array, Array]:
    """pool_forward(scale conv(x) + bias) of images with an even number of rows and columns, in bfloat16."""
    batch, height, width, channels = x.shape
    pooled, outputs = (batch, height // 2, width // 2), w.shape[-1]
    length = REACH * channels

    def kernel(x_ref: Any, w_ref: Any, b_ref: Any, out_ref: Any, chosen_ref: Any) -> None:
        window = pl.program_id(0) * tile.pixels + jnp.arange(tile.pixels, dtype=jnp.int32)
        i, j = lax.rem(lax.div(window, pooled[2]), pooled[1]), lax.rem(window, pooled[2])
        corner = (lax.div(window, pooled[1] * pooled[2]) * height + 2 * i) * width + 2 * j  # the window's first pixel
        k = jnp.arange(length, dtype=jnp.int32)
        right, channel = lax.div(k, channels) - 1, lax.rem(k, channels)
        column = 2 * j[:, None] + right[None]
        in_row = (column >= 0) & (column < width) & (right < 4)[None]

        def image_row(down: int) -> Array:
            row = 2 * i + down
            inside = in_row & ((row >= 0) & (row < height))[:, None]
            where = corner[:, None] + (down * width + right)[None]
            return triton.load(x_ref.at[where, jnp.broadcast_to(channel[None], where.shape)], mask=inside, other=0)

        rows, bias = [image_row(down) for down in range(-1, 4)], b_ref[...][None]
        b = lax.div(jnp.arange(4 * outputs, dtype=jnp.int32), outputs)  # the window's column; the fourth is empty
        in_width = (2 * j[:, None] + b[None] < width) & (b < 3)[None]
        best = jnp.full((tile.pixels, 4 * outputs), -jnp.inf, jnp.float32)
        for a in range(3):
            total = jnp.zeros((tile.pixels, 4 * outputs), jnp.float32)
            for down in range(3):
                total += jnp.dot(rows[a + down], w_ref[down], preferred_element_type=jnp.float32)
            inside = in_width & (2 * i + a < height)[:, None]
            y = with_code(total * scale + bias, jnp.broadcast_to(code(a, 0) + b[None], total.shape))
            best = jnp.maximum(best, jnp.where(inside, y, -jnp.inf))
        y, chosen = without_code(best.reshape(tile.pixels, 4, outputs).max(axis=1))
        out_ref[...], chosen_ref[...] = y.astype(jnp.bfloat16), chosen.astype(jnp.uint8)

    inputs = [flat(x), window_weights(w, channels), jnp.tile(bias, 4)]
    results = [jax.ShapeDtypeStruct((math.prod(pooled), outputs), dtype) for dtype in (jnp.bfloat16, jnp.uint8)]
    y, chosen = in_tiles(kernel, inputs, results, tile, "convolve_pooled", interpret)
    return y.reshape(*pooled, outputs), chosen.reshape(*pooled, outputs)


def unpooled(pixels: Array, halves: Sides, chosen_ref: Any, dy_ref: Any) -> Array:
    """The gradient of these pixels of the array that was pooled to `halves`: see pooling.pool_backward."""
    height, width, outputs = 2 * halves[0], 2 * halves[1], dy_ref.shape[-1]
    row, column = lax.rem(lax.div(pixels, width), height), lax.rem(pixels, width)
    image = lax.div(pixels, width * height) * math.prod(halves)
    out = jnp.arange(outputs, dtype=jnp.int32)
    total = jnp.zeros((len(pixels), outputs), jnp.float32)
    for up, back in itertools.product(range(2), range(2)):  # the windows that may contain a pixel
        i, j = lax.div(row, 2) - up, lax.div(column, 2) - back
        window, own = image + i * halves[1] + j, code(lax.rem(row, 2) + 2 * up, lax.rem(column, 2) + 2 * back)
        inside = jnp.broadcast_to(((i >= 0) & (j >= 0))[:, None], total.shape)
        at = jnp.broadcast_to(window[:, None], total.shape), jnp.broadcast_to(out[None], total.shape)
        choice = triton.load(chosen_ref.at[at], mask=inside, other=NO_WINDOW).astype(jnp.int32)
        gradient = triton.load(dy_ref.at[at], mask=inside, other=0).astype(jnp.float32)
        total += jnp.where(choice == own[:, None], gradient, 0.0)
    return total.astype(jnp.bfloat16)


def pool(sides: Sides, x: Array, *, tile: Tile = POOL, interpret: bool = False) -> tuple[Array, Array]:
    """pool_forward of an even number of rows and columns."""
    (height, width), outputs = sides, x.shape[-1]
    pooled = (len(x), height // 2, width // 2)

    def kernel(x_ref: Any, out_ref: Any, chosen_ref: Any) -> None:
        window = pl.program_id(0) * tile.pixels + jnp.arange(tile.pixels, dtype=jnp.int32)
        row, column = 2 * lax.rem(lax.div(window, pooled[2]), pooled[1]), 2 * lax.rem(window, pooled[2])
        corner = (lax.div(window, pooled[1] * pooled[2]) * height + row) * width + column
        out = jnp.arange(outputs, dtype=jnp.int32)
        best = jnp.full((tile.pixels, outputs), -jnp.inf, jnp.float32)
        chosen = jnp.zeros(best.shape, jnp.int32)
        for a, b in itertools.product(range(3), range(3)):
            inside = jnp.broadcast_to(((row + a < height) & (column + b < width))[:, None], best.shape)
            at = (
                jnp.broadcast_to((corner + a * width + b)[:, None], best.shape),
                jnp.broadcast_to(out[None], best.shape),
            )
            y = triton.load(x_ref.at[at], mask=inside, other=-jnp.inf).astype(jnp.float32)
            chosen, best = jnp.where(y > best, code(a, b), chosen), jnp.maximum(best, y)
        out_ref[...], chosen_ref[...] = best.astype(jnp.bfloat16), chosen.astype(jnp.uint8)

    results = [jax.ShapeDtypeStruct((math.prod(pooled), outputs), dtype) for dtype in (jnp.bfloat16, jnp.uint8)]
    y, chosen = in_tiles(kernel, [flat(x)], results, tile, "pool", interpret)
    return y.reshape(*pooled, outputs), chosen.reshape(*pooled, outputs)


def unpool(sides: Sides, chosen: Array, dy: Array, *, tile: Tile = POOL, interpret: bool = False) -> tuple[Array]:
    """pool_backward; `chosen` may have more images than dy."""
    batch, *halves, outputs = dy.shape

    def kernel(chosen_ref: Any, dy_ref: Any, out_ref: Any) -> None:
        pixels = pl.program_id(0) * tile.pixels + jnp.arange(tile.pixels, dtype=jnp.int32)
        out_ref[...] = unpooled(pixels, (halves[0], halves[1]), chosen_ref, dy_ref)

    result = jax.ShapeDtypeStruct((batch * math.prod(sides), outputs), jnp.bfloat16)
    (dx,) = in_tiles(kernel, [flat(chosen), flat(dy)], [result], tile, "unpool", interpret)
    return (dx.reshape(batch, *sides, outputs),)


def in_tiles(
    kernel: Callable[..., None], inputs: list[Array], results: list[Any], tile: Tile, name: str, interpret: bool
) -> Sequence[Array]:
    """Run a kernel that sees its inputs whole and writes a tile of rows of each of its results."""
    whole = lambda array: pl.BlockSpec(array.shape, lambda n: (0,) * array.ndim)
    return pl.pallas_call(
        kernel,
        out_shape=results,
        grid=(results[0].shape[0] // tile.pixels,),
        in_specs=[whole(array) for array in inputs],
        out_specs=[pl.BlockSpec((tile.pixels, result.shape[1]), lambda n: (n, 0)) for result in results],
        compiler_params=triton.CompilerParams(num_warps=tile.warps, num_stages=1),
        interpret=interpret,
        name=name,
    )(*inputs)


def pooled_weight_gradient(
    x: Array,
    chosen: Array,
    dy: Array,
    inputs: int,
    *,
    scale: float = 1.0,
    tile: Tile = BACKWARD,
    interpret: bool = False,
) -> tuple[Array, Array]:
    """weight_gradient(x, pool_backward(chosen, dy)); x and chosen may have more images than dy."""
    batch, half_height, half_width, outputs = dy.shape
    height, width = 2 * half_height, 2 * half_width

    def left(pixels: Array, start: int, length: int, x_ref: Any, chosen_ref: Any, dy_ref: Any) -> Array:
        return neighbours(x_ref, pixels, start, length, (height, width), relu=False)

    def right(pixels: Array, first: Array, x_ref: Any, chosen_ref: Any, dy_ref: Any) -> Array:
        return unpooled(pixels, (half_height, half_width), chosen_ref, dy_ref)

    arrays, pixels = [flat(x), flat(chosen), flat(dy)], batch * height * width
    dw, db = summed_over_tiles(left, right, arrays, pixels, outputs, inputs, tile, "convolve_weights_pooled", interpret)
    return dw * scale, db

"""GPU kernels for an encoder's first convolution together with the max-pooling that follows it, in Pallas.

The result of that convolution is the encoder's largest array by far, and nothing but the pooling reads it. The forward
kernel keeps it in registers: a program handles a tile of pooled pixels, computes the nine convolutions of each one's
window, and writes the largest and its place. The gradient of the weights finds for each pixel the windows that chose
it, so the gradient of the convolution's result is never written either. Where the windows overlap, convolutions are
computed more than once; matrix instructions are cheaper here than memory.
"""

import itertools
import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array

from dualgoal.fast.convolution_kernels import Tile, flat, neighbours, summed_over_tiles
from dualgoal.fast.pooling import NO_WINDOW, code

REACH = 8  # pixels of an image row that are loaded for a window: five are needed, and a power of two is loaded
FORWARD = Tile(pixels=64)  # a program holds five rows of pixels in registers
BACKWARD = Tile()


def window_weights(w: Array, channels: int) -> Array:
    """(3, 3, REACH channels, o): for column b of a window and row `down` of the weights, the right factor of a row of
    pixels that starts one before the window."""
    w = jnp.pad(w, ((0, 0), (0, 0), (0, channels - w.shape[2]), (0, 0)))
    shifted = [jnp.pad(w, ((0, 0), (b, REACH - 3 - b), (0, 0), (0, 0))) for b in range(3)]
    return jnp.stack(shifted).reshape(3, 3, REACH * channels, -1).astype(jnp.bfloat16)


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
            channels_of = jnp.broadcast_to(channel[None], where.shape)
            pixels = triton.load(x_ref.at[where, channels_of], mask=inside, other=0)
            return pixels.astype(jnp.float32).astype(jnp.bfloat16)

        rows, bias = [image_row(down) for down in range(-1, 4)], b_ref[...][None]
        best = jnp.full((tile.pixels, outputs), -jnp.inf, jnp.float32)
        chosen = jnp.zeros((tile.pixels, outputs), jnp.int32)
        for a, b in itertools.product(range(3), range(3)):
            total = jnp.zeros((tile.pixels, outputs), jnp.float32)
            for down in range(3):
                total += jnp.dot(rows[a + down], w_ref[b, down], preferred_element_type=jnp.float32)
            y = (total * scale + bias).astype(jnp.bfloat16).astype(jnp.float32)  # compared as they would be stored
            inside = (2 * i + a < height) & (2 * j + b < width)
            better = (y > best) & inside[:, None]
            best, chosen = jnp.where(better, y, best), jnp.where(better, code(a, b), chosen)
        out_ref[...], chosen_ref[...] = best.astype(jnp.bfloat16), chosen.astype(jnp.uint8)

    count = math.prod(pooled)
    inputs = [flat(x), window_weights(w, channels), bias]
    whole = lambda array: pl.BlockSpec(array.shape, lambda n: (0,) * array.ndim)
    block = pl.BlockSpec((tile.pixels, outputs), lambda n: (n, 0))
    y, chosen = pl.pallas_call(
        kernel,
        out_shape=[jax.ShapeDtypeStruct((count, outputs), dtype) for dtype in (jnp.bfloat16, jnp.uint8)],
        grid=(count // tile.pixels,),
        in_specs=[whole(array) for array in inputs],
        out_specs=[block, block],
        compiler_params=triton.CompilerParams(num_warps=tile.warps, num_stages=1),
        interpret=interpret,
        name="convolve_pooled",
    )(*inputs)
    return y.reshape(*pooled, outputs), chosen.reshape(*pooled, outputs)


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

    def unpooled(pixels: Array, chosen_ref: Any, dy_ref: Any) -> Array:
        row, column = lax.rem(lax.div(pixels, width), height), lax.rem(pixels, width)
        image = lax.div(pixels, width * height) * (half_height * half_width)
        out = jnp.arange(outputs, dtype=jnp.int32)
        total = jnp.zeros((tile.pixels, outputs), jnp.float32)
        for up, back in itertools.product(range(2), range(2)):  # the windows that may contain a pixel: see pooling
            i, j = lax.div(row, 2) - up, lax.div(column, 2) - back
            window, own = image + i * half_width + j, code(lax.rem(row, 2) + 2 * up, lax.rem(column, 2) + 2 * back)
            inside = jnp.broadcast_to(((i >= 0) & (j >= 0))[:, None], total.shape)
            at = jnp.broadcast_to(window[:, None], total.shape), jnp.broadcast_to(out[None], total.shape)
            choice = triton.load(chosen_ref.at[at], mask=inside, other=NO_WINDOW).astype(jnp.int32)
            gradient = triton.load(dy_ref.at[at], mask=inside, other=0).astype(jnp.float32)
            total += jnp.where(choice == own[:, None], gradient, 0.0)
        return total.astype(jnp.bfloat16)

    def left(pixels: Array, start: int, length: int, x_ref: Any, chosen_ref: Any, dy_ref: Any) -> Array:
        return neighbours(x_ref, pixels, start, length, (height, width), relu=False)

    def right(pixels: Array, first: Array, x_ref: Any, chosen_ref: Any, dy_ref: Any) -> Array:
        return unpooled(pixels, chosen_ref, dy_ref)

    arrays, pixels = [flat(x), flat(chosen), flat(dy)], batch * height * width
    dw, db = summed_over_tiles(left, right, arrays, pixels, outputs, inputs, tile, "convolve_weights_pooled", interpret)
    return dw * scale, db

"""GPU kernels for max-pooling, and for an encoder's first convolution together with its max-pooling, in Pallas.

The result of that convolution is the encoder's largest array by far, and nothing but the pooling reads it. The forward
kernel keeps it in registers: a program goes down through rows of windows, computes the convolutions that each needs,
and writes the largest result and its place. The gradient of the weights finds for each pixel the windows that chose it,
so the gradient of the convolution's result is never written either. Where the windows overlap, convolutions are
computed more than once; matrix instructions are cheaper here than memory.
"""

import functools
import itertools
import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array

from dualgoal.fast.convolution_kernels import Tile, flat, launch
from dualgoal.fast.pooling import NO_WINDOW, Sides, code
from dualgoal.fast.weight_kernels import Factors, Sum, summed_over_tiles, taps_of

REACH = 8  # pixels of an image row that are loaded for two windows, from two before them: seven are needed
BORDER = ((1, 2), (2, REACH - 2))  # rows and columns of zeros around an image, so that no load is outside of it
LAST = 15  # the largest number of a code; codes have four bits
LOWEST = -(2**31) + LAST  # before all `sortable` numbers
FORWARD = Tile(pixels=64, image_rows=4)  # rows of windows: few, because few of these programs run at the same time
BACKWARD = Tile(pixels=128, warps=8)  # more threads fit into a multiprocessor than in programs of half the size
POOL = Tile(pixels=64)


def window_weights(w: Array, channels: int) -> list[Array]:
    """The right factors of four rows of REACH pixels, which start two columns before two windows side by side. Their
    columns are the outputs in the windows' first four columns (4 o), and in the fifth (o), of the pixels in the second
    of the four rows, and the same for the third row."""
    w = jnp.pad(w, ((0, 0), (0, 0), (0, channels - w.shape[2]), (0, 0)))

    def factor(down: int, columns: range) -> Array:
        at = lambda b: jnp.pad(w, ((down, 1 - down), (b + 1, REACH - 4 - b), (0, 0), (0, 0)))
        return jnp.concatenate([at(b) for b in columns], axis=-1).reshape(4 * REACH * channels, -1)

    return [factor(down, columns).astype(jnp.bfloat16) for down in range(2) for columns in (range(4), range(4, 5))]


def padded(images: Array) -> Array:
    """Images as the kernels of the first convolution want them: in bfloat16, with 4 or 8 channels and a border."""
    extra = (4 if images.shape[-1] <= 4 else 8) - images.shape[-1]
    return jnp.pad(images, ((0, 0), *BORDER, (0, extra))).astype(jnp.bfloat16)


def inner(x: Array) -> tuple[int, int, int]:
    """Height and width without the border, and channels."""
    (above, below), (before, after) = BORDER
    return x.shape[1] - above - below, x.shape[2] - before - after, x.shape[3]


def first_number(shape: tuple[int, ...], windows: Array) -> Array:
    """The index, in a list of all numbers of `padded` images, of the pixel one row above and two columns before a
    window's first pixel."""
    _, height, width, channels = shape
    halves = (height - sum(BORDER[0])) // 2, (width - sum(BORDER[1])) // 2
    i, j = lax.rem(lax.div(windows, halves[1]), halves[0]), lax.rem(windows, halves[1])
    return ((lax.div(windows, math.prod(halves)) * height + 2 * i) * width + 2 * j) * channels


def sortable(y: Array) -> Array:
    """Integers in the same order as the numbers y; twice this is y again."""
    bits = y if y.dtype == jnp.int32 else lax.bitcast_convert_type(y, jnp.int32)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


def with_code(y: Array, own: int) -> Array:
    """`sortable` numbers whose last four bits encode their place in the window, so that one maximum finds the value and
    the place: the first in reading order among equals. The result is rounded to 16 bits less anyway."""
    return (y & ~LAST) | (LAST - own)


def without_code(y: Array) -> tuple[Array, Array]:
    return lax.bitcast_convert_type(sortable(y & ~LAST), jnp.float32), LAST - (y & LAST)


def convolve_pooled(
    x: Array, w: Array, bias: Array, *, scale: float = 1.0, tile: Tile = FORWARD, interpret: bool = False
) -> tuple[Array, Array]:
    """pool_forward(scale conv(x) + bias) of `padded` images whose sides are powers of two, in bfloat16; scale > 0.

    Two windows side by side are a row of the left factor: a row of REACH pixels has all neighbours of the five columns
    that they contain. A program goes down through `tile.image_rows` rows of windows. Windows below each other share a
    row of pixels, whose convolution it keeps. A window's largest number and its place in the window are found by one
    maximum: the last bits of each number are exchanged for a code of its place (`with_code`). Scale and bias do not
    change which pixel is the largest, and come last.
    """
    height, width, channels = inner(x)
    pooled, outputs, pairs = (len(x), height // 2, width // 2), w.shape[-1], width // 4
    strip = min(tile.image_rows, pooled[1])

    def kernel(x_ref: Any, *refs: Any) -> None:
        *w_refs, b_ref, out_ref, chosen_ref = refs
        pair = pl.program_id(0) * tile.pixels + jnp.arange(tile.pixels, dtype=jnp.int32)
        image, across = lax.div(pair, pairs), lax.rem(pair, pairs)
        columns = jnp.arange(4 * REACH * channels, dtype=jnp.int32)
        down, right = lax.div(columns, REACH * channels), lax.rem(columns, REACH * channels)
        start = (image * x.shape[1] * x.shape[2] + 4 * across) * channels
        numbers = start[:, None] + (down * (x.shape[2] * channels) + right)[None]
        has_last = (4 * across + 4 < width)[:, None]
        b = lax.div(jnp.arange(4 * outputs, dtype=jnp.int32), outputs)[None]
        weights, bias = [w_ref[...] for w_ref in w_refs], b_ref[...][None]

        def image_rows(first: Array) -> Array:
            """Four rows of each image, from one before this one."""
            return x_ref[numbers + first * (x.shape[2] * channels)]

        def convolved(rows: Array, weights: Array) -> Array:
            return sortable(jnp.dot(rows, weights, preferred_element_type=jnp.float32))

        def largest(y: Array) -> Array:
            return y.reshape(tile.pixels, 4, outputs).max(axis=1)

        def body(t: Array, above: tuple[Array, Array]) -> tuple[Array, Array]:
            i = first + t
            rows, inside = image_rows(2 * i + 1), (2 * i + 2 < height).astype(jnp.int32)
            kept, added = inside * ~LAST, LOWEST + inside * (LAST - code(2, 0) - LOWEST)  # of a row outside: none

            def column(above: Array, middle: Array, below: Array) -> tuple[Array, Array]:
                """The largest of each of the windows' columns, and their last row, which is the next windows' first."""
                first_two = with_code(above, code(0, 0)), with_code(convolved(rows, middle), code(1, 0))
                row = convolved(rows, below)
                third = (row & jnp.full(row.shape, kept)) | jnp.full(row.shape, added)
                return jnp.maximum(jnp.maximum(*first_two), third), row

            (wide, below), (last, last_below) = map(column, above, weights[:2], weights[2:])
            left = largest(jnp.where(b < 3, wide - b, LOWEST))
            right = largest(jnp.where(b >= 2, wide - (b - 2), LOWEST))
            right = jnp.maximum(right, jnp.where(has_last, last - 2, LOWEST))
            at = jnp.broadcast_to(((image * pooled[1] + i) * pairs + across)[:, None], left.shape)
            for n, best in enumerate((left, right)):
                y, chosen = without_code(best)
                where = at, jnp.broadcast_to((n * outputs + jnp.arange(outputs, dtype=jnp.int32))[None], y.shape)
                out_ref[where] = (y * scale + bias).astype(jnp.bfloat16)
                chosen_ref[where] = chosen.astype(jnp.uint8)
            return below, last_below

        first = pl.program_id(1) * strip
        rows = image_rows(2 * first)
        lax.fori_loop(0, strip, body, (convolved(rows, weights[0]), convolved(rows, weights[1])))

    rows = len(x) * pairs
    inputs = [x.reshape(-1), *window_weights(w, channels), bias]
    results = [jax.ShapeDtypeStruct((rows * pooled[1], 2 * outputs), dtype) for dtype in (jnp.bfloat16, jnp.uint8)]
    grid = rows // tile.pixels, pooled[1] // strip
    y, chosen = launch(kernel, inputs, results, grid, "convolve_pooled", tile.warps, interpret)
    return y.reshape(*pooled, outputs), chosen.reshape(*pooled, outputs)


def unpooled(windows: Array, halves: Sides, chosen_ref: Any, dy_ref: Any) -> tuple[Array, dict[Sides, Array]]:
    """The gradients of these windows, and those of the first two pixels in the first two rows of each, which only these
    windows and those before them contain: see pooling.pool_backward."""
    i, j = lax.rem(lax.div(windows, halves[1]), halves[0]), lax.rem(windows, halves[1])
    shape = (len(windows), dy_ref.shape[-1])
    out = jnp.broadcast_to(jnp.arange(shape[1], dtype=jnp.int32)[None], shape)

    def window(up: int, back: int) -> tuple[Array, Array]:
        inside = jnp.broadcast_to(((i >= up) & (j >= back))[:, None], shape)
        at = jnp.broadcast_to((windows - up * halves[1] - back)[:, None], shape), out
        choice = triton.load(chosen_ref.at[at], mask=inside, other=NO_WINDOW).astype(jnp.int32)
        return choice, triton.load(dy_ref.at[at], mask=inside, other=0).astype(jnp.float32)

    seen = {place: window(*place) for place in itertools.product(range(2), range(2))}

    def pixel(row: int, column: int) -> Array:
        total = jnp.zeros(shape, jnp.float32)
        for up, back in itertools.product(range(2 - row), range(2 - column)):
            choice, gradient = seen[up, back]
            total += jnp.where(choice == code(row + 2 * up, column + 2 * back), gradient, 0.0)
        return total.astype(jnp.bfloat16)

    return seen[0, 0][1], {place: pixel(*place) for place in seen}


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
    part = lambda result: pl.BlockSpec((tile.pixels, outputs), lambda n: (n, 0))
    grid = (math.prod(pooled) // tile.pixels,)
    y, chosen = launch(kernel, [flat(x)], results, grid, "pool", tile.warps, interpret, part)
    return y.reshape(*pooled, outputs), chosen.reshape(*pooled, outputs)


def unpool(sides: Sides, chosen: Array, dy: Array, *, tile: Tile = POOL, interpret: bool = False) -> tuple[Array]:
    """pool_backward; `chosen` may have more images than dy."""
    batch, *halves, outputs = dy.shape

    def kernel(chosen_ref: Any, dy_ref: Any, out_ref: Any) -> None:
        windows = pl.program_id(0) * tile.pixels + jnp.arange(tile.pixels, dtype=jnp.int32)
        corner = 4 * halves[1] * lax.div(windows, halves[1]) + 2 * lax.rem(windows, halves[1])
        out = jnp.arange(outputs, dtype=jnp.int32)[None]
        _, gradients = unpooled(windows, (halves[0], halves[1]), chosen_ref, dy_ref)
        for (row, column), gradient in gradients.items():
            pixels = jnp.broadcast_to((corner + row * sides[1] + column)[:, None], gradient.shape)
            out_ref[pixels, jnp.broadcast_to(out, gradient.shape)] = gradient

    result = jax.ShapeDtypeStruct((batch * math.prod(sides), outputs), jnp.bfloat16)
    grid = (dy.size // outputs // tile.pixels,)
    (dx,) = launch(kernel, [flat(chosen), flat(dy)], [result], grid, "unpool", tile.warps, interpret)
    return (dx.reshape(batch, *sides, outputs),)


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
    """weight_gradient(x, pool_backward(chosen, dy)) of `padded` images; x and chosen may have more images than dy.

    A window's first four pixels, two in each of two rows, share a row of the left factor: 4 x 4 taps are all their
    neighbours.
    """
    batch, *halves, _ = dy.shape
    _, _, across, channels = x.shape
    taps = taps_of(channels)

    def left(start: Array, first: int, length: int, x_ref: Any, chosen_ref: Any, dy_ref: Any) -> Array:
        columns = first + jnp.arange(length, dtype=jnp.int32)
        down, rest = lax.div(columns, taps.across * channels), lax.rem(columns, taps.across * channels)
        return x_ref[start[:, None] + (down * (across * channels) + rest)[None]]

    def right(windows: Array, first: Array, x_ref: Any, chosen_ref: Any, dy_ref: Any) -> tuple[Array, Factors]:
        dy, gradients = unpooled(windows, (halves[0], halves[1]), chosen_ref, dy_ref)
        return dy, (first_number(x.shape, windows) + channels, list(gradients.values()))  # one column before a window

    arrays, windows = [x.reshape(-1), flat(chosen), flat(dy)], batch * math.prod(halves)
    how = Sum("convolve_weights_pooled", taps, tile, factors=4, interpret=interpret)
    dw, db = summed_over_tiles(how, left, right, arrays, windows)
    of_pixels = [dw[n, n // 2 : n // 2 + 3, n % 2 : n % 2 + 3, :inputs] for n in range(4)]
    return functools.reduce(jnp.add, of_pixels) * scale, db

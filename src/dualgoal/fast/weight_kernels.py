"""GPU kernels for the gradients of the weights of 3x3 convolutions, in Pallas; see `convolution_kernels`.

A program adds up in registers what its pixels contribute, neighbours^T gradients, and writes one partial sum.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array

from dualgoal.fast.convolution_kernels import GOING_DOWN, Tile, flat, launch, row_loader

TRANSPOSED = (((0,), (0,)), ((), ()))  # the product of a transposed left factor
Factors = tuple[Array, list[Array]]  # pixels, or where their neighbours are, and right factors of these
ROW = 16  # columns of the left factor at least; a matrix instruction takes no fewer
PAIRED = 16  # channels up to which two pixels are handled at once
FEWEST = 66  # programs of a seed; those of four seeds keep a large GPU busy


class Taps(NamedTuple):
    """How the neighbours of a pixel lie in a row of the left factor: `down` x `across` taps of `channels` numbers.

    With 16 or more channels these are the nine taps. Fewer channels are padded to 4 or 8, and taps to 4 x 4 (those
    beyond the third row and column are empty), so that the taps of an image row lie next to each other in memory too.
    With 3 x 4 taps, a row of the left factor has the neighbours of two pixels side by side.
    """

    down: int
    across: int
    channels: int

    @property
    def columns(self) -> int:
        return self.down * self.across * self.channels


class Sum(NamedTuple):
    """How the programs of a kernel share a sum: where the numbers of its left factor come from, what each program
    handles, and how many right factors there are."""

    name: str  # of the kernel
    taps: Taps
    tile: Tile
    factors: int = 1
    interpret: bool = False


def taps_of(channels: int) -> Taps:
    side = 3 if channels >= ROW else 4
    return Taps(side, side, channels)


def gradient_tile(shape: tuple[int, ...], channels: int) -> Tile:
    """How to handle these gradients of outputs (B, H, W, o): small images have few tiles to share among programs, and a
    program of few threads cannot hold many sums in registers."""
    batch, height, side, outputs = shape
    pixels_per_row = 2 if channels <= PAIRED and side > 1 else 1
    if channels >= ROW and height % 4 == 0 and side >= 16 and batch * side % (2 * GOING_DOWN.pixels) == 0:
        programs = 528 * ROW**2 // (channels * outputs)
        return GOING_DOWN._replace(image_rows=4, warps=8 if channels > ROW else 4, programs=programs)
    if pixels_per_row * outputs > 32:
        return Tile(pixels=64, warps=8, programs=264, pixels_per_row=pixels_per_row)
    return Tile(pixels=64 if side >= 32 else 128, programs=min(528, 132 * side // 8), pixels_per_row=pixels_per_row)


def neighbours(
    x_ref: Any, pixels: Array, start: int, length: int, sides: tuple[int, int], relu: bool, taps: Taps
) -> Array:
    """Columns start..start+length of the left factor, whose rows begin with these pixels; zeros outside of images."""
    height, width = sides
    columns = start + jnp.arange(length, dtype=jnp.int32)
    tap, channel = lax.div(columns, taps.channels), lax.rem(columns, taps.channels)
    down, right = lax.div(tap, taps.across) - 1, lax.rem(tap, taps.across) - 1
    row = lax.rem(lax.div(pixels, width), height)[:, None] + down[None]
    column = lax.rem(pixels, width)[:, None] + right[None]
    inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
    if taps.down == 4:
        inside &= ((down < 2) & (right < 2))[None]
    elif start + length > taps.columns:
        inside &= (tap < taps.down * taps.across)[None]
    where = pixels[:, None] + (down * width + right)[None]
    x = triton.load(x_ref.at[where, jnp.broadcast_to(channel[None], where.shape)], mask=inside, other=0)
    return jnp.maximum(x, 0) if relu else x


def tiles_of_a_program(tiles: int, programs: int) -> int:
    """How many tiles each program handles: the same number for all, and no more than `programs` in all."""
    return next(n for n in range(-(-tiles // programs), tiles + 1) if tiles % n == 0)


def weight_gradient(
    x: Array,
    dy: Array,
    inputs: int,
    *,
    relu_in: bool = False,
    scale: float = 1.0,
    tile: Tile | None = None,
    interpret: bool = False,
) -> tuple[Array, Array]:
    """The gradients of weights (3, 3, inputs, o) and bias, summed over the images of dy; x may have more images.

    With few channels, two pixels side by side share a row of the left factor, which has the neighbours of both, and one
    of the right factor, which has the gradients of both. Several seeds share the programs of one, because each program
    writes a sum of its own, and another kernel adds these up.
    """
    outputs, sides, channels = dy.shape[-1], (dy.shape[1], dy.shape[2]), x.shape[-1]
    tile = tile or gradient_tile(dy.shape, channels)
    pixels = tile.pixels_per_row
    taps = Taps(3, 4, channels) if pixels == 2 else taps_of(channels)

    def left(rows: Array, start: int, length: int, x_ref: Any, dy_ref: Any) -> Array:
        return neighbours(x_ref, pixels * rows, start, length, sides, relu_in, taps)

    def right(rows: Array, first: Array, x_ref: Any, dy_ref: Any) -> tuple[Array, Factors]:
        dy = dy_ref[pl.ds(first, tile.pixels)]
        return dy, (rows, [dy])

    def summed(x: Array, dy: Array, tile: Tile = tile) -> tuple[Array, Array]:
        how = Sum("convolve_weights", taps, tile, interpret=interpret)
        if tile.image_rows:
            return summed_going_down(how, x, dy, relu_in)
        arrays = [flat(x), dy.reshape(-1, pixels * outputs)]
        (dw,), db = summed_over_tiles(how, left, right, arrays, len(arrays[1]))
        return dw, db

    one = custom_vmap(lambda x, dy: summed(x, dy))

    @one.def_vmap
    def several(seeds: int, batched: list[bool], *arrays: Array) -> tuple[tuple[Array, Array], tuple[bool, bool]]:
        fewer = tile._replace(programs=min(tile.programs, max(tile.programs // seeds, FEWEST)))
        axes = [0 if own else None for own in batched]
        return jax.vmap(functools.partial(summed, tile=fewer), axes)(*arrays), (True, True)

    dw, db = one(x, dy)
    of_pixels = [dw[:3, n : n + 3, :inputs, n * outputs : (n + 1) * outputs] for n in range(pixels)]
    return functools.reduce(jnp.add, of_pixels) * scale, db.reshape(pixels, outputs).sum(axis=0)


def summed_over_tiles(
    how: Sum,
    left: Callable[..., Array],
    right: Callable[..., tuple[Array, Factors]],
    arrays: list[Array],
    rows: int,
) -> tuple[Array, Array]:
    """left^T right summed over all tiles of rows as gradients of weights, for each right factor and tap, and of the
    bias.

    `right` returns for a tile its part of the gradient of the bias, and right factors with their pixels. Each program
    adds up its own tiles in registers and writes one partial sum, so the result does not depend on the order in which
    programs run.
    """
    tile, factors, outputs = how.tile, how.factors, arrays[-1].shape[-1]
    tiles = tiles_of_a_program(rows // tile.pixels, tile.programs)
    programs = rows // (tile.pixels * tiles)
    columns = -(-how.taps.columns // 64) * 64  # whole rows of matrix instructions, the last ones empty
    chunks = [(start, min(tile.columns, columns - start)) for start in range(0, columns, tile.columns)]

    def kernel(*refs: Any) -> None:
        *in_refs, out_ref = refs
        before = pl.program_id(0) * (tiles * tile.pixels)

        def body(t: Array, sums: tuple[list[Array], Array]) -> tuple[list[Array], Array]:
            of_weights, of_bias = sums
            first = before + t * tile.pixels
            here = first + jnp.arange(tile.pixels, dtype=jnp.int32)
            of_tile, (pixels, gradients) = right(here, first, *in_refs)
            added = []
            for n, (start, length) in enumerate(chunks):
                x = left(pixels, start, length, *in_refs)
                for total, dy in zip(of_weights[n * factors : (n + 1) * factors], gradients, strict=True):
                    added.append(total + lax.dot_general(x, dy, TRANSPOSED, preferred_element_type=jnp.float32))
            return added, of_bias + of_tile.astype(jnp.float32)

        zeros = [jnp.zeros((length, outputs), jnp.float32) for _, length in chunks for _ in range(factors)]
        start = zeros, jnp.zeros((tile.pixels, outputs), jnp.float32)
        of_weights, of_bias = lax.fori_loop(0, tiles, body, start)
        places = [(factor * columns + first, length) for first, length in chunks for factor in range(factors)]
        for (first, length), total in zip(places, of_weights, strict=True):
            out_ref[pl.ds(first, length)] = total
        out_ref[factors * columns] = of_bias.sum(axis=0)

    return added_up(how, kernel, arrays, programs, columns)


def summed_going_down(how: Sum, x: Array, dy: Array, relu_in: bool) -> tuple[Array, Array]:
    """The same for convolutions whose programs go down through `tile.image_rows` rows of images at a time: a row of x
    is multiplied with three rows of gradients, each of which is loaded once for three rows of x."""
    tile, (batch, height, width, _) = how.tile, dy.shape
    channels, outputs, across = x.shape[-1], tile.pixels_per_row * dy.shape[-1], width // tile.pixels_per_row
    strips, length, shape = height // tile.image_rows, how.taps.across * channels, (tile.pixels, outputs)
    parts = batch * across // tile.pixels * strips
    per_program = tiles_of_a_program(parts, tile.programs)

    def kernel(x_ref: Any, dy_ref: Any, out_ref: Any) -> None:
        numbers = jnp.arange(length, dtype=jnp.int32)
        output = jnp.broadcast_to(jnp.arange(outputs, dtype=jnp.int32)[None], shape)
        before = pl.program_id(0) * per_program

        def body(t: Array, sums: tuple[list[Array], Array]) -> tuple[list[Array], Array]:
            of_weights, of_bias = sums
            part = before + t
            place = lax.div(part, strips) * tile.pixels + jnp.arange(tile.pixels, dtype=jnp.int32)
            first = lax.rem(part, strips) * tile.image_rows
            load = row_loader(x_ref, place, numbers, (height, width), channels, tile.pixels_per_row, relu_in)

            def gradient(row: Array) -> Array:
                where = (lax.div(place, across) * height + row) * across + lax.rem(place, across)
                at = jnp.broadcast_to(where[:, None], shape), output
                return triton.load(dy_ref.at[at], mask=jnp.full(shape, (row >= 0) & (row < height)), other=0)

            above, here = gradient(first - 1), gradient(first)
            for row in range(tile.image_rows):
                below, x = gradient(first + row + 1), load(first + row)
                of_weights = [
                    total + lax.dot_general(x, dy, TRANSPOSED, preferred_element_type=jnp.float32)
                    for total, dy in zip(of_weights, (below, here, above), strict=True)
                ]
                of_bias += here.astype(jnp.float32)
                above, here = here, below
            return of_weights, of_bias

        start = [jnp.zeros((length, outputs), jnp.float32)] * 3, jnp.zeros(shape, jnp.float32)
        of_weights, of_bias = lax.fori_loop(0, per_program, body, start)
        for n, total in enumerate(of_weights):
            out_ref[pl.ds(n * length, length)] = total
        out_ref[3 * length] = of_bias.sum(axis=0)

    arrays, programs = [x.reshape(-1), dy.reshape(-1, outputs)], parts // per_program
    (dw,), db = added_up(how, kernel, arrays, programs, how.taps.columns)
    return dw, db


def added_up(
    how: Sum, kernel: Callable[..., None], arrays: list[Array], programs: int, columns: int
) -> tuple[Array, Array]:
    """The total of the partial sums that the programs of a kernel write: gradients of weights, a row for each column of
    each left factor, and in the last row the gradient of the bias."""
    outputs = arrays[-1].shape[-1]
    written = (how.factors * columns + 1, outputs)
    partial_sums = jax.ShapeDtypeStruct((programs, *written), jnp.float32)
    part = lambda result: pl.BlockSpec((None, *written), lambda i: (i, 0, 0))
    (sums,) = launch(kernel, arrays, [partial_sums], (programs,), how.name, how.tile.warps, how.interpret, part)
    total = sums.sum(axis=0)
    of_weights = total[:-1].reshape(how.factors, columns, outputs)[:, : how.taps.columns]
    return of_weights.reshape(how.factors, *how.taps, outputs), total[-1]

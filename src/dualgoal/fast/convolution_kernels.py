"""GPU kernels for 3x3 convolutions of few channels, in Pallas, with what stands around them in an encoder.

Images of one seed are one long list of pixels. A program (Pallas' word for a thread block) handles a tile of them as a
matrix product: row m of the left factor holds the nine neighbours of pixel m, one tap (neighbour) after the other. It
is never written to memory: neighbours are loaded where they are needed, and nearly all of these loads find their data
in the multiprocessor's cache. Libraries handle such convolutions badly because their matrix products are narrow.

This module is imported only where the kernels are used: importing Pallas takes about half a second.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array

ROW = 16  # columns of the left factor at least; a matrix instruction takes no fewer


class Taps(NamedTuple):
    """How the neighbours of a pixel lie in a row of the left factor: `down` x `across` taps of `channels` numbers.

    With 16 or more channels these are the nine taps. Fewer channels are padded to 4 or 8, and taps to 4 x 4 (those
    beyond the third row and column are empty), so that the taps of an image row lie next to each other in memory too.
    With 3 x 4 (or 3 x 6) taps, a row of the left factor has the neighbours of two (four) pixels side by side.
    """

    down: int
    across: int
    channels: int

    @property
    def columns(self) -> int:
        return self.down * self.across * self.channels

    def chunks(self, width: int) -> list[tuple[int, int]]:
        """The columns as (start, length) of pieces whose lengths are powers of two, at most `width`."""
        found, start = [], 0
        while start < self.columns:
            length = min(width, 1 << (self.columns - start).bit_length() - 1)
            found.append((start, length))
            start += length
        return found


def taps_of(channels: int) -> Taps:
    side = 3 if channels >= ROW else 4
    return Taps(side, side, channels)


class Tile(NamedTuple):
    """How a kernel is cut: pixels of a tile, columns of a chunk, warps (32 threads) of a program, tiles that a program
    of `convolve` handles, and programs of `weight_gradient` per seed (at most).

    In `convolve`, `beside` pixels share a row of the left factor, so that a tile has that many times as many pixels.
    Such pixels share neighbours: fewer numbers are loaded for each pixel, and products are wider, although more of the
    right factor is zeros. With `down`, a program of `convolve` goes through so many rows of images, one below the
    other: it loads each row of an image once, for the three rows whose neighbour it is, and not three times.
    """

    pixels: int = 128
    columns: int = 64
    warps: int = 4
    tiles: int = 1
    programs: int = 528
    beside: int = 1
    down: int = 0


DOWN = Tile(pixels=64, beside=2, down=8)


def forward_tile(shape: list[int], channels: int, outputs: int) -> Tile:
    """For each layer of the encoder. What kernels move into and out of a multiprocessor's cache takes longest, so they
    go down where images (B, H, W) fill whole programs: few rows where each has much to compute, or few are left."""
    batch, height, side = shape
    if channels < ROW or side == 1:
        return Tile(columns=32)
    if batch * side % (2 * DOWN.pixels) == 0:
        return DOWN._replace(down=math.gcd(height, DOWN.down if min(channels, outputs) <= ROW else DOWN.down // 2))
    if side <= 8:
        return Tile(pixels=64, columns=128, beside=2)
    return Tile(pixels=64, beside=2) if channels > outputs else Tile(columns=32, beside=2)


def arranged(w: Array, taps: Taps, pixels: int = 1) -> Array:
    """Weights (3, 3, i, o) as the right factor: a row for each column of the left one, zeros for empty taps. Its
    columns are the outputs of each of the pixels that share a row."""
    extra = taps.channels - w.shape[2]
    of_pixel = lambda n: jnp.pad(w, ((0, taps.down - 3), (n, taps.across - 3 - n), (0, extra), (0, 0)))
    w = jnp.concatenate([of_pixel(n) for n in range(pixels)], axis=-1)
    return w.reshape(taps.columns, -1).astype(jnp.bfloat16)


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


def row_loader(
    x_ref: Any, place: Array, numbers: Array, sides: tuple[int, int], channels: int, beside: int, relu: bool
) -> Callable[[Array], Array]:
    """A function that loads from a given row of images, for each place (`beside` pixels of an image row; places are
    numbered through all images), these numbers of the pixels from the one before to the one after it; zeros outside."""
    height, width = sides
    image, column = lax.div(place, width // beside), beside * lax.rem(place, width // beside)
    start = (image * (height * width) + column - 1) * channels
    columns = column[:, None] + (lax.div(numbers, channels) - 1)[None]
    between = (columns >= 0) & (columns < width)

    def load(row: Array) -> Array:
        inside = between & jnp.full(between.shape, (row >= 0) & (row < height))
        where = (start + row * (width * channels))[:, None] + numbers[None]
        x = triton.load(x_ref.at[where], mask=inside, other=0)
        return jnp.maximum(x, 0) if relu else x

    return load


def flat(x: Array) -> Array:
    return x.reshape(-1, x.shape[-1])


def convolve(
    x: Array,
    w: Array,
    bias: Array | None = None,
    *,
    mask: Array | None = None,
    residual: Array | None = None,
    relu_in: bool = False,
    relu_out: bool = False,
    scale: float = 1.0,
    tile: Tile | None = None,
    interpret: bool = False,
) -> Array:
    """relu_out(residual + [mask > 0] (scale conv(relu_in(x)) + bias)), whatever of this is given, in bfloat16.

    `mask` and `residual` may have more images than x.
    """
    *shape, channels = x.shape
    tile = tile or forward_tile(shape, channels, w.shape[-1])
    sides, pixels = (shape[1], shape[2]), tile.beside
    taps = Taps(3, pixels + 2, channels) if pixels > 1 else taps_of(channels)
    outputs, rows = pixels * w.shape[-1], math.prod(shape) // pixels
    chunks = taps.chunks(tile.columns)
    extras = {"bias": bias, "mask": mask, "residual": residual}
    as_rows = lambda name, value: jnp.tile(value, pixels) if name == "bias" else value.reshape(-1, outputs)
    given = {name: as_rows(name, value) for name, value in extras.items() if value is not None}

    def finished(total: Array, extra: dict[str, Array]) -> Array:
        y = total * scale if scale != 1.0 else total
        if "bias" in extra:
            y += extra["bias"][None]
        if "mask" in extra:
            y = jnp.where(extra["mask"].astype(jnp.float32) > 0, y, 0.0)
        if "residual" in extra:
            y += extra["residual"].astype(jnp.float32)
        return (jnp.maximum(y, 0) if relu_out else y).astype(jnp.bfloat16)

    def kernel(x_ref: Any, w_ref: Any, *refs: Any) -> None:
        *extra_refs, out_ref = refs
        right = [w_ref[pl.ds(start, length)] for start, length in chunks]
        for t in range(tile.tiles):
            first = (pl.program_id(0) * tile.tiles + t) * tile.pixels
            here = pixels * (first + jnp.arange(tile.pixels, dtype=jnp.int32))
            own = pl.ds(t * tile.pixels, tile.pixels)
            total = jnp.zeros((tile.pixels, outputs), jnp.float32)
            for (start, length), weights in zip(chunks, right, strict=True):
                left = neighbours(x_ref, here, start, length, sides, relu_in, taps)
                total += jnp.dot(left, weights, preferred_element_type=jnp.float32)
            extra = {n: ref[...] if n == "bias" else ref[own] for n, ref in zip(given, extra_refs, strict=True)}
            out_ref[own] = finished(total, extra)

    def kernel_down(x_ref: Any, w_ref: Any, *refs: Any) -> None:
        *extra_refs, out_ref = refs
        across = sides[1] // pixels
        place = pl.program_id(0) * tile.pixels + jnp.arange(tile.pixels, dtype=jnp.int32)
        image, column = lax.div(place, across), lax.rem(place, across)
        numbers = jnp.arange(taps.across * channels, dtype=jnp.int32)
        image_row = row_loader(x_ref, place, numbers, sides, channels, pixels, relu_in)
        weights = [w_ref[pl.ds(n * len(numbers), len(numbers))] for n in range(3)]
        once = {n: ref[...] for n, ref in zip(given, extra_refs, strict=True) if n == "bias"}
        shape = tile.pixels, outputs
        output = jnp.broadcast_to(jnp.arange(outputs, dtype=jnp.int32)[None], shape)

        def product(x: Array, n: int) -> Array:
            return jnp.dot(x, weights[n], preferred_element_type=jnp.float32)

        first = pl.program_id(1) * tile.down
        x, y, below = (image_row(first + n) for n in (-1, 0, 1))
        above, here = product(x, 0) + product(y, 1), product(y, 0)
        for row in range(tile.down):  # not a loop of the kernel: sums that change places would be copied
            own = jnp.broadcast_to(((image * sides[0] + first + row) * across + column)[:, None], shape), output
            x, extra = below, once | {n: ref[own] for n, ref in zip(given, extra_refs, strict=True) if n != "bias"}
            below = image_row(first + row + 2)  # before it is needed
            out_ref[own] = finished(above + product(x, 2), extra)
            above, here = here + product(x, 1), product(x, 0)

    per_program = tile.pixels * tile.tiles
    whole = lambda a: pl.BlockSpec(a.shape, lambda *_: (0,) * len(a.shape))
    result = jax.ShapeDtypeStruct((rows, outputs), jnp.bfloat16)
    block = whole(result) if tile.down else pl.BlockSpec((per_program, outputs), lambda i: (i, 0))
    inputs = [x.reshape(-1) if tile.down else flat(x), arranged(w, taps, pixels)]
    of_extra = lambda n, v: whole(v) if n == "bias" or tile.down else block  # mask and residual may have more rows
    specs = [whole(inputs[0]), whole(inputs[1]), *(of_extra(n, v) for n, v in given.items())]
    run = pl.pallas_call(
        kernel_down if tile.down else kernel,
        out_shape=result,
        grid=(rows // sides[0] // tile.pixels, sides[0] // tile.down) if tile.down else (rows // per_program,),
        in_specs=specs,
        out_specs=block,
        compiler_params=triton.CompilerParams(num_warps=tile.warps, num_stages=1),
        interpret=interpret,
        name="convolve",
    )
    return run(*inputs, *given.values()).reshape(*shape, w.shape[-1])

"""GPU kernels for 3x3 convolutions of few channels, in Pallas, with the operations around them in an encoder.

Images of one seed are one long list of pixels. A program (Pallas' word for a thread block) handles a tile of them as
matrix products: row m of a left factor holds the neighbours of the pixels m in a row of the image, channel after
channel. It is never written to memory: neighbours are loaded where they are needed, and nearly all of these loads find
their data in the multiprocessor's cache. Libraries handle such convolutions badly because their products are narrow.

This module is imported only where the kernels are used: importing Pallas takes about half a second.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array


class Tile(NamedTuple):
    """How a kernel is cut: rows of a tile's product, columns of a chunk, warps (32 threads) of a program, and programs
    of `weight_gradient` per seed (at most).

    `pixels_per_row` pixels share a row of the left factor, so that a tile has that many times as many pixels. They
    share neighbours: fewer numbers are loaded for each pixel, and products are wider, although more of the right factor
    is zeros. With `image_rows`, a program goes through that many rows of an image, one below the other: it loads each
    of them once for the three rows of results that need it, and not three times.
    """

    pixels: int = 128
    columns: int = 64
    warps: int = 4
    programs: int = 528
    pixels_per_row: int = 1
    image_rows: int = 0


GOING_DOWN = Tile(pixels=64, pixels_per_row=2, image_rows=8)


def forward_tile(height: int, channels: int, outputs: int) -> Tile:
    """Moving numbers into and out of a multiprocessor's cache takes longest. Programs therefore go down through several
    rows of an image; through fewer of them where each row takes long to compute."""
    most = GOING_DOWN.image_rows if min(channels, outputs) <= 16 else GOING_DOWN.image_rows // 2
    return GOING_DOWN._replace(image_rows=math.gcd(height, most))


def arranged(w: Array, pixels: int) -> Array:
    """Weights (3, 3, i, o) as the right factors of three rows of an image. Each has a row for every number of the
    neighbours of so many pixels, and a column for every output of each of these."""
    of_pixel = lambda n: jnp.pad(w, ((0, 0), (n, pixels - 1 - n), (0, 0), (0, 0)))
    w = jnp.concatenate([of_pixel(n) for n in range(pixels)], axis=-1)
    return w.reshape(-1, w.shape[-1]).astype(jnp.bfloat16)


def row_loader(
    x_ref: Any, place: Array, numbers: Array, sides: tuple[int, int], channels: int, pixels_per_row: int, relu: bool
) -> Callable[[Array], Array]:
    """A function that loads from a given row of images, for each place, these numbers of its pixels and of the pixels
    before and after them; zeros outside. A place is `pixels_per_row` pixels of an image row; places are numbered
    through all images."""
    height, width = sides
    image, column = lax.div(place, width // pixels_per_row), pixels_per_row * lax.rem(place, width // pixels_per_row)
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
    """relu_out(residual + [mask > 0] (scale conv(relu_in(x)) + bias)) with the terms that are given, in bfloat16.

    `mask` and `residual` may have more images than x.
    """
    *shape, channels = x.shape
    tile = tile or forward_tile(shape[1], channels, w.shape[-1])
    sides, pixels = (shape[1], shape[2]), tile.pixels_per_row
    outputs, rows = pixels * w.shape[-1], math.prod(shape) // pixels
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
        across = sides[1] // pixels
        place = pl.program_id(0) * tile.pixels + jnp.arange(tile.pixels, dtype=jnp.int32)
        image, column = lax.div(place, across), lax.rem(place, across)
        numbers = jnp.arange((pixels + 2) * channels, dtype=jnp.int32)
        image_row = row_loader(x_ref, place, numbers, sides, channels, pixels, relu_in)
        weights = [w_ref[pl.ds(n * len(numbers), len(numbers))] for n in range(3)]
        once = {n: ref[...] for n, ref in zip(given, extra_refs, strict=True) if n == "bias"}
        shape = tile.pixels, outputs
        output = jnp.broadcast_to(jnp.arange(outputs, dtype=jnp.int32)[None], shape)

        def product(x: Array, n: int) -> Array:
            return jnp.dot(x, weights[n], preferred_element_type=jnp.float32)

        first = pl.program_id(1) * tile.image_rows
        x, y, below = (image_row(first + n) for n in (-1, 0, 1))
        above, here = product(x, 0) + product(y, 1), product(y, 0)
        for row in range(tile.image_rows):  # unrolled: a loop in the kernel would copy the sums that change places
            own = jnp.broadcast_to(((image * sides[0] + first + row) * across + column)[:, None], shape), output
            x, extra = below, once | {n: ref[own] for n, ref in zip(given, extra_refs, strict=True) if n != "bias"}
            below = image_row(first + row + 2)  # loaded before it is needed
            out_ref[own] = finished(above + product(x, 2), extra)
            above, here = here + product(x, 1), product(x, 0)

    result = jax.ShapeDtypeStruct((rows, outputs), jnp.bfloat16)
    inputs = [x.reshape(-1), arranged(w, pixels), *given.values()]
    grid = rows // sides[0] // tile.pixels, sides[0] // tile.image_rows
    (y,) = launch(kernel, inputs, [result], grid, "convolve", tile.warps, interpret)
    return y.reshape(*shape, w.shape[-1])


def launch(
    kernel: Callable[..., None],
    inputs: Sequence[Array],
    results: Sequence[jax.ShapeDtypeStruct],
    grid: tuple[int, ...],
    name: str,
    warps: int,
    interpret: bool,
    part: Callable[[jax.ShapeDtypeStruct], pl.BlockSpec] | None = None,
) -> Sequence[Array]:
    """Run a kernel. Each program sees its inputs whole, and of each result the `part` that it writes, or all of it.
    Profiles show the `name`."""
    whole = lambda array: pl.BlockSpec(array.shape, lambda *_: (0,) * len(array.shape))
    return pl.pallas_call(
        kernel,
        out_shape=list(results),
        grid=grid,
        in_specs=[whole(array) for array in inputs],
        out_specs=[(part or whole)(result) for result in results],
        compiler_params=triton.CompilerParams(num_warps=warps, num_stages=1),
        interpret=interpret,
        name=name,
    )(*inputs)

"""A GPU kernel that reads images of a dataset and shifts them in the same pass, in Pallas.

A compiler computes the source of each byte index by index. Here the bytes of an image row share the part of the index
that is the same for all of them, and no intermediate result is written.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jaxtyping import Array

from dualgoal.fast.convolution_kernels import launch
from dualgoal.fast.trunk import FAR

TILE = 4096  # bytes of an image in whole lines; a program handles one for each channel


def shifted_rows(images: Array, rows: Array, by: Array, channels: int, *, interpret: bool = False) -> Array:
    """images[rows], each moved up and left by its number of pixels in `by` (B, 2); edges are repeated. Images are
    (T, H, W C) bytes or (T, H, W C / 4) words of four bytes, the first of which is the lowest; sides are powers of two.
    The result is (B, H, W, C) bytes."""
    size = images.dtype.itemsize
    if size == 1 and images.nbytes in FAR:
        raise ValueError(f"a kernel cannot reach {images.nbytes:,} bytes of images one by one; hold them as words")
    height, width = images.shape[1], size * images.shape[2] // channels
    lines = min(height, max(1, TILE // width))

    def kernel(images_ref: Any, rows_ref: Any, by_ref: Any, out_ref: Any) -> None:
        image = pl.program_id(0)
        row, down, right = rows_ref[image], by_ref[image, 0], by_ref[image, 1]
        line = pl.program_id(1) * lines + jnp.arange(lines, dtype=jnp.int32)
        line = jnp.clip(line + down, 0, height - 1)
        for start in range(0, width * channels, width):  # a number of bytes that is a power of two
            byte = start + jnp.arange(width, dtype=jnp.int32)
            pixel, channel = lax.div(byte, channels), lax.rem(byte, channels)
            byte = jnp.clip(pixel + right, 0, width - 1) * channels + channel
            at = (jnp.broadcast_to(i, (lines, width)) for i in (row, line[:, None], lax.div(byte, size)[None]))
            found = images_ref[tuple(at)]
            if size > 1:
                found >>= jnp.broadcast_to((8 * lax.rem(byte, size)).astype(found.dtype)[None], found.shape)
            out_ref[:, pl.ds(start, width)] = found.astype(out_ref.dtype)

    result = jax.ShapeDtypeStruct((len(rows), height, width * channels), jnp.uint8)
    part = lambda result: pl.BlockSpec((None, lines, width * channels), lambda image, part: (image, part, 0))
    grid = len(rows), height // lines
    (shifted,) = launch(kernel, [images, rows, by], [result], grid, "shifted_rows", 4, interpret, part)
    return shifted.reshape(len(rows), height, width, channels)

"""Images in blocks, one after the other, so that on a CPU what is computed of a block stays in the processor's cache.

A batch of 256 images of 64x64 pixels becomes 67 MB in the first convolution alone. Every operation would read as much
from memory and write as much to it, which takes longer than computing it. Other devices compute whole batches.
"""

from collections.abc import Callable
from typing import Any

import jax
from jax import lax
from jaxtyping import Array, Shaped

PIXELS = 2**16  # of all images of a block together
Images = Shaped[Array, "B H W C"]


def in_blocks(function: Callable[[Images], Array], images: Images) -> Array:
    """`function(images)`, whose rows must not depend on each other."""
    rows = rows_of_block(images.shape)
    if jax.default_backend() != "cpu" or rows is None:
        return function(images)
    y = lax.map(function, images.reshape(-1, rows, *images.shape[1:]))
    return y.reshape(-1, *y.shape[2:])


def rows_of_block(shape: tuple[Any, ...]) -> int | None:
    """How many images make a block: as many as divide the batch and fit. None if the batch is best left whole: all of
    it fits, its size is open (exports), or only blocks of less than a quarter of what fits would divide it."""
    batch, height, width, _ = shape
    most = max(1, PIXELS // (height * width))
    if not isinstance(batch, int) or batch <= most:
        return None
    rows = max(n for n in range(1, most + 1) if batch % n == 0)
    return rows if 4 * rows >= most else None

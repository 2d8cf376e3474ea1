"""Image augmentation (section 2.5): random shifts by a few pixels."""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Integer, Shaped

from dualgoal.fast.trunk import kernels_run, powers_of_two

PAD = 3  # an image is shifted by at most this many pixels in each direction


@functools.partial(jax.jit, inline=True)
def shift(images: Shaped[Array, "B H W C"], offsets: Integer[Array, "B 2"]) -> Shaped[Array, "B H W C"]:
    """Pad each image by PAD pixels that repeat its edge, and crop it to its old size at its own offset in {0..2 PAD}^2.

    Repeating the edge is the same as clamping the index, so no padded copy is made.
    """
    height, width = images.shape[1:3]

    def shift_one(image: Array, offset: Array) -> Array:
        rows = jnp.clip(jnp.arange(height) + offset[0] - PAD, 0, height - 1)
        columns = jnp.clip(jnp.arange(width) + offset[1] - PAD, 0, width - 1)
        return image[rows][:, columns]

    return jax.vmap(shift_one)(images, offsets)


def look(
    observations: Shaped[Array, "T ..."],
    rows: Integer[Array, " B"],
    offsets: Integer[Array, "B 2"] | None = None,
    bf16: bool = False,
) -> Shaped[Array, "B ..."]:
    """The observations in these rows; images are shifted, each at its own offset, unless there are none. One kernel
    does both where kernels for images are used."""
    if offsets is None:
        return observations[rows]
    if not kernels_run(bf16) or observations.dtype != jnp.uint8 or not powers_of_two(*observations.shape[1:3]):
        return shift(observations[rows], offsets)
    from dualgoal.fast.shift_kernel import shifted_rows  # here: other machines should not wait for Pallas

    return shifted_rows(observations, rows, offsets - PAD)

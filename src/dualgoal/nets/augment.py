"""Image augmentation (section 2.5): random shifts by a few pixels."""

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Integer, Shaped

from dualgoal.fast.trunk import FAR, kernels_run, powers_of_two

PAD = 3  # an image is shifted by at most this many pixels in each direction


@functools.partial(jax.tree_util.register_dataclass, data_fields=["words"], meta_fields=["channels"])
@dataclasses.dataclass(frozen=True)
class Words:
    """Images of bytes (T, H, W, C), held as words of four bytes. Indexing by rows returns images of bytes."""

    words: Any  # (T, H, W C / 4) uint32
    channels: int

    @property
    def shape(self) -> tuple[int, ...]:
        *rows, words = self.words.shape
        return *rows, 4 * words // self.channels, self.channels

    dtype = np.dtype(np.uint8)

    def __getitem__(self, rows: Any) -> Array:
        chosen = self.words[rows]
        return jax.lax.bitcast_convert_type(chosen, jnp.uint8).reshape(*chosen.shape[:-1], *self.shape[-2:])


def as_held(images: np.ndarray) -> np.ndarray | Words:
    """These observations as a device should hold them: images as words if a kernel could not address all bytes. No copy
    is made."""
    if images.dtype != np.uint8 or images.nbytes not in FAR or math.prod(images.shape[2:]) % 4 or not kernels_run(True):
        return images
    words = np.ascontiguousarray(images).reshape(*images.shape[:2], -1).view("<u4")
    return Words(words, images.shape[-1])


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
    observations: Shaped[Array, "T ..."] | Words,
    rows: Integer[Array, " B"],
    offsets: Integer[Array, "B 2"] | None = None,
    bf16: bool = False,
) -> Shaped[Array, "B ..."]:
    """The observations in these rows; images are shifted, each at its own offset, if `offsets` are given. One kernel
    does both where kernels for images are used and can address all of them."""
    if offsets is None:
        return observations[rows]
    out_of_reach = not isinstance(observations, Words) and observations.nbytes in FAR
    fits = observations.dtype == jnp.uint8 and powers_of_two(*observations.shape[1:3]) and not out_of_reach
    if not kernels_run(bf16) or not fits:
        return shift(observations[rows], offsets)
    from dualgoal.fast.shift_kernel import shifted_rows  # here: other machines need not load Pallas

    *_, channels = observations.shape
    held = observations.words if isinstance(observations, Words) else observations.reshape(*observations.shape[:2], -1)
    return shifted_rows(held, rows, offsets - PAD, channels)

"""Random shifts of images (section 2.5)."""

import jax.numpy as jnp
import numpy as np

from dualgoal.nets.augment import PAD, shift


def test_shift_is_edge_padding_and_a_crop():
    images = np.random.default_rng(0).integers(0, 256, (3, 16, 16, 3), np.uint8)
    offsets = np.array([[0, 6], [3, 3], [5, 1]])
    shifted = np.asarray(shift(jnp.asarray(images), jnp.asarray(offsets)))
    assert shifted.dtype == np.uint8
    for image, (dy, dx), got in zip(images, offsets, shifted, strict=True):
        padded = np.pad(image, ((PAD, PAD), (PAD, PAD), (0, 0)), mode="edge")
        np.testing.assert_array_equal(got, padded[dy : dy + 16, dx : dx + 16])
    np.testing.assert_array_equal(shifted[1], images[1])

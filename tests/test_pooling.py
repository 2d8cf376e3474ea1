"""Max-pooling and its gradient against JAX's own, which scatters."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

from dualgoal.fast import pooling


@pytest.mark.parametrize("sides", [(8, 8), (5, 12), (7, 3), (1, 2)])
def test_pooling_and_its_gradient_equal_the_plain_twin(sides):
    """Values are rounded, so that many windows have several largest pixels, of which only the first gets a gradient."""
    x = jnp.round(2 * random.normal(random.key(0), (2, *sides, 3)))
    theirs, pull_theirs = jax.vjp(pooling.plain, x)
    ours, pull_ours = jax.vjp(pooling.max_pool, x)
    np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(pooling.max_pool(x), theirs)
    dy = random.normal(random.key(1), ours.shape)
    np.testing.assert_allclose(pull_ours(dy)[0], pull_theirs(dy)[0], atol=1e-6)


def test_padding_is_asymmetric_for_even_sides():
    """A single bright pixel, and the windows that see it. Symmetric padding would show (1, 1) to four windows."""
    for pixel, windows in (((0, 0), {(0, 0)}), ((1, 1), {(0, 0)}), ((2, 2), {(0, 0), (0, 1), (1, 0), (1, 1)})):
        x = jnp.zeros((1, 8, 8, 1)).at[0, pixel[0], pixel[1], 0].set(1.0)
        pooled = np.asarray(pooling.max_pool(x))[0, :, :, 0]
        assert {tuple(map(int, p)) for p in np.argwhere(pooled > 0)} == windows

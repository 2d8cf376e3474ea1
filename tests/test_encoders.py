"""Pixels: the encoder layer by layer, asymmetric pooling, fusion and random shifts (sections 2.5 and 3.4)."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax, random

from dualgoal.interface import Spec
from dualgoal.nets import encoders
from dualgoal.nets.encoders import FEATURES, PAD, Conv, Early, Impala, Late, Stack, fuse, shift

pytestmark = pytest.mark.usefixtures("quick_compile")

SHAPE = (64, 64, 3)
SPEC = Spec(SHAPE, 2)


def conv(x, layer):
    """3x3 SAME convolution of one image (H, W, i), by its definition."""
    w, b = np.asarray(layer.w, np.float64), np.asarray(layer.b, np.float64)
    padded = np.pad(x, ((1, 1), (1, 1), (0, 0)))
    h, wd = x.shape[:2]
    return sum(padded[i : i + h, j : j + wd] @ w[i, j] for i in range(3) for j in range(3)) + b


def pool(x):
    """3x3 stride 2 on an even size: nothing before, one after."""
    padded = np.pad(x, ((0, 1), (0, 1), (0, 0)), constant_values=-np.inf)
    h, w = x.shape[0] // 2, x.shape[1] // 2
    return np.max([padded[i : i + 2 * h : 2, j : j + 2 * w : 2] for i in range(3) for j in range(3)], axis=0)


def test_pooling_is_asymmetric():
    """A lone bright pixel at the origin is seen by one window only; symmetric padding would show it in the same one,
    but would also move what a pixel at (1, 1) lights."""
    stack = Stack(random.key(0), 1, 1)
    one = jnp.zeros((3, 3, 1, 1)).at[1, 1].set(1.0)
    stack = _with(stack, one)
    for pixel, lit in (((0, 0), {(0, 0)}), ((1, 1), {(0, 0)}), ((2, 2), {(0, 0), (0, 1), (1, 0), (1, 1)})):
        x = jnp.zeros((1, 8, 8, 1)).at[0, pixel[0], pixel[1]].set(1.0)
        assert {tuple(map(int, p)) for p in np.argwhere(np.asarray(stack(x))[0, :, :, 0] > 0)} == lit


@pytest.mark.parametrize("sides", [(8, 8), (5, 12), (7, 3), (1, 2)])
def test_gradients_of_pooling_go_to_the_first_largest(sides):
    """As JAX's own do; rounded values, so that many windows hold several largest."""
    x = jnp.round(2 * random.normal(random.key(0), (2, *sides, 3)))
    plain = lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
    theirs, pull_theirs = jax.vjp(plain, x)
    ours, pull_ours = jax.vjp(lambda x: encoders.pool(sides, x), x)
    np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(encoders.pool(sides, x), theirs)
    dy = random.normal(random.key(1), ours.shape)
    np.testing.assert_allclose(pull_ours(dy)[0], pull_theirs(dy)[0], atol=1e-6)


def _with(stack, kernel):
    first, block = Conv(random.key(0), 1, 1), Conv(random.key(0), 1, 1)
    object.__setattr__(first, "w", kernel)
    object.__setattr__(block, "w", jnp.zeros_like(kernel))
    object.__setattr__(stack, "first", first)
    object.__setattr__(stack, "block", (block, block))
    return stack


def test_impala_equals_its_definition():
    net = Impala(random.key(0), SHAPE, SPEC)
    images = np.random.default_rng(0).integers(0, 256, (2, *SHAPE), np.uint8)
    for image, features in zip(images, np.asarray(net(jnp.asarray(images))), strict=True):
        x = image / 255
        for stack in net.stacks:
            x = pool(conv(x, stack.first))
            x = x + conv(np.maximum(conv(np.maximum(x, 0), stack.block[0]), 0), stack.block[1])
        y = np.maximum(x, 0).reshape(-1) @ np.asarray(net.w, np.float64) + np.asarray(net.b)
        gelu = 0.5 * y * (1 + np.tanh(math.sqrt(2 / math.pi) * (y + 0.044715 * y**3)))
        np.testing.assert_allclose(features, gelu, atol=2e-4)


def test_impala_sizes_and_initial_weights():
    net = Impala(random.key(0), SHAPE, SPEC)
    assert [s.first.w.shape for s in net.stacks] == [(3, 3, 3, 16), (3, 3, 16, 32), (3, 3, 32, 32)]
    assert net.w.shape == (8 * 8 * 32, FEATURES)
    limit = math.sqrt(6 / (9 * 32 + 9 * 32))
    assert 0.99 * limit < np.abs(net.stacks[2].first.w).max() <= limit
    assert not np.asarray(net.stacks[0].first.b).any()


@pytest.mark.parametrize(("fusion", "kind", "size"), [("early", Early, 512), ("late", Late, 1024)])
def test_fusion(fusion, kind, size):
    join = fuse(random.key(0), Spec(SHAPE, 2, fusion=fusion))
    assert isinstance(join, kind)
    assert join.size == size
    s, g = (jnp.asarray(np.random.default_rng(n).integers(0, 256, (2, *SHAPE), np.uint8)) for n in (0, 1))
    together = np.concatenate(join(s, g), axis=-1)
    assert together.shape == (2, size)
    other = np.concatenate(join(s, s), axis=-1)
    if fusion == "late":  # the state's half cannot see the goal
        np.testing.assert_allclose(together[:, :512], other[:, :512], atol=1e-6)
        assert np.abs(together[:, 512:] - other[:, 512:]).max() > 1e-3
    else:
        assert join.encoder.stacks[0].first.w.shape == (3, 3, 6, 16)
        assert np.abs(together - other).max() > 1e-3


def test_shift_is_edge_padding_and_a_crop():
    images = np.random.default_rng(0).integers(0, 256, (3, 16, 16, 3), np.uint8)
    offsets = np.array([[0, 6], [3, 3], [5, 1]])
    shifted = np.asarray(shift(jnp.asarray(images), jnp.asarray(offsets)))
    assert shifted.dtype == np.uint8
    for image, (dy, dx), got in zip(images, offsets, shifted, strict=True):
        padded = np.pad(image, ((PAD, PAD), (PAD, PAD), (0, 0)), mode="edge")
        np.testing.assert_array_equal(got, padded[dy : dy + 16, dx : dx + 16])
    np.testing.assert_array_equal(shifted[1], images[1])

"""Images: the encoder layer by layer, its asymmetric pooling, and fusion (section 3.4)."""

import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

from dualgoal.fast.convolution import convolve, plain
from dualgoal.interface import Spec
from dualgoal.nets.encoders import FEATURES, Fusion, Impala

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


@pytest.mark.parametrize(("fusion", "size"), [("early", 512), ("late", 1024)])
def test_fusion(fusion, size):
    join = Fusion(random.key(0), Spec(SHAPE, 2, fusion=fusion))
    assert join.size == size and (join.encoder is None) == (fusion == "late")
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


@pytest.mark.parametrize("shape", [(3, 7, 3, 16), (2, 6, 16, 32)])
def test_gradients_of_convolutions_are_rewritten_bit_for_bit(shape):
    """All have the layout that XLA's library for CPUs knows; JAX's own have others, slow inside of loops. Sides and
    channels are such that no pixels are computed together (test_blocks.py)."""
    batch, side, inputs, outputs = shape
    x = random.normal(random.key(0), (batch, side, side, inputs))
    w = random.normal(random.key(1), (3, 3, inputs, outputs))
    dy = random.normal(random.key(2), (batch, side, side, outputs))
    gradients = lambda f: jax.jit(lambda x, w, dy: jax.vjp(f, x, w)[1](dy))
    jax.tree.map(np.testing.assert_array_equal, *(gradients(f)(x, w, dy) for f in (convolve, plain)))
    layouts = lambda f: set(re.findall(r"dim_numbers = (.*?), window", gradients(f).lower(x, w, dy).as_text()))
    assert layouts(convolve) == {"[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]"} < layouts(plain) | layouts(convolve)

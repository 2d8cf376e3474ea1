"""Images in blocks, and convolutions that compute several pixels at once, against whole batches and one pixel."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export, random

from dualgoal.fast import blocks, convolution
from dualgoal.interface import Spec
from dualgoal.nets import encoders

SHAPE = (16, 16, 3)


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_blocks_of_images_equal_the_whole_batch_and_its_gradient(monkeypatch, precision):
    """In the gradient of the weights only the order of sums differs."""
    net = encoders.Impala(random.key(0), SHAPE, Spec(SHAPE, 2, precision=precision))
    images = random.randint(random.key(1), (8, *SHAPE), 0, 256).astype(jnp.uint8)
    d = random.normal(random.key(2), (8, encoders.FEATURES))

    def loss(net):
        y = encoders.features.__wrapped__(net, images)
        return (y * d).sum(), y

    evaluate = lambda: jax.jit(jax.value_and_grad(lambda net: loss(net), has_aux=True))(net)
    (_, whole), whole_gradient = evaluate()
    monkeypatch.setattr(blocks, "PIXELS", 2 * 16 * 16)
    assert blocks.rows_of_block(images.shape) == 2
    (_, ours), our_gradient = evaluate()
    tolerance = 1e-4 if precision == "float32" else 3e-2
    for a, b in zip(jax.tree.leaves((ours, our_gradient)), jax.tree.leaves((whole, whole_gradient)), strict=True):
        assert a.dtype == b.dtype
        assert np.linalg.norm(a - b) <= tolerance * np.linalg.norm(b)
    assert "scan" in str(jax.make_jaxpr(lambda net: loss(net)[1])(net))


def test_which_batches_are_divided():
    assert blocks.rows_of_block((256, 64, 64, 3)) == 16
    assert blocks.rows_of_block((256, 24, 24, 3)) == 64
    assert blocks.rows_of_block((100, 64, 64, 3)) == 10
    assert blocks.rows_of_block((2, 512, 512, 3)) == 1
    for whole in ((256, 16, 16, 3), (16, 64, 64, 3), (257, 64, 64, 3)):
        assert blocks.rows_of_block(whole) is None
    assert blocks.rows_of_block((export.symbolic_shape("rows")[0], 64, 64, 3)) is None


def test_other_devices_compute_whole_batches(monkeypatch):
    images = jnp.zeros((64, 64, 64, 3))
    traced = lambda: str(jax.make_jaxpr(functools.partial(blocks.in_blocks, lambda x: x + 1))(images))
    assert "scan" in traced()
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert "scan" not in traced()


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("channels", [(3, 16), (6, 16), (16, 16)])
def test_several_pixels_at_once_equal_the_plain_convolution(count, channels):
    inputs, outputs = channels
    x = random.normal(random.key(0), (2, 6, 8, inputs))
    w = random.normal(random.key(1), (3, 3, inputs, outputs))
    np.testing.assert_allclose(convolution.several(count, x, w), convolution.plain(x, w), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("channels", "width", "count"), [(3, 8, 4), (6, 12, 4), (16, 8, 2), (32, 8, 1), (3, 6, 1), (16, 3, 1)]
)
def test_convolutions_with_few_channels_and_their_gradients_equal_the_plain_twin(channels, width, count):
    """Sides that are no multiple of the number of pixels are computed pixel by pixel."""
    x = random.normal(random.key(0), (2, 5, width, channels))
    w = random.normal(random.key(1), (3, 3, channels, 16))
    dy = random.normal(random.key(2), (2, 5, width, 16))
    assert convolution.at_once(x, w) == count
    (ours, pull_ours), (theirs, pull_theirs) = (jax.vjp(f, x, w) for f in (convolution.convolve, convolution.plain))
    close = functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-4)
    jax.tree.map(close, (ours, pull_ours(dy)), (theirs, pull_theirs(dy)))

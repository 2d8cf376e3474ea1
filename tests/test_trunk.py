"""The encoder's convolutions with their own gradient, and GPU kernels, interpreted on a CPU, against plain twins."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

import plain_trunk
from dualgoal.fast import convolution_kernels, pooled_kernels, pooling, trunk, weight_kernels
from dualgoal.interface import Spec
from dualgoal.nets import encoders, tokens

SHAPE = (16, 16, 3)


def images(seed, batch=2, shape=SHAPE):
    return random.randint(random.key(seed), (batch, *shape), 0, 256).astype(jnp.uint8)


def distance(ours, theirs):
    ours, theirs = (np.asarray(x, np.float64).ravel() for x in (ours, theirs))
    return np.linalg.norm(ours - theirs) / np.linalg.norm(theirs)


@pytest.mark.parametrize("least", [1, 4], ids=["3 channels", "padded to 4"])
def test_batches_together_equal_the_plain_encoder_and_its_gradient(monkeypatch, least):
    """In float32, where only the order of sums differs. The second batch needs no gradient, as next states do."""
    net = encoders.Impala(random.key(0), SHAPE, Spec((64, 64, 3), 2))
    d = random.normal(random.key(1), (2, 512))

    def loss(net):
        a, b = net.each(images(2), images(3))
        return ((a + jax.lax.stop_gradient(b)) * d).sum(), (a, b)

    evaluate = lambda: jax.jit(jax.value_and_grad(lambda net: loss(net), has_aux=True))(net)
    (_, theirs), their_gradient = evaluate()
    monkeypatch.setattr(encoders, "ops_for", lambda shapes, bf16: plain_trunk.plain_ops(jnp.float32, least))
    (_, ours), our_gradient = evaluate()
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-4), ours, theirs)
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-3, atol=1e-3), our_gradient, their_gradient)
    counted = str(jax.make_jaxpr(jax.grad(lambda net: loss(net)[0]))(net)).count("conv_general_dilated")
    assert counted == 9 + 9 + 8, "forward once for both batches; gradients of weights and of inputs, but not of images"
    rows = {x.shape[0] for x in jax.tree.leaves(jax.eval_shape(lambda net: net.each(images(2), images(3)), net))}
    assert rows == {2}


def test_tokens_by_the_kernels_equal_the_plain_maps(monkeypatch):
    """In float32, with the gradient that the kernels' own backward pass computes."""
    net = tokens.Tokens(random.key(0), Spec(SHAPE, 2), 8)
    d = random.normal(random.key(1), (2, net.places, net.channels))
    evaluate = lambda: jax.jit(jax.value_and_grad(lambda net: (net(images(2)) * d).sum()))(net)
    theirs = evaluate()
    asked = []
    plain = lambda shapes, bf16: asked.append(shapes) or plain_trunk.plain_ops(jnp.float32)
    monkeypatch.setattr(encoders, "ops_for", plain)
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-3, atol=1e-3), evaluate(), theirs)
    assert asked == [[(2, *SHAPE)]]


def layer(side, inputs, outputs, seed=0, batch=2):
    """Random images (pixels if there are few channels), weights and whatever else a convolution may take."""
    k = random.split(random.key(seed), 6)
    real = {4: 3, 8: 6}.get(inputs, inputs)
    x = random.normal(k[0], (batch, side, side, inputs)).astype(jnp.bfloat16)
    if inputs < 16:
        x = random.randint(k[0], x.shape, 0, 256).astype(jnp.bfloat16).at[..., real:].set(0)
    w = random.normal(k[1], (3, 3, real, outputs)).astype(jnp.bfloat16).astype(jnp.float32)
    others = (random.normal(k[n], (batch, side, side, outputs)).astype(jnp.bfloat16) for n in (2, 3, 4))
    return x, w, random.normal(k[5], (outputs,)), *others


@pytest.mark.parametrize(("side", "inputs", "outputs"), [(8, 16, 16), (8, 32, 32), (16, 4, 16)])
def test_gradients_of_weights_equal_their_plain_twin(side, inputs, outputs):
    """Sums are float32 throughout. Fewer images received a gradient than there are."""
    x, w, *_, dy = layer(side, inputs, outputs)
    options = {"relu_in": inputs >= 16, "scale": 0.5}
    exact = plain_trunk.weight_gradient(x, dy[:1].astype(jnp.float32), w.shape[2], **options, dtype=jnp.float32)
    tile = convolution_kernels.Tile(32, 64, 4, programs=1)
    ours = weight_kernels.weight_gradient(x, dy[:1], w.shape[2], **options, tile=tile, interpret=True)
    assert max(distance(a, e) for a, e in zip(ours, exact, strict=True)) < 1e-5


@pytest.mark.parametrize(("side", "inputs", "outputs", "down"), [(8, 16, 32, 8), (8, 32, 16, 2), (16, 16, 16, 4)])
def test_programs_that_go_down_through_images_equal_the_plain_convolution(side, inputs, outputs, down):
    """The kernels add in float32 and round once (2^-9 relative). There are fewer images than in the mask and the
    residual, and fewer gradients than images; some programs of the gradient of the weights handle several strips."""
    x, w, b, mask, residual, dy = layer(side, inputs, outputs)
    tile = convolution_kernels.Tile(pixels=side // 2, pixels_per_row=2, image_rows=down, programs=2)
    for options in ({"mask": mask, "residual": residual}, {"relu_in": True, "relu_out": True, "scale": 0.25}):
        exact = plain_trunk.convolve(x[:1], w, b, **options, dtype=jnp.float32)
        ours = convolution_kernels.convolve(x[:1], w, b, **options, tile=tile, interpret=True)
        assert ours.dtype == jnp.bfloat16 and distance(ours, exact) < 2**-9
    for relu_in in (False, True):
        options = {"relu_in": relu_in, "scale": 0.5}
        exact = plain_trunk.weight_gradient(x, dy[:1].astype(jnp.float32), inputs, **options, dtype=jnp.float32)
        ours = weight_kernels.weight_gradient(x, dy[:1], inputs, **options, tile=tile, interpret=True)
        assert max(distance(a, e) for a, e in zip(ours, exact, strict=True)) < 1e-5


@pytest.mark.parametrize("batch", [16, 256])
def test_images_that_fit_fill_whole_programs(batch):
    assert trunk.fits((batch, 64, 64, 3)) and not trunk.fits((batch // 2 - 1, 64, 64, 3))
    for side, inputs, outputs in ((32, 16, 16), (32, 16, 32), (16, 32, 32), (8, 32, 32)):
        tile = convolution_kernels.forward_tile(side, inputs, outputs)
        assert batch * side // tile.pixels_per_row % tile.pixels == 0 and side % tile.image_rows == 0
        tile = weight_kernels.gradient_tile((batch, side, side, outputs), inputs)
        assert batch * side**2 // tile.pixels_per_row % (tile.pixels * max(1, tile.image_rows)) == 0


def test_seeds_share_the_programs_of_weight_gradients(monkeypatch):
    """Two seeds, each with half as many programs as one alone, have the gradients that they have alone."""
    x, *_, dy = layer(16, 16, 16, batch=4)
    (xs, dys), grids = (jnp.stack([a, a[::-1] + 1]) for a in (x, dy)), []
    call = weight_kernels.pl.pallas_call
    record = lambda *args, grid, **options: grids.append(grid) or call(*args, grid=grid, **options)
    monkeypatch.setattr(weight_kernels.pl, "pallas_call", record)
    monkeypatch.setattr(weight_kernels, "FEWEST", 2)
    tile = convolution_kernels.Tile(32, 64, 4, programs=8)
    gradient = lambda x, dy: weight_kernels.weight_gradient(x, dy, 16, tile=tile, interpret=True)
    both = jax.vmap(gradient)(xs, dys)
    assert grids[-1] == (4,)
    alone = [gradient(*seed) for seed in zip(xs, dys, strict=True)]
    assert grids[-1] == (8,)
    for n, theirs in enumerate(alone):
        assert max(distance(a[n], e) for a, e in zip(both, theirs, strict=True)) < 1e-5


@pytest.mark.parametrize("channels", [4, 8])
def test_the_pooled_kernels_are_the_convolution_and_the_pooling(channels):
    x, w, b, *_ = layer(16, channels, 16)
    sides, scale = (16, 16), 1 / 255
    x = x.at[:, :4].set(200)  # a region of one colour, where all pixels of a window are equal
    y, chosen = pooling.pool_forward(sides, plain_trunk.convolve(x, w, b, scale=scale, dtype=jnp.float32))
    ours, choice = pooled_kernels.convolve_pooled(
        pooled_kernels.padded(x), w, b, scale=scale, tile=convolution_kernels.Tile(8, image_rows=4), interpret=True
    )
    assert ours.dtype == jnp.bfloat16 and distance(ours, y) < 2**-9
    np.testing.assert_array_equal(choice, chosen)
    dy = random.normal(random.key(9), y.shape).astype(jnp.bfloat16)[:1]
    (unpooled,) = pooling.pool_backward(sides, chosen[:1], dy)
    of_weights, _ = plain_trunk.weight_gradient(x, unpooled.astype(jnp.float32), w.shape[2], dtype=jnp.float32)
    theirs = of_weights, dy.astype(jnp.float32).sum(axis=(0, 1, 2))  # not rounded where windows share a pixel
    tile = pooled_kernels.BACKWARD._replace(pixels=32)
    ours = pooled_kernels.pooled_weight_gradient(
        pooled_kernels.padded(x), chosen, dy, w.shape[2], tile=tile, interpret=True
    )
    assert max(distance(a, e) for a, e in zip(ours, theirs, strict=True)) < 1e-5


def test_the_pooling_kernels_equal_pooling():
    """Rounded numbers, of which many are equal; `chosen` has an image that received no gradient."""
    x = jnp.round(random.normal(random.key(0), (2, 16, 16, 32))).astype(jnp.bfloat16)
    y, chosen = pooling.pool_forward((16, 16), x)
    ours = pooled_kernels.pool((16, 16), x, interpret=True)
    dy = random.normal(random.key(1), y.shape).astype(jnp.bfloat16)[:1]
    (dx,) = pooling.pool_backward((16, 16), chosen[:1], dy)
    (our_dx,) = pooled_kernels.unpool((16, 16), chosen, dy, interpret=True)
    for a, e in ((ours[0], y), (ours[1], chosen), (our_dx, dx)):
        assert a.dtype == e.dtype
        np.testing.assert_array_equal(a.astype(jnp.float32), e.astype(jnp.float32))


def test_which_images_the_kernels_can_handle():
    assert trunk.fits((256, 64, 64, 3))
    assert trunk.fits((16, 64, 64, 6))
    assert not trunk.fits((256, 64, 48, 3)), "a side is no power of two"
    assert not trunk.fits((248, 64, 64, 3)), "images do not fill whole programs"
    assert not trunk.fits((256, 64, 64, 9)), "more channels than a state and a goal have"


def test_the_kernels_can_be_compiled_for_a_gpu():
    """The whole encoder and its gradient for two seeds, lowered for an NVIDIA GPU whatever this machine has."""
    one = tuple((jnp.zeros((2, 3, 3, i, o)), jnp.zeros((2, o))) for i, o in ((3, 16), (16, 16), (16, 16)))
    two = tuple((jnp.zeros((2, 3, 3, i, o)), jnp.zeros((2, o))) for i, o in ((16, 32), (32, 32), (32, 32)))
    batch = jnp.zeros((2, 32, 32, 32, 3), jnp.uint8)

    def loss(stacks, batch):
        a, b = trunk.feature_maps(trunk.kernel_ops(), stacks, (batch, batch))
        return (a + jax.lax.stop_gradient(b)).astype(jnp.float32).sum()

    device = jax.sharding.AbstractDevice("NVIDIA H200", 132, "gpu")
    with jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((1,), ("x",), abstract_device=device)):
        step = jax.jit(jax.vmap(jax.grad(loss)))
        text = step.trace((one, two), batch).lower(lowering_platforms=("cuda",)).as_text()
    for name in ("convolve", "convolve_weights", "convolve_pooled", "convolve_weights_pooled", "pool", "unpool"):
        assert f'"{name}"' in text

"""The networks of section 3, detail by detail, where they differ from what a library would do by default."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

from dualgoal.fast import activation_formulas
from dualgoal.interface import Spec
from dualgoal.nets import heads

SPEC = Spec((5,), 3)
HALF = Spec((5,), 3, precision="bf16")


def tanh_gelu(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def layer_norm(x, scale, offset):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6) * scale + offset


def normed(mlp):
    """Which layers have a LayerNorm behind them."""
    return [hasattr(layer, "scale") for layer in mlp.layers]


def numbers(tree):
    return jax.tree.map(lambda x: np.asarray(x, np.float64), tree)


def test_gelu_is_the_tanh_form():
    x = np.linspace(-4, 4, 41)
    np.testing.assert_allclose(activation_formulas.gelu(jnp.asarray(x, jnp.float32)), tanh_gelu(x), atol=1e-6)
    erf_form = x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))
    assert np.abs(tanh_gelu(x) - erf_form).max() > 1e-4, "the two forms can be told apart at this tolerance"


@pytest.mark.parametrize(("members", "scale"), [(None, 1.0), (2, 1.0), (2, 1e-3)])
def test_mlp_normalises_after_the_activation_and_ends_linear(members, scale):
    """With inputs of scale 1e-3 the first variance is about 1e-6: an epsilon of 1e-5 would shrink it threefold."""
    mlp = heads.MLP(random.key(0), 5, (7, 6), 4, SPEC, members)
    if scale == 1:  # no parameter is 0 or 1
        mlp = jax.tree.map(lambda x: x + 0.1 * random.normal(random.key(x.size), x.shape), mlp)
    x = scale * random.normal(random.key(1), (3, 5))
    p = numbers(mlp)

    def one(pick):
        h = numbers(x)
        for layer in p.layers[:-1]:
            h = layer_norm(tanh_gelu(h @ pick(layer.w) + pick(layer.b)), pick(layer.scale), pick(layer.offset))
        return h @ pick(p.layers[-1].w) + pick(p.layers[-1].b)

    expected = one(lambda w: w) if members is None else np.stack([one(lambda w, e=e: w[e]) for e in range(members)])
    np.testing.assert_allclose(mlp(x), expected, rtol=2e-4, atol=2e-4)


def test_members_are_independent_and_glorot_uniform():
    layer = heads.Linear(random.key(0), 300, 200, members=2)
    limit = math.sqrt(6 / 500)
    assert np.abs(layer.w).max() <= limit
    for w in np.asarray(layer.w):
        assert np.abs(w).max() > 0.999 * limit
        assert w.std() == pytest.approx(limit / math.sqrt(3), rel=0.01)
    assert abs(np.corrcoef(np.asarray(layer.w).reshape(2, -1))[0, 1]) < 0.02
    assert not np.asarray(layer.b).any()


def test_actor_head_is_small_and_its_body_unnormalised():
    actor = heads.Actor(random.key(0), SPEC, (256, 256))
    assert normed(actor.mlp) == [False, False]
    limit = math.sqrt(6 * 0.01 / (256 + 3))
    assert 0.99 * limit < np.abs(actor.head.w).max() <= limit
    s, z = random.normal(random.key(1), (2, 4, 5))
    p, h = numbers(actor), np.concatenate([s, z], axis=-1)
    for layer in p.mlp.layers:
        h = tanh_gelu(h @ layer.w + layer.b)
    np.testing.assert_allclose(actor(s, z), h @ p.head.w + p.head.b, rtol=1e-3, atol=1e-5)


def test_bottleneck_third_layer_is_linear_and_heads_are_lecun():
    net = heads.Bottleneck(random.key(0), SPEC, (64, 64, 400), 300)
    assert normed(net.trunk) == [True, True, False]
    for head in (net.mean, net.log_std):
        assert np.asarray(head.w).std() == pytest.approx(math.sqrt(1 / 400), rel=0.01)
        assert np.abs(head.w).max() <= 2 * math.sqrt(1 / 400) / 0.8796 + 1e-6  # a truncated normal
    mean, log_std = net(100 * random.normal(random.key(1), (50, 5)))
    assert mean.shape == log_std.shape == (50, 300)
    loud = jax.tree.map(lambda w: 100 * w, net.log_std)
    _, log_std = eqx.tree_at(lambda n: n.log_std, net, loud)(random.normal(random.key(1), (50, 5)))
    assert (float(log_std.min()), float(log_std.max())) == (-5.0, 2.0)


def test_shapes_of_the_heads():
    s, z, a, t = jnp.ones((4, 5)), jnp.ones((4, 5)), jnp.ones((4, 3)), jnp.ones((4, 1))
    shape = lambda make, *inputs: jax.eval_shape(lambda: make()(*inputs)).shape
    key = random.key(0)
    assert shape(lambda: heads.Value(key, SPEC, (8,)), s, z) == (2, 4)
    assert shape(lambda: heads.Value(key, SPEC, (8,), extra=3), s, z, a) == (2, 4)
    assert shape(lambda: heads.Value(key, SPEC, (8,), members=None), s, z) == (4,)
    assert shape(lambda: heads.Flow(key, SPEC, (8,)), s, z, a, t) == (4, 3)
    assert shape(lambda: heads.Embedding(key, (5,), 6, (8,), SPEC), s) == (2, 4, 6)
    assert shape(lambda: heads.Embedding(key, (5,), 6, (8,), SPEC, members=None), s) == (4, 6)


def test_an_actor_may_have_another_number_of_outputs():
    s, z = jnp.ones((4, 5)), jnp.ones((4, 5))
    assert heads.Actor(random.key(0), SPEC, (8,))(s, z).shape == (4, SPEC.action_dim)
    assert heads.Actor(random.key(0), SPEC, (8,), outputs=6)(s, z).shape == (4, 6)


def test_a_pair_of_values_is_two_values():
    value = heads.Value(random.key(0), SPEC, (8,))
    s, z, next_s, next_z = random.normal(random.key(1), (4, 3, 5))
    v, v_next = value.pair(s, z, next_s, next_z)
    np.testing.assert_allclose(v, value(s, z), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(v_next, value(next_s, next_z), rtol=1e-5, atol=1e-6)


def test_an_embedding_hands_on_the_average_of_its_members():
    embedding, s = heads.Embedding(random.key(0), (5,), 6, (8,), SPEC), jnp.ones((4, 5))
    np.testing.assert_allclose(embedding.mean(s), np.asarray(embedding(s)).mean(axis=0), rtol=1e-5)


def test_flow_ends_in_an_ordinary_layer_after_normalised_ones():
    flow = heads.Flow(random.key(0), SPEC, (256, 256))
    assert normed(flow.mlp) == [True, True, False]
    assert np.abs(flow.mlp.layers[-1].w).max() == pytest.approx(math.sqrt(6 / (256 + 3)), rel=0.02)


def test_half_precision_keeps_parameters_outputs_and_coordinates():
    """A maze coordinate must not be rounded before the first layer has seen it: at 20, bfloat16 has steps of 0.125."""
    full, half = (heads.MLP(random.key(0), 5, (512, 64), 4, spec) for spec in (SPEC, HALF))
    x = 20 + random.uniform(random.key(1), (64, 5), minval=-0.05, maxval=0.05)
    assert half(x).dtype == jnp.float32
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(half))
    np.testing.assert_allclose(half(x), full(x), atol=0.1)
    moves = [np.asarray(mlp.layers[0].activated(x, kind)) for mlp, kind in ((full, None), (half, jnp.bfloat16))]
    rounded = np.asarray(full.layers[0].activated(x.astype(jnp.bfloat16).astype(jnp.float32)))
    centred = [h - h.mean(axis=0) for h in (*map(np.float64, moves), rounded)]
    along = [np.vdot(centred[0], h) / np.vdot(centred[0], centred[0]) for h in centred]
    assert along[1] == pytest.approx(1, abs=0.1), "the layer follows moves that are smaller than those steps"
    assert along[2] == pytest.approx(0, abs=0.1), "which it could not if its input were rounded"

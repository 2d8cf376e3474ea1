"""The GPU's kernels, interpreted on a CPU, against the plain functions they replace."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dualgoal import kernels

FLOAT = jnp.dtype("float32")


@pytest.fixture
def layer():
    keys = jax.random.split(jax.random.key(0), 3)
    y, dout = (jax.random.normal(k, (2, 32, 64)) for k in keys[:2])
    return y, jax.random.normal(keys[2], (2, 3, 64)), dout


def test_gelu_is_the_tanh_form(layer):
    np.testing.assert_allclose(kernels.gelu(layer[0]), jax.nn.gelu(layer[0], approximate=True), atol=1e-6)


@pytest.mark.parametrize("head", [False, True], ids=["layer", "layer and head"])
def test_fused_layer_equals_the_plain_one_and_its_gradients(layer, head):
    y, rows, dout = layer
    if head:
        rows, dout = jnp.concatenate([rows, jnp.sin(rows[:, :1])], axis=1), dout[..., 0]
    out, pull = jax.vjp(functools.partial(kernels.plain, FLOAT), y, rows)
    np.testing.assert_allclose(kernels.forward(FLOAT, y, rows, interpret=True), out, atol=2e-5)
    for ours, theirs in zip(kernels.backward(FLOAT, y, rows, dout, interpret=True), pull(dout), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-4)


def test_plain_layer_is_gelu_then_layer_norm_then_the_head(layer):
    y, rows, _ = (np.asarray(x, np.float64) for x in layer)
    u = y + rows[:, :1]
    h = 0.5 * u * (1 + np.tanh(np.sqrt(2 / np.pi) * (u + 0.044715 * u**3)))
    x = (h - h.mean(-1, keepdims=True)) / np.sqrt(h.var(-1, keepdims=True) + 1e-6)
    x = x * rows[:, 1:2] + rows[:, 2:3]
    np.testing.assert_allclose(kernels.plain(FLOAT, *layer[:2]), x, atol=2e-5)
    headed = jnp.concatenate([layer[1], layer[1][:, :1]], axis=1)
    np.testing.assert_allclose(kernels.plain(FLOAT, layer[0], headed), (x * rows[:, :1]).sum(-1), atol=1e-4)


def test_raw_inputs_of_bf16_products_keep_sixteen_bits_and_their_gradients():
    """Coordinates of some 20 m that differ by millimetres: rounded to bfloat16 they would all be the same number."""
    x = 20 + jax.random.uniform(jax.random.key(1), (64, 3)) * 0.05
    w = jnp.array([[0.5], [-0.25], [1.0]])  # exact in bfloat16
    y, pull = jax.vjp(lambda x, w: kernels.product(x, w, jnp.bfloat16, jnp.float32), x, w)
    np.testing.assert_allclose(y, x @ w, atol=1e-3)
    dx, dw = pull(jnp.ones_like(y))
    np.testing.assert_allclose(dw[:, 0], x.sum(axis=0), rtol=1e-5)
    np.testing.assert_allclose(dx, jnp.broadcast_to(w[:, 0], x.shape), rtol=1e-6)


@pytest.mark.parametrize("members", [None, 2])
def test_product_and_its_gradients_are_those_of_a_matrix_product(members):
    lead = () if members is None else (members,)
    x, w = jax.random.normal(jax.random.key(1), (5, 3)), jax.random.normal(jax.random.key(2), (*lead, 3, 4))
    plain = lambda x, w: jnp.matmul(x if members is None else jnp.stack([x] * members), w)
    ours, pull_ours = jax.vjp(kernels.product, x, w)
    theirs, pull_theirs = jax.vjp(plain, x, w)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)
    for a, b in zip(pull_ours(jnp.cos(ours)), pull_theirs(jnp.cos(theirs)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_bf16_products_keep_parameters_and_their_gradients_in_float32():
    x, w = jax.random.normal(jax.random.key(1), (8, 16), jnp.bfloat16), jax.random.normal(jax.random.key(2), (16, 4))
    y, pull = jax.vjp(lambda x, w: kernels.product(x, w, jnp.bfloat16), x, w)
    dx, dw = pull(jnp.ones_like(y))
    assert (y.dtype, dx.dtype, dw.dtype) == (jnp.bfloat16, jnp.bfloat16, jnp.float32)
    np.testing.assert_allclose(dw, jnp.broadcast_to(x.astype(jnp.float32).sum(axis=0)[:, None], w.shape), rtol=1e-2)

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


def test_fused_layer_equals_the_plain_one_and_its_gradients(layer):
    y, rows, dout = layer
    out, pull = jax.vjp(functools.partial(kernels.plain, FLOAT), y, rows)
    np.testing.assert_allclose(kernels.forward(FLOAT, y, rows, interpret=True), out, atol=1e-5)
    for ours, theirs in zip(kernels.backward(FLOAT, y, rows, dout, interpret=True), pull(dout), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=5e-5)


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

"""Matrix products against their plain twin, and the precision of their inputs and gradients under bfloat16."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dualgoal.fast import matmul


def test_raw_inputs_of_bf16_products_keep_sixteen_bits_and_their_gradients():
    """Coordinates of some 20 m that differ by millimetres: rounded to bfloat16 they would all be the same number."""
    x = 20 + jax.random.uniform(jax.random.key(1), (64, 3)) * 0.05
    w = jnp.array([[0.5], [-0.25], [1.0]])  # exact in bfloat16
    y, pull = jax.vjp(lambda x, w: matmul.product(x, w, jnp.bfloat16, jnp.float32), x, w)
    np.testing.assert_allclose(y, x @ w, atol=1e-3)
    dx, dw = pull(jnp.ones_like(y))
    np.testing.assert_allclose(dw[:, 0], x.sum(axis=0), rtol=1e-5)
    np.testing.assert_allclose(dx, jnp.broadcast_to(w[:, 0], x.shape), rtol=1e-6)


@pytest.mark.parametrize("members", [None, 2])
def test_product_and_its_gradients_equal_the_plain_twin(members):
    lead = () if members is None else (members,)
    x, w = jax.random.normal(jax.random.key(1), (5, 3)), jax.random.normal(jax.random.key(2), (*lead, 3, 4))
    ours, pull_ours = jax.vjp(matmul.product, x, w)
    theirs, pull_theirs = jax.vjp(matmul.plain, x, w)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)
    for a, b in zip(pull_ours(jnp.cos(ours)), pull_theirs(jnp.cos(theirs)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_bf16_products_keep_parameters_and_their_gradients_in_float32():
    x, w = jax.random.normal(jax.random.key(1), (8, 16), jnp.bfloat16), jax.random.normal(jax.random.key(2), (16, 4))
    y, pull = jax.vjp(lambda x, w: matmul.product(x, w, jnp.bfloat16), x, w)
    dx, dw = pull(jnp.ones_like(y))
    assert (y.dtype, dx.dtype, dw.dtype) == (jnp.bfloat16, jnp.bfloat16, jnp.float32)
    np.testing.assert_allclose(dw, jnp.broadcast_to(x.astype(jnp.float32).sum(axis=0)[:, None], w.shape), rtol=1e-2)


def test_parts_of_an_input_keep_their_own_precision():
    s, z = (
        20 + jax.random.uniform(jax.random.key(1), (8, 3)),
        jax.random.normal(jax.random.key(2), (8, 4), jnp.bfloat16),
    )
    w = jax.random.normal(jax.random.key(3), (2, 7, 5)).astype(jnp.bfloat16).astype(jnp.float32)
    whole = jnp.concatenate([s, z.astype(jnp.float32)], axis=-1)
    y, pull = jax.vjp(lambda s, z, w: matmul.product((s, z), w, jnp.bfloat16, jnp.float32), s, z, w)
    theirs, pull_theirs = jax.vjp(matmul.plain, whole, w)
    np.testing.assert_allclose(y, theirs, atol=2e-3)
    dy = jnp.cos(y).astype(jnp.bfloat16).astype(jnp.float32)
    (ds, dz, dw), (dx, dw_theirs) = pull(dy), pull_theirs(dy)
    assert (ds.dtype, dz.dtype, dw.dtype) == (jnp.float32, jnp.bfloat16, jnp.float32)
    np.testing.assert_allclose(jnp.concatenate([ds, dz.astype(jnp.float32)], axis=-1), dx, atol=0.1)
    np.testing.assert_allclose(dw, dw_theirs, atol=2e-3)


@pytest.mark.parametrize("members", [None, 2])
@pytest.mark.skipif(jax.default_backend() != "cpu", reason="asks for the forms that are fast on a CPU")
def test_on_a_cpu_bf16_products_take_the_forms_that_are_fast_there(members):
    lead = () if members is None else (members,)
    x, w = jnp.ones((*lead, 8, 16), jnp.bfloat16), jnp.ones((*lead, 16, 4))
    square = lambda x, w: (matmul.product(x, w, jnp.bfloat16) ** 2).sum()
    trace = str(jax.make_jaxpr(jax.grad(square, (0, 1)))(x, w))
    assert trace.count("preferred_element_type=float32") == trace.count("dot_general[") == 3
    assert trace.count("layout_constraint[") == 1, "of the gradient of the weights"

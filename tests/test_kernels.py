"""The GPU's kernels, interpreted on a CPU, against the plain functions they replace."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dualgoal.fast import activations, matmul

FLOAT = jnp.dtype("float32")


@pytest.fixture(params=[64, 512], ids=["one group of columns", "four groups"])
def layer(request):
    keys = jax.random.split(jax.random.key(0), 3)
    y, dout = (jax.random.normal(k, (2, 256, request.param)) for k in keys[:2])
    return y, jax.random.normal(keys[2], (2, 3, request.param)), dout


def test_gelu_is_the_tanh_form(layer):
    np.testing.assert_allclose(activations.gelu(layer[0]), jax.nn.gelu(layer[0], approximate=True), atol=1e-6)


@pytest.mark.parametrize("kind", ["gelu", "and norm", "and head"])
def test_fused_layer_equals_the_plain_one_and_its_gradients(layer, kind):
    y, rows, dout = layer
    if kind == "gelu":
        rows = rows[:, :1]
    if kind == "and head":
        rows, dout = jnp.concatenate([rows, jnp.sin(rows[:, :1])], axis=1), dout[..., 0]
    out, pull = jax.vjp(functools.partial(activations.plain, FLOAT), y, rows)
    np.testing.assert_allclose(activations.forward(FLOAT, y, rows, interpret=True), out, atol=2e-5)
    for back in (activations.plain_back, functools.partial(activations.backward, interpret=True)):
        for ours, theirs in zip(back(y, rows, dout), pull(dout), strict=True):
            np.testing.assert_allclose(ours, theirs, atol=2e-4)


def test_plain_layer_is_gelu_then_layer_norm_then_the_head(layer):
    y, rows, _ = (np.asarray(x, np.float64) for x in layer)
    u = y + rows[:, :1]
    h = 0.5 * u * (1 + np.tanh(np.sqrt(2 / np.pi) * (u + 0.044715 * u**3)))
    x = (h - h.mean(-1, keepdims=True)) / np.sqrt(h.var(-1, keepdims=True) + 1e-6)
    x = x * rows[:, 1:2] + rows[:, 2:3]
    np.testing.assert_allclose(activations.plain(FLOAT, *layer[:2]), x, atol=2e-5)
    np.testing.assert_allclose(activations.plain(FLOAT, layer[0], layer[1][:, :1]), h, atol=1e-5)
    headed = jnp.concatenate([layer[1], layer[1][:, :1]], axis=1)
    np.testing.assert_allclose(activations.plain(FLOAT, layer[0], headed), (x * rows[:, :1]).sum(-1), atol=1e-4)


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
def test_product_and_its_gradients_are_those_of_a_matrix_product(members):
    lead = () if members is None else (members,)
    x, w = jax.random.normal(jax.random.key(1), (5, 3)), jax.random.normal(jax.random.key(2), (*lead, 3, 4))
    plain = lambda x, w: jnp.matmul(x if members is None else jnp.stack([x] * members), w)
    ours, pull_ours = jax.vjp(matmul.product, x, w)
    theirs, pull_theirs = jax.vjp(plain, x, w)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)
    for a, b in zip(pull_ours(jnp.cos(ours)), pull_theirs(jnp.cos(theirs)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_bf16_products_keep_parameters_and_their_gradients_in_float32():
    x, w = jax.random.normal(jax.random.key(1), (8, 16), jnp.bfloat16), jax.random.normal(jax.random.key(2), (16, 4))
    y, pull = jax.vjp(lambda x, w: matmul.product(x, w, jnp.bfloat16), x, w)
    dx, dw = pull(jnp.ones_like(y))
    assert (y.dtype, dx.dtype, dw.dtype) == (jnp.bfloat16, jnp.bfloat16, jnp.float32)
    np.testing.assert_allclose(dw, jnp.broadcast_to(x.astype(jnp.float32).sum(axis=0)[:, None], w.shape), rtol=1e-2)


def test_parts_of_an_input_stand_side_by_side_each_in_its_own_precision():
    s, z = (
        20 + jax.random.uniform(jax.random.key(1), (8, 3)),
        jax.random.normal(jax.random.key(2), (8, 4), jnp.bfloat16),
    )
    w = jax.random.normal(jax.random.key(3), (2, 7, 5)).astype(jnp.bfloat16).astype(jnp.float32)
    whole = jnp.concatenate([s, z.astype(jnp.float32)], axis=-1)
    y, pull = jax.vjp(lambda s, z, w: matmul.product((s, z), w, jnp.bfloat16, jnp.float32), s, z, w)
    theirs, pull_theirs = jax.vjp(lambda x, w: jnp.einsum("bi,eio->ebo", x, w), whole, w)
    np.testing.assert_allclose(y, theirs, atol=2e-3)
    dy = jnp.cos(y).astype(jnp.bfloat16).astype(jnp.float32)
    (ds, dz, dw), (dx, dw_theirs) = pull(dy), pull_theirs(dy)
    assert (ds.dtype, dz.dtype, dw.dtype) == (jnp.float32, jnp.bfloat16, jnp.float32)
    np.testing.assert_allclose(jnp.concatenate([ds, dz.astype(jnp.float32)], axis=-1), dx, atol=0.1)
    np.testing.assert_allclose(dw, dw_theirs, atol=2e-3)


@pytest.mark.parametrize("rows", [1, 3, 4])
def test_the_kernels_can_be_made_for_a_gpu(rows):
    """Translated for an NVIDIA GPU here, whatever this machine has; run there by `dualgoal bench`."""
    y, parameters = jnp.zeros((3, 2, 128, 512), jnp.bfloat16), jnp.zeros((3, 2, rows, 512))
    out = jnp.dtype("float32" if rows == 4 else "bfloat16")
    forward = jax.vmap(lambda y, rows: activations.forward(out, y, rows))
    dout = jax.eval_shape(forward, y, parameters)
    backward = jax.vmap(lambda y, rows, dout: activations.backward(y, rows, dout))
    device = jax.sharding.AbstractDevice("NVIDIA H200", 132, "gpu")  # JAX 0.11 and newer ask which
    with jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((1,), ("x",), abstract_device=device)):
        for function, inputs in ((forward, (y, parameters)), (backward, (y, parameters, dout))):
            text = jax.jit(function).trace(*inputs).lower(lowering_platforms=("cuda",)).as_text()
            assert "triton" in text

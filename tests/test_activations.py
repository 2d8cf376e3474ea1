"""The GPU kernels, interpreted on a CPU, against the plain functions they replace."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxprs_in_params

from dualgoal.fast import activation_formulas, activation_kernels, activations

FLOAT = jnp.dtype("float32")


@pytest.fixture(params=[64, 512], ids=["one group of columns", "four groups"])
def layer(request):
    keys = jax.random.split(jax.random.key(0), 3)
    y, dout = (jax.random.normal(k, (2, 256, request.param)) for k in keys[:2])
    return y, jax.random.normal(keys[2], (2, 3, request.param)), dout


def test_gelu_is_the_tanh_form(layer):
    np.testing.assert_allclose(activation_formulas.gelu(layer[0]), jax.nn.gelu(layer[0], approximate=True), atol=1e-6)


@pytest.mark.parametrize("kind", ["gelu", "and norm", "and head"])
def test_fused_layer_equals_the_plain_one_and_its_gradients(layer, kind, monkeypatch):
    y, params, dout = layer
    monkeypatch.setattr(activation_kernels, "PROGRAMS", {"gelu": 64, "and norm": 1, "and head": 16}[kind])
    if kind == "gelu":
        params = params[:, :1]
    if kind == "and head":
        params, dout = jnp.concatenate([params, jnp.sin(params[:, :1])], axis=1), dout[..., 0]
    out, pull = jax.vjp(functools.partial(activations.plain, FLOAT), y, params)
    np.testing.assert_allclose(activation_kernels.forward(FLOAT, y, params, interpret=True), out, atol=2e-5)
    for backward in (activations.plain_backward, functools.partial(activation_kernels.backward, interpret=True)):
        for ours, theirs in zip(backward(y, params, dout), pull(dout), strict=True):
            np.testing.assert_allclose(ours, theirs, atol=2e-4)


def test_plain_layer_is_gelu_then_layer_norm_then_the_head(layer):
    y, params, _ = (np.asarray(x, np.float64) for x in layer)
    u = y + params[:, :1]
    h = 0.5 * u * (1 + np.tanh(np.sqrt(2 / np.pi) * (u + 0.044715 * u**3)))
    x = (h - h.mean(-1, keepdims=True)) / np.sqrt(h.var(-1, keepdims=True) + 1e-6)
    x = x * params[:, 1:2] + params[:, 2:3]
    np.testing.assert_allclose(activations.plain(FLOAT, *layer[:2]), x, atol=2e-5)
    np.testing.assert_allclose(activations.plain(FLOAT, layer[0], layer[1][:, :1]), h, atol=1e-5)
    with_head = jnp.concatenate([layer[1], layer[1][:, :1]], axis=1)
    np.testing.assert_allclose(activations.plain(FLOAT, layer[0], with_head), (x * params[:, :1]).sum(-1), atol=1e-4)


def test_one_network_is_computed_like_each_of_several_and_without_an_axis_for_members(layer):
    """XLA is slow on a CPU at summing products of arrays whose first axis has the length 1."""
    y, params, dout = layer
    alone = [array[:1] for array in layer]
    np.testing.assert_allclose(activations.plain(FLOAT, *alone[:2]), activations.plain(FLOAT, y, params)[:1], atol=2e-6)
    for one, several in zip(
        activations.plain_backward(*alone), activations.plain_backward(y, params, dout), strict=True
    ):
        np.testing.assert_allclose(one, several[:1], atol=2e-5)
    trace = jax.make_jaxpr(activations.plain_backward)(*alone)
    shapes = [equation.invars[0].aval.shape for equation in sums_in(trace.jaxpr)]
    assert len(shapes) >= 6 and all(len(shape) == 2 for shape in shapes)


def sums_in(jaxpr):
    for equation in jaxpr.eqns:
        if equation.primitive.name == "reduce_sum":
            yield equation
        for inner in jaxprs_in_params(equation.params):
            yield from sums_in(inner)


def test_which_shapes_the_kernels_can_handle():
    fits = lambda *shape, dtype=jnp.bfloat16: activation_kernels.can_handle(jnp.zeros(shape, dtype))
    assert fits(2, 1024, 512)
    assert fits(1, 256, 64)
    assert not fits(2, 1024, 500), "the width is no power of two"
    assert not fits(2, 1024, 32), "too narrow"
    assert not fits(2, 100, 512), "rows do not fill whole programs"
    with jax.enable_x64(True):
        assert not fits(2, 1024, 512, dtype=jnp.float64), "the instructions are those of 32 bits"


@pytest.mark.parametrize("count", [1, 3, 4])
def test_the_kernels_can_be_compiled_for_a_gpu(count):
    """Lowered for an NVIDIA GPU whatever this machine has. `dualgoal bench` runs them on one."""
    y, params = jnp.zeros((3, 2, 128, 512), jnp.bfloat16), jnp.zeros((3, 2, count, 512))
    out = jnp.dtype("float32" if count == 4 else "bfloat16")
    forward = jax.vmap(lambda y, params: activation_kernels.forward(out, y, params))
    dout = jax.eval_shape(forward, y, params)
    backward = jax.vmap(lambda y, params, dout: activation_kernels.backward(y, params, dout))
    device = jax.sharding.AbstractDevice("NVIDIA H200", 132, "gpu")  # JAX 0.11 and newer ask which
    with jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((1,), ("x",), abstract_device=device)):
        for function, inputs in ((forward, (y, params)), (backward, (y, params, dout))):
            text = jax.jit(function).trace(*inputs).lower(lowering_platforms=("cuda",)).as_text()
            assert "triton" in text

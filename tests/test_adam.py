"""Adam against Optax, its plain twin."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import random

from dualgoal.fast import adam


def trees():
    """Parameters with an array on either side of `LARGE`, and gradients of many sizes."""
    shapes = {"small": (3, 5), "large": (adam.LARGE // 64, 64), "larger": (2, adam.LARGE)}
    normal = lambda key, scale: {n: scale * random.normal(key, shape) for n, shape in shapes.items()}
    return normal(random.key(0), 1.0), [normal(random.key(i), 10.0 ** (i % 5 - 3)) for i in range(1, 13)]


def test_steps_are_those_of_optax():
    params, gradients = trees()
    reference = optax.adam(3e-4)
    theirs, their_state = params, reference.init(params)
    ours, our_state = params, adam.init(params)
    step = jax.jit(adam.step, static_argnums=3)
    for gradient in gradients:
        updates, their_state = reference.update(gradient, their_state)
        theirs = optax.apply_updates(theirs, updates)
        ours, our_state = step(gradient, our_state, ours, 3e-4)
    assert jax.tree.structure(our_state) == jax.tree.structure(their_state)
    for a, b in zip(jax.tree.leaves((ours, our_state)), jax.tree.leaves((theirs, their_state)), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-6, atol=5e-7)
    moved = jax.tree.map(lambda a, b: float(jnp.abs(a - b).max()), ours, params)
    assert all(1e-3 < far < 12 * 3e-4 * 1.01 for far in moved.values())


def test_large_arrays_share_no_scalar():
    """XLA would fuse the updates of two arrays that read the same operand."""
    params, gradients = trees()
    text = str(jax.make_jaxpr(lambda g, s, p: adam.step(g, s, p, 1e-3))(gradients[0], adam.init(params), params))
    assert text.count("optimization_barrier") == 2

"""Adam as in Optax, with the same formula and state, but such that large arrays are updated independently.

All arrays share the two bias corrections 1 - b1^t and 1 - b2^t. XLA fuses loops that have an operand in common, so it
would make one GPU kernel of all updates, and that kernel cannot start before the last gradient has been computed. An
`optimization_barrier` gives each large array a step count of its own, from which it computes its own corrections. Its
update can then run as soon as its gradient is known, at the same time as the rest of the backward pass.
"""

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array

B1, B2, EPS = 0.9, 0.999, 1e-8
LARGE = 2**16  # numbers in an array that gets a barrier; XLA may fuse the updates of smaller ones

init = optax.adam(0.0, B1, B2, EPS).init  # zero moments; they do not depend on the learning rate, here 0


def step(gradients: Any, state: Any, params: Any, lr: float) -> tuple[Any, Any]:
    """(parameters, state) after one step, where with gradient g

    m = b1 m + (1 - b1) g
    v = b2 v + (1 - b2) g^2
    p = p - lr m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps)
    """
    moments, *rest = state
    count = optax.safe_increment(moments.count)

    def update(g: Array, m: Array, v: Array, p: Array) -> tuple[Array, Array, Array]:
        t = count
        if g.size >= LARGE:
            g, t = jax.lax.optimization_barrier((g, t))
        m = (1 - B1) * g + B1 * m
        v = (1 - B2) * g**2 + B2 * v
        direction = m / (1 - B1**t) / (jnp.sqrt(v / (1 - B2**t)) + EPS)
        return m, v, p - lr * direction

    updated = jax.tree.map(update, gradients, moments.mu, moments.nu, params)
    mu, nu, params = jax.tree.transpose(jax.tree.structure(params), jax.tree.structure((0, 0, 0)), updated)
    return params, (moments._replace(count=count, mu=mu, nu=nu), *rest)

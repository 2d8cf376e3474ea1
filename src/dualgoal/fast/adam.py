"""Adam with Optax's formula and state, in a form whose large arrays do not wait for each other.

The bias corrections are two numbers that all arrays share, and a GPU compiler joins loops that share an operand: one
loop over everything, which starts when the last gradient is there and leaves nothing to do beside the products of the
way back. Here each large gradient comes with numbers of its own.
"""

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array

B1, B2, EPS = 0.9, 0.999, 1e-8
LARGE = 2**16  # numbers in an array; smaller ones may be joined as the compiler likes

init = optax.adam(0.0, B1, B2, EPS).init  # zero moments; the learning rate is no part of them


def step(gradients: Any, state: Any, params: Any, lr: float) -> tuple[Any, Any]:
    """(parameters, state) after one step along these gradients."""
    moments, *rest = state
    count = optax.safe_increment(moments.count)

    def one(gradient: Array, mean: Array, square: Array, p: Array) -> tuple[Array, Array, Array]:
        t = count
        if gradient.size >= LARGE:
            gradient, t = jax.lax.optimization_barrier((gradient, t))
        mean = (1 - B1) * gradient + B1 * mean
        square = (1 - B2) * gradient**2 + B2 * square
        direction = mean / (1 - B1**t) / (jnp.sqrt(square / (1 - B2**t)) + EPS)
        return mean, square, p - lr * direction

    moved = jax.tree.map(one, gradients, moments.mu, moments.nu, params)
    mu, nu, params = jax.tree.transpose(jax.tree.structure(params), jax.tree.structure((0, 0, 0)), moved)
    return params, (moments._replace(count=count, mu=mu, nu=nu), *rest)

"""Length normalisation: vectors of N numbers that all have the length sqrt(N)."""

import math

import jax.numpy as jnp
from jaxtyping import Array, Float

EPSILON = 1e-6  # vectors shorter than this are not stretched to the full length


def to_sphere(z: Float[Array, "*B N"]) -> Float[Array, "*B N"]:
    """z sqrt(N) / max(|z|, epsilon). The bound is inside the root, so that the gradient at z = 0 is finite."""
    length = jnp.sqrt(jnp.maximum((z**2).sum(axis=-1, keepdims=True), EPSILON**2))
    return z * (math.sqrt(z.shape[-1]) / length)

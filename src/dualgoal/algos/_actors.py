"""Policies that algorithms share: a Gaussian of unit variance, or a categorical one (section 3.2)."""

import jax.numpy as jnp
from jax import random
from jaxtyping import Array, Float

from dualgoal import losses
from dualgoal.interface import Spec


def log_prob(actor, s: Array, z: Array, a: Float[Array, "B A"], spec: Spec) -> Float[Array, " B"]:
    """Log-likelihood of dataset actions."""
    return (losses.categorical_log_prob if spec.discrete else losses.gaussian_log_prob)(a, actor(s, z))


def sample(actor, s: Array, z: Array, key, temperature: float, spec: Spec) -> Array:
    """Actions; temperature 0 is the mode."""
    out = actor(s, z)
    if spec.discrete:
        return jnp.argmax(out, axis=-1) if temperature == 0 else random.categorical(key, out / max(1e-6, temperature))
    noise = 0.0 if temperature == 0 else temperature * random.normal(key, out.shape, out.dtype)
    return jnp.clip(out + noise, -1.0, 1.0)

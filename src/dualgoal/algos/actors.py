"""Policies that algorithms share: a Gaussian of unit variance, or a categorical one (section 3.2)."""

from collections.abc import Callable

import jax.numpy as jnp
from jax import random
from jax.lax import stop_gradient
from jaxtyping import Array, Float, PRNGKeyArray

from dualgoal import losses
from dualgoal.interface import Batch, Goal, Loss, Spec
from dualgoal.nets.heads import Value

Policy = Callable[[Array, Array], Array]  # (s, z) -> mean action or logits; an `Actor`


def log_prob(actor: Policy, s: Array, z: Array, a: Float[Array, "B A"], spec: Spec) -> Float[Array, " B"]:
    """Log-likelihood of dataset actions."""
    return (losses.categorical_log_prob if spec.discrete else losses.gaussian_log_prob)(a, actor(s, z))


def sample(actor: Policy, s: Array, z: Array, key: PRNGKeyArray, temperature: float, spec: Spec) -> Array:
    """Actions; temperature 0 is the most likely one."""
    out = actor(s, z)
    if spec.discrete:
        return jnp.argmax(out, axis=-1) if temperature == 0 else random.categorical(key, out / max(1e-6, temperature))
    noise = 0.0 if temperature == 0 else temperature * random.normal(key, out.shape, out.dtype)
    return jnp.clip(out + noise, -1.0, 1.0)


def ddpg_bc(actor: Policy, critic: Value, batch: Batch, goal: Goal, alpha: float, spec: Spec) -> Loss:
    """DDPG+BC: the policy's action is rated by the lowest member of the critic, which is not trained by this loss."""
    critic, s = stop_gradient((critic, batch.s))
    z, fixed_z = goal(batch.s), stop_gradient(goal(s))
    likely = log_prob(actor, batch.s, z, batch.a, spec)
    q = critic(s, fixed_z, jnp.clip(actor(batch.s, z), -1.0, 1.0)).min(axis=0)
    return losses.ddpg_bc(q, likely, alpha), {"q": q.mean(), "log_prob": likely.mean()}

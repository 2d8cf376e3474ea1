"""GCFBC (section 5.4): behavioural cloning of the actions that led to a goal, by flow matching, without a value."""

from dataclasses import dataclass

import equinox as eqx
import jax.numpy as jnp
from jax import random
from jaxtyping import Array, PRNGKeyArray

from dualgoal import losses
from dualgoal.interface import Algorithm, Batch, GoalsByRole, Loss, Role, Size, Sizes, Spec
from dualgoal.nets.heads import Flow
from dualgoal.streams import ACTOR_GOALS


class GCFBCNets(eqx.Module):
    actor: Flow


@dataclass(frozen=True)
class GCFBC(Algorithm):
    """Goal-conditioned flow behavioural cloning: a flow-matching policy without a value function."""

    flow_steps: Size = 10
    """Euler steps from noise to action."""
    hidden: Sizes = (512, 512, 512)
    """Hidden layer sizes."""

    policy_network = "actor"
    actions = frozenset({"continuous"})
    roles = {"actor": Role(ACTOR_GOALS, "actor")}

    def init(self, key: PRNGKeyArray, spec: Spec) -> GCFBCNets:
        return GCFBCNets(Flow(key, spec, self.hidden))

    def losses(
        self, nets: GCFBCNets, targets: GCFBCNets, batch: Batch, goals: GoalsByRole, key: PRNGKeyArray, spec: Spec
    ) -> dict[str, Loss]:
        k1, k2 = random.split(key)
        x1 = batch.a
        x0 = random.normal(k1, x1.shape, x1.dtype)
        t = random.uniform(k2, (x1.shape[0], 1), x1.dtype)
        velocity = nets.actor(batch.s, goals["actor"](batch.s), (1 - t) * x0 + t * x1, t)
        return {"actor": (losses.flow_matching(velocity, x0, x1), {})}

    def act(self, nets: GCFBCNets, s: Array, z: Array, key: PRNGKeyArray, temperature: float, spec: Spec) -> Array:
        """Stochastic at any temperature, as in the released code."""
        x = random.normal(key, (s.shape[0], spec.action_dim))
        for n in range(self.flow_steps):
            t = jnp.full((s.shape[0], 1), n / self.flow_steps)
            x = x + nets.actor(s, z, x, t) / self.flow_steps
        return jnp.clip(x, -1.0, 1.0)

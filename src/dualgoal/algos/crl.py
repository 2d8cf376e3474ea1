"""CRL (section 5.3): a contrastive critic on (state, action) and goal, and a policy by DDPG+BC.

The critic scores every state against every goal of the batch. A z that depends on its own state would reveal to the
critic which pair belongs together, so representations that look at the state are refused.
"""

import math
from dataclasses import dataclass

import equinox as eqx
import jax.numpy as jnp
from jax import random
from jax.lax import stop_gradient
from jaxtyping import Array, PRNGKeyArray

from dualgoal import losses
from dualgoal.algos import actors
from dualgoal.interface import Algorithm, Batch, Goal, GoalsByRole, Loss, Role, Size, Sizes, Spec, Weight
from dualgoal.nets.heads import Actor, Embedding
from dualgoal.streams import ACTOR_GOALS, FUTURE_GOALS


class Critic(eqx.Module):
    """Two towers; a score is the inner product of their outputs."""

    state: Embedding
    goal: Embedding


class CRLNets(eqx.Module):
    critic: Critic
    actor: Actor


@dataclass(frozen=True)
class CRL(Algorithm):
    """Contrastive reinforcement learning, with a policy by DDPG+BC."""

    alpha: Weight = 0.1
    """Weight of behavioural cloning."""
    latent: Size = 512
    """Size of the contrastive embeddings."""
    hidden: Sizes = (512, 512, 512)
    """Hidden layer sizes."""

    set_per_task = {"alpha": "alpha_crl"}
    policy_network = "actor"
    actions = frozenset({"continuous"})
    needs_blind = True
    roles = {"value": Role(FUTURE_GOALS, "value"), "actor": Role(ACTOR_GOALS, "actor")}

    def init(self, key: PRNGKeyArray, spec: Spec) -> CRLNets:
        k1, k2, k3 = random.split(key, 3)
        critic = Critic(
            Embedding(k1, spec.observation_shape, self.latent, self.hidden, spec, extra=spec.action_dim),
            Embedding(k2, spec.goal_shape, self.latent, self.hidden, spec),
        )
        return CRLNets(critic, Actor(k3, spec, self.hidden))

    def losses(
        self, nets: CRLNets, targets: CRLNets, batch: Batch, goals: GoalsByRole, key: PRNGKeyArray, spec: Spec
    ) -> dict[str, Loss]:
        return {
            "value": self.critic_loss(nets, batch, goals["value"]),
            "actor": self.actor_loss(nets, batch, goals["actor"], spec),
        }

    def critic_loss(self, nets: CRLNets, batch: Batch, goal: Goal) -> Loss:
        left, right = nets.critic.state(batch.s, batch.a), nets.critic.goal(goal(batch.s))
        logits = jnp.einsum("ein,ejn->eij", left, right) / math.sqrt(self.latent)
        right_goal = jnp.argmax(logits.mean(axis=0), axis=1) == jnp.arange(logits.shape[-1])
        return losses.binary_nce(logits), {"accuracy": right_goal.mean()}

    def actor_loss(self, nets: CRLNets, batch: Batch, goal: Goal, spec: Spec) -> Loss:
        z = goal(batch.s)
        critic, s, fixed_z = stop_gradient((nets.critic, batch.s, z))
        mean = nets.actor(batch.s, z)
        left, right = critic.state(s, jnp.clip(mean, -1.0, 1.0)), critic.goal(fixed_z)
        q = ((left * right).sum(axis=-1) / math.sqrt(self.latent)).min(axis=0)
        log_prob = losses.gaussian_log_prob(batch.a, mean)
        return losses.ddpg_bc(q, log_prob, self.alpha), {"q": q.mean(), "log_prob": log_prob.mean()}

    def act(self, nets: CRLNets, s: Array, z: Array, key: PRNGKeyArray, temperature: float, spec: Spec) -> Array:
        return actors.sample(nets.actor, s, z, key, temperature, spec)

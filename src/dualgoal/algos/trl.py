"""TRL (section 14.5): values of far goals as products of values of nearer ones, and a policy by DDPG+BC.

A future goal g of a trajectory is reached by way of any state w in between, so gamma^d(s, g) is at least gamma^d(s, w)
times gamma^d(w, g). The critic is fitted to such products, with an expectile that prefers the better ways. It is never
bootstrapped step by step, so the number of bootstraps grows with the logarithm of the distance.
"""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import random
from jax.lax import stop_gradient
from jaxtyping import Array, PRNGKeyArray

from dualgoal import losses
from dualgoal.algos import actors
from dualgoal.interface import Algorithm, Batch, Expectile, Goal, GoalsByRole, Loss, Role, Sizes, Spec, Weight
from dualgoal.nets.heads import Actor, Value
from dualgoal.streams import ACTOR_GOALS, FUTURE_GOALS, Between


class TRLNets(eqx.Module):
    critic: Value  # the logit of gamma^d
    actor: Actor


@dataclass(frozen=True)
class TRL(Algorithm):
    """Transitive reinforcement learning: a critic by divide and conquer, with a policy by DDPG+BC."""

    expectile: Expectile = 0.7
    """Expectile of the critic."""
    falloff: Weight = 0.5
    """How much less far goals count: a goal d steps away has weight (1 + d)^-falloff. Released code: 0 to 2."""
    alpha: Weight = 1.0
    """Weight of behavioural cloning. Released code: 0.1 to 10, by task."""
    hidden: Sizes = (512, 512, 512)
    """Hidden layer sizes."""

    set_per_task = {"alpha": "alpha_trl", "falloff": "falloff"}
    policy_network = "actor"
    ema = ("critic",)
    learns_value = True
    actions = frozenset({"continuous"})
    roles = {
        "value": Role(FUTURE_GOALS, "value"),
        "between": Role(Between("value"), "value"),
        "actor": Role(ACTOR_GOALS, "actor"),
    }

    def init(self, key: PRNGKeyArray, spec: Spec) -> TRLNets:
        k1, k2 = random.split(key)
        critic = Value(k1, spec, self.hidden, extra=spec.action_dim)
        return TRLNets(critic, Actor(k2, spec, self.hidden, norm=True))

    def losses(
        self, nets: TRLNets, targets: TRLNets, batch: Batch, goals: GoalsByRole, key: PRNGKeyArray, spec: Spec
    ) -> dict[str, Loss]:
        return {
            "critic": self.critic_loss(nets, targets, batch, goals["value"], goals["between"], spec),
            "actor": actors.ddpg_bc(nets.actor, nets.critic, batch, goals["actor"], self.alpha, spec),
        }

    def critic_loss(self, nets: TRLNets, targets: TRLNets, batch: Batch, goal: Goal, between: Goal, spec: Spec) -> Loss:
        assert between.passed is not None
        before, after, a = between.passed
        s, way = stop_gradient((batch.s, between.as_state))
        logit = nets.critic(batch.s, goal(batch.s), batch.a)
        first = targets.critic(s, stop_gradient(between(s)), batch.a)
        second = targets.critic(way, stop_gradient(goal(way)), a)
        loss = losses.transitive(logit, first, second, before, after, spec.discount, self.expectile, self.falloff)
        return loss, {"q": jax.nn.sigmoid(logit).mean()}

    def act(self, nets: TRLNets, s: Array, z: Array, key: PRNGKeyArray, temperature: float, spec: Spec) -> Array:
        return actors.sample(nets.actor, s, z, key, temperature, spec)

    def value(self, nets: TRLNets, s: Array, z: Array, spec: Spec) -> Array:
        """gamma^d of the policy's own action, converted to the -1/0 reward."""
        logit = nets.critic(s, z, jnp.clip(nets.actor(s, z), -1.0, 1.0)).mean(axis=0)
        return (jax.nn.sigmoid(logit) - 1) / (1 - spec.discount)

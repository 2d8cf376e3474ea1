"""GCIQL (section 5.2) as a downstream algorithm: one value, two critics, and a policy by DDPG+BC or AWR."""

from dataclasses import dataclass
from typing import Literal

import equinox as eqx
from jax import random
from jax.lax import stop_gradient
from jaxtyping import Array, PRNGKeyArray

from dualgoal import losses
from dualgoal.algos import actors
from dualgoal.interface import Algorithm, Batch, Expectile, Goal, GoalsByRole, Loss, Role, Sizes, Spec, Weight, rewards
from dualgoal.nets.heads import Actor, Value
from dualgoal.streams import ACTOR_GOALS, VALUE_GOALS


class GCIQLNets(eqx.Module):
    value: Value
    critic: Value
    actor: Actor


@dataclass(frozen=True)
class GCIQL(Algorithm):
    """Goal-conditioned implicit Q-learning, with a policy by DDPG+BC or advantage-weighted regression."""

    expectile: Expectile = 0.9
    """Expectile of the value."""
    alpha: Weight = 0.3
    """ddpgbc: weight of behavioural cloning; awr: inverse temperature of the advantage weights."""
    actor: Literal["ddpgbc", "awr"] = "ddpgbc"
    """How the policy is extracted; ddpgbc needs continuous actions."""
    hidden: Sizes = (512, 512, 512)
    """Hidden layer sizes."""

    set_per_task = {"alpha": "alpha_gciql"}
    policy_network = "actor"
    ema = ("critic",)
    learns_value = True
    roles = {"value": Role(VALUE_GOALS, "value"), "actor": Role(ACTOR_GOALS, "actor")}

    @property
    def actions(self) -> frozenset[str]:
        return frozenset({"continuous"} if self.actor == "ddpgbc" else {"continuous", "discrete"})

    def init(self, key: PRNGKeyArray, spec: Spec) -> GCIQLNets:
        k1, k2, k3 = random.split(key, 3)
        return GCIQLNets(
            Value(k1, spec, self.hidden, members=None),
            Value(k2, spec, self.hidden, extra=spec.action_dim),
            Actor(k3, spec, self.hidden),
        )

    def losses(
        self, nets: GCIQLNets, targets: GCIQLNets, batch: Batch, goals: GoalsByRole, key: PRNGKeyArray, spec: Spec
    ) -> dict[str, Loss]:
        goal = goals["value"]
        r, m = rewards(goal.success)
        s, next_s = stop_gradient((batch.s, batch.next_s))
        z = goal(batch.s)
        v = nets.value(batch.s, z)[None]
        v_next = stop_gradient(nets.value)(next_s, stop_gradient(goal(next_s)))[None]
        q, q_target = nets.critic(batch.s, z, batch.a), targets.critic(s, stop_gradient(goal(s)), batch.a)
        l_v, l_q = losses.iql(v, v_next, q, q_target, r, m, spec.discount, self.expectile)
        return {
            "value": (l_v, {"v": v.mean()}),
            "critic": (l_q, {"q": q.mean()}),
            "actor": self.actor_loss(nets, batch, goals["actor"], spec),
        }

    def actor_loss(self, nets: GCIQLNets, batch: Batch, goal: Goal, spec: Spec) -> Loss:
        if self.actor == "ddpgbc":
            return actors.ddpg_bc(nets.actor, nets.critic, batch, goal, self.alpha, spec)
        value, critic, s = stop_gradient((nets.value, nets.critic, batch.s))
        fixed_z = stop_gradient(goal(s))
        log_prob = actors.log_prob(nets.actor, batch.s, goal(batch.s), batch.a, spec)
        advantage = critic(s, fixed_z, batch.a).min(axis=0) - value(s, fixed_z)
        return losses.awr(advantage, log_prob, self.alpha), {"advantage": advantage.mean()}

    def act(self, nets: GCIQLNets, s: Array, z: Array, key: PRNGKeyArray, temperature: float, spec: Spec) -> Array:
        return actors.sample(nets.actor, s, z, key, temperature, spec)

    def value(self, nets: GCIQLNets, s: Array, z: Array, spec: Spec) -> Array:
        return nets.value(s, z)

"""GCIVL (section 5.1): expectile values from states alone, and a policy by advantage-weighted regression."""

from dataclasses import dataclass

import equinox as eqx
from jax import random
from jaxtyping import Array, PRNGKeyArray

from dualgoal import losses
from dualgoal.algos import actors
from dualgoal.algos.implicit import ImplicitValue, advantage, implicit_value_losses
from dualgoal.interface import Batch, Expectile, Goal, GoalsByRole, Loss, Role, Sizes, Spec, Weight
from dualgoal.nets.heads import Actor, Value
from dualgoal.streams import ACTOR_GOALS


class GCIVLNets(eqx.Module):
    value: Value | None  # None under direct extraction
    actor: Actor


@dataclass(frozen=True)
class GCIVL(ImplicitValue):
    """Goal-conditioned implicit value learning, with a policy by advantage-weighted regression."""

    expectile: Expectile = 0.9
    """Expectile of the value."""
    alpha: Weight = 10.0
    """Inverse temperature of the advantage weights."""
    hidden: Sizes = (512, 512, 512)
    """Hidden layer sizes."""

    policy_network = "actor"
    actions = frozenset({"continuous", "discrete"})
    policy_roles = {"actor": Role(ACTOR_GOALS, "actor")}

    def init(self, key: PRNGKeyArray, spec: Spec) -> GCIVLNets:
        k1, k2 = random.split(key)
        value = None if self.direct else Value(k1, spec, self.hidden)
        return GCIVLNets(value, Actor(k2, spec, self.hidden))

    def losses(
        self, nets: GCIVLNets, targets: GCIVLNets, batch: Batch, goals: GoalsByRole, key: PRNGKeyArray, spec: Spec
    ) -> dict[str, Loss]:
        value = implicit_value_losses(nets.value, targets.value, batch, goals, spec.discount, self.expectile)
        return {**value, "actor": self.actor_loss(nets, batch, goals["actor"], spec)}

    def actor_loss(self, nets: GCIVLNets, batch: Batch, goal: Goal, spec: Spec) -> Loss:
        gain = advantage(nets.value, goal, batch.s, batch.next_s)
        log_prob = actors.log_prob(nets.actor, batch.s, goal(batch.s), batch.a, spec)
        info = {"advantage": gain.mean(), "log_prob": log_prob.mean()}
        return losses.awr(gain, log_prob, self.alpha), info

    def act(self, nets: GCIVLNets, s: Array, z: Array, key: PRNGKeyArray, temperature: float, spec: Spec) -> Array:
        return actors.sample(nets.actor, s, z, key, temperature, spec)

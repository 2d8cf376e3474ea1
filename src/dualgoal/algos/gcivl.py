"""GCIVL (section 5.1): expectile values from states alone, and a policy by advantage-weighted regression."""

from collections.abc import Mapping
from dataclasses import dataclass

import equinox as eqx
from jax import random
from jax.lax import stop_gradient
from jaxtyping import Array, PRNGKeyArray

from dualgoal import losses
from dualgoal.algos import actors
from dualgoal.interface import Algorithm, Batch, Expectile, Goal, GoalsByRole, Loss, Role, Spec, Weight, rewards
from dualgoal.nets.heads import Actor, Value
from dualgoal.streams import ACTOR_GOALS, VALUE_GOALS


class GCIVLNets(eqx.Module):
    value: Value | None  # None under direct extraction
    actor: Actor


@dataclass(frozen=True)
class GCIVL(Algorithm):
    """Goal-conditioned implicit value learning, with a policy by advantage-weighted regression."""

    expectile: Expectile = 0.9
    """Expectile of the value."""
    alpha: Weight = 10.0
    """Inverse temperature of the advantage weights."""
    direct: bool = False
    """Take the advantage from the representation's own value and learn no second one."""
    hidden: tuple[int, ...] = (512, 512, 512)
    """Hidden layer sizes."""

    policy_network = "actor"
    actions = frozenset({"continuous", "discrete"})

    @property
    def ema(self) -> tuple[str, ...]:  # type: ignore[override]
        return () if self.direct else ("value",)

    @property
    def learns_value(self) -> bool:  # type: ignore[override]
        return not self.direct

    @property
    def needs_rep_value(self) -> bool:  # type: ignore[override]
        return self.direct

    @property
    def roles(self) -> Mapping[str, Role]:
        actor = {"actor": Role(ACTOR_GOALS, "actor")}
        return actor if self.direct else {"value": Role(VALUE_GOALS, "value"), **actor}

    def init(self, key: PRNGKeyArray, spec: Spec) -> GCIVLNets:
        k1, k2 = random.split(key)
        value = None if self.direct else Value(k1, spec, self.hidden)
        return GCIVLNets(value, Actor(k2, spec, self.hidden))

    def losses(
        self, nets: GCIVLNets, targets: GCIVLNets, batch: Batch, goals: GoalsByRole, key: PRNGKeyArray, spec: Spec
    ) -> dict[str, Loss]:
        value = {} if self.direct else {"value": self.value_loss(nets, targets, batch, goals["value"], spec)}
        return {**value, "actor": self.actor_loss(nets, batch, goals["actor"], spec)}

    def value_loss(self, nets: GCIVLNets, targets: GCIVLNets, batch: Batch, goal: Goal, spec: Spec) -> Loss:
        assert nets.value is not None and targets.value is not None
        return implicit_value_loss(nets.value, targets.value, batch, goal, spec.discount, self.expectile)

    def actor_loss(self, nets: GCIVLNets, batch: Batch, goal: Goal, spec: Spec) -> Loss:
        if nets.value is None:
            advantage = goal.value(batch.next_s) - goal.value(batch.s)
        else:
            advantage = step_advantage(nets.value, batch, goal)
        log_prob = actors.log_prob(nets.actor, batch.s, goal(batch.s), batch.a, spec)
        info = {"advantage": advantage.mean(), "log_prob": log_prob.mean()}
        return losses.awr(advantage, log_prob, self.alpha), info

    def act(self, nets: GCIVLNets, s: Array, z: Array, key: PRNGKeyArray, temperature: float, spec: Spec) -> Array:
        return actors.sample(nets.actor, s, z, key, temperature, spec)

    def value(self, nets: GCIVLNets, s: Array, z: Array, spec: Spec) -> Array:
        assert nets.value is not None
        return nets.value(s, z).mean(axis=0)


def implicit_value_loss(
    value: Value, target: Value, batch: Batch, goal: Goal, discount: float, expectile: float
) -> Loss:
    """IVL of a value with two members on the goals of one role."""
    r, m = rewards(goal.success)
    v = value(batch.s, goal(batch.s))
    v_target, v_target_next = value_pair(target, batch, goal)
    return losses.ivl(v, v_target, v_target_next, r, m, discount, expectile), {"v": v.mean()}


def step_advantage(value: Value, batch: Batch, goal: Goal) -> Array:
    """V(s', g) - V(s, g), averaged over the members, without gradients."""
    v, v_next = value_pair(stop_gradient(value), batch, goal)
    return (v_next - v).mean(axis=0)


def value_pair(value: Value, batch: Batch, goal: Goal) -> tuple[Array, Array]:
    """V(s, g) and V(s', g), each with the goal as seen from its state, without gradients into states and goals."""
    s, next_s = stop_gradient((batch.s, batch.next_s))
    return value.pair(s, stop_gradient(goal(s)), next_s, stop_gradient(goal(next_s)))

"""What GCIVL and HIQL share (section 5.1): a value of states and goals that is learned by IVL, and its advantages."""

import abc
from collections.abc import Mapping
from dataclasses import dataclass

from jax.lax import stop_gradient
from jaxtyping import Array

from dualgoal import losses
from dualgoal.interface import Algorithm, Batch, Goal, GoalsByRole, Loss, Nets, Role, Spec, rewards
from dualgoal.nets.heads import Value
from dualgoal.streams import VALUE_GOALS


@dataclass(frozen=True)
class ImplicitValue(Algorithm):
    """An algorithm with one value of two members, the field `value` of its networks. With `direct` it has none and uses
    the representation's own value."""

    direct: bool = False
    """Take advantages from the representation's own value and learn no second one."""

    @property
    def ema(self) -> tuple[str, ...]:
        return () if self.direct else ("value",)

    @property
    def learns_value(self) -> bool:
        return not self.direct

    @property
    def needs_rep_value(self) -> bool:
        return self.direct

    @property
    def roles(self) -> Mapping[str, Role]:
        value = {} if self.direct else {"value": Role(VALUE_GOALS, "value")}
        return {**value, **self.policy_roles}

    @property
    @abc.abstractmethod
    def policy_roles(self) -> Mapping[str, Role]:
        """The roles of its policies."""

    def value(self, nets: Nets, s: Array, z: Array, spec: Spec) -> Array:
        return nets.value(s, z).mean(axis=0)


def implicit_value_losses(
    value: Value | None, target: Value | None, batch: Batch, goals: GoalsByRole, discount: float, expectile: float
) -> dict[str, Loss]:
    """IVL of a value with two members on the goals of the role "value"; no loss under direct extraction."""
    if value is None or target is None:
        return {}
    goal = goals["value"]
    r, m = rewards(goal.success)
    v = value(batch.s, goal(batch.s))
    v_target, v_target_next = value_pair(target, goal, batch.s, batch.next_s)
    return {"value": (losses.ivl(v, v_target, v_target_next, r, m, discount, expectile), {"v": v.mean()})}


def advantage(value: Value | None, goal: Goal, s: Array, later: Array) -> Array:
    """V(later, g) - V(s, g), averaged over the members, without gradients; if `value` is None, the representation's."""
    if value is None:
        return goal.value(later) - goal.value(s)
    v, v_later = value_pair(stop_gradient(value), goal, s, later)
    return (v_later - v).mean(axis=0)


def value_pair(value: Value, goal: Goal, s: Array, later: Array) -> tuple[Array, Array]:
    """V(s, g) and V(later, g), each with the goal as seen from its state, without gradients into states and goals."""
    s, later = stop_gradient((s, later))
    return value.pair(s, stop_gradient(goal(s)), later, stop_gradient(goal(later)))

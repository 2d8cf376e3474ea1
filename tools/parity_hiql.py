"""HIQL as OGBench has it: the high policy reads the goal itself, where ours reads what the representation makes of it.

That is the one place in which the two differ (docs/method.md, section 14), so it is the one thing replaced here. The
losses, the routes of gradients, the representation and the target networks that are compared are those of the package.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any

from jax import random

from dualgoal import algos
from dualgoal.interface import Goal
from dualgoal.nets.heads import Actor


@dataclass(frozen=True)
class OnRawGoals(algos.HIQL):
    """HIQL whose high policy reads goals as they are."""

    def init(self, key: Any, spec: Any) -> Any:
        nets = super().init(key, spec)
        raw = dataclasses.replace(spec, goal_shape=spec.observation_shape)
        high = Actor(random.split(key, 3)[2], raw, self.hidden, outputs=spec.goal_shape[0])
        return type(nets)(nets.value, nets.low, high)

    def high_loss(self, nets: Any, batch: Any, goal: Goal, waypoint: Goal) -> Any:
        """The value sees phi(goal), the policy the goal: its network is called with what stands for `goal` there."""
        high = nets.high
        return super().high_loss(_with_high(nets, lambda s, z: high(s, goal.as_state)), batch, goal, waypoint)

    def act_towards(self, nets: Any, s: Any, g: Any, key: Any, spec: Any) -> Any:
        """Actions at temperature 0 for goals as they are."""
        high = nets.high
        return self.act(_with_high(nets, lambda s, z: high(s, g)), s, g, key, 0.0, spec)


@dataclass(frozen=True)
class _Nets:
    value: Any
    low: Any
    high: Any


def _with_high(nets: Any, high: Any) -> Any:
    return _Nets(nets.value, nets.low, high)

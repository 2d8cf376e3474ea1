"""HIQL (section 14.1): a high policy chooses a waypoint, a low policy goes there, and one value trains both.

Waypoints are expressed in the representation: the high policy outputs z. With Orig a waypoint is a state, and the high
policy outputs its difference from the present one; with the representation `hiql_phi` this is the published method,
except that the high policy reads z(goal) too.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import equinox as eqx
import jax.numpy as jnp
from jax import random
from jax.lax import stop_gradient
from jaxtyping import Array, Float, PRNGKeyArray

from dualgoal import losses
from dualgoal.algos import actors
from dualgoal.algos.implicit import ImplicitValue, advantage, implicit_value_losses
from dualgoal.interface import AtLeastOne, Batch, Expectile, Goal, GoalsByRole, Loss, Role, Sizes, Spec, Weight
from dualgoal.nets.heads import Actor, Value, to_sphere
from dualgoal.streams import ACTOR_GOALS, Waypoint


class HIQLNets(eqx.Module):
    value: Value | None  # None under direct extraction
    low: Actor  # (s, z of a waypoint) -> action
    high: Actor  # (s, z of a goal) -> z of a waypoint


@dataclass(frozen=True)
class HIQL(ImplicitValue):
    """Hierarchical implicit Q-learning: a policy over waypoints and a policy that reaches them, from one value."""

    waypoint_steps: AtLeastOne = 25
    """How many steps ahead a waypoint is. OGBench: 25 in point and ant mazes, 100 for humanoids, 10 in manipulation."""
    expectile: Expectile = 0.7
    """Expectile of the value."""
    alpha_low: Weight = 3.0
    """Inverse temperature of the advantage weights of the low policy."""
    alpha_high: Weight = 3.0
    """Inverse temperature of the advantage weights of the high policy."""
    hidden: Sizes = (512, 512, 512)
    """Hidden layer sizes."""

    set_per_task = {"waypoint_steps": "waypoint_steps"}
    needs_vector = True
    actions = frozenset({"continuous", "discrete"})

    @property
    def policy_roles(self) -> Mapping[str, Role]:
        return {
            "low": Role(Waypoint(self.waypoint_steps), "actor"),
            "high": Role(ACTOR_GOALS, "actor"),
            "waypoint": Role(Waypoint(self.waypoint_steps, towards="high"), "actor"),
        }

    def init(self, key: PRNGKeyArray, spec: Spec) -> HIQLNets:
        k1, k2, k3 = random.split(key, 3)
        return HIQLNets(
            None if self.direct else Value(k1, spec, self.hidden),
            Actor(k2, spec, self.hidden),
            Actor(k3, spec, self.hidden, outputs=spec.goal_shape[0]),
        )

    def losses(
        self, nets: HIQLNets, targets: HIQLNets, batch: Batch, goals: GoalsByRole, key: PRNGKeyArray, spec: Spec
    ) -> dict[str, Loss]:
        value = implicit_value_losses(nets.value, targets.value, batch, goals, spec.discount, self.expectile)
        return {
            **value,
            "low": self.low_loss(nets, batch, goals["low"], spec),
            "high": self.high_loss(nets, batch, goals["high"], goals["waypoint"], spec),
        }

    def low_loss(self, nets: HIQLNets, batch: Batch, waypoint: Goal, spec: Spec) -> Loss:
        """The waypoint is the low policy's goal."""
        gain = advantage(nets.value, waypoint, batch.s, batch.next_s)
        log_prob = actors.log_prob(nets.low, batch.s, waypoint(batch.s), batch.a, spec)
        info = {"advantage": gain.mean(), "log_prob": log_prob.mean()}
        return losses.awr(gain, log_prob, self.alpha_low), info

    def high_loss(self, nets: HIQLNets, batch: Batch, goal: Goal, waypoint: Goal, spec: Spec) -> Loss:
        """The waypoint, seen from s, is the high policy's action; its advantage is what reaching it gains."""
        s, way = stop_gradient((batch.s, waypoint.as_state))
        gain = advantage(nets.value, goal, s, way)
        mean = nets.high(batch.s, goal(batch.s))
        target = stop_gradient(waypoint(s) - s if spec.goals_as_states else waypoint(s)).astype(mean.dtype)
        log_prob = losses.gaussian_log_prob(target, mean)
        info = {"advantage": gain.mean(), "log_prob": log_prob.mean()}
        return losses.awr(gain, log_prob, self.alpha_high), info

    def act(self, nets: HIQLNets, s: Array, z: Array, key: PRNGKeyArray, temperature: float, spec: Spec) -> Array:
        k_high, k_low = random.split(key)
        way = self.waypoint(nets, s, z, k_high, temperature, spec)
        return actors.sample(nets.low, s, way, k_low, temperature, spec)

    def waypoint(
        self, nets: HIQLNets, s: Array, z: Array, key: PRNGKeyArray, temperature: float, spec: Spec
    ) -> Float[Array, "B N"]:
        """The waypoint that the high policy chooses, in the form that the low policy read in training."""
        way = nets.high(s, z) + s if spec.goals_as_states else nets.high(s, z)
        if temperature > 0:
            way = way + temperature * random.normal(key, way.shape, way.dtype)
        return (to_sphere(way) if spec.goals_on_sphere else way).astype(jnp.result_type(z))

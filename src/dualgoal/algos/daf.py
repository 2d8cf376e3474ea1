"""DAF (section 14.6): a policy from Dual's own value, by where an action moves the state in its embedding.

With V(s, g) = psi(s) . phi(g) / sqrt(N), the goal's embedding is the direction in which psi has to move for V to rise.
A network u(s, a) predicts how an action moves it, gamma psi(s') - psi(s), so that u(s, a) . phi(g) / sqrt(N) is the
advantage of an action without its reward. No second value is learned, and no critic.
"""

from dataclasses import dataclass
from typing import Literal

import equinox as eqx
from jax import random
from jax.lax import stop_gradient
from jaxtyping import Array, Float, PRNGKeyArray

from dualgoal import losses
from dualgoal.algos import actors
from dualgoal.interface import (
    Algorithm,
    Batch,
    Goal,
    GoalsByRole,
    Loss,
    Role,
    Sizes,
    Spec,
    Weight,
    from_factors,
    rewards,
)
from dualgoal.nets.heads import Actor, Embedding
from dualgoal.streams import ACTOR_GOALS

Members = Float[Array, "E B N"]


class DAFNets(eqx.Module):
    displacement: Embedding | None  # u(s, a); None: observed ones are used
    actor: Actor


@dataclass(frozen=True)
class DAF(Algorithm):
    """Dual advantage fields: a policy by advantage-weighted regression, with advantages from Dual's own value."""

    alpha: Weight = 10.0
    """Inverse temperature of the advantage weights."""
    displacement: Literal["predicted", "observed"] = "predicted"
    """How an action moves the state's embedding: predicted by a network, or observed in the transition alone."""
    reward: bool = False
    """Add the reward, -1 until the goal is reached, so that an action on a shortest path has the advantage 0."""
    hidden: Sizes = (512, 512, 512)
    """Hidden layer sizes."""

    policy_network = "actor"
    needs_rep_value = True
    needs_factors = True
    actions = frozenset({"continuous", "discrete"})
    roles = {"actor": Role(ACTOR_GOALS, "actor")}

    def init(self, key: PRNGKeyArray, spec: Spec) -> DAFNets:
        k1, k2 = random.split(key)
        assert spec.factor_shape is not None
        members, size = spec.factor_shape
        net = Embedding(k1, spec.observation_shape, size, self.hidden, spec, extra=spec.action_dim, members=members)
        return DAFNets(net if self.displacement == "predicted" else None, Actor(k2, spec, self.hidden))

    def losses(
        self, nets: DAFNets, targets: DAFNets, batch: Batch, goals: GoalsByRole, key: PRNGKeyArray, spec: Spec
    ) -> dict[str, Loss]:
        goal = goals["actor"]
        psi, phi = goal.factors(batch.s)
        moved = spec.discount * goal.factors(batch.next_s)[0] - psi
        if nets.displacement is None:
            return {"actor": self.actor_loss(nets, batch, goal, moved, phi, spec)}
        predicted = nets.displacement(stop_gradient(batch.s), batch.a)  # so image encoders are not trained to predict
        return {
            "displacement": displacement_loss(predicted, moved),
            "actor": self.actor_loss(nets, batch, goal, stop_gradient(predicted), phi, spec),
        }

    def actor_loss(self, nets: DAFNets, batch: Batch, goal: Goal, moved: Members, phi: Members, spec: Spec) -> Loss:
        gain = from_factors(moved, phi) + (rewards(goal.success)[0] if self.reward else 0.0)
        log_prob = actors.log_prob(nets.actor, batch.s, goal(batch.s), batch.a, spec)
        return losses.awr(gain, log_prob, self.alpha), {"advantage": gain.mean(), "log_prob": log_prob.mean()}

    def act(self, nets: DAFNets, s: Array, z: Array, key: PRNGKeyArray, temperature: float, spec: Spec) -> Array:
        return actors.sample(nets.actor, s, z, key, temperature, spec)


def displacement_loss(predicted: Members, moved: Members) -> Loss:
    """The mean squared error; `missed` is its share of the mean squared displacement."""
    error = ((predicted - moved) ** 2).mean()
    return error, {"missed": error / (moved**2).mean()}

"""GCBC: plain goal-conditioned behavioural cloning, the simplest algorithm that the paper's Algorithm 1 names."""

from dataclasses import dataclass

import equinox as eqx
from jaxtyping import Array, PRNGKeyArray

from dualgoal.algos import actors
from dualgoal.interface import Algorithm, Batch, GoalsByRole, Loss, Role, Sizes, Spec
from dualgoal.nets.heads import Actor
from dualgoal.streams import ACTOR_GOALS


class GCBCNets(eqx.Module):
    actor: Actor


@dataclass(frozen=True)
class GCBC(Algorithm):
    """Goal-conditioned behavioural cloning: imitate the actions that led to a goal."""

    hidden: Sizes = (512, 512, 512)
    """Hidden layer sizes."""

    policy_network = "actor"
    actions = frozenset({"continuous", "discrete"})
    roles = {"actor": Role(ACTOR_GOALS, "actor")}

    def init(self, key: PRNGKeyArray, spec: Spec) -> GCBCNets:
        return GCBCNets(Actor(key, spec, self.hidden))

    def losses(
        self, nets: GCBCNets, targets: GCBCNets, batch: Batch, goals: GoalsByRole, key: PRNGKeyArray, spec: Spec
    ) -> dict[str, Loss]:
        log_prob = actors.log_prob(nets.actor, batch.s, goals["actor"](batch.s), batch.a, spec)
        return {"actor": (-log_prob.mean(), {})}

    def act(self, nets: GCBCNets, s: Array, z: Array, key: PRNGKeyArray, temperature: float, spec: Spec) -> Array:
        return actors.sample(nets.actor, s, z, key, temperature, spec)

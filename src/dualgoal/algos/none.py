"""No algorithm: the representation is trained alone, for others to build on (stage one of the paper's Algorithm 1)."""

from collections.abc import Mapping
from dataclasses import dataclass

import equinox as eqx
from jaxtyping import Array, PRNGKeyArray

from dualgoal.errors import UserError
from dualgoal.interface import Algorithm, Batch, GoalsByRole, Loss, Role, Spec


class NoNets(eqx.Module):
    """An algorithm without networks."""


@dataclass(frozen=True)
class NoAlgorithm(Algorithm):
    """No algorithm: train the representation alone, to use it later with --frozen-rep."""

    actions = frozenset({"continuous", "discrete"})

    @property
    def roles(self) -> Mapping[str, Role]:
        return {}

    def init(self, key: PRNGKeyArray, spec: Spec) -> NoNets:
        return NoNets()

    def losses(
        self, nets: NoNets, targets: NoNets, batch: Batch, goals: GoalsByRole, key: PRNGKeyArray, spec: Spec
    ) -> dict[str, Loss]:
        return {}

    def act(self, nets: NoNets, s: Array, z: Array, key: PRNGKeyArray, temperature: float, spec: Spec) -> Array:
        raise UserError("this run trained a representation alone (algorithm 'none'); train an algorithm on it to act")

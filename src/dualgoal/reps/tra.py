"""TRA (section 4.5): contrast states with their own futures; the goal side of the contrast is the representation."""

import math
from dataclasses import dataclass

import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from dualgoal.interface import Batch, Goals, Loss, Spec
from dualgoal.losses import symmetric_info_nce
from dualgoal.nets.heads import Towers
from dualgoal.reps._future import Future


@dataclass(frozen=True)
class TRA(Future):
    """Temporal representation alignment: psi(s) and phi(g) are contrasted, with g a future state of s."""

    def init(self, key: PRNGKeyArray, spec: Spec) -> Towers:
        return Towers(key, spec, self.dim, self.hidden)

    def loss(self, nets: Towers, targets: Towers, batch: Batch, drawn: Goals, key: PRNGKeyArray, spec: Spec) -> Loss:
        u, v = nets.psi.mean(batch.s), nets.phi.mean(drawn.g)
        logits = u @ v.T / math.sqrt(self.dim)
        right = jnp.argmax(logits, axis=1) == jnp.arange(logits.shape[0])
        return symmetric_info_nce(logits), {"accuracy": right.mean()}

"""TRA (section 4.5): contrast states with their own futures; the goal side of the contrast is the representation."""

import math
from dataclasses import dataclass

import jax.numpy as jnp

from dualgoal.losses import symmetric_info_nce
from dualgoal.nets.heads import two_towers
from dualgoal.reps._future import Future


@dataclass(frozen=True)
class TRA(Future):
    def init(self, key, spec):
        return two_towers(key, spec, self.dim, self.hidden)

    def loss(self, nets, targets, batch, key, spec):
        u, v = nets["psi"].mean(batch.s), nets["phi"].mean(batch.streams["rep"].g)
        logits = u @ v.T / math.sqrt(self.dim)
        right = jnp.argmax(logits, axis=1) == jnp.arange(logits.shape[0])
        return symmetric_info_nce(logits), {"accuracy": right.mean()}

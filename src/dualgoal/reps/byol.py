"""BYOL-gamma (section 4.6): predict the future's embedding from the present's, and back. States and goals share phi."""

from dataclasses import dataclass

from jax import random
from jax.lax import stop_gradient

from dualgoal.losses import byol_backward, byol_forward
from dualgoal.nets.heads import Embedding
from dualgoal.reps._future import Future


@dataclass(frozen=True)
class BYOL(Future):
    def init(self, key, spec):
        k1, k2, k3 = random.split(key, 3)
        return {
            "phi": Embedding(k1, spec.goals, self.dim, self.hidden, spec),
            "forward": Embedding(k2, (self.dim,), self.dim, self.hidden, spec, extra=spec.action_dim),
            "backward": Embedding(k3, (self.dim,), self.dim, self.hidden, spec),
        }

    def loss(self, nets, targets, batch, key, spec):
        p_s, p_g = nets["phi"].mean(batch.s), nets["phi"].mean(batch.streams["rep"].g)
        forward = byol_forward(nets["forward"].mean(p_s, batch.a), stop_gradient(p_g))
        backward = byol_backward(nets["backward"].mean(p_g), stop_gradient(p_s))
        return forward + backward, {"forward": forward, "backward": backward}

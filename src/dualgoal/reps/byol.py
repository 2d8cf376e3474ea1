"""BYOL-gamma (section 4.6): predict the future's embedding from the present's, and the present's from the future's.
States and goals share phi."""

from dataclasses import dataclass

import equinox as eqx
from jax import random
from jax.lax import stop_gradient
from jaxtyping import PRNGKeyArray

from dualgoal.interface import Batch, Goals, Loss, Spec
from dualgoal.losses import byol_backward, byol_forward
from dualgoal.nets.heads import Embedding
from dualgoal.reps._future import Future


class BYOLNets(eqx.Module):
    phi: Embedding
    forward: Embedding  # (phi(s), a) -> phi(future)
    backward: Embedding  # phi(future) -> phi(s)


@dataclass(frozen=True)
class BYOL(Future):
    """BYOL-gamma: phi(s) and phi of a future state predict each other."""

    embeds_both = True

    def init(self, key: PRNGKeyArray, spec: Spec) -> BYOLNets:
        k1, k2, k3 = random.split(key, 3)
        return BYOLNets(
            Embedding(k1, spec.goal_shape, self.dim, self.hidden, spec),
            Embedding(k2, (self.dim,), self.dim, self.hidden, spec, extra=spec.action_dim),
            Embedding(k3, (self.dim,), self.dim, self.hidden, spec),
        )

    def loss(
        self, nets: BYOLNets, targets: BYOLNets, batch: Batch, drawn: Goals, key: PRNGKeyArray, spec: Spec
    ) -> Loss:
        p_s, p_g = nets.phi.mean(batch.s), nets.phi.mean(drawn.g)
        forward = byol_forward(nets.forward.mean(p_s, batch.a), stop_gradient(p_g))
        backward = byol_backward(nets.backward.mean(p_g), stop_gradient(p_s))
        return forward + backward, {"forward": forward, "backward": backward}

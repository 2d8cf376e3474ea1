"""BYOL-gamma (section 4.6): predict the future's embedding from the present's, and back. States and goals share phi."""

from dataclasses import dataclass, replace

from jax import random
from jax.lax import stop_gradient

from dualgoal.losses import byol_backward, byol_forward
from dualgoal.nets import Embedding
from dualgoal.reps.tra import self_supervised_routes
from dualgoal.types import FUTURE_GOALS, Encoded, Representation


@dataclass(frozen=True)
class BYOL(Representation):
    dim: int = 256  # N, size of the embedding
    hidden: tuple[int, ...] = (512, 512, 512)
    flow_gradient: bool = True  # D5, as in TRA
    crop: str = "own"  # D14, as in TRA

    ema = ()

    def init(self, key, spec):
        k1, k2, k3 = random.split(key, 3)
        return {
            "phi": Embedding(k1, spec.goals, self.dim, self.hidden, spec),
            "forward": Embedding(k2, (self.dim,), self.dim, self.hidden, spec, extra=spec.action_dim),
            "backward": Embedding(k3, (self.dim,), self.dim, self.hidden, spec),
        }

    def shape(self, spec):
        return (self.dim,)

    def encode(self, nets, g, s, key):
        return Encoded(nets["phi"].mean(g), 0.0)

    def stream(self):
        return replace(FUTURE_GOALS, own=True, crop=self.crop)

    def routes(self, spec, has_value):
        return self_supervised_routes(self.flow_gradient, has_value, spec)

    def loss(self, nets, targets, batch, key, spec):
        p_s, p_g = nets["phi"].mean(batch.s), nets["phi"].mean(batch.streams["rep"].g)
        forward = byol_forward(nets["forward"].mean(p_s, batch.a), stop_gradient(p_g))
        backward = byol_backward(nets["backward"].mean(p_g), stop_gradient(p_s))
        return forward + backward, {"forward": forward, "backward": backward}

    def value(self, nets, s, g, spec):
        return None

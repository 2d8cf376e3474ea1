"""VIB (section 4.3): a stochastic bottleneck trained by whatever values the goal, at a price of beta KL.

It has no loss of its own: the value loss trains it, or the policy loss under an algorithm without one. A fresh latent
is drawn at every use, at evaluation too (D16).
"""

from dataclasses import dataclass

import jax.numpy as jnp
from jax import random

from dualgoal.interface import Encoded, Representation, Routes
from dualgoal.losses import gaussian_kl
from dualgoal.nets.heads import Bottleneck


@dataclass(frozen=True)
class VIB(Representation):
    dim: int = 256  # N, size of the latent
    beta: float = 0.001  # weight of the KL term
    hidden: tuple[int, ...] = (512, 512, 512)
    pixel_actor_gradient: bool = True  # D7: on pixels the actor loss also moves the head (reference); off: value only

    ema = ()

    def init(self, key, spec):
        return {"phi": Bottleneck(key, spec, self.hidden, self.dim)}

    def shape(self, spec):
        return (self.dim,)

    def encode(self, nets, g, s, key):
        mean, log_std = nets["phi"](g)
        z = mean + jnp.exp(log_std) * random.normal(key, mean.shape, mean.dtype)
        return Encoded(z, self.beta * gaussian_kl(mean, log_std))

    def stream(self):
        return None

    def routes(self, spec, has_value):
        judge = frozenset({"value" if has_value else "actor"})
        head = judge | {"actor"} if spec.pixels and self.pixel_actor_gradient else judge
        return Routes(head, judge)

    def loss(self, nets, targets, batch, key, spec):
        return 0.0, {}

    def value(self, nets, s, g, spec):
        return None

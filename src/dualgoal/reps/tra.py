"""TRA (section 4.5): contrast states with their own futures; the goal side of the contrast is the representation."""

import math
from dataclasses import dataclass, replace

import jax.numpy as jnp

from dualgoal.losses import symmetric_info_nce
from dualgoal.nets import two_towers
from dualgoal.types import FUTURE_GOALS, Encoded, Representation, Routes, Spec


@dataclass(frozen=True)
class TRA(Representation):
    dim: int = 256  # N, size of the embedding
    hidden: tuple[int, ...] = (512, 512, 512)
    flow_gradient: bool = True  # D5, vectors: without a value loss the policy's also trains phi (paper); reference: off
    crop: str = "own"  # D14: own goals are cropped on every batch (reference), or "shared": by the batch's coin

    ema = ()

    def init(self, key, spec):
        return two_towers(key, spec, self.dim, self.hidden)

    def shape(self, spec):
        return (self.dim,)

    def encode(self, nets, g, s, key):
        return Encoded(nets["phi"].mean(g), 0.0)

    def stream(self):
        return replace(FUTURE_GOALS, own=True, crop=self.crop)

    def routes(self, spec, has_value):
        return self_supervised_routes(self.flow_gradient, has_value, spec)

    def loss(self, nets, targets, batch, key, spec):
        u, v = nets["psi"].mean(batch.s), nets["phi"].mean(batch.streams["rep"].g)
        logits = u @ v.T / math.sqrt(self.dim)
        right = jnp.argmax(logits, axis=1) == jnp.arange(logits.shape[0])
        return symmetric_info_nce(logits), {"accuracy": right.mean()}

    def value(self, nets, s, g, spec):
        return None


def self_supervised_routes(flow_gradient: bool, has_value: bool, spec: Spec) -> Routes:
    """Own loss only; without a value loss the policy's may join (D5). On images it never does: there the policy's
    gradient passes through the head to the encoder, as everybody's (D8)."""
    head = {"own", "actor"} if flow_gradient and not has_value and not spec.pixels else {"own"}
    return Routes(frozenset(head), frozenset({"own", "value", "actor"}))

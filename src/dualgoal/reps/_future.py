"""What TRA and BYOL-gamma share: a two-member phi that learns from a state's own future (sections 4.5 and 4.6)."""

import abc
from dataclasses import dataclass, replace

from dualgoal.interface import FUTURE_GOALS, Encoded, Representation, Routes


@dataclass(frozen=True)
class Future(Representation, abc.ABC):
    """Everything but the networks and the loss."""

    dim: int = 256  # N, size of the embedding
    hidden: tuple[int, ...] = (512, 512, 512)
    flow_gradient: bool = True  # D5, vectors: without a value loss the policy's also trains phi (paper); reference: off
    crop: str = "own"  # D14: own goals are cropped on every batch (reference), or "shared": by the batch's coin

    ema = ()

    def shape(self, spec):
        return (self.dim,)

    def encode(self, nets, g, s, key):
        return Encoded(nets["phi"].mean(g), 0.0)

    def stream(self):
        return replace(FUTURE_GOALS, own=True, crop=self.crop)

    def routes(self, spec, has_value):
        """Own loss only; without a value loss the policy's may join (D5). On images it never does: there the policy's
        gradient passes through the head to the encoder, as everybody's (D8)."""
        head = {"own", "actor"} if self.flow_gradient and not has_value and not spec.pixels else {"own"}
        return Routes(frozenset(head), frozenset({"own", "value", "actor"}))

    def value(self, nets, s, g, spec):
        return None

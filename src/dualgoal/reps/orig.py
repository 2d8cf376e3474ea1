"""Orig (section 4.1): the goal itself. The only representation that lets a head read state and goal images together."""

from dataclasses import dataclass

from dualgoal.errors import UserError
from dualgoal.interface import Encoded, Representation, Routes


@dataclass(frozen=True)
class Orig(Representation):
    fusion: str = "early"  # images only: "early" (one encoder over the pair) or "late" (T3: a pair per network)

    shares_encoders = False
    ema = ()

    def __post_init__(self):
        if self.fusion not in ("early", "late"):
            raise UserError(f"fusion '{self.fusion}' is neither 'early' nor 'late'")

    def init(self, key, spec):
        return {}

    def shape(self, spec):
        return spec.goals

    def encode(self, nets, g, s, key):
        return Encoded(g, 0.0)

    def stream(self):
        return None

    def routes(self, spec, has_value):
        return Routes(frozenset(), frozenset({"value", "actor"}))

    def loss(self, nets, targets, batch, key, spec):
        return 0.0, {}

    def value(self, nets, s, g, spec):
        return None

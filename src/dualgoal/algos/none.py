"""No algorithm: the representation is trained alone, for others to build on (the paper's Algorithm 1, stage one)."""

from dataclasses import dataclass

from dualgoal.errors import UserError
from dualgoal.interface import Algorithm


@dataclass(frozen=True)
class Nothing(Algorithm):
    actions = frozenset({"continuous", "discrete"})
    ema = ()
    streams = {}

    def init(self, key, spec):
        return {}

    def losses(self, nets, targets, batch, goals, key, spec):
        return {}

    def act(self, nets, s, z, key, temperature, spec):
        raise UserError("this run trained a representation alone (algorithm 'none'); train an algorithm on it to act")

    def value(self, nets, s, z):
        return None

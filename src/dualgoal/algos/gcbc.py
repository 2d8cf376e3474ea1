"""GCBC: plain goal-conditioned behavioural cloning, the simplest algorithm that the paper's Algorithm 1 names."""

from dataclasses import dataclass

from dualgoal.algos import _actors as policy
from dualgoal.interface import ACTOR_GOALS, Algorithm
from dualgoal.nets.heads import Actor


@dataclass(frozen=True)
class GCBC(Algorithm):
    hidden: tuple[int, ...] = (512, 512, 512)

    actions = frozenset({"continuous", "discrete"})
    ema = ()
    streams = {"actor": ACTOR_GOALS}

    def init(self, key, spec):
        return {"actor": Actor(key, spec, self.hidden)}

    def losses(self, nets, targets, batch, goals, key, spec):
        log_prob = policy.log_prob(nets["actor"], batch.s, goals["actor"].z, batch.a, spec)
        return {"actor": (-log_prob.mean(), {})}

    def act(self, nets, s, z, key, temperature, spec):
        return policy.sample(nets["actor"], s, z, key, temperature, spec)

    def value(self, nets, s, z):
        return None

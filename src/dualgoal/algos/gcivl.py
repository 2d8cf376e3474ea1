"""GCIVL (section 5.1): expectile values from states alone, and a policy by advantage-weighted regression."""

from dataclasses import dataclass

from jax import random
from jax.lax import stop_gradient

from dualgoal import losses
from dualgoal.algos import _actors as policy
from dualgoal.interface import ACTOR_GOALS, VALUE_GOALS, Algorithm, rewards
from dualgoal.nets.heads import Actor, Value


@dataclass(frozen=True)
class GCIVL(Algorithm):
    expectile: float = 0.9  # kappa of the value
    alpha: float = 10.0  # inverse temperature of the advantage weights
    direct: bool = False  # section 4.8: take the advantage from the representation's own value and learn no second one
    hidden: tuple[int, ...] = (512, 512, 512)

    actions = frozenset({"continuous", "discrete"})

    @property
    def ema(self):
        return () if self.direct else ("value",)

    @property
    def streams(self):
        return {"actor": ACTOR_GOALS} if self.direct else {"value": VALUE_GOALS, "actor": ACTOR_GOALS}

    def init(self, key, spec):
        k1, k2 = random.split(key)
        value = {} if self.direct else {"value": Value(k1, spec, self.hidden)}
        return {**value, "actor": Actor(k2, spec, self.hidden)}

    def losses(self, nets, targets, batch, goals, key, spec):
        actor = self.actor_loss(nets, batch, goals["actor"], spec)
        return (
            {"actor": actor}
            if self.direct
            else {"value": self.value_loss(nets, targets, batch, goals["value"], spec), "actor": actor}
        )

    def value_loss(self, nets, targets, batch, goal, spec):
        r, m = rewards(goal.success)
        slow, z = targets["value"], stop_gradient(goal.z)
        v = nets["value"](batch.s, goal.z)
        v_slow, v_slow_next = slow.pair(stop_gradient(batch.s), batch.next_s, z)
        return losses.ivl(v, v_slow, v_slow_next, r, m, spec.discount, self.expectile), {"v": v.mean()}

    def actor_loss(self, nets, batch, goal, spec):
        advantage = goal.advantage
        if advantage is None:
            s, z = stop_gradient(batch.s), stop_gradient(goal.z)
            v, v_next = stop_gradient(nets["value"]).pair(s, batch.next_s, z)
            advantage = (v_next - v).mean(axis=0)
        log_prob = policy.log_prob(nets["actor"], batch.s, goal.z, batch.a, spec)
        info = {"advantage": advantage.mean(), "log_prob": log_prob.mean()}
        return losses.awr(advantage, log_prob, self.alpha), info

    def act(self, nets, s, z, key, temperature, spec):
        return policy.sample(nets["actor"], s, z, key, temperature, spec)

    def value(self, nets, s, z):
        return None if self.direct else nets["value"](s, z).mean(axis=0)

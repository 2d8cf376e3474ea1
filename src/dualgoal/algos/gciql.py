"""GCIQL (section 5.2) as a downstream algorithm: one value, two critics, and a policy by DDPG+BC or AWR."""

from dataclasses import dataclass

import jax.numpy as jnp
from jax import random
from jax.lax import stop_gradient

from dualgoal import losses
from dualgoal.algos import _actors as policy
from dualgoal.errors import UserError
from dualgoal.interface import ACTOR_GOALS, VALUE_GOALS, Algorithm, rewards
from dualgoal.nets.heads import Actor, Value


@dataclass(frozen=True)
class GCIQL(Algorithm):
    expectile: float = 0.9  # kappa of the value
    alpha: float = 0.3  # DDPG+BC: weight of cloning; AWR: inverse temperature
    actor: str = "ddpgbc"  # "ddpgbc" or "awr"
    hidden: tuple[int, ...] = (512, 512, 512)

    ema = ("critic",)
    streams = {"value": VALUE_GOALS, "actor": ACTOR_GOALS}

    def __post_init__(self):
        if self.actor not in ("ddpgbc", "awr"):
            raise UserError(f"actor '{self.actor}' is neither 'ddpgbc' nor 'awr'")

    @property
    def actions(self):
        return frozenset({"continuous"} if self.actor == "ddpgbc" else {"continuous", "discrete"})

    def init(self, key, spec):
        k1, k2, k3 = random.split(key, 3)
        return {
            "value": Value(k1, spec, self.hidden, members=None),
            "critic": Value(k2, spec, self.hidden, extra=spec.action_dim),
            "actor": Actor(k3, spec, self.hidden),
        }

    def losses(self, nets, targets, batch, goals, key, spec):
        goal, (r, m) = goals["value"], rewards(goals["value"].success)
        s, z = stop_gradient(batch.s), stop_gradient(goal.z)
        v = nets["value"](batch.s, goal.z)[None]
        v_next = stop_gradient(nets["value"])(batch.next_s, z)[None]
        q = nets["critic"](batch.s, goal.z, batch.a)
        l_v, l_q = losses.iql(v, v_next, q, targets["critic"](s, z, batch.a), r, m, spec.discount, self.expectile)
        return {
            "value": (l_v, {"v": v.mean()}),
            "critic": (l_q, {"q": q.mean()}),
            "actor": self.actor_loss(nets, batch, goals["actor"], spec),
        }

    def actor_loss(self, nets, batch, goal, spec):
        critic, s, z = stop_gradient(nets["critic"]), stop_gradient(batch.s), stop_gradient(goal.z)
        log_prob = policy.log_prob(nets["actor"], batch.s, goal.z, batch.a, spec)
        if self.actor == "awr":
            advantage = critic(s, z, batch.a).min(axis=0) - stop_gradient(nets["value"])(s, z)
            return losses.awr(advantage, log_prob, self.alpha), {"advantage": advantage.mean()}
        q = critic(s, z, jnp.clip(nets["actor"](batch.s, goal.z), -1.0, 1.0)).min(axis=0)
        return losses.ddpg_bc(q, log_prob, self.alpha), {"q": q.mean(), "log_prob": log_prob.mean()}

    def act(self, nets, s, z, key, temperature, spec):
        return policy.sample(nets["actor"], s, z, key, temperature, spec)

    def value(self, nets, s, z):
        return nets["value"](s, z)

"""CRL (section 5.3): a contrastive critic on (state, action) and goal, and a policy by DDPG+BC."""

import math
from dataclasses import dataclass

import jax.numpy as jnp
from jax import random
from jax.lax import stop_gradient

from dualgoal import losses
from dualgoal.algos import _actors as policy
from dualgoal.interface import ACTOR_GOALS, FUTURE_GOALS, Algorithm
from dualgoal.nets.heads import Actor, Embedding


@dataclass(frozen=True)
class CRL(Algorithm):
    alpha: float = 0.1  # weight of behavioural cloning
    latent: int = 512  # size of the contrastive embeddings
    hidden: tuple[int, ...] = (512, 512, 512)

    actions = frozenset({"continuous"})
    ema = ()
    streams = {"value": FUTURE_GOALS, "actor": ACTOR_GOALS}

    def init(self, key, spec):
        k1, k2, k3 = random.split(key, 3)
        return {
            "critic": {
                "state": Embedding(k1, spec.observation_shape, self.latent, self.hidden, spec, extra=spec.action_dim),
                "goal": Embedding(k2, spec.goals, self.latent, self.hidden, spec),
            },
            "actor": Actor(k3, spec, self.hidden),
        }

    def losses(self, nets, targets, batch, goals, key, spec):
        return {
            "value": self.critic_loss(nets, batch, goals["value"]),
            "actor": self.actor_loss(nets, batch, goals["actor"], spec),
        }

    def critic_loss(self, nets, batch, goal):
        left, right = nets["critic"]["state"](batch.s, batch.a), nets["critic"]["goal"](goal.z)
        logits = jnp.einsum("ein,ejn->eij", left, right) / math.sqrt(self.latent)
        right_goal = jnp.argmax(logits.mean(axis=0), axis=1) == jnp.arange(logits.shape[-1])
        return losses.binary_nce(logits), {"accuracy": right_goal.mean()}

    def actor_loss(self, nets, batch, goal, spec):
        critic, s, z = stop_gradient(nets["critic"]), stop_gradient(batch.s), stop_gradient(goal.z)
        mean = nets["actor"](batch.s, goal.z)
        left, right = critic["state"](s, jnp.clip(mean, -1.0, 1.0)), critic["goal"](z)
        q = ((left * right).sum(axis=-1) / math.sqrt(self.latent)).min(axis=0)
        log_prob = losses.gaussian_log_prob(batch.a, mean)
        return losses.ddpg_bc(q, log_prob, self.alpha), {"q": q.mean(), "log_prob": log_prob.mean()}

    def act(self, nets, s, z, key, temperature, spec):
        return policy.sample(nets["actor"], s, z, key, temperature, spec)

    def value(self, nets, s, z):
        return None

"""GCFBC (section 5.4): behavioural cloning of a goal's actions by flow matching. There is no value function."""

from dataclasses import dataclass

import jax.numpy as jnp
from jax import random

from dualgoal import losses
from dualgoal.interface import ACTOR_GOALS, Algorithm
from dualgoal.nets.heads import Flow


@dataclass(frozen=True)
class GCFBC(Algorithm):
    flow_steps: int = 10  # Euler steps from noise to action
    hidden: tuple[int, ...] = (512, 512, 512)

    actions = frozenset({"continuous"})
    ema = ()
    streams = {"actor": ACTOR_GOALS}

    def init(self, key, spec):
        return {"actor": Flow(key, spec, self.hidden)}

    def losses(self, nets, targets, batch, goals, key, spec):
        k1, k2 = random.split(key)
        x1 = batch.a
        x0 = random.normal(k1, x1.shape, x1.dtype)
        t = random.uniform(k2, (x1.shape[0], 1), x1.dtype)
        velocity = nets["actor"](batch.s, goals["actor"].z, (1 - t) * x0 + t * x1, t)
        return {"actor": (losses.flow_matching(velocity, x0, x1), {})}

    def act(self, nets, s, z, key, temperature, spec):
        """Stochastic at any temperature, as in the reference."""
        x = random.normal(key, (s.shape[0], spec.action_dim))
        for n in range(self.flow_steps):
            t = jnp.full((s.shape[0], 1), n / self.flow_steps)
            x = x + nets["actor"](s, z, x, t) / self.flow_steps
        return jnp.clip(x, -1.0, 1.0)

    def value(self, nets, s, z):
        return None

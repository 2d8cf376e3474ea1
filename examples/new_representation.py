"""A representation of your own: a goal as its distances to fixed random places, trained in a loop of your own.

    python examples/new_representation.py
    PYTHONPATH=examples dualgoal train TASK --rep new_representation:Landmarks ...

docs/new_representation.md explains every line of such a class.
"""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
from own_data import fly

import dualgoal
from dualgoal.interface import Encoded, Representation, Routes, Size, Spec
from dualgoal.sampler import to_device


class Places(eqx.Module):
    """The landmarks, one per row. Nothing trains them, because `routes` names no loss."""

    at: jax.Array


@dataclass(frozen=True)
class Landmarks(Representation):
    """Distances to random places, which are the same for all goals."""

    dim: Size = 64
    """Number of landmarks."""
    spread: float = 3.0
    """Standard deviation of their coordinates."""

    def init(self, key, spec):
        return Places(self.spread * jax.random.normal(key, (self.dim, *spec.goal_shape)))

    def z_shape(self, spec):
        return (self.dim,)

    def encode(self, nets, g, s, key):
        return Encoded(jnp.linalg.norm(g[:, None] - nets.at[None], axis=-1))

    def routes(self, spec, value_loss):
        return Routes(head=frozenset(), features=frozenset())


def main(steps=2000, batch_size=256, hidden=(64, 64)):
    """The representation with an algorithm, step by step."""
    data = dualgoal.Dataset.from_episodes(fly(), goal_dims=(0, 1), scale_actions=True)
    spec = Spec(data.observation_shape, data.action_dim, batch_size=batch_size, lr=1e-3, goal_shape=data.goal_shape)
    agent = dualgoal.Agent(Landmarks(), dualgoal.ALGOS["gcivl"](hidden=hidden), spec)
    rows, key = to_device(data), jax.random.key(0)
    state, update = agent.init(key), jax.jit(agent.update)
    for step in range(1, steps + 1):
        state, info = update(state, rows, key)
        if step % max(1, steps // 4) == 0:
            print(step, {name: round(float(value), 4) for name, value in info.items() if name.endswith("/loss")})
    return agent, state


if __name__ == "__main__":
    main()

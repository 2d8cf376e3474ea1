"""Soft actor-critic: the networks, their losses, and many updates on a replay of transitions as one compiled program.

The replay is one array on the device with a transition per row, so a batch is one gather and new transitions are one
copy. Everything random in a call is drawn at its beginning from (seed, number of the call).
"""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import random
from jaxtyping import Array, Float, PRNGKeyArray

from dualgoal.experts.recipe import Recipe
from dualgoal.fast import adam
from dualgoal.interface import Spec
from dualgoal.nets.heads import MEMBERS, MLP, Linear, glorot

SMALLEST_LOG_STD, LARGEST_LOG_STD = -5.0, 2.0


def as_it_is(observations: Array) -> Array:
    return observations


class SquashedGaussian(eqx.Module):
    """A Gaussian whose samples tanh squashes into [-1, 1]: mean and log standard deviation depend on the state."""

    trunk: MLP
    mean: Linear
    log_std: Linear

    def __init__(self, key: PRNGKeyArray, spec: Spec, hidden: Sequence[int]):
        k1, k2, k3 = random.split(key, 3)
        self.trunk = MLP(k1, spec.observation_shape[0], hidden, None, spec, norm=False)
        small = functools.partial(glorot, scale=0.01)
        self.mean, self.log_std = (Linear(k, hidden[-1], spec.action_dim, init=small) for k in (k2, k3))

    def __call__(self, s: Float[Array, "B D"]) -> tuple[Float[Array, "B A"], Float[Array, "B A"]]:
        h = self.trunk(s)
        return self.mean(h), jnp.clip(self.log_std(h), SMALLEST_LOG_STD, LARGEST_LOG_STD)

    @property
    def layers(self) -> tuple[Linear, ...]:
        """The layers from the state to the mean action."""
        return (*self.trunk.layers, self.mean)  # type: ignore[arg-type]


class Params(NamedTuple):
    """What is trained."""

    policy: SquashedGaussian
    critic: MLP  # Q(s, a), with two members
    log_alpha: Array  # of the weight of the entropy


class State(NamedTuple):
    """Everything that an update changes."""

    params: Params
    target: MLP  # follows the critic
    optimiser: Any


@dataclass(frozen=True)
class SAC:
    """Soft actor-critic by a recipe, for observations and actions of given sizes."""

    recipe: Recipe
    observation_size: int
    action_size: int
    view: Callable[[Array], Array] = as_it_is  # what the networks see of rows of observations

    @property
    def row(self) -> int:
        """Numbers in a transition: state, next state, action, reward, and whether to bootstrap."""
        return 2 * self.observation_size + self.action_size + 2

    def init(self, key: PRNGKeyArray) -> State:
        k1, k2 = random.split(key)
        spec = Spec((self.observation_size,), self.action_size)
        inputs = self.observation_size + self.action_size
        critic = MLP(k2, inputs, self.recipe.hidden, 1, spec, MEMBERS, self.recipe.norm)
        policy = SquashedGaussian(k1, spec, self.recipe.policy_hidden)
        params = Params(policy, critic, jnp.float32(math.log(self.recipe.alpha)))
        return State(params, jax.tree.map(jnp.copy, critic), adam.init(params))

    def losses(self, params: Params, target: MLP, batch: Array, noise: Array) -> tuple[Array, dict[str, Array]]:
        """The sum of all three, each of which trains only its own part of the parameters."""
        d, a = self.observation_size, self.action_size
        s, next_s, action, (reward, mask) = batch[:, :d], batch[:, d : 2 * d], batch[:, 2 * d : -2], batch[:, -2:].T
        s, next_s = self.view(s), self.view(next_s)
        proposed, log_prob = sample(*params.policy(jnp.concatenate([s, next_s])), noise)
        proposed, next_action = jnp.split(proposed, 2)
        log_prob, next_log_prob = jnp.split(log_prob, 2)
        alpha = jnp.exp(params.log_alpha)
        bootstrap = self._worth(target(next_s, next_action)) - alpha * next_log_prob
        q = params.critic(s, action)[..., 0]
        critic = critic_loss(q, jax.lax.stop_gradient(reward + self.recipe.discount * mask * bootstrap))
        worth = self._worth(jax.lax.stop_gradient(params.critic)(s, proposed))
        policy = (jax.lax.stop_gradient(alpha) * log_prob - worth).mean()
        entropy = -jax.lax.stop_gradient(log_prob).mean()
        entropy_weight = alpha * (entropy + 0.5 * a)
        info = {"critic_loss": critic, "q": q.mean(), "entropy": entropy, "alpha": alpha}
        return critic + policy + entropy_weight, info

    def _worth(self, q: Float[Array, "E B 1"]) -> Float[Array, " B"]:
        return q[..., 0].min(axis=0) if self.recipe.pessimistic else q[..., 0].mean(axis=0)

    def update(self, state: State, batch: Array, noise: Array) -> tuple[State, dict[str, Array]]:
        """One gradient step on a batch of rows (B, row); `noise` (2B, A) is standard normal."""
        gradients, info = jax.grad(self.losses, has_aux=True)(state.params, state.target, batch, noise)
        params, optimiser = adam.step(gradients, state.optimiser, state.params, self.recipe.lr)
        waits, pace = self.recipe.actor_waits, self.recipe.actor_pace
        if waits or pace != 1.0:
            # Adam's moments go on while the policy waits, so that its first steps are not larger than later ones.
            share = jnp.where(state.optimiser[0].count < waits, 0.0, pace)
            slower = jax.tree.map(lambda old, new: old + share * (new - old), state.params, params)
            params = slower._replace(critic=params.critic)
        # The copy follows the critic from before the step, as everywhere in this package.
        tau = self.recipe.tau
        follow = lambda new, old: tau * new + (1 - tau) * old
        return State(params, jax.tree.map(follow, state.params.critic, state.target), optimiser), info

    @functools.partial(jax.jit, static_argnums=(0, 6), donate_argnums=(1, 2))
    def learn(
        self, state: State, replay: Array, new: Array, at: Array, key: PRNGKeyArray, updates: int
    ) -> tuple[State, Array, dict[str, Array]]:
        """Put new transitions at row `at`, which may overwrite the oldest, then take `updates` steps.

        Rows are drawn from those before the last one that was ever written: `at` counts on beyond the replay's size.
        """
        capacity, count = replay.shape[0], new.shape[0]
        replay = jax.lax.dynamic_update_slice(replay, new, (at % capacity, 0))
        filled = jnp.minimum(at + count, capacity)
        if not updates:
            return state, replay, {}
        k1, k2 = random.split(key)
        size = self.recipe.batch_size
        rows = random.randint(k1, (updates, size), 0, filled)
        noise = random.normal(k2, (updates, 2 * size, self.action_size))

        def one(state: State, drawn: tuple[Array, Array]) -> tuple[State, dict[str, Array]]:
            return self.update(state, replay[drawn[0]], drawn[1])

        state, infos = jax.lax.scan(one, state, (rows, noise))
        return state, replay, {name: values.mean() for name, values in infos.items()}


def critic_loss(q: Float[Array, "E B"], target: Float[Array, " B"]) -> Array:
    """Mean squared error of both members."""
    return jnp.square(q - target[None]).mean()


def sample(
    mean: Float[Array, "B A"], log_std: Float[Array, "B A"], noise: Float[Array, "B A"]
) -> tuple[Float[Array, "B A"], Float[Array, " B"]]:
    """tanh(u) of u = mean + std noise, and the logarithm of its density.

    The density of u is divided by 1 - tanh(u)^2, which is computed from exp(-2u), because it vanishes for large u.
    """
    u = mean + jnp.exp(log_std) * noise
    normal = -0.5 * (noise**2 + jnp.log(2 * jnp.pi)) - log_std
    shrink = 2 * (jnp.log(2.0) - u - jax.nn.softplus(-2 * u))
    return jnp.tanh(u), (normal - shrink).sum(axis=-1)

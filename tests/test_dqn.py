"""Goal-conditioned DQN: targets worked by hand, its options, and convergence to Q* of a small ring."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

import small
from dualgoal.agent import Agent
from dualgoal.algos.dqn import DQN
from dualgoal.data.dataset import Dataset
from dualgoal.errors import UserError
from dualgoal.interface import Batch, Goal, Spec
from dualgoal.reps import Orig
from dualgoal.sampler import to_device

SPEC = Spec(observation_shape=(2,), action_dim=3, discrete=True, discount=0.5, batch_size=4)
pytestmark = pytest.mark.filterwarnings("error")
FORMS = [DQN(hidden=(8,)), DQN("onehot", hidden=(8,)), DQN(double=True, hidden=(8,)), DQN(loss="huber", hidden=(8,))]


def batch_of(success):
    s, next_s = random.normal(random.key(1), (2, 4, 2))
    a = jax.nn.one_hot(jnp.array([0, 2, 1, 1]), 3)
    z = random.normal(random.key(2), (4, 2))
    return Batch(s, a, next_s, {}), {"value": Goal(jnp.array(success, jnp.float32), lambda s: z)}


@pytest.mark.parametrize("algo", FORMS, ids=str)
def test_loss_is_the_formula(algo):
    nets, slow = algo.init(random.key(0), SPEC), algo.init(random.key(9), SPEC)
    batch, goals = batch_of([0, 0, 1, 0])
    loss, _ = algo.losses(nets, slow, batch, goals, random.key(3), SPEC)["value"]

    def q(net, s):
        if algo.network == "heads":
            return np.asarray(net.critic(s, goals["value"](s)))
        inputs = [jnp.broadcast_to(jnp.eye(3)[a][None], (4, 3)) for a in range(3)]
        return np.stack([net.critic(s, goals["value"](s), a) for a in inputs], axis=1)

    taken = q(nets, batch.s)[np.arange(4), [0, 2, 1, 1]]
    later = q(slow, batch.next_s)
    best = q(nets, batch.next_s).argmax(1) if algo.double else later.argmax(1)
    target = np.array([-1, -1, 0, -1]) + 0.5 * np.array([1, 1, 0, 1]) * later[np.arange(4), best]
    error = np.abs(taken - target)
    huber = np.where(error <= 1, error**2 / 2, error - 0.5)
    expected = huber.mean() if algo.loss == "huber" else (error**2).mean()
    np.testing.assert_allclose(loss, expected, rtol=1e-5)


@pytest.mark.parametrize("algo", FORMS, ids=str)
def test_targets_carry_no_gradient_and_acting_is_greedy(algo):
    nets, slow = algo.init(random.key(0), SPEC), algo.init(random.key(9), SPEC)
    batch, goals = batch_of([0, 0, 0, 0])
    into_slow = jax.grad(lambda t: algo.losses(nets, t, batch, goals, random.key(3), SPEC)["value"][0])(slow)
    assert all((np.asarray(leaf) == 0).all() for leaf in jax.tree.leaves(into_slow))
    z = goals["value"](batch.s)
    q = algo.all_actions(nets.critic, batch.s, z, SPEC)
    assert (algo.act(nets, batch.s, z, random.key(0), 0.0, SPEC) == q.argmax(1)).all()
    np.testing.assert_allclose(algo.value(nets, batch.s, z, SPEC), q.max(1), rtol=1e-6)
    drawn = algo.act(nets, batch.s, z, random.key(0), 100.0, SPEC)
    assert drawn.shape == (4,) and ((drawn >= 0) & (drawn < 3)).all()


def ring(size=6, episodes=300, length=10):
    """A ring in which action 0 stays, 1 and 2 go round; observations are one-hot."""
    rng = np.random.default_rng(0)
    moves = rng.integers(3, size=(episodes, length), dtype=np.int32)
    steps = np.array([0, 1, -1])[moves]
    start = rng.integers(size, size=(episodes, 1))
    states = np.concatenate([start, start + np.cumsum(steps, 1)], 1) % size
    return Dataset(
        np.eye(size, dtype=np.float32)[states.reshape(-1)],
        np.pad(moves, ((0, 0), (0, 1))).reshape(-1),
        np.tile(np.arange(length + 1) == length, episodes),
        provenance={"num_actions": 3},
    )


def test_values_converge_to_the_exact_ones():
    spec = Spec((6,), 3, discrete=True, discount=0.9, batch_size=128, lr=1e-3, tau=0.05, reached_by="state")
    agent, data, key = Agent(Orig(), DQN(hidden=(64, 64)), spec), to_device(ring()), random.key(0)

    @jax.jit
    def train(state):
        return jax.lax.fori_loop(0, 800, lambda _, state: agent.update(state, data, key)[0], state)

    params = train(agent.init(random.key(1))).params
    every = jnp.eye(6)
    s, g = (x.reshape(-1) for x in np.indices((6, 6)))
    d = np.minimum((s - g) % 6, (g - s) % 6)
    learned = agent.distance(params, every[s], every[g], key)
    assert np.abs(np.asarray(learned) - d).max() < 0.05
    away = d > 0
    chosen = np.asarray(agent.act(params, every[s], every[g], key))
    after = (s + np.array([0, 1, -1])[chosen]) % 6
    closer = np.minimum((after - g) % 6, (g - after) % 6)
    assert (closer[away] == d[away] - 1).all()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: small.chosen(DQN, network="both"), "unknown network 'both'"),
        (lambda: small.chosen(DQN, loss="l1"), "unknown loss 'l1'"),
        (lambda: Agent(Orig(), DQN(), Spec((2,), 3)), "cannot use continuous actions"),
    ],
)
def test_bad_options_are_named(make, words):
    with pytest.raises(UserError, match=words):
        make()

"""TRL: where the states in between come from, its loss with numbers of our own, and what it refuses; its losses in an
agent are in test_parity."""

import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

import small
from dualgoal import losses, sampler, streams
from dualgoal.algos import TRL
from dualgoal.errors import UserError
from dualgoal.interface import Spec
from dualgoal.streams import FUTURE_GOALS, Between, GoalMix


@pytest.mark.parametrize("offset", [0, 2_000_000, 20_000_000])
def test_states_in_between_are_uniform_up_to_the_goal_at_any_row(offset):
    lengths = ([offset] if offset else []) + [101] * 20
    data, n = small.unobserved(lengths), 20_000
    block = np.asarray(random.bits(random.key(2), (9, n), jnp.uint32)).copy()
    block[0] = sum(lengths) - len(lengths) - 1 - np.random.default_rng(1).integers(0, 2_000, n)
    at = streams.valid_rows(data, jnp.asarray(block[0]))
    goal = np.asarray(FUTURE_GOALS.rows(data, at, jnp.asarray(block[1:5]), 0.95))
    stop = Between("value").rows(data, at, jnp.asarray(block[5:]), 0.95, jnp.asarray(goal))
    i, k = np.asarray(at.rows).astype(np.int64), np.asarray(stop.row).astype(np.int64)
    np.testing.assert_array_equal(stop.goal, goal)
    np.testing.assert_array_equal(k, i + block[5].astype(np.int64) % np.maximum(goal - i, 1))
    assert (k[goal == i] == i[goal == i]).all() and (k[goal > i] < goal[goal > i]).all()
    far = goal - i == 10
    counts = np.bincount((k - i)[far], minlength=10)
    assert far.sum() > 300 and counts.min() > 0.5 * far.sum() / 10


def test_a_stop_knows_its_steps_and_its_action():
    data = small.data(lengths=[50] * 4)._replace(observations=jnp.arange(200, dtype=jnp.float32)[:, None])
    roles = {"between": Between("value"), "value": FUTURE_GOALS}
    batch = sampler.sample(data, random.key(0), roles, Spec((1,), 2, batch_size=200, discount=0.9))
    row, goal, way = (np.asarray(x[:, 0]) for x in (batch.s, batch.draws["value"].g, batch.draws["between"].g))
    before, after, a = batch.draws["between"].passed
    np.testing.assert_array_equal(row + before, way)
    np.testing.assert_array_equal(way + after, goal)
    np.testing.assert_array_equal(a, np.asarray(data.actions)[way.astype(int)])
    assert batch.draws["value"].passed is None


def test_shifting_images_keeps_what_is_known_of_a_stop():
    spec = Spec(small.IMAGE, 2, batch_size=4, augment=1.0)
    batch = sampler.sample(
        small.data(small.IMAGE), random.key(0), {"value": FUTURE_GOALS, "between": Between("value")}, spec
    )
    before, after, a = batch.draws["between"].passed
    assert before.shape == after.shape == (4,) and a.shape == (4, 2)


@pytest.mark.parametrize("falloff", [0.0, 0.5])
def test_the_loss_is_the_formula(falloff):
    rng = np.random.default_rng(0)
    logit, first, second = rng.normal(size=(3, 2, 5))
    before, after = np.array([0, 1, 2, 7, 3]), np.array([4, 1, 0, 1, 9])
    gamma, kappa, expected = 0.9, 0.7, []
    for e in range(2):
        for b in range(5):
            p = gamma ** before[b] if before[b] < 2 else 1 / (1 + np.exp(-first[e, b]))
            p *= gamma ** after[b] if after[b] < 2 else 1 / (1 + np.exp(-second[e, b]))
            q = 1 / (1 + np.exp(-logit[e, b]))
            weight = (kappa if p >= q else 1 - kappa) / (1 + np.log(p) / np.log(gamma)) ** falloff
            expected.append(-weight * (p * np.log(q) + (1 - p) * np.log(1 - q)))
    given = [jnp.asarray(x, jnp.float32) for x in (logit, first, second)]
    steps = [jnp.asarray(x, jnp.int32) for x in (before, after)]
    loss = losses.transitive(*given, *steps, gamma, kappa, falloff)
    np.testing.assert_allclose(loss, np.mean(expected), rtol=1e-5)


def test_the_goals_are_those_of_the_release():
    roles = {name: (role.goals, role.trains) for name, role in TRL().roles.items()}
    assert roles == {
        "value": (FUTURE_GOALS, "value"),
        "between": (Between("value"), "value"),
        "actor": (GoalMix(0.0, 0.0, 1.0, 0.0), "actor"),
    }


def test_its_value_is_that_of_a_reward_of_minus_one():
    agent = small.agent("orig", "trl", discount=0.9)
    params = agent.init(random.key(0)).params
    s, g = random.normal(random.key(1), (2, 4, 3))
    logit = np.asarray(params.algo.critic(s, g, jnp.clip(params.algo.actor(s, g), -1, 1))).mean(0)
    d = -np.log1p(np.exp(-logit)) / np.log(0.9)  # gamma^d = sigmoid(logit)
    np.testing.assert_allclose(agent.distance(params, s, g, random.key(0)), d, rtol=1e-4)


@pytest.mark.parametrize("option", ["falloff", "alpha"])
def test_options_that_make_no_sense_are_one_line(option):
    with pytest.raises(UserError, match=f"{option} is -1.0; expected a number that is not negative"):
        TRL(**{option: -1.0})
    with pytest.raises(UserError, match="TRL cannot use discrete actions"):
        small.agent("orig", "trl", discrete=True)

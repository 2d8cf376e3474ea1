"""The algorithms one by one: policies, temperatures, action spaces, and the properties section 13 asks for."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

import small
from dualgoal.agent import Agent, only
from dualgoal.algos import ALGOS, CRL, GCBC, GCFBC, GCIQL, GCIVL, actors
from dualgoal.algos.crl import CRLNets
from dualgoal.algos.gcfbc import GCFBCNets
from dualgoal.errors import UserError
from dualgoal.interface import Batch, Goal, Spec
from dualgoal.streams import ACTOR_GOALS, FUTURE_GOALS, VALUE_GOALS

SPEC = Spec((3,), 2, discount=0.9, batch_size=4)
CHOICE = Spec((3,), 5, discrete=True, batch_size=4)
BLANK = jnp.zeros((1, 3))  # policies below look at nothing
DISCRETE = {"gcivl": GCIVL(hidden=(8,)), "gcbc": GCBC(hidden=(8,)), "gciql": GCIQL(actor="awr", hidden=(8,))}


def rows(seed: int, width: int):
    return random.normal(random.key(seed), (4, width))


def batch_of(a=None) -> Batch:
    return Batch(rows(1, 3), jnp.clip(rows(2, 2), -1, 1) if a is None else a, rows(3, 3), {})


def goals() -> dict:
    success = jnp.array([1.0, 0.0, 0.0, 0.0])
    return {"value": Goal(success, lambda s: rows(4, 3)), "actor": Goal(0 * success, lambda s: rows(5, 3))}


@pytest.mark.parametrize(
    ("name", "value", "actor"),
    [
        ("gcivl", VALUE_GOALS, ACTOR_GOALS),
        ("gciql", VALUE_GOALS, ACTOR_GOALS),
        ("crl", FUTURE_GOALS, ACTOR_GOALS),
        ("gcfbc", None, ACTOR_GOALS),
        ("gcbc", None, ACTOR_GOALS),
    ],
)
def test_goal_streams(name, value, actor):
    """The table of section 2.2, in the paper's order (current, geometric, uniform, random)."""
    roles = ALGOS[name]().roles
    assert {role: roles[role].goals for role in roles} == {"actor": actor} | ({"value": value} if value else {})
    assert all(role.trains == name for name, role in roles.items())
    shares = lambda m: (m.current, m.geometric, m.uniform, m.random)
    assert [shares(m) for m in (VALUE_GOALS, FUTURE_GOALS, ACTOR_GOALS)] == [
        (0.2, 0.5, 0, 0.3),
        (0, 1, 0, 0),
        (0, 0, 1, 0),
    ]


# Flow -----------------------------------------------------------------------------------------------------------------


def test_ten_euler_steps_along_a_straight_flow_return_the_action():
    """(a - x_t) / (1 - t) is x_1 - x_0 all along the way."""
    a, times = jnp.array([[0.3, -0.7]] * 4), []

    def straight(s, z, x, t):
        times.append(float(t[0, 0]))
        return (a - x) / (1 - t)

    got = GCFBC().act(small.unchecked(GCFBCNets, actor=straight), rows(0, 3), rows(1, 3), random.key(0), 0.0, SPEC)
    np.testing.assert_allclose(got, a, atol=1e-6)
    np.testing.assert_allclose(times, np.arange(10) / 10, atol=1e-6)


def test_flow_actions_are_clipped_and_ignore_the_temperature():
    constant = lambda v: small.unchecked(GCFBCNets, actor=lambda s, z, x, t: v + 0 * x)
    act = lambda key, temperature, v: GCFBC().act(
        constant(v), rows(0, 3), rows(1, 3), random.key(key), temperature, SPEC
    )
    np.testing.assert_array_equal(act(0, 0.0, 100.0), jnp.ones((4, 2)))
    np.testing.assert_array_equal(act(0, 0.0, 0.0), act(0, 1.0, 0.0))
    assert (act(0, 0.0, 0.0) != act(1, 0.0, 0.0)).any()


# Policies -------------------------------------------------------------------------------------------------------------


def test_gaussian_policy():
    mean = jnp.array([[0.5, -3.0]] * 4)
    sample = lambda key, temperature: actors.sample(lambda s, z: mean, BLANK, BLANK, random.key(key), temperature, SPEC)
    np.testing.assert_array_equal(sample(0, 0.0), [[0.5, -1.0]] * 4)
    draws = np.asarray(
        jax.vmap(lambda k: actors.sample(lambda s, z: 0 * mean, BLANK, BLANK, k, 0.1, SPEC))(
            random.split(random.key(0), 4000)
        )
    )
    assert draws.std() == pytest.approx(0.1, rel=0.05)


def test_categorical_policy():
    logits = jnp.log(jnp.array([[0.1, 0.6, 0.1, 0.1, 0.1]]))
    sample = lambda key, temperature: actors.sample(lambda s, z: logits, BLANK, BLANK, key, temperature, CHOICE)
    assert sample(random.key(0), 0.0).tolist() == [1]
    draws = jax.vmap(lambda k: sample(k, 1.0))(random.split(random.key(0), 4000))
    assert float((draws == 1).mean()) == pytest.approx(0.6, abs=0.03)
    cold = jax.vmap(lambda k: sample(k, 0.1))(random.split(random.key(0), 1000))
    assert float((cold == 1).mean()) > 0.99


# CRL and GCIQL --------------------------------------------------------------------------------------------------------


def test_crl_policy_does_not_see_the_scale_of_its_critic():
    algo = CRL(hidden=(8,), latent=8)
    nets = algo.init(random.key(0), SPEC)
    last = lambda n: (n.critic.goal.mlp.layers[-1].w, n.critic.goal.mlp.layers[-1].b)
    loud = eqx.tree_at(last, nets, tuple(50 * x for x in last(nets)))

    def actor(critics):
        nets_with = lambda a: CRLNets(critics.critic, a)
        loss = lambda a: algo.losses(nets_with(a), nets, batch_of(), goals(), random.key(0), SPEC)["actor"][0]
        return jax.value_and_grad(loss)(nets.actor)

    for a, b in zip(jax.tree.leaves(actor(nets)), jax.tree.leaves(actor(loud)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5)


def test_crl_actions_outside_the_box_get_no_gradient_from_the_critic():
    """The clip kills it: with the mean far outside and no cloning, nothing is left."""
    algo = CRL(hidden=(8,), latent=8, alpha=0.0)
    nets = algo.init(random.key(0), SPEC)
    far = eqx.tree_at(lambda a: a.head.b, nets.actor, jnp.array([5.0, -5.0]))
    nets_with = lambda a: CRLNets(nets.critic, a)
    loss = lambda a: algo.losses(nets_with(a), nets, batch_of(), goals(), random.key(0), SPEC)["actor"][0]
    assert not any(np.asarray(x).any() for x in jax.tree.leaves(jax.grad(loss)(far)))
    assert any(np.asarray(x).any() for x in jax.tree.leaves(jax.grad(loss)(nets.actor)))


def test_gciql_policies():
    for algo in (GCIQL(hidden=(8,)), GCIQL(hidden=(8,), actor="awr", alpha=3.0)):
        nets, slow = algo.init(random.key(0), SPEC), algo.init(random.key(1), SPEC)
        batch, goal = batch_of(), goals()["actor"]
        got = algo.losses(nets, only(slow, algo.ema), batch, goals(), random.key(0), SPEC)["actor"][0]
        mean = nets.actor(batch.s, goal(batch.s))
        log_prob = np.asarray(-0.5 * ((batch.a - mean) ** 2).sum(-1) - np.log(2 * np.pi), np.float64)
        q = lambda a, batch=batch, goal=goal, nets=nets: np.asarray(nets.critic(batch.s, goal(batch.s), a)).min(0)
        if algo.actor == "awr":
            advantage = q(batch.a) - np.asarray(nets.value(batch.s, goal(batch.s)))
            expected = -(np.minimum(np.exp(3 * advantage), 100) * log_prob).mean()
        else:
            values = q(jnp.clip(mean, -1, 1))
            expected = -values.mean() / (np.abs(values).mean() + 1e-6) - 0.3 * log_prob.mean()
        np.testing.assert_allclose(got, expected, rtol=1e-4)


def test_gciql_regresses_both_critics_on_one_value():
    algo = GCIQL(hidden=(8,))
    nets, slow = algo.init(random.key(0), SPEC), algo.init(random.key(1), SPEC)
    batch, goal = batch_of(), goals()["value"]
    terms = algo.losses(nets, only(slow, algo.ema), batch, goals(), random.key(0), SPEC)
    r, m = np.array([0, -1, -1, -1]), np.array([0, 1, 1, 1])
    v = lambda s: np.asarray(nets.value(s, goal(batch.s)), np.float64)
    q = np.asarray(nets.critic(batch.s, goal(batch.s), batch.a), np.float64)
    y = r + 0.9 * m * v(batch.next_s)
    np.testing.assert_allclose(terms["critic"][0], ((q - y) ** 2).sum(0).mean(), rtol=1e-5)
    delta = np.asarray(slow.critic(batch.s, goal(batch.s), batch.a)).min(0) - v(batch.s)
    np.testing.assert_allclose(terms["value"][0], (np.where(delta >= 0, 0.9, 0.1) * delta**2).mean(), rtol=1e-5)


def test_gcbc_is_the_negative_log_likelihood():
    algo = GCBC(hidden=(8,))
    nets, batch = algo.init(random.key(0), SPEC), batch_of()
    mean = np.asarray(nets.actor(batch.s, goals()["actor"](batch.s)))
    expected = (0.5 * ((np.asarray(batch.a) - mean) ** 2).sum(-1) + np.log(2 * np.pi)).mean()
    loss = algo.losses(nets, nets, batch, goals(), random.key(0), SPEC)["actor"][0]
    np.testing.assert_allclose(loss, expected, rtol=1e-5)


# Action spaces --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "rep"), [("gcivl", "byol"), ("gcbc", "orig"), ("gciql", "orig")])
def test_discrete_actions(name, rep):
    agent = Agent(small.rep(rep), DISCRETE[name], CHOICE)
    data = small.data(actions=5, discrete=True)
    batch = agent.sample(data, random.key(0), 0)
    np.testing.assert_array_equal(batch.a.sum(axis=-1), jnp.ones(4))
    state, info = jax.jit(agent.update)(agent.init(random.key(0)), data, random.key(1))
    assert all(np.isfinite(x).all() for x in jax.tree.leaves((state.params, info)))
    for temperature in (0.0, 1.0):
        a = agent.act(state.params, batch.s, batch.s, random.key(0), temperature)
        assert a.shape == (4,)
        assert jnp.issubdtype(a.dtype, jnp.integer)
        assert set(a.tolist()) <= set(range(5))


@pytest.mark.parametrize("algo", [CRL(), GCFBC(), GCIQL(actor="ddpgbc")])
def test_algorithms_that_need_continuous_actions_say_so(algo):
    words = "cannot use discrete actions; it can use continuous ones"
    hint = "; give --algo.actor awr" if isinstance(algo, GCIQL) else ""
    with pytest.raises(UserError, match=f"{words}{hint}$"):
        Agent(small.rep("orig"), algo, CHOICE)


def test_a_policy_that_does_not_exist_is_refused():
    with pytest.raises(UserError, match="unknown actor 'ppo'.*ddpgbc, awr"):
        small.chosen(GCIQL, actor="ppo")

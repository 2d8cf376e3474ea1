"""HIQL: what it refuses, where its waypoints come from and what form they have; its losses are in test_parity."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

import small
from dualgoal.agent import Agent
from dualgoal.algos import HIQL
from dualgoal.errors import UserError
from dualgoal.interface import Spec
from dualgoal.nets.encoders import Impala
from dualgoal.nets.heads import to_sphere
from dualgoal.reps import HIQLPhi
from dualgoal.streams import ACTOR_GOALS, VALUE_GOALS, Waypoint

SPEC = Spec((3,), 2, discount=0.9, batch_size=4)
IMAGES = Spec(small.IMAGE, 2, batch_size=4)


def test_the_roles_are_those_of_ogbench():
    roles = HIQL(waypoint_steps=10).roles
    assert {name: role.goals for name, role in roles.items()} == {
        "value": VALUE_GOALS,
        "low": Waypoint(10),
        "high": ACTOR_GOALS,
        "waypoint": Waypoint(10, towards="high"),
    }
    assert HIQL().waypoint_steps == 25


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"waypoint_steps": 0}, "waypoint_steps is 0; expected at least 1"),
        ({"waypoint_steps": 2**31 - 1}, "expected at least 1 and at most a billion"),
        ({"alpha_low": -1.0}, "alpha_low is -1.0"),
        ({"alpha_high": -1.0}, "alpha_high is -1.0"),
        ({"expectile": 1.0}, "expectile is 1.0"),
    ],
)
def test_options_that_make_no_sense_are_one_line(options, message):
    with pytest.raises(UserError, match=message) as problem:
        HIQL(**options)
    assert "\n" not in str(problem.value)


def test_a_policy_over_raw_images_is_refused():
    with pytest.raises(
        UserError, match="HIQL cannot use Orig: it predicts z, which must be a vector but has the shape"
    ) as problem:
        Agent(small.rep("orig"), small.algo("hiql"), IMAGES)
    assert "\n" not in str(problem.value)
    Agent(small.rep("orig"), small.algo("hiql"), SPEC)


def test_the_low_policy_is_given_what_the_high_one_names():
    agent = small.agent("dual", "hiql")
    params = agent.init(random.key(0)).params
    s, g = random.normal(random.key(1), (2, 4, 3))
    nets, z = params.algo, params.rep.phi.mean(g)
    expected = jnp.clip(nets.low(s, nets.high(s, z)), -1, 1)
    np.testing.assert_allclose(agent.act(params, s, g, random.key(2)), expected, rtol=1e-5)
    warm = [agent.act(params, s, g, random.key(n), 1.0) for n in (2, 3)]
    assert np.abs(warm[0] - warm[1]).max() > 0.1


def test_on_raw_goals_the_high_policy_names_how_far_the_waypoint_is():
    agent = small.agent("orig", "hiql")
    params = agent.init(random.key(0)).params
    s, g = random.normal(random.key(1), (2, 4, 3))
    nets = params.algo
    expected = jnp.clip(nets.low(s, s + nets.high(s, g)), -1, 1)
    np.testing.assert_allclose(agent.act(params, s, g, random.key(2)), expected, rtol=1e-5)
    other_goals = dataclasses.replace(SPEC, goal_shape=(2,))
    assert agent.algo_spec.goals_as_states and not small.agent("dual", "hiql").algo_spec.goals_as_states
    assert not Agent(small.rep("orig"), small.algo("hiql"), other_goals).algo_spec.goals_as_states


@pytest.mark.parametrize("sphere", [False, True])
def test_a_waypoint_has_the_length_of_every_z(sphere):
    algo, spec = small.algo("hiql"), dataclasses.replace(SPEC, goal_shape=(8,), goals_on_sphere=sphere)
    nets = algo.init(random.key(0), spec)
    s, z = jnp.ones((4, 3)), jnp.ones((4, 8))
    way = algo.waypoint(nets, s, z, random.key(0), 0.0, spec)
    np.testing.assert_allclose(way, to_sphere(nets.high(s, z)) if sphere else nets.high(s, z), rtol=1e-6)
    if sphere:
        np.testing.assert_allclose((way**2).sum(-1), 8.0, rtol=1e-5)


def test_the_sphere_has_a_centre_with_a_finite_gradient():
    z = jnp.array([[0.0, 0.0], [3.0, 4.0]])
    np.testing.assert_allclose(to_sphere(z), [[0, 0], [0.6 * 2**0.5, 0.8 * 2**0.5]], rtol=1e-6)
    assert np.isfinite(jax.grad(lambda z: to_sphere(z).sum())(z)).all()


def test_half_precision_reaches_the_low_policy_as_in_training():
    """A learned z is given to networks in bfloat16; a waypoint that the high policy names must be, too."""
    for rep, dtype in (("dual", jnp.bfloat16), ("orig", jnp.float32)):
        agent = small.agent(rep, "hiql", precision="bf16")
        params, s = agent.init(random.key(0)).params, jnp.ones((4, 3))
        z = agent.cast_for_heads(agent.encode(params, s, random.key(0)))
        way = agent.algo.waypoint(params.algo, s, z, random.key(0), 0.0, agent.algo_spec)
        assert way.dtype == z.dtype == dtype
        _, info = agent.losses(
            params, agent.with_ema(params), agent.sample(small.data(), random.key(0), 0), random.key(1)
        )
        assert all(np.isfinite(x) for x in info.values()) and info["high/loss"].dtype == jnp.float32


def test_direct_advantages_are_those_of_the_representations_value():
    agent = Agent(small.rep("dual"), dataclasses.replace(small.algo("hiql"), direct=True), SPEC)
    state = agent.init(random.key(0))
    assert state.params.algo.value is None and "value" not in agent.streams and not agent.algo.learns_value
    batch = agent.sample(small.data(), random.key(1), 0)
    draws = {name: batch.draws[agent.draw_of[name]].g for name in ("low", "high", "waypoint")}
    v = lambda s, g: agent.rep.value(state.params.rep, s, g, SPEC)
    _, info = agent.losses(state.params, state.targets, batch, random.key(2))
    low = v(batch.next_s, draws["low"]) - v(batch.s, draws["low"])
    high = v(draws["waypoint"], draws["high"]) - v(batch.s, draws["high"])
    np.testing.assert_allclose(info["low/advantage"], low.mean(), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(info["high/advantage"], high.mean(), rtol=1e-4, atol=1e-6)
    assert np.abs(low).max() > 1e-3 and np.abs(high).max() > 1e-3
    with pytest.raises(UserError, match="HIQL cannot use Orig: direct extraction needs a representation that learns"):
        Agent(small.rep("orig"), agent.algo, SPEC)


def test_discrete_actions():
    agent = small.agent("dual", "hiql", actions=5, discrete=True)
    params, s = agent.init(random.key(0)).params, jnp.ones((4, 3))
    assert set(np.asarray(agent.act(params, s, s, random.key(0))).tolist()) <= set(range(5))
    batch = agent.sample(small.data(actions=5, discrete=True), random.key(0), 0)
    _, info = agent.losses(params, agent.with_ema(params), batch, random.key(1))
    assert np.isfinite(info["low/loss"])


# HIQL's own representation --------------------------------------------------------------------------------------------


def test_phi_reads_the_pair_and_has_a_fixed_length():
    rep = HIQLPhi(hidden=(8,))
    nets = rep.init(random.key(0), SPEC)
    s, g = random.normal(random.key(1), (2, 4, 3))
    z = rep.encode(nets, g, s, random.key(0)).z
    assert z.shape == (4, *rep.z_shape(SPEC)) == (4, 10)
    np.testing.assert_allclose((z**2).sum(-1), 10.0, rtol=1e-5)
    assert np.abs(z - rep.encode(nets, g, 2 * s, random.key(0)).z).max() > 1e-3


def test_the_policy_losses_can_be_kept_out_of_phi_on_images():
    routes = lambda spec, **options: HIQLPhi(**options).routes(spec, True).head
    assert routes(IMAGES) == {"value", "actor"}
    assert routes(IMAGES, pixel_actor_gradient=False) == routes(SPEC) == {"value"}


def test_on_images_every_network_encodes_the_state_itself():
    """As in OGBench: phi reads the pair of images; value and policies have encoders of their own for the state."""
    agent = Agent(small.rep("hiql_phi"), small.algo("hiql"), IMAGES)
    state = jax.eval_shape(agent.init, random.key(0))
    encoders = lambda tree: [
        x.stacks[0].first.w.shape[2]
        for x in jax.tree.leaves(tree, is_leaf=lambda x: isinstance(x, Impala))
        if isinstance(x, Impala)
    ]
    assert state.params.encoders is None
    assert encoders(state.params.rep) == [6]
    assert encoders(state.params.algo) == [3, 3, 3] and encoders(state.targets.algo) == [3]


def test_acting_puts_waypoints_on_the_sphere():
    agent = small.agent("hiql_phi", "hiql")
    assert agent.algo_spec.goals_on_sphere and not small.agent("dual", "hiql").algo_spec.goals_on_sphere
    params = agent.init(random.key(0)).params
    s, g = random.normal(random.key(1), (2, 4, 3))
    nets, z = params.algo, agent.encode(params, g, random.key(0), s)
    expected = jnp.clip(nets.low(s, to_sphere(nets.high(s, z))), -1, 1)
    np.testing.assert_allclose(agent.act(params, s, g, random.key(2)), expected, rtol=1e-5)

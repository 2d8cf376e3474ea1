"""What the agent does once for all pairs: the optimiser, slow copies, randomness by step, two stages, and refusals."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

import small
from dualgoal.agent import Agent
from dualgoal.algos import CRL, GCBC, GCIVL, NoAlgorithm
from dualgoal.errors import UserError
from dualgoal.interface import Spec
from dualgoal.nets.encoders import Encoders
from dualgoal.reps import TRA, Dual
from dualgoal.runs import config
from dualgoal.streams import GoalMix

IMAGE = small.IMAGE


def equal(a, b) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


@pytest.fixture(scope="module")
def trained():
    """Dual + GCIVL: the state at the start and after one, two and three updates."""
    agent, data, key = small.agent("dual", "gcivl"), small.data(), random.key(1)
    step, states, infos = jax.jit(agent.update), [agent.init(random.key(0))], []
    for _ in range(3):
        state, info = step(states[-1], data, key)
        states.append(state)
        infos.append(info)
    return agent, data, key, step, states, infos


# Training -------------------------------------------------------------------------------------------------------------


def test_targets_start_as_copies(trained):
    agent, *_, states, _ = trained
    assert equal(states[0].targets, agent.with_ema(states[0].params))
    fast = {id(x) for x in jax.tree.leaves(states[0].params)}
    assert not fast & {id(x) for x in jax.tree.leaves(states[0].targets)}, "shared buffers could not be donated"
    filled = lambda nets: {name for name, net in vars(nets).items() if net is not None}
    assert (filled(states[0].targets.rep), filled(states[0].targets.algo)) == ({"critic"}, {"value"})


def test_targets_follow_the_parameters_of_before_the_step(trained):
    """D26: so the first update leaves them where they were."""
    agent, *_, states, _ = trained
    assert_near(states[1].targets, states[0].targets, rtol=1e-6)
    expected = jax.tree.map(lambda p, t: 0.005 * p + 0.995 * t, agent.with_ema(states[1].params), states[1].targets)
    assert_near(states[2].targets, expected, rtol=1e-6)
    assert not equal(states[2].targets, states[1].targets)


def test_the_lag_can_be_switched_off(trained):
    agent, data, key, _, states, _ = trained
    prompt = dataclasses.replace(agent, spec=dataclasses.replace(agent.spec, ema_before_update=False, tau=0.1))
    state, _ = jax.jit(prompt.update)(states[0], data, key)
    assert_near(state.params, states[1].params, rtol=1e-6)
    expected = jax.tree.map(lambda p, t: 0.1 * p + 0.9 * t, agent.with_ema(state.params), states[0].targets)
    assert_near(state.targets, expected, rtol=1e-6)


def test_one_adam_over_everything(trained):
    """Three steps by the textbook, float64, from the gradients of the same losses."""
    agent, data, key, _, states, _ = trained
    first = second = jax.tree.map(lambda x: np.zeros(x.shape), states[0].params)
    params = jax.tree.map(lambda x: np.asarray(x, np.float64), states[0].params)
    gradient = jax.jit(jax.grad(lambda p, t, b, k: agent.losses(p, t, b, k)[0]))
    for t in (1, 2):
        k_losses = random.split(random.fold_in(key, t - 1))[1]
        g = gradient(states[t - 1].params, states[t - 1].targets, agent.sample(data, key, t - 1), k_losses)
        g = jax.tree.map(lambda x: np.asarray(x, np.float64), g)
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, g)
        second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g**2, second, g)
        move = lambda p, m, v, t=t: p - 3e-4 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
        params = jax.tree.map(move, params, first, second)
        for a, b in zip(jax.tree.leaves(states[t].params), jax.tree.leaves(params), strict=True):
            np.testing.assert_allclose(a, b, atol=2e-6)


def assert_near(a, b, rtol):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(x, y, rtol=rtol, atol=1e-7)


def test_total_is_the_plain_sum_of_the_losses(trained):
    agent, data, key, _, states, _ = trained
    for name in ("dual", "vib"):
        a = agent if name == "dual" else small.agent("vib", "gcivl")
        state = states[0] if name == "dual" else a.init(random.key(0))
        total, info = a.losses(state.params, state.targets, a.sample(data, key, 0), random.key(3))
        parts = [x for k, x in info.items() if k.endswith("/loss")]
        np.testing.assert_allclose(total, sum(parts), rtol=1e-6)
        assert len(parts) == 3


def test_metrics_are_named_by_part(trained):
    info = trained[-1][0]
    assert {"rep/loss", "value/loss", "actor/loss"} <= set(info)
    assert {name.split("/")[0] for name in info} == {"rep", "value", "actor"}
    assert all(x.shape == () for x in info.values())


def test_a_step_depends_on_nothing_but_state_data_and_key(trained):
    """Resuming from a state that went through the host gives the same bits."""
    _, data, key, step, states, _ = trained
    back = jax.tree.map(lambda x: jnp.asarray(np.asarray(x)), states[2])
    again, _ = step(back, data, key)
    assert equal(again, states[3])
    other, _ = step(states[2], data, random.key(9))
    assert not equal(other.params, states[3].params)


def test_batches_change_with_the_step(trained):
    agent, data, key, *_ = trained
    assert equal(agent.sample(data, key, 5), agent.sample(data, key, jnp.int32(5)))
    assert not equal(agent.sample(data, key, 5).s, agent.sample(data, key, 6).s)


# Two stages -----------------------------------------------------------------------------------------------------------


def stage_two(rep, algo, shape, phi):
    """An agent whose representation and goal encoder come from another run."""
    agent = Agent(rep, algo, Spec(shape, 2, batch_size=4), frozen=True)
    state = agent.init(random.key(5))
    encoders = state.params.encoders and Encoders(state.params.encoders.state, phi.encoders.goal)
    return agent, state._replace(params=state.params._replace(rep=phi.rep, encoders=encoders))


@pytest.mark.parametrize("name", ["dual", "vib"])
def test_two_algorithms_share_one_frozen_representation(name):
    data, key = small.data(), random.key(1)
    alone = Agent(small.rep(name), NoAlgorithm() if name != "vib" else GCBC(hidden=(8,)), Spec((3,), 2, batch_size=4))
    phi = jax.jit(alone.update)(alone.init(random.key(0)), data, key)[0].params
    for algo in (GCIVL(hidden=(8,)), GCBC(hidden=(8,))):
        agent, start = stage_two(small.rep(name), algo, (3,), phi)
        assert "rep" not in agent.streams, "a frozen representation needs no goals of its own"
        state, step = start, jax.jit(agent.update)
        for _ in range(3):
            state, info = step(state, data, key)
        assert equal(state.params.rep, phi.rep)
        assert not equal(state.params.algo, start.params.algo)
        assert "rep/loss" not in info


def test_on_images_the_goal_encoder_is_frozen_too_and_the_state_encoder_is_not():
    data, phi = small.data(IMAGE), small.agent("tra", "gcbc", shape=IMAGE).init(random.key(0)).params
    agent, start = stage_two(small.rep("tra"), GCBC(hidden=(8,)), IMAGE, phi)
    state, _ = jax.jit(agent.update)(start, data, random.key(1))
    assert equal(state.params.rep, phi.rep)
    assert equal(state.params.encoders.goal, phi.encoders.goal)
    assert not equal(state.params.encoders.state, start.params.encoders.state)


# Use ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rep", ["orig", "vib", "dual"])
def test_act_encode_distance_give_rows(rep):
    agent = small.agent(rep, "gcivl")
    params = agent.init(random.key(0)).params
    s, g = random.normal(random.key(1), (2, 6, 3))
    a = agent.act(params, s, g, random.key(2))
    assert a.shape == (6, 2)
    assert (np.abs(a) <= 1).all()
    assert agent.encode(params, g, random.key(2)).shape == (6, 3 if rep == "orig" else small.DIM)
    d = agent.distance(params, s, g, random.key(2))
    assert d.shape == (6,)
    assert (d >= 0).all()


def test_distance_needs_a_value_from_somewhere():
    agent = small.agent("tra", "gcbc")
    params = agent.init(random.key(0)).params
    with pytest.raises(UserError, match="neither TRA nor GCBC learns a value"):
        agent.distance(params, jnp.zeros((1, 3)), jnp.zeros((1, 3)), random.key(0))


def test_the_value_of_either_part_can_be_asked_for():
    agent = small.agent("dual", "gcivl")
    params, (s, g), key = agent.init(random.key(0)).params, random.normal(random.key(1), (2, 6, 3)), random.key(2)
    values = {of: agent.value(params, s, g, key, of) for of in (None, "rep", "algo")}
    assert np.array_equal(values[None], values["rep"]) and not np.allclose(values["rep"], values["algo"])
    z = agent.encode(params, g, key)
    assert np.allclose(values["algo"], agent.algo.value(params.algo, s, z, agent.algo_spec))
    for pair, of, words in (("orig", "rep", "Orig learns no value"), ("orig", "all", "unknown owner of a value 'all'")):
        with pytest.raises(UserError, match=words):
            small.agent(pair, "gcivl").distance(params, s, g, key, of)


def test_act_on_images():
    agent = small.agent("dual", "gcivl", shape=IMAGE)
    params = agent.init(random.key(0)).params
    images = small.data(IMAGE).observations[:2]
    assert agent.act(params, images, images, random.key(0)).shape == (2, 2)
    assert agent.encode(params, images, random.key(0)).shape == (2, small.DIM)


# Refusals -------------------------------------------------------------------------------------------------------------

RUN = {"task": "pointmaze-medium-navigate-v0", "rep": {"name": "dual"}, "algo": {"name": "gcivl"}}
DIRECT = "direct extraction needs a representation that learns a value"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: config.from_dict({**RUN, "rep": {"name": "duel"}}),
            "'duel'; did you mean 'dual'",
        ),
        (
            lambda: config.from_dict({**RUN, "algo": {"name": "gcvil"}}),
            "'gcvil'; did you mean 'gcivl'",
        ),
        (lambda: GoalMix(0.2, 0.5, 0.0, 0.2), "does not sum to one"),
        (lambda: GoalMix(-0.2, 1.2, 0.0, 0.0), "does not sum to one"),
        (lambda: GoalMix(0.0, 0.5, 0.5, 0.0), "both geometric and uniform"),
        (lambda: Spec((3, 4), 2), r"expected \(D,\) or \(H, W, C\)"),
        (lambda: Spec((3,), 2, discount=1.0), "discount is 1.0; expected a number above 0"),
        (lambda: Spec((3,), 2, discount=0.99999999), "at most 1 - 1e-7"),
        (lambda: Spec((3,), 2, precision="fp8"), "unknown precision 'fp8'"),
        (lambda: Agent(Dual(), CRL(), Spec((3,), 4, discrete=True)), "CRL cannot use discrete actions"),
        (lambda: Agent(TRA(), GCIVL(direct=True), Spec((3,), 2)), DIRECT),
    ],
)
def test_bad_use_is_answered_in_one_line_before_any_compilation(make, message):
    compiled = []
    jax.monitoring.register_event_duration_secs_listener(lambda name, *_, **__: compiled.append(name))
    with pytest.raises(UserError, match=message) as problem:
        make()
    assert "\n" not in str(problem.value)
    assert not [name for name in compiled if "compile" in name]

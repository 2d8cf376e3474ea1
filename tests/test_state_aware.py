"""Duals that look at the state (section 14.4): what z is made of, what is refused, and which encoders there are."""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

import small
from dualgoal.agent import Agent
from dualgoal.algos import CRL, GCBC, GCIVL, HIQL, NoAlgorithm
from dualgoal.errors import UserError
from dualgoal.interface import Batch, Goals, Spec
from dualgoal.nets.encoders import Impala
from dualgoal.nets.tokens import Join, Tokens
from dualgoal.reps import Dual, DualPair, DualSiamese, DualToken

SPEC = Spec((3,), 2, discount=0.9, batch_size=4)
IMAGES = Spec(small.IMAGE, 2, batch_size=4)
TINY = {"dim": 8, "hidden": (8,)}
FORMS = [DualSiamese, DualPair, DualToken]


def pairs(seed=1):
    return random.normal(random.key(seed), (2, 4, 3))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def test_siamese_z_is_the_goal_and_the_way_to_it():
    rep, (s, g) = DualSiamese(**TINY), pairs()
    nets = rep.init(random.key(0), SPEC)
    z = rep.encode(nets, g, s, random.key(0)).z
    assert nets.psi is None and z.shape == (4, *rep.z_shape(SPEC)) == (4, 16)
    phi = lambda x: np.asarray(nets.phi(x)).mean(0)
    np.testing.assert_allclose(z, np.concatenate([phi(g), phi(s) - phi(g)], -1), rtol=1e-5, atol=1e-6)
    two = DualSiamese(**TINY, aggregation="asymmetric")
    nets = two.init(random.key(0), SPEC)
    z = two.encode(nets, g, s, random.key(0)).z
    np.testing.assert_allclose(z[:, 8:], np.asarray(nets.psi(s) - nets.phi(g)).mean(0), rtol=1e-5, atol=1e-6)


def test_the_critic_of_siamese_reads_the_difference():
    rep, (s, g) = DualSiamese(**TINY), pairs()
    nets, a = rep.init(random.key(0), SPEC), jnp.ones((4, 2))
    q = np.asarray(nets.critic.mlp(s, g, jnp.abs(s - g), a))[..., 0]
    drawn = Goals(g, jnp.zeros(4))
    _, info = rep.loss(nets, nets, Batch(s, a, s, {"rep": drawn}), drawn, random.key(0), SPEC)
    np.testing.assert_allclose(info["q"], q.mean(), rtol=1e-5)
    for goals in ({"goal_shape": (2,)}, {"goals_as_states": False}):  # nothing to subtract
        spec = Spec((3,), 2, batch_size=4, **goals)
        nets = DualSiamese(**TINY, aggregation="inner").init(random.key(0), spec)
        g = pairs()[1][:, : spec.goal_shape[0]]
        np.testing.assert_allclose(nets.critic(s, g, a), np.asarray(nets.critic.mlp(s, g, a))[..., 0], rtol=1e-6)


def test_features_of_one_encoder_can_be_subtracted_and_those_of_two_cannot():
    for rep, alike in ((DualSiamese(**TINY), True), (Dual(**TINY), False)):
        assert Agent(rep, GCIVL(hidden=(8,)), IMAGES).rep_spec.goals_as_states == alike


def test_siamese_without_the_difference_is_blind():
    rep, (s, g) = DualSiamese(**TINY, relative=False), pairs()
    nets = rep.init(random.key(0), SPEC)
    assert not rep.looks_at_state and rep.z_shape(SPEC) == (8,)
    np.testing.assert_allclose(rep.encode(nets, g, s, random.key(0)).z, nets.phi.mean(g))
    Agent(rep, CRL(hidden=(8,), latent=8), SPEC)


def test_pair_reads_both_in_one_network():
    rep, (s, g) = DualPair(**TINY), pairs()
    nets = rep.init(random.key(0), SPEC)
    both = nets.phi.mlp(jnp.concatenate([s, g], axis=-1))
    np.testing.assert_allclose(rep.encode(nets, g, s, random.key(0)).z, both.mean(0), rtol=1e-5, atol=1e-6)
    expected = (np.asarray(nets.psi(s)) * np.asarray(both)).sum(-1).mean(0) / np.sqrt(8)
    np.testing.assert_allclose(rep.value(nets, s, g, SPEC), expected, rtol=1e-5, atol=1e-6)


def test_tokens_are_joined_place_by_place():
    tokens = Tokens(random.key(0), IMAGES, 8)
    join = Join(random.key(1), tokens)
    images = random.randint(random.key(2), (2, 2, *small.IMAGE), 0, 256).astype(jnp.uint8)
    h_s, h_g = (tokens(x) for x in images)
    assert h_s.shape == (2, 4, 32) and tokens.size == 128
    w, b = np.asarray(join.linear.w), np.asarray(join.linear.b)
    place = np.concatenate([h_s[1, 2], h_g[1, 2], np.abs(h_s[1, 2] - h_g[1, 2])])
    np.testing.assert_allclose(join(h_s, h_g)[1].reshape(4, 32)[2], np.maximum(place @ w + b, 0), rtol=1e-4, atol=1e-5)


def test_the_map_is_what_the_encoder_flattens():
    encoder = Impala(random.key(0), IMAGES.observation_shape, IMAGES)
    tokens = eqx.tree_at(lambda t: t.stacks, Tokens(random.key(0), IMAGES, 8), encoder.stacks)
    image = random.randint(random.key(2), (2, *small.IMAGE), 0, 256).astype(jnp.uint8)
    y = tokens(image).reshape(2, -1) @ encoder.w + encoder.b[None]
    np.testing.assert_allclose(encoder(image), jax.nn.gelu(y, approximate=True), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("form", [DualPair, DualToken])
def test_a_gate_starts_at_the_papers_dual_and_is_trained_by_f(form):
    rep, (s, g) = form(**TINY, gated=True), pairs()
    nets = rep.init(random.key(0), SPEC)
    _, both, alone = rep.parts(nets, s, g)
    z = rep.encode(nets, g, s, random.key(0)).z
    np.testing.assert_allclose(z, np.asarray(alone + sigmoid(-5.0) * both).mean(0), rtol=1e-5, atol=1e-6)
    gradient = jax.grad(lambda n: rep.f(n, s, g).sum())(nets)
    assert float(jnp.abs(gradient.gate)) > 0
    assert rep.z_shape(SPEC) == (8,)


def test_the_gate_of_siamese():
    rep, (s, g) = DualSiamese(**TINY, gated=True, trained_by="all"), pairs()
    nets = rep.init(random.key(0), SPEC)
    goal, at = np.asarray(nets.phi.mean(g)), np.asarray(nets.phi.mean(s))
    z = rep.encode(nets, g, s, random.key(0)).z
    np.testing.assert_allclose(z, goal + sigmoid(-5.0) * (at - goal), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("options", [{"learner": "ivl", "continuity": 1.0}, {"normalize": True, "trained_by": "all"}])
def test_duals_options_work_with_every_form(form, options):
    agent = Agent(form(**TINY, **options), HIQL(hidden=(8,)), SPEC)
    state = agent.init(random.key(0))
    batch = agent.sample(small.data(), random.key(1), 0)
    gradient, info = jax.grad(agent.losses, has_aux=True)(state.params, state.targets, batch, random.key(2))
    assert all(np.isfinite(x).all() for x in jax.tree.leaves((gradient, info)))
    z = agent.encode(state.params, batch.s, random.key(0), batch.next_s)
    assert z.shape[1:] == agent.algo_spec.goal_shape
    if agent.rep.normalize:
        np.testing.assert_allclose((z**2).sum(-1), z.shape[-1], rtol=1e-4)


@pytest.mark.parametrize("form", FORMS)
def test_the_value_bootstraps_from_z_seen_from_the_next_state(form):
    agent = Agent(form(**TINY), GCIVL(hidden=(8,)), SPEC)
    state, batch = agent.init(random.key(0)), agent.sample(small.data(), random.key(1), 0)
    _, info = agent.losses(state.params, state.targets, batch, random.key(2))
    goals, value, slow = batch.draws["value"], state.params.algo.value, state.targets.algo.value
    z = lambda s: agent.rep.encode(state.params.rep, goals.g, s, random.key(0)).z
    r, m = np.asarray(goals.success) - 1, 1 - np.asarray(goals.success)

    def loss(z_next):
        v, v_slow = (np.asarray(net(batch.s, z(batch.s)), np.float64) for net in (value, slow))
        v_next = np.asarray(slow(batch.next_s, z_next), np.float64)
        advantage = r + 0.9 * m * v_next.min(0) - v_slow.mean(0)
        return (np.where(advantage >= 0, 0.9, 0.1) * (r + 0.9 * m * v_next - v) ** 2).mean(1).sum()

    np.testing.assert_allclose(info["value/loss"], loss(z(batch.next_s)), rtol=1e-4)
    assert abs(loss(z(batch.s)) / loss(z(batch.next_s)) - 1) > 1e-4


def test_one_encoder_reads_states_and_goals():
    state = jax.eval_shape(Agent(DualSiamese(**TINY), GCIVL(hidden=(8,)), IMAGES).init, random.key(0))
    assert state.params.encoders.goal is None
    agent = Agent(DualSiamese(**TINY), NoAlgorithm(), IMAGES)
    params = agent.init(random.key(0)).params
    image = random.randint(random.key(2), (2, *small.IMAGE), 0, 256).astype(jnp.uint8)
    np.testing.assert_array_equal(*agent.features(params, image, image))
    z = agent.encode(params, image, random.key(0), s=image)
    np.testing.assert_array_equal(z[:, 8:], 0)  # at the goal there is nothing left to do


@dataclass(frozen=True)
class Encoding(GCBC):
    """Its loss differentiates what encodes goals as states."""

    def losses(self, nets, targets, batch, goals, key, spec):
        return super().losses(nets, targets, batch, goals, key, spec) | {"state": (goals["actor"].as_state.sum(), {})}


@pytest.mark.parametrize("algo", [GCIVL(hidden=(8,)), Encoding(hidden=(8,))])
def test_a_frozen_siamese_keeps_its_one_encoder(algo):
    agent = Agent(DualSiamese(**TINY), algo, IMAGES, frozen=True)
    state = agent.init(random.key(0))
    batch = agent.sample(small.data(small.IMAGE), random.key(1), 0)
    gradient = jax.grad(lambda p: agent.losses(p, state.targets, batch, random.key(2))[0])(state.params)
    assert not any(np.asarray(x).any() for x in jax.tree.leaves((gradient.rep, gradient.encoders)))
    assert any(np.asarray(x).any() for x in jax.tree.leaves(gradient.algo))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DualSiamese(gated=True), "gated needs trained_by 'all'"),
        (lambda: DualSiamese(gated=True, relative=False, trained_by="all"), "it needs relative"),
        (lambda: DualPair(aggregation="symmetric"), "choose inner or asymmetric"),
        (lambda: DualToken(aggregation="iqe"), "choose inner or asymmetric"),
        (lambda: Agent(DualPair(), CRL(), SPEC), "CRL cannot use DualPair"),
    ],
)
def test_what_cannot_work_is_one_line(make, message):
    with pytest.raises(UserError, match=message) as problem:
        make()
    assert "\n" not in str(problem.value)

"""The representations one by one: how embeddings become values, and what each option changes (sections 3.3 and 4)."""

import dataclasses
import typing

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import random

import small
from dualgoal import losses
from dualgoal.agent import Agent, only
from dualgoal.algos import GCIVL, NoAlgorithm
from dualgoal.errors import UserError
from dualgoal.interface import Batch, Goals, Routes, Spec
from dualgoal.reps import BYOL, REPS, TRA, VIB, VIP, Dual, aggregation
from dualgoal.streams import FUTURE_GOALS, Window

SPEC = Spec((3,), 2, discount=0.9, batch_size=4)
IMAGES = Spec(small.IMAGE, 2)
HALF = jnp.float32(0.5)
AGGREGATIONS = typing.get_args(typing.get_type_hints(Dual)["aggregation"])
DISTANCES = {
    "symmetric": lambda x, y: -aggregation.symmetric(x, y),
    "mrn": lambda x, y: -aggregation.mrn(x, y),
    "iqe": lambda x, y: -aggregation.iqe(x, y, HALF),
}
FLOOR = {"symmetric": 1e-3, "mrn": 1e-6, "iqe": 0.0}  # distance of a point from itself, from the roots' floors
seeds = given(st.integers(0, 2**31 - 1))
quick = settings(max_examples=25, deadline=None)


def points(seed: int, *shape: int):
    """Points of small integers now and then, so that intervals touch, repeat and vanish."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=shape) if seed % 2 else rng.integers(-3, 4, shape)
    return jnp.asarray(x, jnp.float32)


# Aggregations -------------------------------------------------------------------------------------------------------


def test_inner_is_scaled_by_the_root_of_the_dimension():
    np.testing.assert_allclose(aggregation.inner(jnp.full((1, 4), 3.0), jnp.full((1, 4), 2.0)), [6 * 4 / 2])


def test_metric_forms_by_hand():
    s, g = jnp.array([[3.0, 0.0, 1.0, -2.0]]), jnp.array([[0.0, 4.0, 3.0, -5.0]])
    np.testing.assert_allclose(aggregation.symmetric(s, g), [-np.sqrt(9 + 16 + 4 + 9)], rtol=1e-6)
    np.testing.assert_allclose(aggregation.mrn(s, g), [-(5 + 3)], rtol=1e-6)
    np.testing.assert_allclose(aggregation.mrn(g, s), [-(5 + 2)], rtol=1e-6)


@quick
@seeds
def test_iqe_components_are_the_lengths_of_unions(seed):
    s, g = points(seed, 2, 3, 16)
    got = np.asarray(aggregation.union_lengths(s, g))
    for sample in range(3):
        for k in range(2):
            group = slice(8 * k, 8 * k + 8)
            left = np.asarray(s[sample, group], np.float64)
            right = np.maximum(left, np.asarray(g[sample, group], np.float64))
            cuts = np.unique(np.concatenate([left, right]))
            covered = [b - a for a, b in zip(cuts, cuts[1:], strict=False) if ((left <= a) & (b <= right)).any()]
            np.testing.assert_allclose(got[sample, k], sum(covered), rtol=1e-4, atol=1e-5)


@quick
@seeds
def test_iqe_weighs_mean_against_maximum(seed):
    s, g = points(seed, 2, 3, 16)
    c = np.asarray(aggregation.union_lengths(s, g))
    np.testing.assert_allclose(
        -aggregation.iqe(s, g, jnp.float32(0.25)), 0.25 * c.mean(-1) + 0.75 * c.max(-1), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("name", DISTANCES)
@quick
@seeds
def test_metrics_are_zero_on_the_diagonal_and_obey_the_triangle_inequality(name, seed):
    d = DISTANCES[name]
    x, y, w = points(seed, 3, 5, 16)
    np.testing.assert_allclose(d(x, x), FLOOR[name], rtol=1e-5, atol=1e-12)
    assert (d(x, y) <= d(x, w) + d(w, y) + 1e-4).all()
    assert (d(x, y) >= 0).all()


def test_quasimetrics_are_asymmetric():
    x, y = points(1, 2, 1, 16)
    for name in ("mrn", "iqe"):
        assert abs(float(DISTANCES[name](x, y)[0] - DISTANCES[name](y, x)[0])) > 1e-3


# Dual ---------------------------------------------------------------------------------------------------------------


def dual(**options) -> Dual:
    return Dual(dim=8, hidden=(8,), **options)


@pytest.mark.parametrize("name", AGGREGATIONS)
def test_dual_value_is_the_member_mean_of_the_aggregation(name):
    rep = dual(aggregation=name)
    nets = rep.init(random.key(0), SPEC)
    assert (nets.psi is not None) == (name in ("inner", "asymmetric"))
    s, g = points(3, 2, 4, 3)
    phi, psi = nets.phi, nets.psi or nets.phi
    form = {"inner": aggregation.inner, "mrn": aggregation.mrn, "iqe": lambda a, b: aggregation.iqe(a, b, HALF)}
    expected = form.get(name, aggregation.symmetric)(psi(s), phi(g)).mean(axis=0)
    np.testing.assert_allclose(rep.value(nets, s, g, SPEC), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(rep.encode(nets, g, s, random.key(0)).z, phi(g).mean(axis=0), rtol=1e-5, atol=1e-6)


def test_the_continuity_penalty_by_hand():
    """gamma = 0.9. A step of 1.2 at V(s') = -3 is free (delta = 1.3); one of 4 costs 16 - 1.69, in both directions."""
    v, v_next = jnp.array([[-4.2, -7.0, 1.0]]), jnp.array([[-3.0, -3.0, -3.0]])
    np.testing.assert_allclose(losses.continuity(v, v_next, 0.9), 2 * (16 - 1.69) / 3, rtol=1e-5)
    slopes = jax.grad(lambda v, w: losses.continuity(v, w, 0.9), argnums=(0, 1))(v, v_next)
    np.testing.assert_allclose(slopes[0], [[0, -8 / 3, 8 / 3]], atol=1e-5)
    np.testing.assert_allclose(slopes[1], [[0, 8 / 3, -8 / 3]], atol=1e-5)  # delta has no gradient


@pytest.mark.parametrize("learner", ["iql", "ivl"])
def test_the_continuity_penalty_is_added_with_its_weight(learner):
    plain = dual(learner=learner, aggregation="asymmetric")
    held = dataclasses.replace(plain, continuity=5.0)
    nets = jax.tree.map(lambda x: 5 * x, plain.init(random.key(0), SPEC))  # so that some steps are too long
    slow, batch = only(nets, plain.ema), Batch(*(points(n, 4, d) for n, d in ((1, 3), (5, 2), (7, 3))), {})
    drawn = Goals(points(9, 4, 3), jnp.array([1.0, 0.0, 0.0, 0.0]))
    loss = lambda rep: rep.loss(nets, slow, batch, drawn, random.key(0), SPEC)
    (base, without), (total, info) = loss(plain), loss(held)
    f = lambda s: np.asarray(plain.f(nets, s, drawn.g), np.float64)
    delta = 1 + 0.1 * np.abs(f(batch.next_s))
    expected = np.maximum((f(batch.s) - f(batch.next_s)) ** 2 - delta**2, 0).mean()
    assert expected > 0.1 and "continuity" not in without
    np.testing.assert_allclose(info["continuity"], expected, rtol=1e-4)
    np.testing.assert_allclose(total - base, 5 * expected, rtol=1e-4)


def test_a_normalized_z_has_one_length_and_the_value_does_not_change():
    plain, unit = dual(), dual(normalize=True)
    nets, (s, g) = plain.init(random.key(0), SPEC), points(3, 2, 4, 3)
    z = unit.encode(nets, g, s, random.key(0)).z
    np.testing.assert_allclose((z**2).sum(-1), 8.0, rtol=1e-5)
    mean = plain.encode(nets, g, s, random.key(0)).z
    np.testing.assert_allclose(z, mean * np.sqrt(8) / np.linalg.norm(mean, axis=-1, keepdims=True), rtol=1e-5)
    np.testing.assert_array_equal(plain.value(nets, s, g, SPEC), unit.value(nets, s, g, SPEC))
    assert unit.on_sphere and not plain.on_sphere


def test_losses_of_the_algorithm_may_train_dual_if_asked():
    for spec in (SPEC, IMAGES):
        assert dual().routes(spec, True) == Routes(frozenset({"rep"}), frozenset({"rep", "value", "actor"}))
        assert dual(trained_by="all").routes(spec, True).head == {"rep", "value", "actor"}
    agent = Agent(dual(trained_by="all"), GCIVL(hidden=(8,)), SPEC)
    state, batch = agent.init(random.key(0)), agent.sample(small.data(), random.key(1), 0)
    downstream = lambda p, a: (
        a.losses(p, state.targets, batch, random.key(2))[0]
        - a.rep.loss(p.rep, state.targets.rep, batch, batch.draws["value"], random.key(2), SPEC)[0]
    )
    for a, moved in ((agent, True), (Agent(dual(), GCIVL(hidden=(8,)), SPEC), False)):
        gradient = jax.tree.leaves(jax.grad(downstream)(state.params, a).rep.phi)
        assert (
            max(float(jnp.abs(x).max()) for x in gradient) > 1e-4
            if moved
            else all(np.allclose(x, 0, atol=1e-6) for x in gradient)
        )


def test_dual_with_goals_of_its_own_draws_them():
    agent = Agent(dual(goals=FUTURE_GOALS), GCIVL(hidden=(8,)), SPEC)
    assert agent.draw_of["rep"] == "rep" and agent.streams["rep"] == FUTURE_GOALS
    assert Agent(dual(), GCIVL(hidden=(8,)), SPEC).draw_of["rep"] == "value"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"continuity": -1.0}, "continuity is -1.0"),
        ({"continuity": 1.0, "reward": "zero_one"}, "continuity compares values in steps"),
        ({"trained_by": "value"}, "unknown trained_by 'value'"),
    ],
)
def test_options_of_dual_that_make_no_sense_are_one_line(options, message):
    with pytest.raises(UserError, match=message) as problem:
        small.chosen(Dual, **options)
    assert "\n" not in str(problem.value)


@pytest.mark.parametrize("learner", ["iql", "ivl"])
@pytest.mark.parametrize("name", AGGREGATIONS)
def test_every_aggregation_and_learner_gives_finite_gradients(name, learner):
    """Also where state and goal coincide, where the square roots have their floor."""
    rep = dual(aggregation=name, learner=learner)
    nets = rep.init(random.key(0), SPEC)
    slow = only(nets, rep.ema)
    s = points(3, 4, 3)
    goals = Goals(s, jnp.array([1.0, 0.0, 0.0, 1.0]))
    batch = Batch(s, points(5, 4, 2), points(7, 4, 3), {})
    loss = lambda n: rep.loss(n, slow, batch, goals, random.key(0), SPEC)[0]
    loss, gradient = jax.jit(jax.value_and_grad(loss))(nets)
    assert np.isfinite(loss)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(gradient))


def fixed(reward: str, learner: str):
    rep = dual(reward=reward, learner=learner)
    nets = rep.init(random.key(0), SPEC)
    slow = rep.init(random.key(1), SPEC)
    goals = Goals(points(3, 4, 3), jnp.array([1.0, 0.0, 0.0, 1.0]))
    return rep, nets, slow, Batch(points(5, 4, 3), points(7, 4, 2), points(9, 4, 3), {}), goals


def test_f_learned_by_ivl_has_a_slow_copy_and_no_critic():
    rep, nets, slow, batch, goals = fixed("negative", "ivl")
    assert only(nets, rep.ema).phi is not None
    assert nets.critic is None
    f = lambda nets, s: np.asarray(rep.f(nets, s, goals.g), np.float64)
    r, m = np.array([0, -1, -1, 0]), np.array([0, 1, 1, 0])
    y = r + 0.9 * m * f(slow, batch.next_s)
    advantage = r + 0.9 * m * f(slow, batch.next_s).min(0) - f(slow, batch.s).mean(0)
    expected = (np.where(advantage >= 0, 0.7, 0.3) * (y - f(nets, batch.s)) ** 2).mean(1).sum()
    np.testing.assert_allclose(rep.loss(nets, slow, batch, goals, random.key(0), SPEC)[0], expected, rtol=1e-5)


def test_zero_one_reward_learns_the_discounted_indicator():
    """r = success and no bootstrap at the goal, so f is gamma^d; `value` converts it to the -1/0 convention."""
    rep, nets, slow, batch, goals = fixed("zero_one", "iql")
    loss, info = rep.loss(nets, slow, batch, goals, random.key(0), SPEC)
    g = goals.g
    f = lambda s: np.asarray(rep.f(nets, s, g), np.float64)
    y = np.array([1, 0, 0, 1]) + 0.9 * np.array([0, 1, 1, 0]) * f(batch.next_s)
    q = np.asarray(nets.critic(batch.s, g, batch.a), np.float64)
    np.testing.assert_allclose(info["critic_loss"], ((q[:, None] - y[None]) ** 2).mean(1).sum(0).mean(), rtol=1e-5)
    np.testing.assert_allclose(rep.value(nets, batch.s, g, SPEC), (f(batch.s).mean(0) - 1) / 0.1, rtol=1e-4)


# The others ---------------------------------------------------------------------------------------------------------


def test_vib_draws_a_fresh_latent_for_every_key_and_penalises_it():
    rep = VIB(dim=8, hidden=(8, 8), beta=0.5)
    nets = rep.init(random.key(0), SPEC)
    g = points(3, 6, 3)
    first, second = (rep.encode(nets, g, g, random.key(k)) for k in (0, 1))
    assert (first.z != second.z).all()
    mean, log_std = nets.phi(g)
    many = jax.vmap(lambda k: rep.encode(nets, g, g, k).z)(random.split(random.key(2), 4000))
    np.testing.assert_allclose(many.mean(0), mean, atol=0.15)
    np.testing.assert_allclose(many.std(0), np.exp(log_std), rtol=0.1)
    kl = 0.5 * (np.asarray(mean) ** 2 + np.exp(2 * np.asarray(log_std)) - 1 - 2 * np.asarray(log_std)).sum(-1)
    np.testing.assert_allclose(first.penalty, 0.5 * kl, rtol=1e-4)


def test_vib_policy_and_value_see_different_latents_of_one_goal():
    seen = []

    class Watching(GCIVL):
        def losses(self, nets, targets, batch, goals, key, spec):
            seen.append((goals["value"](batch.s), goals["actor"](batch.s)))
            return super().losses(nets, targets, batch, goals, key, spec)

    agent = Agent(VIB(dim=8, hidden=(8, 8)), Watching(hidden=(8,)), SPEC)
    state = agent.init(random.key(0))
    goals = Goals(points(3, 4, 3), jnp.zeros(4))
    batch = Batch(points(5, 4, 3), points(7, 4, 2), points(9, 4, 3), {"value": goals, "actor": goals})
    agent.losses(state.params, state.targets, batch, random.key(0))
    assert (seen[0][0] != seen[0][1]).all()


@pytest.mark.parametrize("name", sorted(set(REPS) - {"orig", "vib"}))
def test_only_vib_has_a_penalty(name):
    rep = small.rep(name)
    encoded = rep.encode(rep.init(random.key(0), SPEC), points(3, 4, 3), points(5, 4, 3), random.key(0))
    assert encoded.z.shape == (4, *rep.z_shape(SPEC))
    assert encoded.penalty is None


def test_orig_hands_the_goal_through():
    g = points(3, 4, 3)
    rep = small.rep("orig")
    assert rep.encode(rep.init(random.key(0), SPEC), g, g, random.key(0)).z is g


def test_switches():
    """D5, D7, D11 and D14: the default first, then the other reading. What D5 and D7 do is shown with the gradients."""
    own = frozenset({"rep"})
    for cls in (TRA, BYOL):
        assert cls().routes(SPEC, False).head == {"rep", "actor"}
        assert cls(flow_gradient=False).routes(SPEC, False).head == own
        assert cls().routes(SPEC, True).head == own
        assert cls().stream.augment == "independent"
        assert cls(augment="batch").stream.augment == "batch"
    assert VIB().routes(IMAGES, True) == Routes(frozenset({"value", "actor"}), frozenset({"value"}))
    assert VIB(pixel_actor_gradient=False).routes(IMAGES, True).head == {"value"}
    assert VIP().stream == Window(aligned=True)
    assert VIP(windows="reference").stream == Window(aligned=False)


# Direct extraction and a representation alone -----------------------------------------------------------------------


@pytest.mark.parametrize("learner", ["iql", "ivl"])
def test_direct_extraction_takes_its_advantage_from_f(learner):
    agent = Agent(dual(learner=learner), GCIVL(direct=True, hidden=(8,)), SPEC)
    state = agent.init(random.key(0))
    assert state.params.algo.value is None, "no second value function"
    batch = agent.sample(small.data(), random.key(1), 0)
    _, info = agent.losses(state.params, state.targets, batch, random.key(2))
    goals, nets = batch.draws["actor"], state.params.rep
    f = lambda s: np.asarray(agent.rep.f(nets, s, goals.g), np.float64).mean(0)
    z = nets.phi(goals.g).mean(0)
    mean = np.asarray(state.params.algo.actor(batch.s, z), np.float64)
    log_prob = -0.5 * ((np.asarray(batch.a) - mean) ** 2).sum(-1) - np.log(2 * np.pi)
    expected = -(np.minimum(np.exp(10 * (f(batch.next_s) - f(batch.s))), 100) * log_prob).mean()
    np.testing.assert_allclose(info["actor/loss"], expected, rtol=1e-4)


def test_direct_extraction_does_not_train_f_by_the_policy():
    agent = Agent(dual(learner="ivl"), GCIVL(direct=True, hidden=(8,)), SPEC)
    state = agent.init(random.key(0))
    batch = agent.sample(small.data(), random.key(1), 0)
    whole = jax.grad(lambda p: agent.losses(p, state.targets, batch, random.key(2))[0])(state.params)
    goals = batch.draws[agent.draw_of["rep"]]
    loss = lambda n: agent.rep.loss(n, state.targets.rep, batch, goals, random.key(2), SPEC)[0]
    own = jax.grad(loss)(state.params.rep)
    for a, b in zip(jax.tree.leaves(whole.rep), jax.tree.leaves(own), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)


def test_representation_alone_has_nothing_but_its_own_loss():
    agent = Agent(dual(), NoAlgorithm(), SPEC)
    state = agent.init(random.key(0))
    batch = agent.sample(small.data(), random.key(1), 0)
    total, info = agent.losses(state.params, state.targets, batch, random.key(2))
    assert float(total) == float(info["rep/loss"])
    assert jax.tree.leaves(state.params.algo) == []
    with pytest.raises(UserError, match="representation alone"):
        agent.act(state.params, batch.s, batch.s, random.key(0))


@pytest.mark.parametrize(
    "make",
    [
        lambda: small.chosen(Dual, aggregation="inne"),
        lambda: small.chosen(Dual, learner="sarsa"),
        lambda: small.chosen(Dual, reward="dense"),
        lambda: small.chosen(Dual, aggregation="mrn", dim=7),
        lambda: small.chosen(Dual, aggregation="iqe", dim=12),
        lambda: small.chosen(VIP, windows="tall"),
        lambda: small.chosen(TRA, augment="none"),
        lambda: small.chosen(REPS["orig"], fusion="middle"),
        lambda: small.chosen(Dual, expectile=-1),
        lambda: small.chosen(Dual, expectile=2),
        lambda: small.chosen(VIB, beta=-0.1),
        lambda: small.chosen(GCIVL, alpha=-1),
        lambda: small.chosen(GCIVL, expectile=float("nan")),
    ],
)
def test_options_that_do_not_exist_are_refused(make):
    with pytest.raises(UserError):
        make()


def test_an_aggregation_gets_its_nearest_match():
    with pytest.raises(UserError, match="did you mean 'symmetric'"):
        small.chosen(Dual, aggregation="symetric")

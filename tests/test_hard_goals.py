"""Dual's hard goals (section 14.3): which goals of a batch are exchanged, for what, and where that is refused."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

import small
from dualgoal.agent import Agent
from dualgoal.algos import GCIVL, NoAlgorithm
from dualgoal.errors import UserError
from dualgoal.interface import Batch, Goals, Spec
from dualgoal.reps import Dual, DualPair, DualSiamese, DualToken, aggregation

ROWS = 12
SPEC = Spec((3,), 2, discount=0.9, batch_size=ROWS)
TINY = {"dim": 8, "hidden": (8,)}
HALF = {**TINY, "hard_goals": 0.5}
FORMS = [{"aggregation": form} for form in aggregation.BY_PRODUCTS]


def drawn_batch(s, g, success):
    drawn = Goals(g, jnp.asarray(success, jnp.float32))
    return Batch(s, jnp.ones((len(s), 2)), s + 0.1, {"rep": drawn}), drawn


def states_and_goals(seed=0):
    """Every second transition starts at its own goal, and transition 0 is at the goal of transition 3."""
    s, g = random.normal(random.key(seed), (2, ROWS, 3))
    own = jnp.arange(ROWS) % 2 == 0
    g = jnp.where(own[:, None], s, g).at[3].set(s[0])
    return s, g, own


@pytest.mark.parametrize("form", FORMS)
def test_every_pair_has_the_value_of_f(form):
    rep, (s, g, _) = Dual(**TINY, **form), states_and_goals()
    nets = rep.init(random.key(0), SPEC)
    psi, phi = rep.embed(nets, s, g)
    got = np.asarray(aggregation.each_pair(rep.aggregation, psi[:, :5], phi))
    one_by_one = [[np.asarray(rep.f(nets, s[i][None], g[j][None]))[:, 0] for j in range(ROWS)] for i in range(5)]
    np.testing.assert_allclose(got, np.moveaxis(np.array(one_by_one), -1, 0), rtol=1e-4, atol=2e-3)


@pytest.mark.parametrize("form", FORMS)
def test_the_first_goals_become_the_nearest_that_are_not_reached(form):
    rep, (s, g, own) = Dual(**HALF, **form), states_and_goals()
    nets = rep.init(random.key(0), SPEC)
    batch, drawn = drawn_batch(s, g, own)
    made = rep.with_hard_goals(nets, batch, drawn, SPEC)
    for i in range(6):
        others = [j for j in range(ROWS) if j != i and (np.asarray(g[j]) != np.asarray(s[i])).any()]
        values = [float(rep.f(nets, s[i][None], g[j][None]).mean()) for j in others]
        np.testing.assert_array_equal(made.g[i], g[others[int(np.argmax(values))]])
        assert made.success[i] == 0
    np.testing.assert_array_equal(made.g[6:], g[6:])
    np.testing.assert_array_equal(made.success[6:], drawn.success[6:])


def test_where_every_goal_of_the_batch_is_reached_goals_stay_as_they_were():
    rep = Dual(**{**TINY, "hard_goals": 1.0})
    s = jnp.ones((ROWS, 3))
    batch, drawn = drawn_batch(s, s, jnp.arange(ROWS) % 2)
    made = rep.with_hard_goals(rep.init(random.key(0), SPEC), batch, drawn, SPEC)
    np.testing.assert_array_equal(made.g, drawn.g)
    np.testing.assert_array_equal(made.success, drawn.success)


def test_the_loss_is_that_of_the_exchanged_goals_and_the_choice_has_no_gradient():
    rep, plain = Dual(**HALF, continuity=0.5), Dual(**TINY, continuity=0.5)
    nets, (s, g, own) = rep.init(random.key(0), SPEC), states_and_goals()
    batch, drawn = drawn_batch(s, g, own)
    made = rep.with_hard_goals(nets, batch, drawn, SPEC)
    loss = lambda part, drawn: lambda nets: part.loss(nets, nets, batch, drawn, random.key(0), SPEC)[0]
    assert loss(rep, drawn)(nets) == loss(plain, made)(nets) != loss(plain, drawn)(nets)
    ours, theirs = (jax.tree.leaves(jax.grad(loss(*x))(nets)) for x in ((rep, drawn), (plain, made)))
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(a, b)


def test_of_features_of_two_image_encoders_only_the_transitions_own_goal_may_be_reached():
    spec = Agent(Dual(**HALF), GCIVL(hidden=(8,)), Spec(small.IMAGE, 2)).rep_spec
    rep = Dual(**{**TINY, "hard_goals": 1.0})
    s, g = random.normal(random.key(0), (2, ROWS, *spec.observation_shape))
    batch, drawn = drawn_batch(s, g, jnp.arange(ROWS) % 2)
    made = rep.with_hard_goals(rep.init(random.key(0), spec), batch, drawn, spec)
    assert not made.success.any()
    assert all((np.asarray(made.g[i]) != np.asarray(g[i])).any() for i in range(ROWS))


@pytest.mark.parametrize("reached_by", ["row", "state"])
@pytest.mark.parametrize(
    ("goals", "words"),
    [({"goal_shape": (2,)}, r"goals \(2,\)"), ({"goals_as_states": False}, "goals something else of that shape")],
)
def test_goals_that_are_no_states_are_refused(reached_by, goals, words):
    """One of the batch may be where the state is already, and nothing tells."""
    spec = dataclasses.replace(SPEC, reached_by=reached_by, **goals)
    with pytest.raises(UserError, match=rf"\(hard_goals\), but observations are \(3,\) and {words}; leave"):
        Agent(Dual(**HALF), NoAlgorithm(), spec)
    images = dataclasses.replace(SPEC, observation_shape=small.IMAGE, goal_shape=(), goals_as_states=False)
    with pytest.raises(UserError, match=r"asks which goals a state has reached"):
        Agent(Dual(**HALF), NoAlgorithm(), images)


@pytest.mark.parametrize("spec", [SPEC, Spec(small.IMAGE, 2, batch_size=4, augment=1.0)], ids=["vectors", "images"])
@pytest.mark.parametrize("rep", [Dual(**HALF), DualSiamese(**HALF)], ids=["dual", "siamese"])
def test_agents_train_with_them(rep, spec):
    agent = Agent(rep, GCIVL(hidden=(8,)), spec)
    data = small.data(spec.observation_shape)
    state, info = jax.jit(agent.update)(agent.init(random.key(0)), data, random.key(1))
    assert np.isfinite(info["rep/loss"]) and state.step == 1


@pytest.mark.parametrize(
    ("use", "words"),
    [
        (lambda: Dual(**TINY, hard_goals=1.5), "hard_goals is 1.5; expected a number from 0 to 1"),
        (lambda: Dual(**HALF, aggregation="mrn"), "needs one of the aggregations inner, symmetric, asymmetric"),
        (lambda: DualPair(**HALF), "which a phi that reads both cannot"),
        (lambda: DualToken(**HALF), "which a phi that reads both cannot"),
    ],
)
def test_what_cannot_be_is_refused(use, words):
    with pytest.raises(UserError, match=words):
        use()

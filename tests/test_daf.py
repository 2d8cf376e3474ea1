"""DAF: its advantage is the Bellman advantage of Dual's value, what it asks of a representation, and a grid in which it
finds the way. Its losses in an agent are in test_parity, its gradients in test_pairs."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

import small
from dualgoal.agent import Agent
from dualgoal.algos import DAF
from dualgoal.algos.daf import displacement_loss
from dualgoal.errors import UserError
from dualgoal.interface import Spec, from_factors
from dualgoal.loop import TrainingLoop
from dualgoal.reps import Dual, DualPair, DualSiamese, Wrapped
from dualgoal.runs import policy

SPEC = Spec((3,), 2, batch_size=16, discount=0.9)


def agent_with(rep, **options) -> Agent:
    return Agent(rep, DAF(hidden=(8,), **options), SPEC)


def test_observed_displacements_give_the_bellman_advantage_without_its_reward():
    """gamma V(s', g) - V(s, g), by the value that the agent itself reports."""
    agent = agent_with(small.rep("dual"))
    params = agent.init(random.key(0)).params
    s, later, g = random.normal(random.key(1), (3, 5, 3))
    psi, phi = agent.rep.factors(params.rep, s, g)
    moved = SPEC.discount * agent.rep.factors(params.rep, later, g)[0] - psi
    v, v_later = (agent.value(params, x, g, random.key(0)) for x in (s, later))
    np.testing.assert_allclose(from_factors(moved, phi), SPEC.discount * v_later - v, rtol=1e-4, atol=1e-5)


def test_an_observed_displacement_needs_no_network():
    agent, data = agent_with(small.rep("dual"), displacement="observed"), small.data()
    state = agent.init(random.key(0))
    assert state.params.algo.displacement is None
    _, info = agent.losses(state.params, state.targets, agent.sample(data, random.key(1), 0), random.key(1))
    assert {name for name in info if name.endswith("/loss")} == {"rep/loss", "actor/loss"}


def test_the_reward_can_be_added_to_the_advantage():
    found = {}
    for reward in (False, True):
        agent, data = agent_with(small.rep("dual"), reward=reward), small.data()
        state, batch = agent.init(random.key(0)), agent.sample(data, random.key(1), 0)
        found[reward] = agent.losses(state.params, state.targets, batch, random.key(1))[1]["actor/advantage"]
    assert float(found[True] - found[False]) == pytest.approx(float(batch.draws["actor"].success.mean()) - 1, abs=1e-5)


def test_what_is_missed_is_a_share():
    moved = random.normal(random.key(0), (2, 4, 8))
    for predicted, share in ((moved, 0), (jnp.zeros_like(moved), 1), (0.5 * moved, 0.25)):
        loss, info = displacement_loss(predicted, moved)
        assert float(info["missed"]) == pytest.approx(share)
        assert float(loss) == pytest.approx(float(((predicted - moved) ** 2).mean()))


@pytest.mark.parametrize(
    "rep",
    [
        small.rep("orig"),
        small.rep("vip"),  # a value, but a distance
        small.rep("dual", aggregation="symmetric"),
        small.rep("dual", reward="zero_one"),
        small.rep("dual_siamese"),
        small.rep("dual_pair", aggregation="inner"),
    ],
    ids=lambda rep: type(rep).__name__,
)
def test_a_representation_without_factors_is_refused(rep):
    name = type(rep).__name__
    with pytest.raises(UserError, match=f"DAF cannot use {name}: it needs a value that is an inner product"):
        agent_with(rep)


@pytest.mark.parametrize(
    "rep",
    [
        small.rep("dual", normalize=True),
        small.rep("dual", learner="ivl"),
        small.rep("dual_siamese", aggregation="inner"),
        Wrapped(small.rep("dual")),
    ],
    ids=lambda rep: type(rep).__name__,
)
def test_whatever_z_is_the_factors_are_those_of_the_value(rep):
    agent, data = agent_with(rep), small.data()
    state, key = agent.init(random.key(0)), random.key(1)
    after, info = jax.jit(agent.update)(state, data, key)
    assert all(np.isfinite(x) for x in info.values())
    assert agent.act(after.params, *jnp.ones((2, 4, 3)), key).shape == (4, 2)


@dataclasses.dataclass(frozen=True)
class Short(Dual):
    def factors(self, nets, s, g):
        return tuple(x.mean(axis=0) for x in self.embed(nets, s, g))


def test_factors_of_another_shape_are_refused():
    agent = agent_with(Short(dim=8, hidden=(8,)))
    state, batch = agent.init(random.key(0)), agent.sample(small.data(), random.key(1), 0)
    words = r"Short.factors gives arrays of shapes \(16, 8\) and \(16, 8\); its factor_shape says .* \(2, 16, 8\)"
    with pytest.raises(UserError, match=words):
        agent.losses(state.params, state.targets, batch, random.key(1))


@dataclasses.dataclass(frozen=True)
class Halved(Dual):
    """Another value, but the factors of Dual."""

    def value(self, nets, s, g, spec):
        return 0.5 * super().value(nets, s, g, spec)


class Plain(Dual):
    """Dual itself, from another package."""


def test_factors_of_another_value_are_refused_before_training():
    begin = lambda rep, algo: policy.try_out(TrainingLoop(Agent(rep, algo, SPEC), (0,)), small.data())
    with pytest.raises(UserError, match="Halved: the inner product of its factors is not what Halved.value gives"):
        begin(Halved(dim=8, hidden=(8,)), DAF(hidden=(8,)))
    begin(Halved(dim=8, hidden=(8,)), small.algo("gcbc"))  # which does not ask for them
    begin(Plain(dim=8, hidden=(8,)), DAF(hidden=(8,)))


def test_forms_that_have_factors():
    shapes = {form: Dual(dim=16, aggregation=form).factor_shape for form in ("inner", "symmetric", "mrn", "iqe")}
    assert shapes == {"inner": (2, 16), "symmetric": None, "mrn": None, "iqe": None}
    assert DualPair(dim=16).factor_shape is None and DualSiamese(dim=16, aggregation="inner").factor_shape == (2, 16)

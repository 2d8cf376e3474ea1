"""docs/new_representation.md is executed: its representation is found by its path and trains under every algorithm."""

import dataclasses
import re
import sys
import types
from pathlib import Path

import jax
import numpy as np
import pytest
from jax import random

import small
from dualgoal import imports
from dualgoal.algos import ALGOS
from dualgoal.errors import UserError
from dualgoal.interface import Routes
from dualgoal.paper import sweep
from dualgoal.runs import config

PAGE = Path(__file__).parents[1] / "docs" / "new_representation.md"


@pytest.fixture(scope="module")
def page():
    """The names that the page defines, after running its code blocks in order as the module my_reps."""
    module = types.ModuleType("my_reps")
    sys.modules["my_reps"] = module
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.S):
        exec(compile(block, str(PAGE), "exec"), module.__dict__)
    yield module
    del sys.modules["my_reps"]


@pytest.mark.parametrize("name", sorted(set(ALGOS) - {"none", "daf"}))  # it has no value, and no factors of one
def test_the_example_trains_under_every_algorithm(name, page):
    algo = small.algo(name)
    discrete = "continuous" not in algo.actions
    data = small.data(discrete=discrete)
    update = jax.jit(lambda data: page.first_update(algo, data, 2, discrete))
    state, info = update(data)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves((state.params, info)))
    assert {"rep/loss", "rep/feature_scale"} <= set(info)
    assert set(vars(state.params.rep)) == {"psi", "rho"}


def test_its_random_features_stay_and_its_head_learns(page):
    agent = page.Agent(page.Successor(dim=16, hidden=(16,)), small.algo("gcbc"), page.Spec((3,), 2, batch_size=8))
    start = agent.init(random.key(0))
    state, _ = agent.update(start, small.data(), random.key(1))
    same = lambda name: all(
        np.array_equal(a, b)
        for a, b in zip(*(jax.tree.leaves(getattr(s.params.rep, name)) for s in (start, state)), strict=True)
    )
    assert same("rho")
    assert not same("psi")


def test_a_configuration_finds_it_by_its_path(page):
    rep = {"name": "my_reps:Successor", "dim": 64}
    run = config.from_dict({"task": "pointmaze-medium-navigate-v0", "rep": rep, "algo": {"name": "gcivl"}})
    assert run.rep == page.Successor(dim=64)
    assert config.from_dict(config.to_dict(run)) == run


def test_a_variation_of_any_representation_trains_and_is_chosen_in_a_sweep(page, tmp_path):
    """z has one length, whatever is inside; the table in a sweep's file says what that is."""
    for name in ("dual", "vib", "hiql_phi"):
        agent = page.Agent(page.OnSphere(small.rep(name)), small.algo("gcivl"), page.Spec((3,), 2, batch_size=8))
        state, info = agent.update(agent.init(random.key(0)), small.data(), random.key(1))
        rows = small.data().observations
        z = agent.encode(state.params, rows[4:8], random.key(2), s=rows[:4])
        np.testing.assert_allclose((np.asarray(z) ** 2).sum(axis=-1), small.DIM, rtol=1e-5)
        assert ("penalty/loss" in info) == (name == "vib")
    (tmp_path / "mine.toml").write_text(
        'tasks = ["pointmaze-medium-navigate-v0"]\nreps = ["my_reps:OnSphere"]\nalgos = ["gcivl"]\n[grid]\n'
        '"rep.inner.name" = ["tra", "dual"]\n'
    )
    runs = sweep.expand(sweep.read(tmp_path / "mine.toml"))
    assert [type(planned.run.rep.inner).__name__ for planned in runs] == ["TRA", "Dual"]


@pytest.mark.parametrize("shape", [(3,), small.IMAGE])
def test_the_one_that_looks_at_the_state_trains_and_has_targets_that_follow(page, shape):
    spec = page.Spec(shape, 2, batch_size=4, tau=0.5)
    agent = page.Agent(page.Ahead(dim=8, hidden=(16,)), small.algo("gcivl"), spec)
    start, data = agent.init(random.key(0)), small.data(shape)
    update = jax.jit(agent.update)  # twice, as targets follow the parameters from before a step
    state, info = update(update(start, data, random.key(1))[0], data, random.key(1))
    assert np.isfinite(info["rep/loss"]) and {"rep/v", "value/loss"} <= set(info)
    for name in ("phi", "value"):
        before, after = (jax.tree.leaves(getattr(s.targets.rep, name)) for s in (start, state))
        assert not all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))
    s, g = data.observations[:3], data.observations[3:6]
    assert agent.distance(state.params, s, g, random.key(0)).shape == (3,)
    z = [agent.encode(state.params, g, random.key(0), s) for s in (s, g)]
    assert z[0].shape == (3, 8) and not np.allclose(*z)


@pytest.mark.parametrize(
    ("method", "gives", "words"),
    [
        ("init", {"psi": 1}, "Broken.init gives a dict; expected an eqx.Module"),
        ("init", None, "Broken.init gives a NoneType; expected an eqx.Module"),
        ("routes", None, "Broken.routes gives a NoneType; expected Routes.head, features."),
        ("routes", Routes("rep", frozenset()), "Broken.routes gives a str as head; expected a set, such as {'rep'}"),
        ("routes", Routes(frozenset({"own"}), frozenset()), "unknown loss in the routes of Broken 'own'"),
    ],
)
def test_what_its_methods_give_is_checked_by_name(page, method, gives, words):
    broken = dataclasses.dataclass(frozen=True)(type("Broken", (page.Successor,), {method: lambda *_: gives}))
    agent = page.Agent(broken(dim=8, hidden=(8,)), small.algo("gcivl"), page.Spec((3,), 2))
    with pytest.raises(UserError, match=words):
        agent.init(jax.random.key(0)), agent.routes


def test_the_place_of_an_exception_is_not_in_pythons_library(tmp_path):
    (tmp_path / "mine.py").write_text('import json\n\n\ndef read(rows):\n    return json.loads("{")\n')
    with pytest.raises(UserError, match=r"raised JSONDecodeError: .* \(mine.py, line 5\)"), imports.calling("read"):
        imports.load("thing", f"{tmp_path / 'mine.py'}:read")(0)

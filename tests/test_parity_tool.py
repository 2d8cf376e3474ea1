"""The plumbing of tools/parity, as far as it can be tested without anybody else's code."""

import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

from dualgoal import algos, reps
from dualgoal.agent import Agent
from dualgoal.errors import UserError
from dualgoal.interface import Spec

TOOLS = Path(__file__).parent.parent / "tools"


@pytest.fixture(scope="module", autouse=True)
def tools():
    sys.path.insert(0, str(TOOLS))
    yield
    sys.path.remove(str(TOOLS))


def refused(*words):
    done = subprocess.run([sys.executable, str(TOOLS / "parity"), *map(str, words)], capture_output=True, text=True)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, done.stderr
    return done.stderr


def test_a_wrong_path_is_refused_in_one_line(tmp_path):
    assert "no such folder" in refused("--ogbench", tmp_path / "none")
    assert "no agents/gcivl.py" in refused("--ogbench", tmp_path)


def test_a_checkout_is_found_by_its_files(tmp_path):
    import parity_checkout

    for name in parity_checkout.FILES["ogbench"]:
        (tmp_path / "impls" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "impls" / name).touch()
    expected = (tmp_path / "impls").resolve()
    assert parity_checkout.folder("ogbench", tmp_path) == parity_checkout.folder("ogbench", expected) == expected


def test_what_cannot_be_imported_is_said_in_one_line(tmp_path, monkeypatch):
    import parity_checkout

    monkeypatch.setattr(parity_checkout, "NEEDED", ("numpy", "no-such-package"))
    with pytest.raises(UserError, match="pip install no-such-package$"):
        parity_checkout.check_packages()
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "agents.py").write_text("raise TypeError('another version')")
    with pytest.raises(UserError, match="TypeError: another version"):
        parity_checkout.enter(tmp_path)


def cases():
    sys.path.insert(0, str(TOOLS))
    try:
        import parity_agents
    finally:
        sys.path.remove(str(TOOLS))
    found = parity_agents.ogbench_cases() + parity_agents.release_cases()
    return {f"{case.name}: {case.title()}": case for case in found}


CASES = cases()


@pytest.mark.parametrize("name", CASES)
def test_every_weight_is_copied_exactly_once(name):
    import parity_weights

    agent = CASES[name].agent()
    shapes = jax.eval_shape(agent.init, random.key(0))

    def numbered(tree):
        """The same tree with a different number in every place."""
        leaves, structure = jax.tree.flatten(tree)
        ends = np.cumsum([leaf.size for leaf in leaves])
        filled = [
            np.arange(end - leaf.size, end, dtype=float).reshape(leaf.shape)
            for leaf, end in zip(leaves, ends, strict=True)
        ]
        return jax.tree.unflatten(structure, filled), int(ends[-1]) if leaves else 0

    for tree, layout in ((shapes.params, parity_weights.modules), (shapes.targets, parity_weights.target_modules)):
        filled, count = numbered(tree)
        copied = [leaf.reshape(-1) for leaf in jax.tree.leaves(layout(agent, filled))]
        assert sorted(np.concatenate(copied)) == list(range(count)) if count else not copied


def flax_mlp(tree, x):
    """What a Flax MLP of this layout computes."""
    names = sorted(name for name in tree if name.startswith("Dense"))
    for n, name in enumerate(names):
        x = x @ tree[name]["kernel"] + tree[name]["bias"][..., None, :]
        if f"LayerNorm_{n}" in tree:
            norm = tree[f"LayerNorm_{n}"]
            x = jax.nn.gelu(x, approximate=True)
            x = (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-6)
            x = x * norm["scale"][..., None, :] + norm["bias"][..., None, :]
    return x


def drawn(agent, rng):
    """Parameters without regular values, and without the time that it takes to compile their initialisation."""
    shapes = jax.eval_shape(agent.init, random.key(0)).params
    return jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape), jnp.float32), shapes)


def test_layers_keep_their_order_and_their_parts():
    import parity_agents
    import parity_weights

    agent, rng = CASES["gcivl: orig + gcivl"].agent(), np.random.default_rng(0)
    params = drawn(agent, rng)
    s, g = jnp.asarray(rng.normal(size=(2, 3, *parity_agents.SHAPES["state"])), jnp.float32)
    tree = parity_weights.modules(agent, params)["modules_value"]["value_net"]
    expected = params.algo.value(s, g)
    np.testing.assert_allclose(flax_mlp(tree, jnp.concatenate([s, g], -1))[..., 0], expected, rtol=1e-4, atol=1e-4)


def test_a_policy_heads_straight_for_its_goal():
    import parity_laws

    agent = Agent(reps.Orig(), algos.GCBC(hidden=(4,)), Spec((2,), 2))
    params = jax.tree.map(jnp.zeros_like, drawn(agent, np.random.default_rng(0)))
    s, g = jnp.array([[1.0, 2.0]]), jnp.array([[1.5, -3.0]])
    acted = agent.act(parity_laws.straight_ahead(agent, params), s, g, random.key(0))
    np.testing.assert_allclose(acted, [[0.5, -1.0]], atol=1e-6)


def test_the_chi_square_test_tells_laws_apart():
    import parity_laws

    rng = np.random.default_rng(0)
    fair, again = rng.integers(0, 50, (2, 100_000))
    assert parity_laws.chi_square(fair, again).p > 1e-4
    loaded = np.where(rng.uniform(size=fair.size) < 0.02, 0, again)
    assert parity_laws.chi_square(fair, loaded).p < 1e-6


def test_a_difference_is_relative_to_the_largest_number():
    import parity_agents

    ours, theirs = {"a": jnp.array([1.0, 200.0])}, {"a": jnp.array([2.0, 200.0])}
    assert parity_agents.difference(ours, theirs) == pytest.approx(1 / 200)
    assert np.isnan(parity_agents.difference(jnp.array([jnp.nan]), jnp.array([1.0])))


def test_hiql_on_raw_goals_starts():
    """Its high policy reads goals instead of z, so `act` cannot be tried before it is asked for."""
    import parity_hiql

    agent = Agent(reps.HIQLPhi(dim=4, hidden=(8,)), parity_hiql.OnRawGoals(hidden=(8,)), Spec((3,), 2, batch_size=4))
    high = agent.init(random.key(0)).params.algo.high
    assert high(jnp.ones((5, 3)), jnp.ones((5, 3))).shape == (5, 4)

"""Acting in two stages: the same actions, bit for bit, and little left to do at every step."""

import os
import re
import runpy
from collections import Counter
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

import small
import tiny
from dualgoal.runs import precomputed

ROWS = 3


def acting(rep, algo, **options):
    """A policy that acts on rows of its own, and arguments of both precomputed."""
    agent = small.agent(rep, algo, **options)
    rng, shape = np.random.default_rng(0), (ROWS, *agent.spec.observation_shape)
    numbers, images = lambda: rng.normal(size=shape).astype(np.float32), lambda: rng.integers(0, 256, shape, np.uint8)
    draw = images if agent.spec.pixels else numbers
    goals, obs, ids = draw(), draw(), np.arange(ROWS, dtype=np.uint32)

    def act(params, goals, ids, obs, step):
        key = lambda i: random.fold_in(random.fold_in(random.key(0), i), step)
        return jax.vmap(lambda o, g, i: agent.act(params, o[None], g[None], key(i))[0])(obs, goals, ids)

    return act, (agent.init(random.key(1)).params, goals, ids), (obs, np.uint32(7))


def primitives(function, *args) -> Counter:
    """How often each primitive is among the equations of a function, those of inner functions included."""

    def count(jaxpr):
        found = Counter()
        for equation in jaxpr.eqns:
            inner = equation.params.get(precomputed.CALLS.get(equation.primitive.name, ""))
            found += Counter([equation.primitive.name]) if inner is None else count(inner.jaxpr)
        return found

    return count(jax.make_jaxpr(function)(*args).jaxpr)


@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize(
    ("rep", "algo", "shape"),
    [
        ("dual", "gcivl", (3,)),
        ("vib", "gcfbc", (3,)),  # both draw
        ("dual_pair", "hiql", (3,)),  # looks at the state
        ("dual", "gcivl", small.IMAGE),
        ("orig", "gcbc", small.IMAGE),  # early fusion
    ],
)
def test_both_stages_together_act_as_the_whole_does(rep, algo, shape, precision):
    act, early, late = acting(rep, algo, shape=shape, precision=precision)
    split = precomputed.split(act, early, late)
    assert np.array_equal(split.second(split.first(*early), *late), jax.jit(act)(*early, *late))


def test_what_needs_no_observation_is_not_computed_again():
    """Of images: the encoder of goals and the rounding of weights; with early fusion only the rounding."""
    for rep, goal_too in (("dual", True), ("orig", False)):
        act, early, late = acting(rep, "gcbc", shape=small.IMAGE, precision="bf16")
        split = precomputed.split(act, early, late)
        whole, second = primitives(act, *early, *late), primitives(split.second, split.first(*early), *late)
        assert whole["conv_general_dilated"] == (18 if goal_too else 9) and second["conv_general_dilated"] == 9
        stored = split.first(*early)
        assert jnp.float32 not in {x.dtype for x in stored if x.ndim == 4}, "weights of convolutions are rounded"
        assert max(x.size for x in stored) <= 2 * max(x.size for x in jax.tree.leaves(early)), "nothing is repeated"


def test_repeated_equations_are_one():
    """A flow of ten steps rounds the same weights ten times when it is written down."""
    act, early, late = acting("dual", "gcfbc", precision="bf16")
    stored = precomputed.split(act, early, late).first(*early)
    assert len(stored) < len(jax.tree.leaves(early)) + 20


def test_functions_that_leave_nothing_for_a_stage():
    for function in (lambda a, b: a * 2, lambda a, b: b * 2, lambda a, b: jnp.ones(3), lambda a, b: a):
        first, second = precomputed.split(function, (np.ones(3),), (np.zeros(3),))
        assert np.array_equal(second(first(np.ones(3)), np.zeros(3)), function(np.ones(3), np.zeros(3)))


def test_functions_that_hold_functions():
    """What outside parts may be written with: loops, branches, recomputation, and gradients of their own."""
    cube = jax.custom_vjp(lambda x: x**3)
    cube.defvjp(lambda x: (x**3, x), lambda x, d: (3 * x**2 * d,))
    twice = jax.custom_batching.custom_vmap(lambda x: 2 * x)
    twice.def_vmap(lambda size, batched, x: (2 * x, True))

    def function(a, b):
        a = jax.vmap(twice)(jax.checkpoint(jnp.sin)(cube(a)))
        b = jax.lax.cond(a[0] > 0, jnp.cos, jnp.tan, b) + jax.lax.fori_loop(0, 3, lambda i, x: x + a, b)
        return jax.lax.while_loop(lambda x: x[0] < 50, lambda x: x * 2 + 1, b) * jnp.where(a > 0, 0.0, -0.0)

    early, late = (np.linspace(0.1, 1, 3, dtype=np.float32),), (np.linspace(1, 2, 3, dtype=np.float32),)
    first, second = precomputed.split(function, early, late)
    assert np.array_equal(second(first(*early), *late), jax.jit(function)(*early, *late))


def test_effects_happen_at_every_call(capfd):
    def function(a, b):
        jax.debug.print("b is {}", b)
        return a + b

    first, second = precomputed.split(function, (1.0,), (2.0,))
    stored = first(1.0)
    assert [float(second(stored, b)) for b in (3.0, 4.0)] == [4.0, 5.0]
    jax.effects_barrier()
    assert capfd.readouterr().out.split("\n")[:2] == ["b is 3.0", "b is 4.0"]


def test_the_tool_that_measures_evaluations_compares_both(folder, tmp_path, monkeypatch):
    """With what anybody may call: private names change without notice."""
    tool = Path(__file__).parent.parent / "tools" / "measure_evaluation.py"
    assert not re.findall(r"\w\)?\._[a-z]\w+", tool.read_text().replace("self._", "self."))
    monkeypatch.setattr(os, "environ", dict(os.environ))  # the tool sets variables for its own process
    tiny.untrained(tmp_path / "run", folder, "vib", "gcfbc")
    found = runpy.run_path(str(tool))["measure"](str(tmp_path / "run"), 2)
    assert found["actions equal"] and found["steps"] == 10
    assert found["cpu_ms"].keys() == {"policy", "policy, computed anew", "simulation"}

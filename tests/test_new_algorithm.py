"""docs/new_algorithm.md is executed: its algorithm is trained with every representation."""

import re
import types
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

import small
from dualgoal import interface
from dualgoal.agent import Agent
from dualgoal.reps import REPS

PAGE = Path(__file__).parents[1] / "docs" / "new_algorithm.md"


@pytest.fixture(scope="module")
def page():
    module = types.ModuleType("new_algorithm")
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.S):
        exec(compile(block, str(PAGE), "exec"), module.__dict__)
    return module


@pytest.mark.parametrize("name", REPS)
def test_the_example_trains_with_every_representation(name, page):
    """Compiled once, and eagerly with the others: compiling each takes seconds."""
    agent = Agent(small.rep(name), page.Filtered(hidden=small.WIDTH), interface.Spec((3,), 2, batch_size=4))
    update = jax.jit(agent.update) if name == "dual" else agent.update
    state, info = update(agent.init(random.key(0)), small.data(), random.key(1))
    assert all(np.isfinite(x).all() for x in jax.tree.leaves((state.params, info)))
    assert 0 <= info["actor/nearer"] <= 1 and "value/v" in info
    s, g = jnp.zeros((4, 3)), jnp.ones((4, 3))
    assert agent.act(state.params, s, g, random.key(2)).shape == (4, 2)
    assert np.isfinite(agent.distance(state.params, s, g, random.key(3))).all()

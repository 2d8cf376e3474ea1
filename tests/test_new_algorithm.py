"""docs/new_algorithm.md is executed: its algorithm is trained with every representation, and what it says that goals
tell is true."""

import dataclasses
import re
import types
from pathlib import Path
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

import small
from dualgoal import interface
from dualgoal.agent import Agent
from dualgoal.algos import GCBC
from dualgoal.errors import UserError
from dualgoal.reps import REPS
from dualgoal.streams import ACTOR_GOALS, FUTURE_GOALS, Between, Waypoint

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


def test_the_second_example_reads_the_representations_value(page):
    direct, spec = page.Direct(hidden=small.WIDTH), interface.Spec((3,), 2, batch_size=4)
    agent = Agent(small.rep("dual"), direct, spec)
    start = agent.init(random.key(0))
    state, info = agent.update(start, small.data(), random.key(1))
    assert np.isfinite(info["actor/loss"]) and 0 <= info["actor/nearer"] <= 1 and state.params.algo.value is None
    assert agent.act(state.params, jnp.zeros((4, 3)), jnp.ones((4, 3)), random.key(2)).shape == (4, 2)
    with pytest.raises(UserError, match="Direct cannot use Orig: .* needs a representation that learns a value"):
        Agent(small.rep("orig"), direct, spec)


@pytest.mark.parametrize("shape", [(3,), small.IMAGE])
def test_the_third_example_learns_from_states_some_steps_later(page, shape):
    agent = Agent(small.rep("dual"), page.FilteredByLater(hidden=small.WIDTH), interface.Spec(shape, 2, batch_size=16))
    data, start = small.data(shape=shape), agent.init(random.key(0))
    drawn = agent.sample(data, random.key(1), 0).draws["far"]
    row = lambda states: (
        (np.asarray(states)[:, None] == np.asarray(data.observations)[None])
        .all(axis=tuple(range(2, 2 + len(shape))))
        .argmax(axis=1)
    )
    batch = agent.sample(data, random.key(1), 0)
    at, goal, later, steps = row(batch.s), row(drawn.g), row(drawn.extra.s), np.asarray(drawn.extra.steps)
    last = np.asarray(data.ends)[np.searchsorted(np.asarray(data.ends), at)] - 1
    limit = np.where((goal >= at) & (goal <= last), goal, last)
    assert (later == np.minimum(at + 5, limit)).all() and (steps == later - at).all() and steps.max() > 1
    state, info = agent.update(start, data, random.key(1))
    assert all(np.isfinite(x).all() for x in jax.tree.leaves((state.params, info)))
    assert not np.array_equal(*(jax.tree.leaves(s.params.algo.value)[0] for s in (start, state)))


@dataclasses.dataclass(frozen=True)
class Asking(GCBC):
    """Asks its goals for everything that the page says they tell."""

    roles: ClassVar = {
        "value": interface.Role(FUTURE_GOALS, "value"),
        "way": interface.Role(Waypoint(3, towards="value"), "actor"),
        "between": interface.Role(Between("value"), "value"),
        "actor": interface.Role(ACTOR_GOALS, "actor"),
    }

    def losses(self, nets, targets, batch, goals, key, spec):
        asked.update(goals=goals, batch=batch, spec=spec)
        return super().losses(nets, targets, batch, goals, key, spec)


asked: dict = {}


@pytest.mark.parametrize("discrete", [False, True])
def test_a_goal_tells_what_the_page_says(discrete):
    data = small.data(lengths=(12, 20, 9), discrete=discrete)
    spec = interface.Spec((3,), 2, batch_size=64, discrete=discrete)
    for name in ("orig", "dual", "hiql_phi"):
        agent = Agent(small.rep(name), Asking(hidden=small.WIDTH), spec)
        agent.update(agent.init(random.key(0)), data, random.key(1))
        goals, batch, told = asked["goals"], asked["batch"], asked["spec"]
        assert (told.goals_as_states, told.goals_on_sphere) == (name == "orig", name == "hiql_phi")
        row = lambda states: (np.asarray(states)[:, None] == np.asarray(data.observations)).all(-1).argmax(axis=1)
        at, goal, way, between = map(row, (batch.s, *(goals[role].as_state for role in ("value", "way", "between"))))
        assert (way == np.minimum(at + 3, goal)).all()
        assert ((at <= between) & (between < goal) | (between == at) & (at == goal)).all()
        passed = goals["between"].passed
        assert (passed.before == between - at).all() and (passed.after == goal - between).all()
        assert (passed.a == data.actions[between]).all() and batch.a.shape == (64, 2)
        assert passed.a.shape == ((64,) if discrete else (64, 2)) and goals["way"].passed is None

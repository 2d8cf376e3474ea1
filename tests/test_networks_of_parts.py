"""What the networks, losses and encodings of somebody else's parts may be, and what is refused in one line: constants
among the networks, names that are taken, z that depends on other goals of the batch. Streams may draw more than goals.
"""

import re
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

import small
from dualgoal import registry
from dualgoal.agent import Agent
from dualgoal.algos import GCBC, GCIVL
from dualgoal.errors import UserError
from dualgoal.interface import Encoded, Goals, Representation, Role, Routes, Spec
from dualgoal.loop import TrainingLoop
from dualgoal.nets.heads import Embedding
from dualgoal.reps import VIB, Dual, Orig
from dualgoal.runs import policy
from dualgoal.streams import FUTURE_GOALS, GoalMix, Waypoint

SPEC = Spec((3,), 2, discount=0.9, batch_size=4)
CLONE = GCBC(hidden=(8,))


class FixedFirst(eqx.Module):
    width: int = eqx.field(static=True)
    phi: Embedding
    words: tuple[str, ...] = eqx.field(static=True)


class Loose(eqx.Module):
    phi: Embedding
    extra: Any


@dataclass(frozen=True)
class Plain(Representation):
    """An embedding of the goal, with something beside it among its networks."""

    goal_network = "phi"
    ema = ("phi",)

    def embedding(self, key, spec):
        return Embedding(key, spec.goal_shape, 4, (8,), spec, members=None)

    def init(self, key, spec):
        return FixedFirst(3, self.embedding(key, spec), ("a", "b"))

    def z_shape(self, spec):
        return (4,)

    def encode(self, nets, g, s, key):
        return Encoded(nets.phi(g))

    def routes(self, spec, value_loss):
        return Routes(head=frozenset({"value", "actor"}), features=frozenset())


def learn(rep, algo=CLONE, steps=2):
    agent = Agent(rep, algo, SPEC)
    state = agent.init(random.key(0))
    for _ in range(steps):
        state, info = agent.update(state, small.data(), random.key(1))
    return state, info


def test_static_fields_of_networks_are_none():
    state, _ = learn(Plain())
    assert state.params.rep.width == 3 and state.params.rep.words == ("a", "b")
    target, own = (jax.tree.leaves(nets.rep)[0] for nets in (state.targets, state.params))
    assert target.shape == own.shape and not np.array_equal(target, own)
    with pytest.raises(UserError, match="unknown network of FixedFirst 'width'"):
        learn(type("Wrong", (Plain,), {"ema": ("width",)})())


@pytest.mark.parametrize(
    ("extra", "found"),
    [
        (2.0, "extra is a float"),
        (np.full(4, 2.0), r"extra is an array of float64"),
        (jnp.zeros((), jnp.int32), "extra is an array of int32"),
        (jnp.zeros(2, jnp.bfloat16), "extra is an array of bfloat16"),
        ({"a": [jnp.zeros(1), jax.nn.relu]}, r"extra\['a'\]\[1\] is a "),
        (random.key(3), r"extra is an array of key<fry>"),
    ],
)
def test_what_cannot_be_trained_is_none_of_the_networks(extra, found):
    @dataclass(frozen=True)
    class Holding(Plain):
        goal_network = None

        def init(self, key, spec):
            return Loose(self.embedding(key, spec), extra)

    words = f"^Holding.init: {found}.*all that networks hold is trained.*static=True"
    for init in (Agent(Holding(), CLONE, SPEC).init, jax.jit(Agent(Holding(), CLONE, SPEC).init)):
        with pytest.raises(UserError, match=words):
            init(random.key(0))


def test_a_pair_without_anything_to_train_is_refused():
    @dataclass(frozen=True)
    class Idle(GCBC):
        def init(self, key, spec):
            return type("Nothing", (eqx.Module,), {"__annotations__": {}})()

        policy_network = None

    with pytest.raises(UserError, match="neither Orig nor Idle has anything to train; give one of them networks"):
        learn(Orig(), Idle())


@pytest.mark.parametrize("rep", [Orig(), VIB(dim=8, hidden=(8,)), Dual(dim=8, hidden=(8,))])
@pytest.mark.parametrize("name", ["rep", "penalty", "total"])
def test_names_of_losses_are_taken_or_free_whatever_the_representation(rep, name):
    @dataclass(frozen=True)
    class Taken(GCBC):
        def losses(self, *given):
            return {name: super().losses(*given)["actor"]}

    with pytest.raises(UserError, match=f"Taken: a loss cannot be called '{name}'; that is the "):
        learn(rep, Taken(hidden=(8,)))


def test_a_loss_is_not_logged_twice():
    @dataclass(frozen=True)
    class Twice(GCBC):
        def losses(self, *given):
            loss, info = super().losses(*given)["actor"]
            return {"actor": (loss, info | {"loss": 7.0})}

    with pytest.raises(UserError, match=re.escape("Twice.losses['actor'] logs 'loss', under which the loss itself is")):
        learn(Orig(), Twice(hidden=(8,)))


@pytest.mark.parametrize("shape", [(2, 3), (), (3,)])
def test_a_penalty_is_a_number_for_each_goal(shape):
    @dataclass(frozen=True)
    class Paid(Orig):
        def encode(self, nets, g, s, key):
            return Encoded(g, jnp.ones(shape))

    words = rf"Paid.encode gives a penalty of shape {re.escape(str(shape))}; expected \(2,\), a number for each goal"
    with pytest.raises(UserError, match=words):
        learn(Paid())


def test_z_of_a_goal_does_not_depend_on_the_other_goals():
    """A policy encodes goals one by one."""

    @dataclass(frozen=True)
    class Batched(Plain):
        def encode(self, nets, g, s, key):
            z = nets.phi(g)
            return Encoded((z - z.mean(axis=0, keepdims=True)) / z.std(axis=0, keepdims=True))

    @dataclass(frozen=True)
    class Noisy(Plain):
        def encode(self, nets, g, s, key):
            return Encoded(nets.phi(g) + random.normal(key, (g.shape[0], 4)))

    for rep, images in ((Plain(), False), (Noisy(), False), (VIB(dim=8, hidden=(8,)), True)):
        spec = Spec((16, 16, 3), 2, batch_size=4) if images else SPEC
        data = small.data(shape=spec.observation_shape)
        policy.try_out(TrainingLoop(Agent(rep, CLONE, spec), (0,)), data)
    with pytest.raises(UserError, match="Batched.encode: z of one goal depends on the other goals of the batch"):
        policy.try_out(TrainingLoop(Agent(Batched(), CLONE, SPEC), (0,)), small.data())


def test_goals_are_not_drawn_towards_more_than_a_row():
    @dataclass(frozen=True)
    class Chained(GCIVL):
        @property
        def roles(self):
            before = {**super().roles, "value": Role(FUTURE_GOALS, "value"), "way": Role(Pairs(), "actor")}
            return {**before, "next": Role(Waypoint(3, towards="way"), "actor")}

    @dataclass(frozen=True)
    class Pairs(GoalMix):
        current: float = 0.0
        geometric: float = 1.0
        uniform: float = 0.0
        random: float = 0.0

        def rows(self, data, at, bits, discount, towards=None):
            return super().rows(data, at, bits, discount, towards), at.rows

        def observe(self, data, at, rows, reached_by, look):
            return super().observe(data, at, rows[0], reached_by, look)

    agent = Agent(Orig(), Chained(hidden=(8,)), SPEC)
    with pytest.raises(UserError, match="'next' are drawn towards those of 'way', for which Pairs draws more than a"):
        agent.sample(small.data(), random.key(0), 0)


def test_a_stream_may_draw_more_than_goals():
    """Three rewards ahead, here the sums of the observations: the algorithm finds them in its goals."""

    @dataclass(frozen=True)
    class Ahead(GoalMix):
        def rows(self, data, at, bits, discount, towards=None):
            return super().rows(data, at, bits, discount, towards)

        def observe(self, data, at, rows, reached_by, look):
            after = jnp.minimum(at.rows[:, None] + 1 + jnp.arange(3)[None], at.last[:, None] + 1)
            return super().observe(data, at, rows, reached_by, look)._replace(extra=data.observations[after])

    seen = []

    @dataclass(frozen=True)
    class Reads(GCBC):
        roles = {"actor": Role(Ahead(0.0, 1.0, 0.0, 0.0), "actor")}

        def losses(self, nets, targets, batch, goals, key, spec):
            seen.append((goals["actor"].extra, batch.next_s))
            return super().losses(nets, targets, batch, goals, key, spec)

    agent = Agent(Dual(dim=8, hidden=(8,)), Reads(hidden=(8,)), SPEC)
    state, batch = agent.init(random.key(0)), agent.sample(small.data(), random.key(1), 0)
    agent.losses(state.params, state.targets, batch, random.key(2))
    ((extra, next_s),) = seen
    assert extra.shape == (4, 3, 3) and np.array_equal(extra[:, 0], next_s)
    assert Goals(batch.s, jnp.zeros(4)).extra is None


def test_a_loop_is_compiled_for_each_shape_of_data():
    loop = TrainingLoop(Agent(Orig(), CLONE, SPEC), (0,))
    state = loop.init()
    for lengths in ((12, 20, 9), (5, 7), (12, 20, 9)):
        state, _ = loop.advance(state, loop.place_data(small.data(lengths=lengths)), 2)
    assert int(state.step[0]) == 6 and len(loop._compiled) == 2


MODULE = """
from dataclasses import dataclass
from dualgoal.reps import Dual
@dataclass(frozen=True)
class Mine(Dual):
    pass
@dataclass(frozen=True)
class Other(Dual):
    pass
"""


def test_an_entry_point_may_name_the_module_that_re_exports_a_part(tmp_path, monkeypatch):
    folder = tmp_path / "re_exported_parts"
    folder.mkdir()
    (folder / "__init__.py").write_text("from re_exported_parts.reps import Mine\n")
    (folder / "reps.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    offered = {"broken": "re_exported_parts:Missing", "mine": "re_exported_parts:Mine", "far": "no_such_module:Mine"}
    monkeypatch.setattr(registry, "_offered", lambda kind: offered if kind == "rep" else {})
    cls = registry.part("rep", "mine")
    assert cls.__module__ == "re_exported_parts.reps" and registry.name_of("rep", cls) == "mine"
    other = registry.part("rep", "re_exported_parts.reps:Other")
    assert registry.name_of("rep", other) == "re_exported_parts.reps:Other"

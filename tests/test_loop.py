"""How loops of training steps are compiled."""

import threading

import jax
import pytest

import small
from dualgoal import loop
from dualgoal.agent import Agent
from dualgoal.algos import GCBC
from dualgoal.interface import Spec
from dualgoal.sampler import shapes


class Lowered:
    """A program whose compiler refuses some options."""

    def __init__(self, *refused):
        self.refused, self.given = refused, []

    def compile(self, compiler_options=None):
        self.given.append(set(compiler_options or ()))
        if wrong := self.given[-1] & set(self.refused):
            raise ValueError(f"No such compile option: '{wrong.pop()}'")
        return self.given[-1]


@pytest.fixture
def gpu(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")


def test_a_loop_is_one_graph_unless_it_is_traced(gpu):
    assert loop.compile_loop(Lowered()) == {*loop.GPU_OPTIONS, *loop.ONE_GRAPH}
    assert loop.compile_loop(Lowered(), traced=True) == set(loop.GPU_OPTIONS)


def test_only_refused_options_are_left_out(gpu):
    with pytest.warns(UserWarning, match="compiled without .*enable_command_buffer: No such compile option"):
        assert loop.compile_loop(Lowered(*loop.ONE_GRAPH)) == set(loop.GPU_OPTIONS)
    with pytest.warns(UserWarning, match="compiled without"):
        assert loop.compile_loop(Lowered(*loop.GPU_OPTIONS)) == set()


def test_a_cpu_gets_no_options_of_gpus():
    assert loop.compile_loop(Lowered()) == set()


def test_what_was_traced_on_shapes_is_not_traced_again_to_be_compiled():
    traced = []

    class Counted(GCBC):
        def losses(self, *given):
            traced.append(1)
            return super().losses(*given)

    data = small.data()
    training = loop.TrainingLoop(Agent(small.rep("orig"), Counted(hidden=(8,)), Spec((3,), 2, batch_size=4)), (0, 1))
    training.trace(shapes(data.observations, data.actions, data.goals, len(data.starts)))
    assert len(traced) == 1
    training.lower(training.init(), training.place_data(data))
    assert len(traced) == 1


def test_measuring_is_compiled_beside_training_and_measures_the_same():
    threads = []

    class Noticed(GCBC):
        def losses(self, *given):
            threads.append(threading.current_thread())
            return super().losses(*given)

    one, other = (
        loop.TrainingLoop(Agent(small.rep("orig"), Noticed(hidden=(8,)), Spec((3,), 2, batch_size=4)), (0, 1))
        for _ in range(2)
    )
    rows = one.place_data(small.data())
    one.prepare_measure(rows)
    found = one.measure(one.init(), rows)
    assert threads and threading.main_thread() not in threads
    expected = other.measure(other.init(), rows)
    assert found.keys() == expected.keys() and all((found[name] == expected[name]).all() for name in found)


def test_what_a_part_raises_beside_training_reaches_who_measures():
    class Broken(GCBC):
        def losses(self, *given):
            raise ZeroDivisionError("in my loss")

    training = loop.TrainingLoop(Agent(small.rep("orig"), Broken(hidden=(8,)), Spec((3,), 2, batch_size=4)), (0,))
    rows = training.place_data(small.data())
    training.prepare_measure(rows)
    with pytest.raises(ZeroDivisionError, match="in my loss"):
        training.measure(training.init(), rows)

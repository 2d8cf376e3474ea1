"""How loops of training steps are compiled."""

import jax
import pytest

from dualgoal import loop


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

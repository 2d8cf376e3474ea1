"""The last evaluations of a run go on in a thread while the next run trains."""

import os
import signal
import threading
import time
from contextlib import ExitStack

import pytest

from dualgoal.engine.items import Here, Item
from dualgoal.errors import Preempted, UserError
from dualgoal.runs import directory, owner, training
from dualgoal.runs.background import Background
from tiny import Scorer, record, tiny_run

pytestmark = pytest.mark.usefixtures("one_program")
RUN = tiny_run(episodes=1)


@pytest.fixture(autouse=True)
def own_cache(cache, monkeypatch):
    monkeypatch.setenv("DUALGOAL_CACHE", str(cache))


class Slow(Scorer):
    """An evaluator that is done when it is let go."""

    def __init__(self, problem=None):
        super().__init__(RUN.seeds)
        self.go, self.problem = threading.Event(), problem

    def collect(self):
        if not self.go.is_set():
            return []
        if self.problem is not None:
            raise self.problem
        return super().collect()


@pytest.fixture
def begun(folder, tmp_path):
    """A run that is trained and waits for its evaluations; the others are stopped at the end."""
    begun_ones = []

    def begin(evaluator, out=tmp_path / "run"):
        begun_ones.append(Background())
        training.train(RUN, out, data_path=folder, quiet=True, evaluator=evaluator, background=begun_ones[-1])
        return out, begun_ones[-1]

    yield begin
    for background in begun_ones:
        background.stop()


def test_a_run_returns_when_it_is_trained_and_leaves_the_same_record(begun, folder, tmp_path):
    evaluator = Slow()
    out, background = begun(evaluator)
    assert evaluator.pending == [20, 40] and not directory.evaluations(out)
    assert owner.read_status(out).state == "running"
    with pytest.raises(UserError, match="in use"):  # nobody else writes to it meanwhile
        training.train(RUN, out, data_path=folder, quiet=True, evaluator=Scorer(RUN.seeds))
    evaluator.go.set()
    background.wait()
    assert owner.read_status(out).state == "finished"
    training.train(RUN, tmp_path / "other", data_path=folder, quiet=True, evaluator=Scorer(RUN.seeds))
    assert record(out) == record(tmp_path / "other") and directory.evaluations(out)


def test_what_was_stopped_is_evaluated_by_the_next_command(begun, folder, tmp_path):
    out, background = begun(Slow())
    background.stop()
    assert owner.read_status(out).state == "interrupted" and not directory.evaluations(out)
    training.train(RUN, out, data_path=folder, quiet=True, evaluator=Scorer(RUN.seeds))
    training.train(RUN, tmp_path / "other", data_path=folder, quiet=True, evaluator=Scorer(RUN.seeds))
    assert record(out) == record(tmp_path / "other") and directory.evaluations(out)


def test_a_run_that_is_complete_leaves_nothing(begun, tmp_path):
    evaluator = Slow()
    evaluator.go.set()
    begun(evaluator)[1].wait()
    _, background = begun(Slow())
    background.wait()


@pytest.mark.parametrize(("number", "error"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Preempted)])
def test_a_signal_while_waiting_stops_it(begun, number, error):
    out, background = begun(Slow())
    timer = threading.Timer(0.3, os.kill, [os.getpid(), number])
    timer.start()
    with pytest.raises(error, match=r"step 40 is saved in .*run the same command again"):
        background.wait()
    assert owner.read_status(out).state == "interrupted"


class Items:
    """Runs whose evaluations last until they are let go; a list of what happened."""

    def __init__(self, tmp_path, *names, fail=(), raises=None):
        self.happened, self.go = [], {name: threading.Event() for name in names}
        self.fail, self.raises = fail, raises or {}
        self.items = [Item(name, tmp_path / name, self.call(name)) for name in names]

    def call(self, name):
        def train(workers, background):
            self.happened.append(f"{name} is trained")
            if name in self.raises:
                raise self.raises[name]
            background.begin(ExitStack(), lambda request: self.evaluate(name, request))

        return train

    def evaluate(self, name, request):
        while not self.go[name].wait(0.01):
            if request.requested:
                self.happened.append(f"{name} is stopped")
                raise request.error("stopped")
        self.happened.append(f"{name} is evaluated")
        if name in self.fail:
            raise UserError("no environment")

    def execute(self):
        for item, problem in Here(None).execute(self.items, lambda text: None):
            yield item.name, problem


def test_the_next_run_trains_while_one_is_evaluated(tmp_path):
    items = Items(tmp_path, "a", "b", "c", fail=("b",))
    engine = items.execute()
    threading.Timer(0.5, items.go["a"].set).start()
    assert next(engine) == ("a", None)
    assert items.happened == ["a is trained", "b is trained", "a is evaluated"]
    items.go["b"].set()
    assert next(engine) == ("b", "no environment")
    assert sorted(items.happened[3:]) == ["b is evaluated", "c is trained"]  # at the same time
    items.go["c"].set()
    assert list(engine) == [("c", None)]


def test_a_run_that_cannot_be_trained_costs_only_itself(tmp_path):
    items = Items(tmp_path, "a", "b", "c", raises={"b": UserError("no data")})
    engine = items.execute()
    assert next(engine) == ("b", "no data")  # at once, although a is not evaluated yet
    for event in items.go.values():
        event.set()
    assert list(engine) == [("a", None), ("c", None)]


def test_an_interruption_stops_the_evaluations_of_the_run_before(tmp_path):
    items = Items(tmp_path, "a", "b", raises={"b": KeyboardInterrupt("interrupted")})
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt, match="interrupted"):
        list(items.execute())
    assert items.happened == ["a is trained", "b is trained", "a is stopped"] and time.monotonic() - began < 30


def test_a_signal_while_two_runs_are_evaluated_stops_both(tmp_path):
    items = Items(tmp_path, "a", "b")
    threading.Timer(0.5, os.kill, [os.getpid(), signal.SIGINT]).start()
    with pytest.raises(KeyboardInterrupt, match="stopped"):
        list(items.execute())
    assert items.happened == ["a is trained", "b is trained", "a is stopped", "b is stopped"]

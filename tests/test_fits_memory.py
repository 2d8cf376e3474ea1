"""A run that cannot fit says so before it is trained, with what it needs and what there is."""

import json
import re
from types import SimpleNamespace

import jax
import numpy as np
import pytest

import small
from dualgoal import machine
from dualgoal.cli.main import main
from dualgoal.data import dataset
from dualgoal.engine.items import Item, perform
from dualgoal.errors import UserError
from dualgoal.loop import TrainingLoop
from dualgoal.runs import memory, policy, preparation, training
from tiny import TASK, flags, make_data, tiny_run

GIB = 2**30


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return make_data(tmp_path_factory.mktemp("fitting"))


@pytest.fixture(scope="module")
def loop(data):
    run = tiny_run("dual", "gcivl", seeds=(0, 1, 2, 3))
    return TrainingLoop(policy.agent_for(run, preparation.describe(run, dataset.load(data, TASK)).sizes), run.seeds)


def on_a_gpu(monkeypatch, loop, devices, **stats):
    """The loop as if its seeds were spread over GPUs with this memory."""
    gpu = SimpleNamespace(platform="gpu", memory_stats=lambda: stats)
    monkeypatch.setattr(memory.jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(memory.jax, "local_devices", lambda: [gpu] * devices)
    return SimpleNamespace(template=loop.template, seeds=loop.seeds, mesh=SimpleNamespace(size=devices))


def test_what_is_counted_is_what_the_state_holds(loop):
    state = loop.template
    size = lambda tree: sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))
    held = size((state.params, state.targets, state.step)) + 2 * size(state.params)  # Adam's two moments
    assert size(state) >= held and size(state) - held < 100  # and its count of steps
    assert memory.least(loop).each == (size(state) + size(state.params)) // 4


def test_seeds_are_split_over_the_gpus_and_data_are_on_each(loop, data, monkeypatch):
    both = dataset.load_splits(data, TASK)
    stored = sum(a.nbytes for d in both if d is not None for a in (d.observations, d.actions))
    one = memory.least(on_a_gpu(monkeypatch, loop, 1, bytes_limit=GIB), *both)
    two = memory.least(on_a_gpu(monkeypatch, loop, 2, bytes_limit=GIB), *both)
    assert (one.seeds, two.seeds) == (4, 2) and one.data == two.data == stored and one.each == two.each


def test_too_little_of_a_gpu_is_one_line(loop, data, monkeypatch):
    load = dataset.load(data, TASK)
    need = memory.least(on_a_gpu(monkeypatch, loop, 1, bytes_limit=GIB), load).total
    memory.require(data, on_a_gpu(monkeypatch, loop, 1, bytes_limit=need + 7, bytes_in_use=7), load)
    monkeypatch.setenv(memory.FRACTION, "0.225")
    with pytest.raises(
        UserError, match=r"needs at least .* MiB \(4 seeds of .*, data of .* in 0\.225 of a GPU; take fewer"
    ):
        memory.require(data, on_a_gpu(monkeypatch, loop, 1, bytes_limit=need + 6, bytes_in_use=7), load)


def test_a_run_that_does_not_fit_is_refused_before_it_is_compiled(data, tmp_path, monkeypatch, capsys):
    compiled = []
    monkeypatch.setattr(TrainingLoop, "compile", lambda *_: compiled.append(1))
    monkeypatch.setattr(machine, "free_memory", lambda: 1 << 20)
    run = tiny_run(seeds=(0, 1), **{"algo.hidden": [256, 256]})
    words = [*flags(run), "--algo.hidden", "256", "256", "--data", str(data), "--out", str(tmp_path / "run")]
    assert main([*words, "--dry-run"]) == 2 and not (tmp_path / "run").exists()
    foreseen = capsys.readouterr().err
    assert main(words) == 2 and not compiled
    err = capsys.readouterr().err
    assert re.search(r"/run: needs at least \S+ MiB \(2 seeds of \S+ MiB\) and has 1.0 MiB of memory; take fewer", err)
    assert foreseen == err
    assert json.loads((tmp_path / "run" / "status.json").read_text())["state"] == "failed"
    call = lambda workers: training.train(run, tmp_path / "other", data_path=data, quiet=True)
    assert "take fewer seeds" in (perform(Item("a", tmp_path / "other", call), 1) or "")


def test_a_step_of_all_seeds_is_counted_where_they_take_no_turns(monkeypatch):
    """With images too, where there are kernels for them (`dualgoal.loop`)."""
    agent = small.agent("orig", "gcbc", shape=small.IMAGE)
    arrays = {"observations": np.zeros((40, *small.IMAGE), np.uint8), "actions": np.zeros((40, 2), np.float32)}
    monkeypatch.setattr(memory, "devices_used", lambda seeds, devices: 1)
    steps = []
    for turns in (True, False):
        monkeypatch.setattr(memory, "seeds_take_turns", lambda agent, turns=turns: turns)
        steps.append(memory.estimate(agent, 4, arrays, 2).step)
    assert steps[1] == 4 * steps[0]

"""A run leaves the same record however it is cut, killed, continued or spread over devices."""

import dataclasses
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time

import jax
import numpy as np
import pytest

import small
from dualgoal import loop as program_module
from dualgoal import sampler
from dualgoal.data import dataset as data
from dualgoal.errors import UserError
from dualgoal.loop import TrainingLoop, devices_used, first_broken
from dualgoal.runs import directory, policy, session, training
from dualgoal.runs.facts import Sizes
from tiny import TASK, dualgoal, flags, make_data, record, tiny_run

pytestmark = pytest.mark.usefixtures("one_program")


@pytest.fixture(autouse=True)
def own_cache(cache, monkeypatch):
    monkeypatch.setenv("DUALGOAL_CACHE", str(cache))


def metrics(path):
    return directory.inspect(path).metrics


def same(a, b):
    return all(np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


def test_the_number_of_steps_in_a_chunk_changes_no_bit(folder, monkeypatch):
    compilations = []

    def optimised(lowered):
        compilations.append(1)
        return lowered.compile(compiler_options=small.OPTIMISED)

    monkeypatch.setattr(program_module, "compile_loop", optimised)
    run = tiny_run("dual", "gcivl")
    dataset = data.load(folder, TASK)
    program = TrainingLoop(policy.agent_for(run, Sizes.of(dataset)), run.seeds)
    rows = program.place_data(sampler.to_device(dataset))

    def after(chunks):
        state = program.init()
        for count in chunks:
            state, broken = program.advance(state, rows, count)
            assert first_broken(broken, run.seeds) is None
        return jax.device_get(state), program.measure(state, rows)

    whole = after([28])
    assert whole[0].step.tolist() == [28, 28]
    assert same(after([7] * 4), whole) and same(after([1] * 28), whole)
    assert len(compilations) == 1, "one program for any number of steps"


def test_killed_at_a_random_moment_and_resumed_equals_undisturbed(folder, cache, tmp_path):
    run = tiny_run(steps=3000, eval_every=3000, save_every=250, log_every=125, episodes=1, seeds=(0,))
    words = [*flags(run), "--data", str(folder), "--workers", "1", "--quiet"]
    training.train(run, tmp_path / "a", data_path=folder, workers=1, quiet=True)
    moment, kills = random.Random(os.getpid()), 0
    for _ in range(20):
        process = dualgoal(*words, "--out", str(tmp_path / "b"), cache=cache)
        before = len(directory.steps(tmp_path / "b"))
        while process.poll() is None and len(directory.steps(tmp_path / "b")) == before:
            time.sleep(0.005)
        try:
            process.wait(moment.uniform(0, 0.3) if kills < 1 else 120)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            kills += 1
        process.wait()
        process.stdout.close()
        if process.returncode == 0:
            break
    assert kills >= 1 and process.returncode == 0
    assert record(tmp_path / "a") == record(tmp_path / "b")


@pytest.fixture(scope="module")
def finished(folder, cache, one_program, tmp_path_factory):
    """A run of `tiny_run()`, from which tests take copies."""
    out = tmp_path_factory.mktemp("finished") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DUALGOAL_CACHE", str(cache))
        training.train(tiny_run(), out, data_path=folder, quiet=True)
    return out


def test_running_again_resumes_or_says_that_it_is_complete(folder, finished, tmp_path, capsys):
    run = tiny_run()
    shutil.copytree(finished, tmp_path / "a")
    before = record(tmp_path / "a")
    training.train(run, tmp_path / "a", data_path=folder)
    assert "complete (40 steps)" in capsys.readouterr().out and record(tmp_path / "a") == before
    old, new = (directory.checkpoint_path(tmp_path / "a", step) for step in (40, 10))
    for ending in (".safetensors", ".json"):  # as a process leaves it that was killed while it removed old checkpoints
        shutil.copy(old.with_suffix(ending), new.with_suffix(ending))
    training.train(run, tmp_path / "a", data_path=folder)
    assert record(tmp_path / "a") == before
    with pytest.raises(UserError, match="another configuration .*lr: 0.0003 -> 0.001"):
        training.train(dataclasses.replace(run, lr=1e-3), tmp_path / "a", data_path=folder)
    with pytest.raises(UserError, match="trained on other data"):
        training.train(run, tmp_path / "a", data_path=make_data(tmp_path / "other", seed=1))


@pytest.mark.parametrize("damage", ["truncated", "empty", "flipped"])
def test_a_damaged_checkpoint_costs_time_and_nothing_else(folder, finished, tmp_path, capsys, damage):
    shutil.copytree(finished, tmp_path / "a")
    before = record(tmp_path / "a")
    file = directory.checkpoint_path(tmp_path / "a", 40)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 16
    file.write_bytes({"truncated": bytes(content[:99]), "empty": b"", "flipped": bytes(content)}[damage])
    training.train(tiny_run(), tmp_path / "a", data_path=folder)
    said = capsys.readouterr().out
    assert "step-000000040.safetensors" in said and "resuming from step 30" in said
    assert record(tmp_path / "a").items() >= before.items()


def test_another_frozen_representation_is_refused_before_any_file(folder, finished, tmp_path):
    run = tiny_run(frozen_rep=str(finished))
    for changes, words in (
        (
            {"rep": dataclasses.replace(run.rep, fusion="late")},
            "has another representation .rep.fusion: .* use the same",
        ),
        ({"seeds": (0, 7)}, r"has seeds \[0, 3\], this run needs \[0, 7\]; train those first"),
    ):
        with pytest.raises(UserError, match=words):
            training.train(dataclasses.replace(run, **changes), tmp_path / "a", data_path=folder, quiet=True)
    assert not (tmp_path / "a").exists(), "the same --out can be given again"


def test_not_a_number_stops_the_run_and_is_named(folder, tmp_path):
    run = tiny_run(lr=1e18, save_every=1)
    with pytest.raises(UserError) as problem:
        training.train(run, tmp_path / "a", data_path=folder, quiet=True)
    words = r"actor/loss is not finite at step (\d+) for seed [03]; the checkpoint of step (\d+)"
    found = re.search(words, str(problem.value))
    assert found and int(found[1]) == int(found[2]) + 1
    kept = policy.load(tmp_path / "a")
    assert kept.step == int(found[2]) and all(np.isfinite(x).all() for x in jax.tree.leaves(kept.params))


def test_interrupted_from_the_keyboard_saves_and_says_how_to_resume(folder, cache, tmp_path):
    run = tiny_run(steps=400_000, eval_every=400_000, save_every=400_000, log_every=100)
    process = dualgoal(*flags(run), "--data", str(folder), "--out", str(tmp_path / "a"), cache=cache)
    while not metrics(tmp_path / "a"):
        assert process.poll() is None, process.stdout.read()
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=60)[0]
    (step,) = directory.steps(tmp_path / "a")
    assert process.returncode == 130 and step < 400_000
    assert f"interrupted; step {step:,} is saved in {tmp_path / 'a'}. To resume, run the same command again" in said
    assert f"again: dualgoal train {TASK}" in said


def train_four_seeds(folder):
    """What training comes to on the devices of this process, and what it leaves out."""
    run, dataset = tiny_run(seeds=(0, 1, 2, 3)), data.load(folder, TASK)
    program = TrainingLoop(policy.agent_for(run, Sizes.of(dataset)), run.seeds)
    rows = program.place_data(sampler.to_device(dataset))
    text = program.compile(program.init(), rows).as_text()
    text += program._measure.lower(program.init(), rows, program.keys).compile().as_text()
    state, _ = program.advance(program.init(), rows, 20)
    leaf = jax.tree.leaves(state.params)[0]
    shards = [*rows.observations.addressable_shards, *rows.actions.addressable_shards]
    return {
        "devices": [jax.device_count(), len(leaf.sharding.device_set), len(shards) // 2],
        "seeds of each": leaf.sharding.shard_shape(leaf.shape)[0],
        "messages": [w for w in ("all-reduce", "all-gather", "all-to-all", "collective-permute") if w in text],
        "copies of the data": len(
            {shard.data.unsafe_buffer_pointer() for shard in shards}
            - {dataset.observations.ctypes.data, dataset.actions.ctypes.data}
        ),
        "sum": float(sum(np.abs(np.asarray(x, np.float64)).sum() for x in jax.tree.leaves(state.params))),
    }


def test_what_would_take_days_is_said_with_what_does_not(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(session, "PACE_SECONDS", 0.0)
    train = lambda name: training.train(tiny_run(rep="dual"), tmp_path / name, data_path=folder)
    train("short")
    assert "for a first look" not in (said := capsys.readouterr().out)
    assert "short: the policy will not be evaluated; 'dualgoal eval' does that later" in said
    monkeypatch.setattr(session, "LONG_SECONDS", 0.0)
    train("long")
    words = "left on this CPU; for a first look, give another --out, --steps 10000 --batch-size 256 --lr 1e-3 "
    assert capsys.readouterr().out.count(f"{words}--rep.hidden 128 128 --algo.hidden 128 128\n") == 1


def test_two_devices_share_the_seeds_and_one_copy_of_the_data(folder):
    code = "import json, sys, test_train; print(json.dumps(test_train.train_four_seeds(sys.argv[1])))"
    paths = os.pathsep.join([os.path.dirname(__file__), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)], capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": paths, "JAX_NUM_CPU_DEVICES": "2"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    two, one = json.loads(done.stdout), train_four_seeds(folder)
    assert two.pop("sum") == pytest.approx(one.pop("sum"), rel=1e-6)
    nothing = {"messages": [], "copies of the data": 0}
    assert two == {"devices": [2, 2, 2], "seeds of each": 2, **nothing}
    assert one == {"devices": [1, 1, 1], "seeds of each": 4, **nothing}


def test_seeds_use_the_largest_number_of_devices_that_divides():
    assert [devices_used(8, d) for d in (1, 2, 3, 4, 8, 16)] == [1, 2, 2, 4, 8, 8] and devices_used(7, 4) == 1


def test_second_stage_leaves_phi_as_it_was_and_shares_it(tmp_path):
    folder = make_data(tmp_path / "data")
    (folder / f"{TASK}-val.npz").unlink()  # nothing of this test needs validation, whose program takes time to compile
    first = tiny_run("vip", "none", steps=20)
    training.train(first, tmp_path / "phi", data_path=folder, quiet=True)
    given = policy.load(tmp_path / "phi", 3).params.rep
    for algo in ("gcbc", "gcfbc"):
        second = dataclasses.replace(tiny_run("vip", algo, steps=20), frozen_rep=str(tmp_path / "phi"))
        training.train(second, tmp_path / algo, data_path=folder, quiet=True)
        assert same(policy.load(tmp_path / algo, 3).params.rep, given)
        names = set(metrics(tmp_path / algo)[0])
        assert "actor/loss" in names and "rep/loss" not in names
    other = dataclasses.replace(tiny_run("vip", "gcbc", **{"rep.dim": 5}), frozen_rep=str(tmp_path / "phi"))
    with pytest.raises(UserError, match="has another representation .rep.dim: 4 -> 5"):
        training.train(other, tmp_path / "c", data_path=folder, quiet=True)


def test_metrics_have_losses_of_both_splits_for_every_seed(finished):
    rows = metrics(finished)
    assert [(r["step"], r["split"], r["seed"]) for r in rows[:4]] == [
        (10, "train", 0), (10, "train", 3), (10, "val", 0), (10, "val", 3),
    ]  # fmt: skip
    assert len(rows) == 16 and all(isinstance(r["actor/loss"], float) for r in rows)
    timing = [json.loads(line) for line in (finished / "timing.jsonl").read_text().splitlines()]
    spent = [row for row in timing if "seconds" in row]
    assert [row["step"] for row in spent] == [10, 20, 30, 40] and all(row["seconds"] > 0 for row in spent)
    assert sum(row["seconds"] for row in spent[1:]) == pytest.approx(spent[-1]["time"] - spent[0]["time"], abs=0.5)
    facts = json.loads((finished / "config.json").read_text())
    assert facts["id"] == tiny_run().id and facts["hardware"]["threads"] and facts["versions"]["jaxlib"]
    assert facts["dataset"]["sha256"] and facts["sizes"]["observation_shape"] == [2]


@pytest.mark.parametrize("which", ["tensorboard", "wandb"])
def test_trackers_write_real_files(folder, tmp_path, which, monkeypatch):
    pytest.importorskip({"tensorboard": "tensorboardX"}.get(which, which))
    monkeypatch.setenv("WANDB_MODE", "offline")
    training.train(tiny_run(), tmp_path / "a", data_path=folder, quiet=True, track_with=(which,))
    pattern = {"tensorboard": "tensorboard/events*", "wandb": "wandb/offline-run-*/run-*.wandb"}[which]
    (file,) = (tmp_path / "a").glob(pattern)
    content = file.read_bytes()
    assert b"train/actor/loss/seed-0" in content and b"val/actor/loss/seed-3" in content


def test_what_would_go_wrong_after_training_is_said_before(folder, tmp_path):
    with pytest.raises(UserError, match="no environment for task 'my-robot'.*--episodes 0"):
        training.train(dataclasses.replace(tiny_run(episodes=2), task="my-robot"), tmp_path / "a", data_path=folder)
    with pytest.raises(UserError, match="metrics.jsonl would have 400,000 rows.*; give a larger --log-every"):
        training.train(tiny_run(steps=100_000, log_every=1), tmp_path / "a", data_path=folder, quiet=True)
    assert not (tmp_path / "a").exists()
    with pytest.raises(UserError, match="unknown tracker 'tensorbord'; did you mean 'tensorboard'"):
        training.train(tiny_run(), tmp_path / "a", data_path=folder, track_with=("tensorbord",), quiet=True)
    assert not (tmp_path / "a").exists()


def test_a_pair_that_cannot_work_is_refused_before_data_is_looked_for(tmp_path):
    run = tiny_run("orig", "gcivl", **{"algo.direct": True})
    with pytest.raises(UserError, match="direct extraction needs a representation that learns a value"):
        training.train(run, tmp_path / "run", data_path=tmp_path / "nowhere", quiet=True)

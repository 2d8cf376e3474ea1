"""The run directory: atomic, checked, locked, and cut back to a checkpoint without a trace."""

import hashlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dualgoal.algos import GCIVL
from dualgoal.errors import UserError
from dualgoal.files import write_atomic
from dualgoal.jsons import Journal, json_object, read_rows
from dualgoal.machine import Hardware
from dualgoal.reps import Dual
from dualgoal.runs import checkpoint, directory
from dualgoal.runs.checkpoint import Damaged, Shape
from dualgoal.runs.config import Run
from dualgoal.runs.facts import DataFacts, RunFacts, Sizes
from dualgoal.runs.rows import EvalRow

RUN = Run("cube-single-play-v0", Dual(), GCIVL())
FACTS = RunFacts(
    Sizes((28,), 5, discrete=False),
    DataFacts(rows=40, episodes=2, sha256="abc", versions={"mujoco": "3.4.0"}, details={"plan": {"seed": 0}}),
    {"jax": "1", "mujoco": None},
    Hardware("Linux x86_64", "cpu", "cpu", 1, 2, "float32"),
    goals=5,
)
ARRAYS = {"w": np.arange(12, dtype=np.float32).reshape(3, 4).T, "n": np.int32(7) * np.ones((), np.int32)}
SHAPES = {"w": Shape((4, 3), np.dtype(np.float32)), "n": Shape((), np.dtype(np.int32))}


def open_store(path, run=RUN, facts=FACTS, said=None):
    return directory.Store(path, run, facts, warn=(said if said is not None else []).append)


@pytest.mark.parametrize(
    ("there", "what"), [("a/config.json", "runs"), ("task/a/config.json", "runs"), ("task.npz", "datasets")]
)
def test_a_new_run_needs_a_folder_of_its_own(tmp_path, there, what):
    """In a folder of runs it would hide the others from everything that looks for runs."""
    file = tmp_path / "runs" / there
    file.parent.mkdir(parents=True)
    file.write_text("{}")
    with pytest.raises(UserError, match=f"runs: holds {what}; give the run a folder of its own, such as --out .*NAME"):
        open_store(tmp_path / "runs")
    assert {path.name for path in (tmp_path / "runs").iterdir()} == {there.split("/")[0]}
    with open_store(tmp_path / "runs" / "b"):
        pass
    with open_store(tmp_path / "runs" / "b"):  # one that is there goes on, whatever lies next to it
        pass


def test_checkpoint_keeps_strided_arrays_and_scalars(tmp_path):
    checkpoint.write(tmp_path / "a.safetensors", ARRAYS, step=3)
    again = checkpoint.read(tmp_path / "a.safetensors", SHAPES)
    assert all(np.array_equal(again[k], ARRAYS[k]) and again[k].dtype == ARRAYS[k].dtype for k in ARRAYS)
    assert not list(tmp_path.glob("*.tmp"))


def test_every_single_bit_matters(tmp_path):
    file = tmp_path / "a.safetensors"
    checkpoint.write(file, ARRAYS, step=3)
    rng = random.Random(0)
    for target in (file, file.with_suffix(".json")):
        good = target.read_bytes()
        for position in rng.sample(range(len(good)), min(len(good), 80)):
            bad = bytearray(good)
            bad[position] ^= 1 << rng.randrange(8)
            target.write_bytes(bad)
            # JSON has white space and number spellings in which a bit may mean nothing; then the arrays are intact.
            try:
                again = checkpoint.read(file, SHAPES)
            except Damaged:
                continue
            assert target != file and np.array_equal(again["w"], ARRAYS["w"])
        target.write_bytes(good)
    checkpoint.read(file, SHAPES)


@pytest.mark.parametrize("size", [0, 1, 8, 100, -1])
def test_truncated_is_damaged(tmp_path, size):
    file = tmp_path / "a.safetensors"
    checkpoint.write(file, ARRAYS, step=3)
    file.write_bytes(file.read_bytes()[:size])
    with pytest.raises(Damaged, match="bytes instead of"):
        checkpoint.read(file, SHAPES)


def test_sizes_are_checked_before_anything_is_read(tmp_path, monkeypatch):
    file = tmp_path / "a.safetensors"
    checkpoint.write(file, ARRAYS, step=3)
    monkeypatch.setattr(type(file), "read_bytes", lambda self: pytest.fail("arrays were read") if self == file else b"")
    monkeypatch.setattr(checkpoint, "verify", lambda path: None)
    with pytest.raises(UserError, match=r"array 'w' is \(\(4, 3\), 'float32'\), expected \(\(4000, 3\), 'float32'\)"):
        checkpoint.read(file, {**SHAPES, "w": Shape((4_000, 3), np.dtype(np.float32))})


def test_a_damaged_checkpoint_falls_back_to_the_one_before(tmp_path):
    said = []
    with open_store(tmp_path, said=said) as record:
        for step in (10, 20, 30):
            record.save(step, ARRAYS, keep={10, 20})
        directory.checkpoint_path(tmp_path, 30).write_bytes(b"")
        directory.checkpoint_path(tmp_path, 20).with_suffix(".json").write_text("{")
        step, arrays = record.newest(SHAPES)
    assert step == 10 and np.array_equal(arrays["w"], ARRAYS["w"])
    assert ["step-000000030" in said[0], "step-000000020" in said[1], len(said)] == [True, True, 2]
    assert directory.steps(tmp_path) == [10]


def test_pruning_takes_arrays_that_a_killed_pruning_left(tmp_path):
    with open_store(tmp_path) as record:
        record.save(10, ARRAYS)
        left = directory.checkpoint_path(tmp_path, 5)
        shutil.copy(directory.checkpoint_path(tmp_path, 10), left)
        record.save(20, ARRAYS)
        assert not left.exists() and directory.steps(tmp_path) == [10, 20]


def test_pruning_keeps_the_last_ones_and_those_asked_for(tmp_path):
    with open_store(tmp_path) as record:
        for step in range(10, 70, 10):
            record.save(step, ARRAYS, keep={20})
        assert directory.steps(tmp_path) == [20, 50, 60]


def test_the_root_of_the_file_system_is_no_run_directory():
    with pytest.raises(UserError, match="is the root of the file system"):
        open_store(Path("/usr/.."))


def test_a_second_process_is_refused(tmp_path):
    with open_store(tmp_path), pytest.raises(UserError, match=f"in use by process {os.getpid()}"):
        open_store(tmp_path)
    with open_store(tmp_path):
        pass  # free again


def test_the_lock_dies_with_its_process(tmp_path):
    code = f"from dualgoal.files import locked; from pathlib import Path; f = locked(Path({str(tmp_path / 'lock')!r}));"
    code += "print('held', flush=True); import time; time.sleep(60)"
    holder = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(UserError, match=f"in use by process {holder.pid}"):
        open_store(tmp_path)
    holder.kill()
    holder.wait()
    holder.stdout.close()
    with open_store(tmp_path):
        pass


def test_another_configuration_is_refused_with_the_fields_named(tmp_path):
    with open_store(tmp_path):
        pass
    with pytest.raises(
        UserError,
        match=r"another configuration \(lr: 0.0003 -> 0.001; rep.dim: 256 -> 8\); choose another --out, or remove this",
    ):
        open_store(tmp_path, replace(RUN, lr=1e-3, rep=Dual(dim=8)))
    with pytest.raises(UserError, match="other data"):
        open_store(tmp_path, facts=replace(FACTS, dataset=replace(FACTS.dataset, sha256="xyz")))
    said = []
    with open_store(
        tmp_path, replace(RUN, save_every=7), replace(FACTS, hardware=replace(FACTS.hardware, threads=4)), said
    ):
        pass
    assert said == [
        f"{tmp_path}: threads was 2 and is now 4; "
        "training continues, but results will not be bit-identical to an uninterrupted run"
    ]


def test_journal_survives_a_torn_line(tmp_path):
    path = tmp_path / "rows.jsonl"
    journal = Journal(path, json_object, dict)
    journal.append([{"step": n, "x": n / 3} for n in range(5)])
    journal.close()
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"step": 5, "x": 1.6')
    assert len(read_rows(path, json_object)) == 5
    journal = Journal(path, json_object, dict)
    assert path.read_bytes() == whole
    journal.keep(lambda row: row["step"] < 3)
    journal.append([{"step": 3, "x": float("nan")}])
    journal.close()
    assert [row["step"] for row in read_rows(path, json_object)] == [0, 1, 2, 3] and read_rows(path, json_object)[-1][
        "x"
    ] is None


def test_a_damaged_journal_says_which_line(tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"step": 1}\n{"st\n{"step": 2}\n')
    with pytest.raises(UserError, match="line 2 is not JSON"):
        read_rows(tmp_path / "rows.jsonl", json_object)


def test_a_folder_that_is_no_run(tmp_path):
    with pytest.raises(UserError, match="not a run directory"):
        directory.read_run(tmp_path)
    (tmp_path / "config.json").write_text("[1")
    with pytest.raises(UserError, match="not JSON"):
        directory.read_run(tmp_path)


def test_a_full_disk_loses_nothing(tmp_path):
    small = tmp_path / "small"
    small.mkdir()
    if (
        os.name != "posix"
        or subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(small)], capture_output=True
        ).returncode
    ):
        pytest.skip("this system does not let the test mount a small tmpfs")
    try:
        with open_store(small / "run") as record:
            record.metrics.append([{"step": 1, "seed": 0}])
            record.save(1, ARRAYS)
            with pytest.raises(UserError, match="no space left on device.*nothing earlier is lost"):
                record.save(2, {**ARRAYS, "w": np.zeros((400, 300), np.float32)})
            with pytest.raises(UserError, match="no space left"):
                for _ in range(10_000):
                    record.metrics.append([{"step": 2, "seed": 0, "text": "x" * 1000}])
        with open_store(small / "run") as record:
            assert record.newest(SHAPES)[0] == 1
            record.rewind(1)
            assert record.metrics.rows() == [{"step": 1, "seed": 0}]
            assert not list(small.rglob("*.tmp"))
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_atomic_write_leaves_the_old_file_on_a_kill(tmp_path):
    """A process killed while it writes leaves the old content under the name."""
    target = tmp_path / "a.json"
    write_atomic(target, b"old")
    code = """
        import os, pathlib
        from dualgoal import files
        os.fsync = lambda handle: os.kill(os.getpid(), 9)
        files.write_atomic(pathlib.Path({target!r}), b"new")
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code).format(target=str(target))])
    assert done.returncode == -9 and target.read_bytes() == b"old"


def test_no_pickle_in_the_package():
    from pathlib import Path

    import dualgoal

    words = ("import pickle", "pickle.load", "allow_pickle=True", "joblib", "eval(", "exec(")
    for file in Path(dualgoal.__file__).parent.rglob("*.py"):
        text = file.read_text()
        found = [w for w in words if w in text.replace("literal_eval(", "").replace("def eval_(", "")]
        assert not found, f"{file.name}: {found}"


def test_config_json_is_readable(tmp_path):
    with open_store(tmp_path):
        pass
    content = json.loads((tmp_path / "config.json").read_text())
    assert content["id"] == RUN.id and content["dataset"]["sha256"] == "abc"
    assert directory.read(tmp_path) == directory.Recorded(RUN, FACTS)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda c: c["sizes"].pop("action_dim"), "config.json: sizes.action_dim is missing"),
        (lambda c: c["sizes"].update(discrete=1), "config.json: sizes.discrete is 1; expected true or false"),
        (
            lambda c: c["sizes"].update(observation_shape=["a"]),
            'sizes.observation_shape is "a"; expected a whole number',
        ),
        (lambda c: c.update(dataset=None), "config.json: dataset is null; expected an object"),
        (lambda c: c["versions"].update(jax=7), "config.json: versions.jax is 7; expected a text"),
        (lambda c: c.update(frozen_rep={"path": "x"}), "config.json: frozen_rep.id is missing"),
        (lambda c: c["run"].update(steps="x"), 'config.json: run.steps is "x"; expected a whole number'),
        (lambda c: c["run"].update(precision="x"), "config.json: unknown run.precision 'x' (known: auto, "),
    ],
)
def test_a_damaged_config_names_the_field_and_the_rest_can_still_be_used(tmp_path, damage, words):
    with open_store(tmp_path) as record:
        record.evals.append([EvalRow(0, 10, 1, 5, 3, 7.0)])
    content = json.loads((tmp_path / "config.json").read_text())
    damage(content)
    (tmp_path / "config.json").write_text(json.dumps(content))
    with pytest.raises(UserError, match=re.escape(words)):
        directory.read(tmp_path)
    found = directory.inspect(tmp_path)
    assert [words in problem for problem in found.problems] == [True] and found.evaluations[0].successes == 3
    assert (found.run is None) != (found.facts is None)


def test_a_damaged_directory_is_inspected_without_raising(tmp_path):
    with open_store(tmp_path) as record:
        record.evals.append([EvalRow(0, 10, goal, 5, 3, 7.0) for goal in (1, 2)])
    with (tmp_path / "eval.jsonl").open("a") as file:
        file.write('[]\n{"seed": 0}\nnonsense\n{"seed": 1')
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "seed": 0, "rep/loss": 1.0}\n{"step": "x"}\n')
    found = directory.inspect(tmp_path)
    assert found.run == RUN and found.facts == FACTS and len(found.evaluations) == 2 and len(found.metrics) == 1
    assert found.problems == (
        "eval.jsonl: line 3 is []; expected an object (and 2 more damaged lines)",
        "metrics.jsonl: line 2: 'step' is 'x'; expected a whole number",
    )
    nothing = directory.inspect(tmp_path / "nowhere")
    assert nothing.run is None and nothing.problems[0].startswith("not a run directory")


def test_a_run_trained_by_the_command_line_is_found_finished_by_reproduce(tmp_path, monkeypatch):
    from dualgoal.cli import main
    from dualgoal.paper import reproduce
    from dualgoal.runs import training

    def train(run, out, **_):
        with directory.Store(out, run, FACTS) as record:
            record.evals.append(
                [EvalRow(s, step, g, 4, 2, 7.0) for step in run.eval_steps for s in run.seeds for g in range(1, 6)]
            )

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(training, "train", train)
    size = ["--seeds", "0", "1", "--steps", "1000", "--episodes", "4"]
    assert main.main(["train", "cube-single-play-v0", "--rep", "dual", "--algo", "gcivl", *size]) == 0
    part = {"tasks": ["cube-single-play-v0"], "reps": ["dual"], "seeds": [0, 1], "steps": 1000, "episodes": 4}
    (job,) = reproduce.plan("state_gcivl", **part)
    assert job.status == "finished" and job.out == directory.default_folder(directory.read_run(job.out))
    file = job.out / "eval.jsonl"
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:-1]))
    (job,) = reproduce.plan("state_gcivl", **part)
    assert job.status == "unfinished", "one goal of one seed is missing"


def test_a_sealed_checkpoint_that_holds_no_arrays_or_an_odd_name_is_one_line(tmp_path):
    with open_store(tmp_path) as record:
        record.save(10, {"a": np.zeros(3)})
        arrays = directory.checkpoint_path(tmp_path, 10)
        for content, facts in ((b"nonsense", {"step": 10, "run": RUN.id}), (None, {"step": [10], "run": [RUN.id]})):
            content = arrays.read_bytes() if content is None else content
            arrays.write_bytes(content)
            facts |= {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
            facts["check"] = checkpoint._check(facts)
            arrays.with_suffix(".json").write_text(json.dumps(facts))
            with pytest.raises(UserError, match="not a safetensors file|belongs to run"):
                record.load(10, None)

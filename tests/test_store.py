"""The run directory: atomic, checked, locked, and cut back to a checkpoint without a trace."""

import json
import os
import random
import shutil
import subprocess
import sys
import textwrap
from dataclasses import replace

import numpy as np
import pytest

from dualgoal.algos import GCIVL
from dualgoal.errors import UserError
from dualgoal.files import Journal, read_rows, write_atomic
from dualgoal.reps import Dual
from dualgoal.runs import checkpoint, directory
from dualgoal.runs.checkpoint import Damaged, Shape
from dualgoal.runs.config import Run

RUN = Run("cube-single-play-v0", Dual(), GCIVL())
FACTS = {"dataset": {"sha256": "abc"}, "versions": {"jax": "1"}, "hardware": {"threads": 2}}
ARRAYS = {"w": np.arange(12, dtype=np.float32).reshape(3, 4).T, "n": np.int32(7) * np.ones((), np.int32)}
SHAPES = {"w": Shape((4, 3), np.dtype(np.float32)), "n": Shape((), np.dtype(np.int32))}


def open_store(path, run=RUN, facts=FACTS, said=None):
    return directory.Store(path, run, facts, warn=(said if said is not None else []).append)


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
    with pytest.raises(UserError, match=r"another configuration \(lr: 0.0003 -> 0.001; rep.dim: 256 -> 8\)"):
        open_store(tmp_path, replace(RUN, lr=1e-3, rep=Dual(dim=8)))
    with pytest.raises(UserError, match="other data"):
        open_store(tmp_path, facts={**FACTS, "dataset": {"sha256": "xyz"}})
    said = []
    with open_store(tmp_path, replace(RUN, save_every=7), {**FACTS, "hardware": {"threads": 4}}, said):
        pass
    assert said == [f"{tmp_path}: threads was 2 and is 4; the run goes on but not bit for bit"]


def test_journal_survives_a_torn_line(tmp_path):
    path = tmp_path / "rows.jsonl"
    journal = Journal(path)
    journal.append([{"step": n, "x": n / 3} for n in range(5)])
    journal.close()
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"step": 5, "x": 1.6')
    assert len(read_rows(path)) == 5
    journal = Journal(path)
    assert path.read_bytes() == whole
    journal.keep(lambda row: row["step"] < 3)
    journal.append([{"step": 3, "x": float("nan")}])
    journal.close()
    assert [row["step"] for row in read_rows(path)] == [0, 1, 2, 3] and read_rows(path)[-1]["x"] is None


def test_a_damaged_journal_says_which_line(tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"step": 1}\n{"st\n{"step": 2}\n')
    with pytest.raises(UserError, match="line 2 is not JSON"):
        read_rows(tmp_path / "rows.jsonl")


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
            record.metrics.append([{"step": 1}])
            record.save(1, ARRAYS)
            with pytest.raises(UserError, match="no space left on device.*nothing earlier is lost"):
                record.save(2, {**ARRAYS, "w": np.zeros((400, 300), np.float32)})
            with pytest.raises(UserError, match="no space left"):
                for _ in range(10_000):
                    record.metrics.append([{"step": 2, "text": "x" * 1000}])
        with open_store(small / "run") as record:
            assert record.newest(SHAPES)[0] == 1
            record.rewind(1)
            assert record.metrics.rows() == [{"step": 1}]
            assert not list(small.rglob("*.tmp"))
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_atomic_write_leaves_the_old_file_on_a_kill(tmp_path):
    """A process killed while it writes leaves the old content under the name."""
    target = tmp_path / "a.json"
    write_atomic(target, b"old")
    code = """
        import os, pathlib
        from dualgoal import journal
        os.fsync = lambda handle: os.kill(os.getpid(), 9)
        journal.write_atomic(pathlib.Path({target!r}), b"new")
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
    assert directory.read_run(tmp_path) == RUN
    shutil.rmtree(tmp_path)

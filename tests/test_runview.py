"""Directories in every state of disrepair, with Hypothesis throwing bytes at the files of a run."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dualgoal.report import reader

RUN = {"task": "cube-single-play-v0", "rep": {"name": "dual", "dim": 8}, "algo": {"name": "gcivl"}, "seeds": [0]}
ROW = {"seed": 0, "step": 10, "task": 1, "success": 0.5, "goal_noise": 0.0}


def make(path, run=RUN, rows=(ROW,), **files):
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps({"run": run, "id": "abc", "versions": {"mujoco": "3.4.0"}}))
    (path / "eval.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    (path / "metrics.jsonl").write_text('{"step": 1, "seed": 0, "split": "train", "rep/loss": 1.0}\n')
    for name, content in files.items():
        (path / name.replace("__", ".")).write_bytes(content)
    return path


def test_a_whole_run_has_no_problems(tmp_path):
    view = reader.read(make(tmp_path / "r"))
    assert not view.problems and view.task == "cube-single-play-v0" and view.part("rep") == "dual"
    assert view.scores().per_seed().tolist() == [50.0] and len(view.metrics) == 1


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda p: (p / "config.json").unlink(), "no config.json: not a run directory"),
        (lambda p: (p / "config.json").write_text("{"), "config.json cannot be read"),
        (lambda p: (p / "config.json").write_text("[1]"), "not written by this program"),
        (lambda p: (p / "eval.jsonl").unlink(), "no eval.jsonl: no evaluation to show"),
        (lambda p: (p / "eval.jsonl").write_text(""), "eval.jsonl is empty"),
        (lambda p: (p / "eval.jsonl").write_text('{"seed": 0\nnonsense\n[]\n'), "lines 1, 2, 3 left out"),
        (lambda p: (p / "eval.jsonl").write_text(json.dumps(ROW | {"success": 7})), "line 1 left out"),
        (lambda p: (p / "metrics.jsonl").unlink(), "no metrics.jsonl"),
        (lambda p: (p / "holiday.jpg").write_text("x"), "not part of a run, ignored: holiday.jpg"),
        (lambda p: [(p / f"x{i}").mkdir() for i in range(5)], "and 2 more"),
    ],
)
def test_what_is_wrong_is_said(tmp_path, spoil, words):
    path = make(tmp_path / "r")
    spoil(path)
    assert any(words in problem for problem in reader.read(path).problems)


def test_paths_that_are_no_directories(tmp_path):
    (tmp_path / "file").write_text("x")
    assert reader.read(tmp_path / "file").problems == ("not a directory",)
    assert reader.read(tmp_path / "nothing").problems == ("no such directory",)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.binary(max_size=200), st.sampled_from(["config.json", "eval.jsonl", "metrics.jsonl", "noise.jsonl"]))
def test_no_bytes_raise(tmp_path_factory, content, name):
    path = make(tmp_path_factory.mktemp("x") / "r")
    (path / name).write_bytes(content)
    view = reader.read(path)
    view.scores()
    reader.labels([view])


def test_labels_say_what_differs(tmp_path):
    other = RUN | {"rep": {"name": "dual", "dim": 16}}
    orig = RUN | {"rep": {"name": "orig"}}
    paths = [make(tmp_path / n, r) for n, r in (("a", RUN), ("b", other), ("c", orig), ("d", orig))]
    views = [reader.read(p) for p in paths]
    assert reader.labels(views) == [
        "dual + gcivl (dim 8)",
        "dual + gcivl (dim 16)",
        "orig + gcivl [c]",
        "orig + gcivl [d]",
    ]

"""Directories in every state of disrepair, with Hypothesis throwing bytes at the files of a run."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dualgoal.paper import settings as presets
from dualgoal.paper.lightsout import Experiment
from dualgoal.report import reader
from dualgoal.runs.rows import EvalRow
from run_files import write_run

RUN = presets.preset("cube-single-play-v0", "dual", "gcivl", **{"rep.dim": 8})
ROW = EvalRow(0, 10, 1, 2, 1, 50.0)


def make(path, run=RUN, rows=(ROW,)):
    return write_run(path, run, rows, metrics=[{"step": 1, "seed": 0, "split": "train", "rep/loss": 1.0}])


def test_a_whole_run_has_no_problems(tmp_path):
    view, problems = reader.read(make(tmp_path / "r"))
    assert not problems and view.task == "cube-single-play-v0" and view.part("rep") == "dual"
    assert view.scores().per_seed().tolist() == [50.0] and len(view.metrics) == 1


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda p: (p / "config.json").unlink(), "not a run directory (no config.json)"),
        (lambda p: (p / "config.json").write_text("{"), "config.json: is not JSON"),
        (lambda p: (p / "config.json").write_text("[1]"), "config.json: no 'run' in it"),
        (lambda p: (p / "eval.jsonl").unlink(), "no evaluation to show (eval.jsonl is missing or empty)"),
        (lambda p: (p / "eval.jsonl").write_text(""), "no evaluation to show (eval.jsonl is missing or empty)"),
        (lambda p: (p / "eval.jsonl").write_text('{"seed": 0\nnonsense\n[]\n'), "line 1 is not JSON (expecting"),
        (lambda p: (p / "eval.jsonl").write_text(json.dumps(ROW.to_json() | {"successes": 7}) + "\n"), "7 successes"),
        (lambda p: (p / "metrics.jsonl").unlink(), "no losses to show (metrics.jsonl is missing or empty)"),
        (lambda p: (p / "holiday.jpg").write_text("x"), "not part of a run, ignored: holiday.jpg"),
        (lambda p: [(p / f"x{i}").mkdir() for i in range(5)], "and 2 more"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(tmp_path, spoil, words):
    path = make(tmp_path / "r")
    spoil(path)
    assert any(words in problem for problem in reader.read(path)[1])


def test_paths_that_are_no_directories(tmp_path):
    (tmp_path / "file").write_text("x")
    assert reader.read(tmp_path / "file") == (None, ["not a directory"])
    assert reader.read(tmp_path / "nothing") == (None, ["no such directory"])


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.binary(max_size=200), st.sampled_from(["config.json", "eval.jsonl", "metrics.jsonl", "noise.jsonl"]))
def test_no_bytes_raise(tmp_path_factory, content, name):
    path = make(tmp_path_factory.mktemp("x") / "r")
    (path / name).write_bytes(content)
    view, _ = reader.read(path)
    if view:
        view.scores()
        reader.labels([view])


def test_lights_out_is_one_task_whose_representations_are_how_boards_are_seen(tmp_path):
    runs = [Experiment("4x5", rep, seeds=(0,), scaling=s).to_run() for rep, s in (
        ("ideal", "standardised"), ("ideal", "raw"), ("orig", "raw"), ("dual", "raw"))]  # fmt: skip
    views = [reader.read(make(tmp_path / str(i), run))[0] for i, run in enumerate(runs)]
    assert {view.task for view in views} == {"lightsout-4x5"}
    assert reader.labels(views) == [
        "exact distances + dqn (task lightsout-4x5-ideal-standardised)",
        "exact distances + dqn (task lightsout-4x5-ideal)",
        "bits + dqn",
        "dual + dqn",
    ]
    assert reader.read(make(tmp_path / "alone", RUN, rows=()))[1]  # an evaluation was planned and is missing
    unplanned = presets.preset("cube-single-play-v0", "dual", "gcivl", episodes=0)
    assert not reader.read(make(tmp_path / "none", unplanned, rows=()))[1]


def test_labels_say_what_differs(tmp_path):
    other = presets.preset("cube-single-play-v0", "dual", "gcivl", **{"rep.dim": 16})
    orig = presets.preset("cube-single-play-v0", "orig", "gcivl")
    paths = [make(tmp_path / n, r) for n, r in (("a", RUN), ("b", other), ("c", orig), ("d", orig))]
    assert reader.labels([reader.read(path)[0] for path in paths]) == [
        "dual + gcivl (dim 8)",
        "dual + gcivl (dim 16)",
        "orig + gcivl [c]",
        "orig + gcivl [d]",
    ]
    twins = [make(tmp_path / n / "run", RUN) for n in "ab"]
    assert reader.labels([reader.read(path)[0] for path in twins]) == [f"dual + gcivl [{path}]" for path in twins]

"""The demo's arithmetic, and that its parts fit together; training itself is replaced by untrained runs."""

import pytest

from dualgoal.cli import demo
from dualgoal.jsons import Journal
from dualgoal.runs import training
from dualgoal.runs.rows import EvalRow
from tiny import untrained


def rows(successes, episodes=10, step=20):
    return [EvalRow(s, step, g, episodes, successes, length=5.0) for s in (0, 1) for g in range(1, 6)]


def test_interval_is_wilsons():
    mean, low, high = demo.interval(rows(4))
    assert (mean, low, high) == pytest.approx((40, 30.94, 49.80), abs=0.01)
    assert demo.interval(rows(0))[:2] == (0, 0) and demo.interval(rows(0))[2] == pytest.approx(3.70, abs=0.01)
    assert demo.interval(rows(10))[2] == 100


def test_summary_says_whether_the_intervals_are_apart():
    text = demo.summary({"dual": rows(4), "orig": rows(5), "random": rows(0)})
    assert (
        "Dual is 40 points better than random actions; the intervals do not overlap" in text
        and "[30.9, 49.8]  of 100" in text
    )
    assert "the intervals overlap" in demo.summary({"dual": rows(4), "random": rows(4)})


def test_parts_fit_together(tmp_path, monkeypatch, capsys, quick_compile):
    trained = []

    def instead(run, out, *, data_path, workers):
        trained.append((run, out))
        small = {} if out.name == "orig" else {"rep.dim": 4}
        untrained(out, data_path, out.name, "gcivl", steps=20, seeds=(0, 1), episodes=1, **small)
        journal = Journal(out / "eval.jsonl", EvalRow.from_json, EvalRow.to_json)
        journal.append(rows(3))
        journal.close()

    monkeypatch.setattr(training, "train", instead)
    page = demo.run_demo(tmp_path, workers=1, data_episodes=1, steps=20)
    said = capsys.readouterr().out
    assert "Dual + GCIVL     30.0 %" in said and "random actions" in said and "of 10 episodes" in said
    assert page.read_text().startswith("<!doctype html>") or "<html" in page.read_text()
    assert [out.name for _, out in trained] == ["dual", "orig"]
    assert all(run.seeds == (0, 1) and run.algo.hidden == (64, 64) for run, _ in trained)

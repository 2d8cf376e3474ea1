"""What a person sees: a live picture in a terminal, lines elsewhere, nothing with --quiet."""

import io

import numpy as np

from dualgoal.runs import progress
from dualgoal.runs.progress import Lines, Live, Pace, Quiet, clock, display
from dualgoal.runs.rows import EvalRow, success_by_seed

ROWS = [EvalRow(s, 200, g, episodes=2, successes=s, length=1.0) for s in (0, 1) for g in (1, 2)]
LOSSES = {"actor/loss": np.array([1.25, 2.0]), "value/v": np.array([0.0, 0.0])}


class Clock:
    def __init__(self, monkeypatch):
        self.now = 100.0
        monkeypatch.setattr(progress.time, "monotonic", lambda: self.now)


def test_clock():
    assert [clock(s) for s in (5, 65, 3605)] == ["0:05", "1:05", "1:00:05"]


def test_pace_does_not_count_compilation(monkeypatch):
    watch, pace = Clock(monkeypatch), Pace(0, 1000)
    watch.now += 60
    pace.advance(1)
    assert str(pace) == "step 1 of 1,000  0 steps/s  ? left"
    watch.now += 1
    pace.advance(101)
    assert str(pace) == "step 101 of 1,000  100 steps/s  0:08 left"


def test_lines_come_now_and_then_and_at_the_end(monkeypatch, capsys):
    watch, lines = Clock(monkeypatch), Lines(0, 100)
    for step in range(10, 101, 10):
        watch.now += 3
        lines.advance(step)
    lines.advance(100, "evaluating step 100")
    said = capsys.readouterr().out.splitlines()
    assert len(said) == 4 and said[-1].startswith("step 100 of 100")
    lines.evaluation(100, ROWS)
    assert capsys.readouterr().out == "step 100 success  seed 0: 0 %  seed 1: 50 %\n"


def test_the_live_picture_shows_everything(capsys):
    live = Live("cube  dual + gcivl", 0, 1000)
    live.advance(250, "evaluating step 200")
    live.losses(250, LOSSES)
    live.evaluation(200, ROWS)
    from rich.console import Console

    console = Console(width=100, record=True, file=io.StringIO())
    console.print(live._picture())
    text = console.export_text()
    live.close()
    for words in ("dual + gcivl", "step 250 of 1,000", "actor 1.25", "seed 1: 50 % at 200", "evaluating step 200"):
        assert words in text
    assert "value" not in text


def test_quiet_says_only_what_must_be_said(capsys):
    quiet = display("t", 0, 10, quiet=True)
    quiet.advance(5)
    quiet.losses(5, LOSSES)
    quiet.evaluation(5, ROWS)
    assert isinstance(quiet, Quiet) and capsys.readouterr() == ("", "")
    assert isinstance(display("t", 0, 10), Lines), "no terminal under test"
    assert success_by_seed(ROWS) == {0: 0.0, 1: 50.0}

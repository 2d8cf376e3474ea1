"""What a person sees: a live picture in a terminal, lines elsewhere, nothing with --quiet."""

import io

import numpy as np
from rich.console import Console

from dualgoal import progress
from dualgoal.progress import Display, Lines, Rate, Terminal, bar, counted, display, downloaded

SUCCESS = {0: 0.0, 1: 50.0}
LOSSES = {"actor/loss": np.array([1.25, 2.0]), "value/v": np.array([0.0, 0.0])}


class Clock:
    def __init__(self, monkeypatch):
        self.now = 100.0
        monkeypatch.setattr(progress.time, "monotonic", lambda: self.now)


def test_compilation_does_not_count_for_the_rate(monkeypatch, capsys):
    watch, lines = Clock(monkeypatch), Lines(0, 1000, every=0)
    watch.now += 60
    lines.advance(1)
    assert capsys.readouterr().out == "step 1 of 1,000  0 steps/s  ? left\n"
    watch.now += 1
    lines.advance(101)
    assert capsys.readouterr().out == "step 101 of 1,000  100 steps/s  0:00:09 left\n"


def test_lines_come_now_and_then_and_at_the_end(monkeypatch, capsys):
    watch, lines = Clock(monkeypatch), Lines(0, 100)
    for step in range(10, 101, 10):
        watch.now += 3
        lines.advance(step)
    lines.advance(100, "evaluating step 100")
    said = capsys.readouterr().out.splitlines()
    assert len(said) == 4 and said[-1].startswith("step 100 of 100")
    assert said[-1].endswith("all steps taken"), "no time is left to training, however long evaluations still take"
    lines.success(100, SUCCESS)
    assert capsys.readouterr().out == "step 100 success  seed 0: 0 %  seed 1: 50 %\n"


def test_the_live_picture_shows_everything(capsys):
    live = Terminal("cube  dual + gcivl", 0, 1000)
    live.advance(250, "evaluating step 200")
    live.losses(LOSSES)
    live.success(200, SUCCESS)
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(live.picture())
    text = console.export_text()
    live.close()
    for words in ("dual + gcivl", "step 250 of 1,000", "actor 1.25", "seed 1: 50 % at 200", "evaluating step 200"):
        assert words in text
    assert "value" not in text


def test_quiet_says_only_what_must_be_said(capsys):
    quiet = display("t", 0, 10, quiet=True)
    quiet.advance(5)
    quiet.losses(LOSSES)
    quiet.success(5, SUCCESS)
    assert type(quiet) is Display and capsys.readouterr() == ("", "")
    assert isinstance(display("t", 0, 10), Lines), "no terminal under test"


def test_bars_count_episodes_and_bytes(capsys):
    with bar("maze", *counted("episodes", Rate("rows", 1001)), total=12, done=3) as update:
        update(12, 12)
    said = capsys.readouterr().out
    assert "maze" in said and "12/12 episodes" in said
    with bar("a.npz", *downloaded(), total=None) as update:
        update(2_000_000, 4_000_000)
    assert "2.0/4.0 MB" in capsys.readouterr().out
    with bar("a.npz", *downloaded(), total=None, quiet=True) as update:
        update(1, 2)
    assert capsys.readouterr() == ("", "")

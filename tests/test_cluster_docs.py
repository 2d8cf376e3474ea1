"""docs/cluster.md: its sweep can be planned, and its arithmetic is what the tool prints."""

import importlib.util
import re
import sys
from pathlib import Path

from dualgoal.paper import row_files, sweep
from dualgoal.runs import interruption, owner

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "cluster.md").read_text()


def test_the_example_is_a_sweep(tmp_path):
    (content,) = re.findall(r"```toml\n(.*?)```", PAGE, re.S)
    (tmp_path / "mine.toml").write_text(content)
    assert len(sweep.plan(tmp_path / "mine.toml", tmp_path)) == 2 * (2 + 4)


def test_the_hours_are_those_of_the_tool(capsys, monkeypatch):
    spec = importlib.util.spec_from_file_location("table_time", ROOT / "tools" / "table_time.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    monkeypatch.setattr(sys, "argv", ["table_time.py"])
    tool.main()
    said = capsys.readouterr().out.strip()
    assert said in PAGE and said.count("\n") == 6


def test_constants_of_the_page():
    assert f"| {interruption.PREEMPTED} |" in PAGE and f"| {interruption.INTERRUPTED} |" in PAGE
    assert (owner.EVERY, owner.MISSED * owner.EVERY, owner.WATCHED * owner.EVERY) == (5, 60, 15)


def test_a_step_of_an_evaluation_takes_as_long_as_in_the_row_files():
    found = [
        1000 * record.cost.evaluation / sum(row.length * row.episodes for row in record.rows)
        for record in row_files.load_all(ROOT / "results")
        if record.task == "cube-single-play-v0" and record.cost.evaluation
    ]
    said = f"took {min(found):.1f} to {max(found):.1f} ms of CPU time per step of cube-single"
    assert said in " ".join(PAGE.split())

"""docs/your_world.md is executed at a size that takes seconds: a robot nobody here has, from recordings to a policy."""

import json
import subprocess
import sys

import gymnasium
import numpy as np
import pytest

import pages
from dualgoal import imports
from dualgoal.data import dataset
from dualgoal.runs import directory

PAGE = (pages.ROOT / "docs" / "your_world.md").read_text()


pytest.importorskip("onnxruntime", reason="the page exports to ONNX: pip install 'dualgoal[onnx]'")


def test_the_page_runs(tmp_path, monkeypatch, capsys, evaluated_here):
    (tmp_path / "examples").symlink_to(pages.ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DUALGOAL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(pages.SMALL, "train arm", "--episodes 1")
    subprocess.run([sys.executable, "examples/two_link_arm.py", "recordings.npz"], check=True)
    ran, names = pages.run_all(PAGE, capsys)
    assert ran == ["data", "data", "train", "eval", "eval", "report", "export", "export"]
    data = dataset.load(tmp_path / "data", "arm")
    assert (data.observation_shape, data.goal_shape, data.action_dim) == ((4,), (2,), 2) and data.episodes == 36
    facts = directory.read(tmp_path / "runs" / "arm").facts
    assert facts.goals == 10 and max(facts.dataset.action_range.high) <= 3.14
    rows = [json.loads(line) for line in (tmp_path / "runs" / "arm" / "eval.jsonl").read_text().splitlines()]
    assert [row["goal"] for row in rows] == list(range(1, 11)), "ten own goals"
    assert names["speeds"].shape == (2,) and np.abs(names["speeds"]).max() <= 3.14 + 1e-5
    assert isinstance(names["env"], gymnasium.Env) and np.isfinite(names["steps_to_go"])
    assert names["episode"].length <= 60
    about = json.loads((tmp_path / "arm.json").read_text())
    assert about["goal_shape"] == [2] and np.allclose(about["action_range"]["high"], 3.14, atol=0.01)
    assert "distance" in (tmp_path / "arm.html").read_text()
    wanted = names["policy"].act(names["obs"], [0.5, 1.0])
    np.testing.assert_allclose(names["there"][0], wanted, atol=1e-4)
    play = imports.load("example", f"{pages.ROOT / 'examples' / 'two_link_arm.py'}:play")
    assert 0 <= play("arm.onnx") <= 10


def test_the_arm_is_short():
    lines = (pages.ROOT / "examples" / "two_link_arm.py").read_text().splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("class Arm"))
    last = next(i for i, line in enumerate(lines) if line.startswith("def record"))
    assert len([line for line in lines[first:last] if line.strip()]) <= 35

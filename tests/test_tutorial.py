"""docs/tutorial.md is executed: its commands in small, its Python as it stands."""

import numpy as np
import pytest

import pages

PAGE = (pages.ROOT / "docs" / "tutorial.md").read_text()


@pytest.fixture
def workplace(tmp_path, monkeypatch, evaluated_here):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DUALGOAL_CACHE", str(tmp_path / "cache"))
    return tmp_path


def test_the_tutorial_runs(workplace, capsys):
    ran, names = pages.run_all(PAGE, capsys)
    assert ran == ["data", "data", "train", "train", "eval", "eval", "report", "train"]
    assert np.isfinite(names["policy"].distance(names["obs"], names["goal"])) and names["z"].shape == (2, 8)
    assert (workplace / "report.html").exists() and (workplace / "runs" / "cloned" / "checkpoints").is_dir()

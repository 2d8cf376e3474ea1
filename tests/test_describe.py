"""`data info`: the numbers it prints and the pictures it draws."""

import json

import numpy as np
import pytest

from dualgoal import files
from dualgoal.data import info, npz
from dualgoal.errors import UserError

MAZE = "pointmaze-medium-navigate-v0"


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    for name, rows in ((f"{MAZE}.npz", 40), (f"{MAZE}-val.npz", 10)):
        ends = np.zeros(rows, bool)
        ends[[6, rows - 1]] = True
        observations = rng.uniform(-1, 1, (rows, 2)).astype(np.float32)
        observations[0] = (-2.0, 21.5)
        actions = np.full((rows, 2), 0.5, np.float32)
        npz.save(tmp_path / name, {"observations": observations, "actions": actions, "terminals": ends})
    return tmp_path


def test_the_numbers(folder):
    shown = info.summarize(folder)
    assert json.loads(json.dumps(shown)) == shown
    train = shown["train"]
    assert (train["rows"], train["episodes"], shown["val"]["rows"]) == (40, 2, 10)
    assert train["episode_length"] == {"min": 7, "mean": 20.0, "max": 33}
    assert train["observations"]["min"][0] == -2.0 and train["observations"]["max"][1] == 21.5
    assert train["actions"]["min"] == train["actions"]["max"] == [0.5, 0.5]
    assert train["provenance"]["sha256"] == files.sha256(folder / f"{MAZE}.npz")


def test_the_table(folder):
    text = info.text(info.summarize(folder / f"{MAZE}.npz"))
    assert "7 to 33" in text and "(40, 2) float32" in text and "-2 to 21.5" in text


def test_the_picture(folder):
    from matplotlib.image import imread

    shown = info.summarize(folder, plot=folder / "where")
    picture = imread(shown["plot"])
    assert shown["plot"].endswith("where.png") and picture.shape[2] == 4 and picture.std() > 0.1


def test_only_mazes_have_a_picture(tmp_path):
    content = {
        "observations": np.zeros((4, 3), np.float32), "actions": np.zeros((4, 1), np.float32),
        "terminals": np.array([0, 0, 0, 1], bool),
    }  # fmt: skip
    npz.save(tmp_path / "own.npz", content)
    with pytest.raises(UserError, match="only mazes have a floor plan"):
        info.summarize(tmp_path, plot=tmp_path / "p.png")
    assert "val" not in info.summarize(tmp_path)


def test_pictures_of_images_use_the_simulator_state(tmp_path):
    task = "visual-antmaze-medium-navigate-v0"
    ends = np.array([0, 0, 0, 1], bool)
    content = {
        "observations": np.zeros((4, 64, 64, 3), np.uint8), "actions": np.zeros((4, 8), np.float32), "terminals": ends,
    }  # fmt: skip
    npz.save(tmp_path / f"{task}.npz", content)
    with pytest.raises(UserError, match="images without 'qpos'"):
        info.summarize(tmp_path, plot=tmp_path / "p.png")
    npz.save(tmp_path / f"{task}.npz", content | {"qpos": np.ones((4, 15), np.float32)})
    shown = info.summarize(tmp_path, plot=tmp_path / "p.png")
    assert (tmp_path / "p.png").stat().st_size > 1000 and shown["train"]["observations"]["max"] == 0

"""Episodes are joined into one file while others are still being collected."""

import threading

import pytest

from dualgoal.collect import generate
from dualgoal.data import npz
from dualgoal.errors import UserError


def test_episodes_are_joined_while_others_are_collected(tmp_path, monkeypatch):
    joining, collect, read = threading.Event(), generate._EpisodeWriter.__call__, npz.Archive.read
    waited = []

    def collect_late(self, item):
        if item == ("train", 1):
            waited.append(joining.wait(60))
        return collect(self, item)

    def noted(self, *arguments, **options):
        joining.set()
        return read(self, *arguments, **options)

    monkeypatch.setattr(generate._EpisodeWriter, "__call__", collect_late)
    monkeypatch.setattr(npz.Archive, "read", noted)
    generate.generate_dataset("pointmaze-medium-navigate-v0", 2, tmp_path, workers=1, quiet=True, rows=20)
    assert waited == [True]


def test_a_join_that_fails_ends_the_collecting(tmp_path, monkeypatch):
    def fails(*_):
        raise UserError("no room")

    monkeypatch.setattr(generate, "_join", fails)
    with pytest.raises(UserError, match="no room"):
        generate.generate_dataset("pointmaze-medium-navigate-v0", 30, tmp_path, workers=1, quiet=True, rows=20)
    assert len(list(tmp_path.glob(".*.parts/train-*.npz"))) < 30


def test_nobody_waits_for_an_episode_that_will_not_come(tmp_path, monkeypatch):
    collect = generate._EpisodeWriter.__call__

    def fails(self, item):
        if item == ("train", 1):
            raise UserError("broken")
        return collect(self, item)

    monkeypatch.setattr(generate._EpisodeWriter, "__call__", fails)
    with pytest.raises(UserError, match="broken"):
        generate.generate_dataset("pointmaze-medium-navigate-v0", 3, tmp_path, workers=1, quiet=True, rows=20)
    monkeypatch.undo()
    path = generate.generate_dataset("pointmaze-medium-navigate-v0", 3, tmp_path, workers=1, quiet=True, rows=20)
    assert path.exists() and len(list(tmp_path.iterdir())) == 3

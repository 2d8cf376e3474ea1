"""Episodes are joined into one file while others are still being collected."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from dualgoal.collect import generate
from dualgoal.collect.arrivals import Arrivals
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
    generate.generate_dataset("pointmaze-medium-navigate-v0", 2, tmp_path, workers=1, progress=False, rows=20)
    assert waited == [True]


def test_a_join_that_fails_ends_the_collecting(tmp_path, monkeypatch):
    def fails(*_):
        raise UserError("no room")

    monkeypatch.setattr(generate, "_join", fails)
    with pytest.raises(UserError, match="no room"):
        generate.generate_dataset("pointmaze-medium-navigate-v0", 30, tmp_path, workers=1, progress=False, rows=20)
    assert len(list(tmp_path.glob(".*.parts/train-*.npz"))) < 30


def test_nobody_waits_for_an_episode_that_will_not_come():
    arrivals = Arrivals()
    with ThreadPoolExecutor(2) as threads:
        first, second = (threads.submit(arrivals.wait_for, item) for item in (1, 2))
        with arrivals:
            arrivals.add(1)
        assert first.result(60) is None
        with pytest.raises(RuntimeError, match="2 never came"):
            second.result(60)

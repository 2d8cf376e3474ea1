"""Data that nobody named: cached, else downloaded, else generated, and generated only where no server answers."""

import pytest

from dualgoal.collect import experts, find, generate
from dualgoal.data import download
from dualgoal.errors import UserError
from tiny import TASK, make_data


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DUALGOAL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def made(cache, monkeypatch):
    """Whether data were generated; the generator is replaced."""
    asked = []

    def instead(task, episodes, out):
        asked.append((task, episodes))
        return make_data(out) / f"{task}.npz"

    monkeypatch.setattr(generate, "generate_dataset", instead)
    return asked


def fail_with(monkeypatch, problem):
    def fail(task, out):
        raise problem

    monkeypatch.setattr(download, "fetch_dataset", fail)


@pytest.mark.parametrize("folder", ["datasets", "generated"])
def test_cached_data_are_used(cache, made, folder):
    said = []
    make_data(cache / folder)
    training, validation = find.load_data(TASK, None, said.append)
    assert training.episodes == 12 and validation.episodes == 2 and not made
    assert "cached" in said[0] and "12 episodes" in said[1]


def test_without_a_server_data_are_generated(made, monkeypatch):
    said = []
    fail_with(monkeypatch, download.Unavailable("no mirror could give it"))
    assert find.load_data(TASK, None, said.append)[0].episodes == 12
    assert made == [(TASK, 1000)] and "no mirror could give it; generating 1,000 episodes instead" in said[1]


def test_a_full_disk_is_said_and_nothing_is_generated(made, monkeypatch):
    fail_with(monkeypatch, UserError("cache: 3.0 GiB to download but 0.1 GiB free"))
    with pytest.raises(UserError, match="3.0 GiB to download"):
        find.load_data(TASK, None, lambda text: None)
    assert not made


def test_families_whose_expert_does_not_come_with_the_package_cannot_be_generated(made, monkeypatch, tmp_path):
    monkeypatch.setattr(experts, "SHIPPED", tmp_path)
    fail_with(monkeypatch, download.Unavailable("no mirror could give it"))
    with pytest.raises(UserError, match="no mirror"):
        find.load_data("humanoidmaze-medium-navigate-v0", None, lambda text: None)
    assert not made

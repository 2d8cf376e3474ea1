"""Data of the next task are found while a run trains, by one process in the background."""

import functools
import os
import time

import pytest

from dualgoal.collect import ahead
from dualgoal.paper import jobs, reproduce
from dualgoal.paper.jobs import Execution
from test_reproduce import Trainer

TASKS = ["cube-single-play-v0", "scene-play-v0", "puzzle-3x3-play-v0"]
PART = {"tasks": TASKS, "reps": ["orig", "dual"], "seeds": [0], "steps": 1000, "episodes": 4}


def note(folder, task):
    """What a background process does in place of finding data."""
    (folder / task).write_text(f"{os.getpid()}")
    if task == "stuck":
        time.sleep(600)


def wait_for(path):
    for _ in range(600):
        if path.exists() and path.read_text():
            return path
        time.sleep(0.05)
    raise AssertionError(f"{path} was not written within 30 seconds")


def test_tasks_are_prepared_once_in_order_by_one_other_process(tmp_path):
    with ahead.Preparation(functools.partial(note, tmp_path)) as prepare:
        for task in ("a", "b", "a"):
            prepare(task)
        files = [wait_for(tmp_path / task) for task in ("a", "b")]
        pids = {int(file.read_text()) for file in files}
        assert len(pids) == 1 and os.getpid() not in pids
        assert files[0].stat().st_mtime_ns <= files[1].stat().st_mtime_ns


def test_leaving_ends_what_is_not_done(tmp_path):
    with ahead.Preparation(functools.partial(note, tmp_path)) as prepare:
        prepare("stuck")
        prepare("never")
        pid = int(wait_for(tmp_path / "stuck").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert not (tmp_path / "never").exists()


def test_what_goes_wrong_is_left_to_the_run(monkeypatch):
    def fail(task, say):
        raise ahead.UserError("no data")

    monkeypatch.setattr(ahead, "find_data", fail)
    monkeypatch.setattr(ahead.os, "setpriority", lambda *_: None)  # of the tests
    ahead.prepare("cube-single-play-v0")


class Asked:
    """In place of a preparation: remembers which task was asked for, and how many runs were done by then."""

    def __init__(self, trainer):
        self.trainer, self.tasks = trainer, []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def __call__(self, task):
        self.tasks.append((len(self.trainer.calls), task))


@pytest.fixture
def asked(tmp_path, monkeypatch):
    """Does a part of a table as on a GPU, with the given execution; what was prepared when."""

    def do(platform="gpu", part=PART, **execution):
        trainer = Trainer()
        found = Asked(trainer)
        monkeypatch.setattr(jobs.machine, "devices", lambda: [type("Device", (), {"platform": platform})])
        monkeypatch.setattr(jobs.ahead, "Preparation", lambda: found)
        execution = Execution(train=trainer, **execution)
        reproduce.carry_out("state_gcivl", out=tmp_path, execution=execution, say=lambda text: None, **part)
        assert len(trainer.calls) == 2 * len(part["tasks"])
        return found.tasks

    return do


def test_every_run_lets_the_next_task_be_prepared(asked):
    _, second, third = TASKS
    assert asked() == [(0, second), (1, second), (2, third), (3, third)]


@pytest.mark.parametrize("other", [{"platform": "cpu"}, {"data": "mine"}, {"part": PART | {"tasks": TASKS[:1]}}])
def test_nothing_is_prepared_where_cores_are_busy_or_data_are_there(asked, other):
    assert asked(**other) == []

"""The task table against the file format it describes, and the names against the paper's numbers."""

import json
from importlib import resources

import pytest

from dualgoal import errors
from dualgoal.envs import tasks


def test_twenty_tasks_thirteen_states_seven_pixels():
    assert (len(tasks.TASKS), len(tasks.STATE_TASKS), len(tasks.PIXEL_TASKS)) == (20, 13, 7)
    assert all(task.observation_shape == (64, 64, 3) for task in tasks.TASKS.values() if task.pixels)
    assert all(len(task.observation_shape) == 1 for task in tasks.TASKS.values() if not task.pixels)


def test_names_are_those_of_the_published_tables():
    paper = json.loads(resources.files("dualgoal.paper").joinpath("paper_results.json").read_text())
    assert [t for t in paper["state_gcivl"] if t != "average"] == list(tasks.STATE_TASKS)
    assert list(paper["pixel_gcivl"]) == list(tasks.PIXEL_TASKS)


def test_only_locomotion_beyond_the_point_needs_an_expert():
    free = {task.family for task in tasks.TASKS.values() if not task.needs_expert}
    assert free == {"pointmaze", "cube", "scene", "puzzle"}


def test_unknown_task_names_the_nearest():
    with pytest.raises(errors.UserError, match="did you mean 'cube-single-play-v0'"):
        tasks.get("cube-singel-play-v0")

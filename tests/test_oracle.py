"""OGBench's oracle goals (`...-oraclerep-v0`): the same rows and environments, with goals of what a task asks for."""

import types

import numpy as np
import pytest

from dualgoal.cli.main import main
from dualgoal.data import dataset, npz, oracle
from dualgoal.envs import registry, tasks
from dualgoal.errors import UserError
from dualgoal.paper import settings
from dualgoal.runs import environment, preparation
from tiny import TASK, make_data

MAZE = "pointmaze-medium-navigate-oraclerep-v0"


@pytest.mark.parametrize(
    ("task", "width", "cubes", "size"),
    [
        (MAZE, 2, 0, 2),
        ("antmaze-large-navigate-oraclerep-v0", 15, 0, 2),
        ("antsoccer-arena-navigate-oraclerep-v0", 22, 0, 2),
        ("cube-double-play-oraclerep-v0", 28, 2, 6),
        ("scene-play-oraclerep-v0", 25, 1, 7),
        ("puzzle-3x3-play-oraclerep-v0", 23, 0, 9),
    ],
)
def test_goals_are_those_of_ogbench(tmp_path, task, width, cubes, size):
    from ogbench.relabel_utils import add_oracle_reps

    rng = np.random.default_rng(0)
    buttons = {"puzzle": 9, "scene": 2}.get(tasks.family(task), 1)
    rows = {"qpos": rng.normal(size=(5, width)), "button_states": rng.integers(0, 2, (5, buttons))}
    np.savez(tmp_path / "x.npz", **rows)
    env = types.SimpleNamespace(unwrapped=types.SimpleNamespace(_num_cubes=cubes, _num_buttons=2))
    add_oracle_reps(tasks.plain(task), env, rows)
    with npz.Archive(tmp_path / "x.npz") as archive:
        found = oracle.goals(task, archive)
    assert found.shape == (5, size) and np.array_equal(found, rows["oracle_reps"])


def test_they_are_tasks_like_others(capsys):
    assert MAZE in tasks.ORACLE_TASKS and len(tasks.ORACLE_TASKS) == len(tasks.STATE_TASKS)
    plain, goals = settings.preset(TASK, "dual", "gcivl"), settings.preset(MAZE, "dual", "gcivl")
    assert goals.rep == plain.rep and goals.algo == plain.algo and goals.task == MAZE
    assert main(["list", "tasks"]) == 0 and "cube-single-play-oraclerep-v0 " in capsys.readouterr().out
    assert registry.exists("antmaze-medium-stitch-oraclerep-v0")
    assert not registry.exists("visual-cube-single-play-oraclerep-v0"), "images with goals that are vectors"
    with pytest.raises(UserError, match="did you mean 'cube-single-play-oraclerep-v0'"):
        tasks.get("cube-singel-play-oraclerep-v0")


def test_data_and_environment_agree_on_them(tmp_path):
    """Training and evaluation on such goals are those of any goal space (test_goal_spaces)."""
    folder = make_data(tmp_path / "data", episodes=4, length=12)
    with pytest.raises(UserError, match=f"no array 'qpos', from which the goals of '{MAZE}'"):
        dataset.load(folder, MAZE)
    for file in folder.glob("*.npz"):
        rows = dict(np.load(file))
        np.savez(file, **rows, qpos=rows["observations"] + 0.5)
    data, validation = dataset.load_splits(folder, MAZE)
    assert np.array_equal(data.goals, data.observations + 0.5) and validation.goal_shape == (2,)
    run = settings.preset(MAZE, "dual", "gcivl", steps=10)
    preparation.check_evaluation(run)
    facts = preparation.describe(run, data)
    assert facts.dataset.goal_space.keys == ("oraclerep",) and facts.sizes.goal == (2,)
    env = environment.make(run, facts)
    _, info = env.reset(seed=0, task_id=2)
    np.testing.assert_allclose(info["goal"], env.raw.raw.cur_goal_xy, rtol=1e-6)
    env.raw.raw.set_xy(env.raw.raw.cur_goal_xy)
    assert env.step(np.zeros(2, np.float32))[4]["success"]


def test_an_arm_names_such_goals_as_its_data_do(tmp_path):
    """The goal that the environment gives is the one that its own state, put into a file, attains."""
    env = registry.make("scene-play-oraclerep-v0")
    _, info = env.reset(seed=0, task_id=1)
    raw = env.raw
    state = {"qpos": raw._data.qpos[None], "button_states": raw._cur_button_states[None]}
    np.savez(tmp_path / "x.npz", **state)
    with npz.Archive(tmp_path / "x.npz") as archive:
        attained = oracle.goals("scene-play-oraclerep-v0", archive)
    assert info["goal"].shape == attained.shape[1:] == (7,)
    np.testing.assert_allclose(raw.compute_oracle_observation(), attained[0], rtol=1e-5, atol=1e-6)

"""Evaluations of a run that was trained without an environment, or for another one: goals are those of training, or are
given with --eval-goals, --success and --max-steps, and rows under different ones are told apart."""

import json
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box

import dualgoal
from dualgoal.cli.main import main
from dualgoal.data.dataset import Dataset
from dualgoal.errors import UserError
from dualgoal.paper import pairwise
from dualgoal.report import page
from dualgoal.runs import evaluation, measured
from dualgoal.runs.rows import Conditions, EvalRow
from run_files import write_run
from tiny import make_data, tiny_run, untrained

pytestmark = pytest.mark.usefixtures("evaluated_here")
SMALL = {"rep": "orig", "algo": "gcbc", "algo.hidden": (8, 8), "batch_size": 8, "steps": 1, "quiet": True}


class Walk(gymnasium.Env):
    """Goes one to the right in each step, up to 9, and says neither when a goal is reached nor when to stop."""

    observation_space, action_space = Box(-99, 99, (1,), np.float32), Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = 0.0
        return np.array([self.at]), {"goal": np.array((options or {}).get("goal", [3.0]))}

    def step(self, action):
        self.at = min(self.at + 1, 9.0)
        return np.array([self.at]), 0.0, False, False, {}


def there(observation, goal):
    return bool(observation[0] == goal[0])


def walks(start: float) -> Dataset:
    rows = (start + np.arange(40, dtype=np.float32) % 10)[:, None]
    return Dataset(rows, np.zeros((40, 1), np.float32), rows[:, 0] == start + 9)


@pytest.fixture
def goals(tmp_path):
    file = tmp_path / "goals.txt"
    file.write_text("2\n4\n20\n")
    return file


def test_goals_are_recorded_although_training_does_not_evaluate(tmp_path, goals):
    train = lambda name, **options: dualgoal.train(walks(0), tmp_path / name, **SMALL, episodes=0, **options)
    assert train("plain").policy.facts.goal_list is None
    assert train("file", eval_goals=str(goals)).policy.facts.goal_list == ((2.0,), (4.0,), (20.0,))
    drawn = train("drawn", eval_goals="validation:3", validation=walks(5)).policy.facts
    assert np.shape(drawn.goal_list) == (3, 1) and min(drawn.goal_list) >= (5.0,) and drawn.goals is None
    with pytest.raises(UserError, match="eval-goals 'validation:3': the dataset has no validation episodes"):
        train("none", eval_goals="validation:3")
    with pytest.raises(UserError, match="goals.txt.*no such file"):
        goals.unlink()
        train("gone", eval_goals=str(goals))


def test_a_run_without_an_environment_is_evaluated_by_what_eval_is_told(tmp_path, goals, capsys):
    path = dualgoal.train(walks(0), tmp_path / "run", **SMALL, episodes=0).path
    word = ["eval", str(path), "--env", f"{__file__}:Walk", "--episodes", "6", "--json"]
    told = ["--success", f"{__file__}:there", "--max-steps", "5"]
    for words, missing in ((word, "give --max-steps"), ([*word, *told[2:]], "give --success terminated")):
        assert main(words) == 2
        assert missing in capsys.readouterr().err
    listed = ["--eval-goals", str(goals)]
    for words, expected in (
        ([*told, *listed], [(1.0, 2), (1.0, 4), (0.0, 5)]),
        (told, [(1.0, 3)]),
        (["--success", "1.5", "--max-steps", "2", *listed], [(1.0, 1), (0.0, 2), (0.0, 2)]),
    ):
        assert main([*word, *words]) == 0
        assert [(row["success"], row["length"]) for row in json.loads(capsys.readouterr().out)] == expected
    found = list(dict.fromkeys(row.conditions for row in measured.read(path)[0]))
    env = f"--env {Path(__file__).resolve()}:Walk --success"
    assert [one.words for one in found] == [
        f"{env} {Path(__file__).resolve()}:there --max-steps 5 --eval-goals {goals}",
        f"{env} {Path(__file__).resolve()}:there --max-steps 5",
        f"{env} 1.5 --max-steps 2 --eval-goals {goals}",
    ], "each as it can be given again"
    assert main([*word, *told, "--eval-goals", "validation:2"]) == 2
    assert "the data of the run are in no file; give a file with goals" in capsys.readouterr().err
    assert main([*word, *told, "--max-steps", "0"]) == 2
    assert "max_steps is 0; expected at least 1" in capsys.readouterr().err


def test_a_run_without_episodes_is_evaluated_with_the_usual_number(tmp_path, capsys):
    run = dualgoal.train(walks(0), tmp_path / "run", **SMALL | {"steps": 2, "episodes": 0})
    path, told = str(run.path), {"success": f"{__file__}:there", "max_steps": 3}
    with pytest.raises(UserError, match="was trained without evaluation; run '.* --env ENV', and .* --rows eval"):
        pairwise.compare([path, path])
    with pytest.raises(UserError, match="no evaluation by dualgoal eval; run 'dualgoal eval [^ ]*run --env ENV'$"):
        pairwise.compare([path, path], rows="eval")
    with pytest.warns(evaluation.NotChosen, match="run: was trained without .* playing 50 episodes per goal"):
        assert [row.episodes for row in dualgoal.evaluate(path, env=Walk, **told)] == [50]
    words = ["--success", told["success"], "--max-steps", "3"]
    with pytest.warns(evaluation.NotChosen):
        assert main(["eval", path, "--env", f"{__file__}:Walk", *words]) == 0
    assert "step 2, 50 episodes per goal" in capsys.readouterr().out
    assert main(["compare", path, path, "--rows", "eval"]) == 0
    assert main(["eval", path, "--env", f"{__file__}:Walk", "--episodes", "0"]) == 2
    with pytest.raises(UserError, match="episodes is 0; expected at least 1"):
        dualgoal.evaluate(path, env=Walk, episodes=0)


def test_goals_are_drawn_from_the_validation_episodes_of_the_runs_data(tmp_path):
    for name, data in (("walk", walks(0)), ("walk-val", walks(2))):
        rows = {"observations": data.observations, "actions": data.actions, "terminals": data.terminals}
        np.savez(tmp_path / f"{name}.npz", **rows)
    told = {"env": Walk, "success": "0.1", "max_steps": 9, "episodes": 1, "eval_goals": "validation:3"}
    during = dualgoal.train(tmp_path / "walk.npz", tmp_path / "a", **SMALL, **told)
    later = dualgoal.train(tmp_path / "walk.npz", tmp_path / "b", **SMALL, episodes=0)
    rows = dualgoal.evaluate(later, **told)
    assert rows == during.evaluations and len(rows) == 3
    for same in ({}, told, {"eval_goals": "validation:3"}):
        assert dualgoal.evaluate(during, record=True, **same) == rows
        assert measured.read(during.path)[0][-1].conditions == Conditions(), "its own are not named"
    dualgoal.evaluate(during, record=True, success="5", eval_goals="env")
    assert measured.read(during.path)[0][-1].conditions == Conditions(success="5", eval_goals="env")


def test_our_own_environments_are_judged_by_what_is_told_too(tmp_path):
    untrained(tmp_path / "run", make_data(tmp_path / "data"), seeds=(0,))
    play = lambda **told: [
        (row.goal, row.success, row.length)
        for row in evaluation.evaluate(tmp_path / "run", episodes=1, workers=1, **told)
    ]
    assert play(success="1000", max_steps=3, eval_goals="env:2") == [(1, 1.0, 1.0), (2, 1.0, 1.0)]


def test_rows_under_other_criteria_are_not_compared(tmp_path):
    own, plain = tiny_run(episodes=10, success="0.5", max_steps=30, seeds=(0, 3)), tiny_run(episodes=10, seeds=(0, 3))
    judged, other = (write_run(tmp_path / n, run, []) for n, run in (("judged", own), ("plain", plain)))
    rows = lambda successes, goals=5: [
        EvalRow(s, 40, g, 10, successes, 5.0) for s in (0, 3) for g in range(1, goals + 1)
    ]
    measured.write(judged, rows(8), Conditions())
    measured.write(other, rows(2), Conditions())
    with pytest.raises(
        UserError, match="plain: has not been .* run 'dualgoal eval .*plain --success 0.5 --max-steps 30'"
    ):
        pairwise.compare([judged, other], rows="eval")
    with pytest.raises(
        UserError, match="judged: is evaluated with --max-steps 30; evaluate the first run with that, too"
    ):
        pairwise.compare([other, judged], rows="eval")
    measured.write(other, rows(4), Conditions(success="0.5", max_steps=30))
    found = pairwise.compare([judged, other], rows="eval")
    assert [side.overall.mean for side in found.sides] == [80, 40] and found.source == "the newest of dualgoal eval"
    assert pairwise.compare([other, judged], rows="eval").source.endswith("eval --success 0.5 --max-steps 30")
    for path in (judged, other):
        measured.write(path, rows(6, 7), Conditions(success="0.5", max_steps=30, eval_goals="validation:7"))
    assert [len(side.goals) for side in pairwise.compare([judged, other], rows="eval").sides] == [7, 7]
    text = page.write_report([other], tmp_path / "r.html").read_text()
    assert "--success 0.5 --max-steps 30" in text and "--eval-goals validation:7" in text


def test_rows_of_before_these_options_are_read(tmp_path):
    path = write_run(tmp_path / "a", tiny_run(episodes=10), [])
    measured.write(path, [EvalRow(0, 40, 1, 10, 5, 9.0)], Conditions(eval_seed=2, env="worlds:Here"))
    line = json.loads((path / measured.FILE).read_text())
    assert set(line) == {
        "seed", "step", "goal", "episodes", "successes", "success", "length", "goal_noise", "eval_seed", "random",
        "time", "env",
    }  # fmt: skip
    assert measured.read(path)[0][0].conditions == Conditions(eval_seed=2, env="worlds:Here")

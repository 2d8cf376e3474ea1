"""The same checkpoint gives the same numbers: for any grouping, any number of workers, and workers that die."""

import dataclasses
import json
import os
import shutil
import signal
import time

import numpy as np
import pytest

from dualgoal.data.dataset import Dataset
from dualgoal.data.origin import ActionRange
from dualgoal.envs import versions
from dualgoal.errors import UserError
from dualgoal.runs import directory, episodes, evaluation, forecast, policy, training
from dualgoal.runs.episodes import BLOCK, Episode
from dualgoal.runs.evaluation import Plan, WorkerEvaluator
from dualgoal.runs.preparation import How
from dualgoal.runs.rows import Conditions
from tiny import make_data, tiny_run, untrained


class Line:
    """A point on a line that has to reach its goal; draws nothing after reset."""

    max_steps = 30

    @property
    def unwrapped(self):
        return self

    def reset(self, seed, options):
        task_id = options["task_id"]
        rng = np.random.default_rng(seed)
        self.at, self.goal = rng.uniform(-1, 1, 2).astype(np.float32), rng.uniform(3, 6, 2).astype(np.float32) * task_id
        return self.at.copy(), {"goal": self.goal.copy(), "goal_rendered": np.zeros((8, 8, 3), np.uint8)}

    def step(self, action):
        self.at = self.at + np.asarray(action, np.float32)
        near = bool(np.abs(self.at - self.goal).max() < 1)
        return self.at.copy(), 0.0, near, False, {"success": near}

    def render(self):
        return np.full((8, 8, 3), 200, np.uint8)


class Recorder:
    """Walks towards the goal with a step that depends on the episode's id and the time, and remembers what it saw."""

    def __init__(self):
        self.goals, self.ids = [], []

    def __call__(self, goals, ids):
        self.goals.append(goals.copy())
        self.ids.append(ids.copy())
        jitter = lambda step: np.array([np.random.default_rng([int(i), step]).uniform(0.5, 1) for i in ids])
        return lambda obs, step: np.sign(goals - obs) * jitter(step)[:, None]


def played(first, count, towards=None, units=None, **conditions):
    envs = [Line() for _ in range(BLOCK)]
    return episodes.play(envs, towards or Recorder(), 1, first, count, conditions=Conditions(**conditions), units=units)


def test_an_episode_does_not_know_its_company():
    together = played(0, 5)
    assert together == [played(i, 1)[0] for i in range(5)] == played(0, 2) + played(2, 3)
    assert len({e.length for e in together}) > 1 and all(isinstance(e, Episode) for e in together)


@pytest.mark.parametrize("noise", [{"goal_noise": 0.5}, {"action_noise": 0.3}])
def test_noise_is_an_episodes_own(noise):
    assert played(0, 5, **noise) == [played(i, 1, **noise)[0] for i in range(5)]
    assert played(0, 5, **noise) != played(0, 5)


def test_goal_noise_is_drawn_once_per_episode():
    plain, noisy = Recorder(), Recorder()
    played(0, 2, plain)
    played(0, 2, noisy, goal_noise=0.5)
    assert len(noisy.goals) == 1
    shift = (noisy.goals[0] - plain.goals[0])[:2]
    assert (np.abs(shift) > 0.01).all() and len(np.unique(shift)) == 4, "every coordinate has its own"


def test_noise_on_image_goals_is_refused_before_training(tmp_path):
    images = np.zeros((8, 16, 16, 3), np.uint8)
    data = Dataset(images, np.zeros((8, 2), np.float32), np.arange(8) % 4 == 3)
    run = dataclasses.replace(tiny_run(episodes=1, goal_noise=0.5), task="mine")
    refused = pytest.raises(UserError, match="goal noise is for vectors; evaluate image goals without it")
    with refused:
        training.train(run, tmp_path / "run", datasets=(data, None), env=Line, quiet=True)
    assert not (tmp_path / "run").exists()
    np.savez(tmp_path / "mine.npz", observations=images, actions=data.actions, terminals=data.terminals)
    with refused:
        forecast.look_ahead(dataclasses.replace(run, env="nowhere:Env"), tmp_path / "run", tmp_path, How())


def test_the_evaluation_seed_draws_other_episodes():
    assert played(0, 5) == played(0, 5) and played(0, 5) != played(0, 5, eval_seed=1)


def test_success_is_that_of_the_last_step_and_time_runs_out():
    still = lambda goals, ids: lambda obs, step: np.zeros_like(obs)
    assert played(0, 3, still) == [Episode(False, 30)] * 3
    assert all(e.success and e.length < 30 for e in played(0, 3))


def test_the_environment_gets_actions_in_the_units_of_the_data():
    units, walk = ActionRange((-2.0, -2.0), (2.0, 2.0)), Recorder()
    doubled = lambda goals, ids: lambda obs, step: 2 * walk(goals, ids)(obs, step)
    assert played(0, 3, units=units) == played(0, 3, doubled) != played(0, 3)
    drawn = episodes.random_actions(3, discrete=True)(np.zeros((40, 2)), np.arange(40))(np.zeros((40, 2)), 0)
    assert set(drawn) == {0, 1, 2}


def test_blocks_are_the_same_for_any_number_of_episodes(tmp_path):
    jobs = Plan((4, 2), 5, 12).jobs(tmp_path, 10)
    blocks = [(j.seed, j.goal, j.first, j.count) for j in jobs[:4]]
    assert blocks == [(4, 1, 0, 5), (4, 1, 5, 5), (4, 1, 10, 2), (4, 2, 0, 5)]
    assert len(jobs) == 2 * 5 * 3
    films = [j for j in Plan((4, 2), 5, 12, video=True).jobs(tmp_path, 10) if j.video]
    assert [j.goal for j in films] == [1, 2, 3, 4, 5] and {j.first for j in films} == {episodes.VIDEO_EPISODE}


def test_a_film_has_the_goal_beside_it_and_is_a_real_video(tmp_path, monkeypatch):
    import imageio.v2 as imageio

    film = []
    (episode,) = episodes.play([Line()], Recorder(), 1, 0, 1, film=film)
    assert len(film) == episode.length + 1 and film[0].shape == (8, 20, 3)
    thinned: list = []
    monkeypatch.setattr(episodes, "FRAMES", Line().max_steps // 3)
    episodes.play([Line()], Recorder(), 1, 0, 1, film=thinned)
    assert len(thinned) == 1 + -(-episode.length // 3), "every third frame and the last"
    assert film[0][0, 0, 0] == 0 and film[0][0, 9, 0] == 255 and film[0][0, 19, 0] == 200
    episodes.write_video(tmp_path / "v" / "a.mp4", [np.repeat(np.repeat(f, 4, 0), 4, 1) for f in film])
    frame = imageio.get_reader(tmp_path / "v" / "a.mp4").get_data(0)
    assert frame.shape == (32, 80, 3) and frame[:, :30].mean() < 60 < 150 < frame[:, 50:].mean()
    still = imageio.imread(tmp_path / "v" / f"a{episodes.POSTER}")
    assert still.shape == frame.shape and np.abs(still.astype(int) - frame).mean() < 8


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A policy that walks straight to the goal: through open rooms it arrives, at a time that noise decides."""
    path = tmp_path_factory.mktemp("run") / "a"
    run = tiny_run(steps=1500, lr=3e-3, batch_size=128, log_every=1500, save_every=1500, **{"algo.hidden": [16, 16]})
    training.train(run, path, data_path=make_data(tmp_path_factory.mktemp("data"), episodes=200), quiet=True)
    return path


TWO_GOALS = Plan((0, 3), 2, 6, Conditions(action_noise=0.5))  # blocks of five episodes and of one, with noise


@pytest.fixture(scope="module")
def rows(path):
    with WorkerEvaluator(TWO_GOALS, 1) as evaluator:
        evaluator.submit(path, 1500)
        ((_, rows),) = evaluator.collect(wait=True)
    return rows


def test_rows_say_everything(rows):
    assert [(r.seed, r.goal) for r in rows] == [(s, g) for s in (0, 3) for g in (1, 2)]
    assert all(r.episodes == 6 and r.step == 1500 and 0 <= r.successes <= 6 for r in rows)
    assert all(1 <= r.length <= 1000 and r.action_noise == 0.5 for r in rows)
    assert len({r.length for r in rows}) > 1, "so that equal rows mean something"
    assert all(r.cpu_seconds > 0 and "cpu_seconds" not in r.to_json() for r in rows), (
        "for timing.jsonl, not for the rows"
    )
    assert "seed" in evaluation.text(rows)
    assert evaluation.text(rows, random=True).startswith("random actions, ")
    single = [dataclasses.replace(row, episodes=1, successes=1) for row in rows]
    assert "1 episode per goal" in evaluation.text(single)


def test_dying_workers_are_replaced_and_nothing_changes(path, rows):
    with WorkerEvaluator(TWO_GOALS, 2) as evaluator:
        evaluator.submit(path, 1500)
        ((_, answers),) = evaluator._waiting
        while not any(future.done() for _, future in answers):  # both are in the middle of something
            time.sleep(0.01)
        pids = evaluator._pool.pids
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        ((step, again),) = evaluator.collect(wait=True)
        assert pids and set(evaluator._pool.pids).isdisjoint(pids)
    assert step == 1500 and again == rows, "two workers, and both died: the same as one that lived"


def test_what_a_worker_finds_wrong_arrives_as_one_line(path):
    with WorkerEvaluator(Plan((99,), 1, 1), 1) as evaluator:
        evaluator.submit(path, 1500)
        with pytest.raises(UserError, match="has no seed 99"):
            evaluator.collect(wait=True)


def test_bad_questions_get_clear_answers(path, tmp_path):
    with pytest.raises(UserError, match="no checkpoint of step 7"):
        evaluation.evaluate(path, step=7)
    with pytest.raises(UserError, match="episodes is 0"):
        evaluation.evaluate(path, episodes=0)
    with pytest.raises(UserError, match="not a run directory"):
        evaluation.evaluate(tmp_path)


def test_a_checkpoint_that_training_replaces_meanwhile_is_no_problem(path, monkeypatch):
    answers = iter([700, 1500])
    monkeypatch.setattr(directory, "choose_step", lambda path, step: next(answers))
    rows = evaluation.evaluate(path, episodes=1, seeds=0, workers=1)
    assert {row.step for row in rows} == {1500}
    monkeypatch.setattr(directory, "choose_step", lambda path, step: 700)
    with pytest.raises(UserError, match="step-000000700"):
        evaluation.evaluate(path, episodes=1, seeds=0, workers=1)


def test_a_policy_draws_the_same_numbers_whoever_is_beside_it(tmp_path):
    untrained(tmp_path / "a", make_data(tmp_path / "data"), "vib", "gcfbc")  # a pair that draws while it acts
    loaded = policy.load(tmp_path / "a", 0)
    rng = np.random.default_rng(0)
    obs, goals = rng.normal(size=(2, BLOCK, 2)).astype(np.float32)
    ids = np.array([5, 6, 7, 8, 9], np.uint32)
    actions = loaded.towards(goals, ids)(obs, 3)
    others = ids.copy()
    others[1:] += 50
    assert np.array_equal(loaded.towards(goals, others)(obs, 3)[0], actions[0])
    assert not np.array_equal(loaded.towards(goals, others)(obs, 3)[1], actions[1])


def test_another_simulator_than_the_datasets_is_named(path, tmp_path):
    moved = tmp_path / "run"
    shutil.copytree(path, moved)
    facts = json.loads((moved / "config.json").read_text())
    here = versions.simulators()["mujoco"]
    facts["dataset"]["versions"] = {**versions.simulators(), "mujoco": "3.1.6-other"}
    (moved / "config.json").write_text(json.dumps(facts))
    with pytest.warns(versions.Mismatch, match=f"made with mujoco 3.1.6-other, evaluated with mujoco {here}"):
        evaluation.evaluate(moved, episodes=1, seeds=(0,), workers=1, random=True)

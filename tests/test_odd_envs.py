"""Environments as people write them: one that is shared, wrappers that know more than what they wrap, answers that are
not quite Gymnasium's, images with channels first."""

import dataclasses

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from gymnasium.wrappers import RecordEpisodeStatistics, TimeLimit
from jax import numpy as jnp
from jax import random

import dualgoal
from dualgoal.data import sources, tidy
from dualgoal.data.dataset import Dataset
from dualgoal.envs import own
from dualgoal.errors import UserError
from dualgoal.runs import config, preparation
from dualgoal.runs import policy as policies

SMALL = {"rep": "orig", "algo": "gcbc", "algo.hidden": (8, 8), "batch_size": 8, "steps": 1, "episodes": 6}
TERMS = own.Terms("count", (2,), (2,), 1, False)


class Counter(gymnasium.Env):
    """It is done in its third step, whatever is done there."""

    observation_space, action_space = Box(-99, 99, (2,), np.float32), Box(-1, 1, (1,), np.float32)
    max_steps = 8

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(2), {"goal": np.ones(2)}

    def step(self, action):
        self.steps += 1
        return np.zeros(2), 0.0, self.steps == 3, False, {"success": self.steps == 3}


@pytest.fixture
def data():
    rows = np.random.default_rng(0).normal(size=(40, 2)).astype(np.float32)
    return Dataset(rows, rows[:, :1].clip(-1, 1), np.arange(40) % 10 == 9)


def test_an_environment_that_is_always_the_same_plays_one_episode_after_the_other(data, tmp_path):
    one = Counter()
    for n, env in enumerate((lambda: one, lambda: TimeLimit(one, 8), one, lambda: Counter())):
        run = dualgoal.train(data, tmp_path / str(n), env=env, quiet=True, **SMALL)
        assert [(r.episodes, r.success, r.length) for r in run.evaluations] == [(6, 1.0, 3.0)]


class Settings(gymnasium.Wrapper):
    """Knows more than the environment inside."""

    num_tasks, max_steps = 3, 6


class Endless(Counter):
    """Says nothing about the length of an episode."""

    max_steps = None


@pytest.mark.parametrize(
    "env, tasks, steps",
    [
        (Counter(), 1, 8),
        (Settings(Counter()), 3, 6),
        (Settings(Endless()), 3, 6),
        (RecordEpisodeStatistics(Settings(TimeLimit(Counter(), 4))), 3, 6),
        (TimeLimit(Settings(Counter()), 4), 3, 4),
        (TimeLimit(Endless(), 7), 1, 7),
        (gymnasium.make("CartPole-v1", max_episode_steps=50), 1, 50),
    ],
)
def test_wrappers_say_how_many_tasks_and_steps_there_are(env, tasks, steps):
    discrete = isinstance(env.action_space, Discrete)
    made = own.OwnEnv(env, dataclasses.replace(TERMS, discrete=discrete))
    assert (made.num_tasks, made.max_steps) == (tasks, steps)
    assert own.OwnEnv(env, dataclasses.replace(TERMS, discrete=discrete, max_steps=2)).max_steps == 2, "the user's word"


@pytest.mark.parametrize(
    "attribute, words",
    [
        ({"num_tasks": lambda self: 3}, "the environment's num_tasks is a method; expected a whole number from 1 on"),
        ({"num_tasks": 0}, "num_tasks is 0; expected"),
        ({"max_steps": 7.5}, "max_steps is 7.5; expected"),
        ({"max_steps": -1}, "max_steps is -1; expected"),
    ],
)
def test_numbers_of_tasks_and_steps_are_whole(attribute, words):
    with pytest.raises(UserError, match=words):
        own.OwnEnv(type("Odd", (Counter,), attribute)(), TERMS)
    assert own.OwnEnv(type("Float", (Counter,), {"max_steps": 1e3})(), TERMS).max_steps == 1000


class Told(Counter):
    """Its first step ends with the parts of an answer that a test gives it; None is as usual."""

    def __init__(self, reset=None, step=None):
        self.reset_parts, self.step_parts = reset or {}, step or {}

    def reset(self, *, seed=None, options=None):
        usual = dict(zip(("observation", "info"), super().reset(seed=seed), strict=True))
        return tuple((usual | self.reset_parts).values())

    def step(self, action):
        usual = dict(zip(own.STEP.split(", "), super().step(action), strict=True))
        return tuple((usual | self.step_parts).values())

    def render(self):
        raise RuntimeError("no display")

    def close(self):
        raise OSError("gone already")


@pytest.mark.parametrize("reward, passed_on", [(None, 0), (np.full(1, 2.5), 2.5), ("good", 0), (np.nan, 0), (3, 3)])
def test_a_reward_may_be_anything(reward, passed_on):
    env = own.OwnEnv(Told(step={"reward": reward}), TERMS)
    env.reset(seed=0)
    assert env.step(np.zeros(1))[1] == passed_on


@pytest.mark.parametrize(
    "reset, step, words",
    [
        ({"info": None}, {}, r"reset gives None as info instead of a dict; Gymnasium's gives \(observation, info"),
        ({}, {"info": None}, "step gives None as info instead of a dict; Gymnasium's gives"),
        (
            {},
            {"info": {"success": np.zeros(2)}},
            r"info\['success'\] is an ndarray of several values; expected",
        ),
        ({}, {"terminated": np.zeros(2)}, "the environment's terminated is an ndarray of several"),
        (
            {"observation": [0, [0]]},
            {},
            "reading what the environment's reset gives raised ValueError: setting",
        ),
        (
            {},
            {"observation": [0, "a"]},
            "reading what the environment's step gives raised ValueError: could",
        ),
        ({"info": {"goal": ["a", "b"]}}, {}, "reading what the environment's reset gives raised ValueError"),
    ],
)
def test_answers_that_cannot_be_read_are_one_line(reset, step, words):
    env = own.OwnEnv(Told(reset, step), TERMS)
    with pytest.raises(UserError, match=words):
        env.reset(seed=0)
        env.step(np.zeros(1))
    flags = own.OwnEnv(Told(step={"terminated": np.ones(1, bool), "info": {"success": np.ones(1)}}), TERMS)
    flags.reset(seed=0)
    assert flags.step(np.zeros(1))[2] is True and flags.step(np.zeros(1))[4]["success"] is True


def says(answer):
    """A file's judge of success that answers this, whatever happened."""
    return lambda observation, goal: answer


never, always, no, forgetful, wordy = says(np.zeros(())), says(np.True_), says(0), says(None), says("yes")


@pytest.mark.parametrize("answer", [True, np.True_, 1, 1.0, np.array(True), np.ones((1,)), jnp.ones(1)])
def test_success_is_a_truth_value(answer):
    env = own.OwnEnv(Told(step={"info": {"success": answer}}), TERMS)
    env.reset(seed=0)
    assert env.step(np.zeros(1))[4]["success"] is True


@pytest.mark.parametrize("answer", ["yes", "", None, 2, -1, 0.5, np.nan, [True], [], {}, np.array("yes"), np.array(3)])
def test_success_that_is_no_truth_value_is_refused(answer):
    env = own.OwnEnv(Told(step={"info": {"success": answer}}), TERMS)
    env.reset(seed=0)
    with pytest.raises(UserError, match=r"count: the environment's info.'success'. is .*; expected True or False"):
        env.step(np.zeros(1))


@pytest.mark.parametrize(
    "name, found", [("never", False), ("always", True), ("no", False), ("forgetful", "None"), ("wordy", "'yes'")]
)
def test_a_judge_of_success_says_true_or_false(name, found):
    env = own.OwnEnv(Told(), dataclasses.replace(TERMS, success=f"{__file__}:{name}"))
    env.reset(seed=0)
    if isinstance(found, bool):
        assert env.step(np.zeros(1))[4]["success"] is found
    else:
        with pytest.raises(UserError, match=f"success '.*{name}' gives {found}; expected True or False"):
            env.step(np.zeros(1))


def test_what_render_and_close_raise_is_one_line():
    env = own.OwnEnv(Told(), TERMS)
    with pytest.raises(UserError, match=r"the environment's render raised RuntimeError: no display \(test_odd_envs.py"):
        env.render()
    with pytest.raises(UserError, match="the environment's close raised OSError: gone already"):
        env.close()


class Listening(gymnasium.Env):
    """Its action space is given, and it remembers what it is told."""

    max_steps = 9

    def __init__(self, space):
        self.action_space, self.told = space, []

    def reset(self, *, seed=None, options=None):
        return {"observation": np.zeros(3), "achieved_goal": np.zeros(2), "desired_goal": np.ones(2)}, {}

    def step(self, action):
        self.told.append(np.asarray(action).tolist())
        parts = {"observation": np.array([0.0, 3.0, 4.0]), "achieved_goal": np.ones(2), "desired_goal": np.ones(2)}
        return parts, 0.0, False, False, {"success": False}


def test_whole_numbers_of_an_action_are_the_nearest_ones():
    env = own.OwnEnv(Listening(Box(-3, 3, (3,), np.int32)), own.Terms("t", (3,), (2,), 3, False))
    env.reset(seed=0)
    env.step(np.array([1.6, -0.7, 9.0], np.float32))
    assert env.raw.told == [[2, -1, 3]]


def test_discrete_actions_count_from_0_in_the_environment_too():
    terms = own.Terms("t", (3,), (2,), 3, True)
    assert own.OwnEnv(Listening(Discrete(3)), terms).num_tasks == 1
    for start in (-1, 1):
        with pytest.raises(UserError, match=f"numbers its actions from {start}, but those of data count from 0"):
            own.OwnEnv(Listening(Discrete(3, start=start)), terms)


def test_a_distance_is_between_goals_as_the_data_have_them():
    """What the environment calls achieved_goal is here something else than the last two numbers of observations."""
    judged = own.Terms("t", (3,), (2,), 1, False, success="5.1", goals=((0.0, 0.0),), goals_as_states=False)
    env = own.OwnEnv(Listening(Box(-1, 1, (1,))), judged, lambda rows: rows[:, 1:])
    env.reset(seed=0)
    assert env.step(np.zeros(1))[4]["success"], "5 from the goal, by the goal space of the data"
    near = own.OwnEnv(Listening(Box(-1, 1, (1,))), dataclasses.replace(judged, success="4.9"), lambda rows: rows[:, 1:])
    near.reset(seed=0)
    assert not near.step(np.zeros(1))[4]["success"], "not 1.4, the distance of what the environment calls achieved_goal"
    other = own.OwnEnv(Listening(Box(-1, 1, (1,))), dataclasses.replace(judged, goal_shape=(1,), goals=((0.0,),)))
    other.reset(seed=0)
    with pytest.raises(UserError, match=r"achieved_goal with the goal, but it is \(2,\) and goals are \(1,\); give"):
        other.step(np.zeros(1))


class Camera(gymnasium.Env):
    """Images that differ everywhere, with channels first."""

    observation_space, action_space = Box(0, 255, (3, 16, 16), np.uint8), Box(-1, 1, (1,), np.float32)
    max_steps = 2

    def look(self):
        return self.np_random.integers(0, 256, self.observation_space.shape).astype(np.uint8)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seen, self.goal = self.look(), self.look()
        return self.seen, {"goal": self.goal}

    def step(self, action):
        self.seen = self.look()
        return {"observation": self.seen, "achieved_goal": self.goal}, 0.0, False, False, {}


def test_images_with_channels_first_are_turned_as_the_import_turns_them():
    images = dataclasses.replace(
        TERMS, observation_shape=(16, 16, 3), goal_shape=(16, 16, 3), success="0.5", goals_as_states=False
    )
    env = own.OwnEnv(Camera(), images)
    obs, info = env.reset(seed=0)
    for found, seen in ((obs, env.raw.seen), (info["goal"], env.raw.goal)):
        assert np.array_equal(found, tidy.arrays(sources.Rows(seen[None], np.zeros((1, 1))))["observations"][0])
    obs, *_, info = env.step(np.zeros(1))
    assert np.array_equal(obs, env.raw.seen.transpose(1, 2, 0)) and info["success"], "at its goal"
    wide = own.OwnEnv(Camera(), dataclasses.replace(images, observation_shape=(16, 3, 16)))
    with pytest.raises(UserError, match=r"observations are \(3, 16, 16\), the data's \(16, 3, 16\)"):
        wide.reset(seed=0)
    vector = own.OwnEnv(Camera(), dataclasses.replace(images, goal_shape=(1,)), lambda rows: rows[:, 2, 1, 0, None])
    assert vector.reset(seed=0)[1]["goal"] == vector.raw.goal[0, 2, 1]


def test_a_policy_takes_images_with_channels_first():
    images = np.random.default_rng(0).integers(0, 256, (40, 3, 16, 16)).astype(np.uint8)
    data = Dataset(np.moveaxis(images, 1, -1), np.zeros((40, 1), np.float32), np.arange(40) % 10 == 9)
    run = config.from_dict({"task": "camera", "rep": {"name": "orig"}, "algo": {"name": "gcbc", "hidden": [8]}})
    facts = preparation.describe(run, data)
    agent = policies.agent_for(run, facts.sizes)
    policy = policies.Policy(agent, agent.init(random.key(0)).params, run, facts)
    usual = policy.act(data.observations[:3], data.observations[5])
    assert np.array_equal(policy.act(images[:3], images[5]), usual)
    assert np.array_equal(policy.act({"observation": images[:3]}, images[5]), usual)

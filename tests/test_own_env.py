"""Environments of the user's own: goals from the environment, a list or validation episodes; success judged in four
ways; dict and plain observations; whatever does not fit is one line before anything trains."""

import dataclasses
import json
import sys
import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from gymnasium.utils.env_checker import check_env

import dualgoal
from dualgoal import registry as registry_of_parts
from dualgoal.cli.main import main
from dualgoal.data.dataset import Dataset
from dualgoal.data.goals import GoalSpace
from dualgoal.envs import making, own, registry
from dualgoal.envs.task_env import TaskEnv
from dualgoal.errors import UserError
from dualgoal.runs import config, environment, preparation, training
from dualgoal.runs.episodes import play


class Line(gymnasium.Env):
    """A point (x, speed) on a line; plain observations, the goal in `info`, discrete or continuous actions."""

    def __init__(self, discrete: bool = False):
        self.observation_space, self.discrete = Box(-9, 9, (2,), np.float64), discrete
        self.action_space = Discrete(3) if discrete else Box(-2.0, 2.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x, self.goal = float(self.np_random.uniform(-1, 1)), np.array((options or {}).get("goal", [3.0]))
        return np.array([self.x, 0.0]), {"goal": self.goal}

    def step(self, action):
        assert self.action_space.contains(action), action
        move = action - 1 if self.discrete else float(action[0])
        self.x += move
        done = bool(abs(self.x - self.goal[0]) < 0.5)
        return np.array([self.x, move]), 0.0, done, False, {"success": done}


class Timid(Line):
    """Takes half of what data in [-1, 1] may hold."""

    def __init__(self):
        super().__init__()
        self.action_space = Box(-0.5, 0.5, (1,), np.float32)


class Deaf(Line):
    """Does not listen to a goal, and says nothing about success."""

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)

    def step(self, action):
        return *super().step(action)[:4], {}


class Parts(Line):
    """The same with dict observations."""

    def reset(self, *, seed=None, options=None):
        obs, info = super().reset(seed=seed, options=options)
        return self.split(obs), {}

    def step(self, action):
        obs, *rest = super().step(action)
        return self.split(obs), *rest

    def split(self, obs):
        return {"speed": obs[1:], "place": obs[:1], "achieved_goal": obs[:1], "desired_goal": self.goal}


class Older(Line):
    """As environments were before Gymnasium."""

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed, options=options)[0]

    def step(self, action):
        return super().step(action)[:4]


class Lost(Line):
    """Does not know where it is."""

    def reset(self, *, seed=None, options=None):
        obs, info = super().reset(seed=seed, options=options)
        return obs * np.nan, info


class LostOnTheWay(Line):
    """Does not know where it went."""

    def step(self, action):
        obs, *rest = super().step(action)
        return obs * np.nan, *rest


class Unseeded(Line):
    """As environments were before Gymnasium."""

    def reset(self):
        return super().reset()


class Numbered(Line):
    num_tasks = 10


class Flags(Line):
    """Observations and goals are counts in bytes; the goal is a whole dict observation."""

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return {"at": np.array([3], np.uint8), "on": np.array([1], np.uint8)}, {"goal": {"at": np.uint8([250])}}

    def step(self, action):
        super().step(action)
        return {"at": np.array([249], np.uint8), "on": np.array([1], np.uint8)}, 0.0, False, False, {}


def far(observation, goal) -> bool:
    return bool(observation[0] > goal[0])


NUMBERS = "expected env"
TERMS = own.Terms("line", (2,), (1,), 1, False, max_steps=5)


def terms(**changes) -> own.Terms:
    return dataclasses.replace(TERMS, **changes)


def first(rows: np.ndarray) -> np.ndarray:
    return rows[:, :1]


def test_the_environments_own_goal_and_word():
    env = own.OwnEnv(Line(), TERMS)
    assert isinstance(env, gymnasium.Env) and (env.num_tasks, env.max_steps) == (1, 5)
    obs, info = env.reset(seed=1)
    assert obs.dtype == np.float32 and obs.shape == (2,) and info["goal"] == [3.0] and info["task_id"] == 1
    again, _ = env.reset(seed=1, options={"task_id": 1})
    assert np.array_equal(obs, again), "the seed fixes the start"
    obs, _, terminated, truncated, info = env.step(np.array([3.0 - obs[0]]))
    assert not terminated and not truncated and obs[1] == 2.0, "clipped to what the environment takes"
    *_, terminated, truncated, info = env.step(np.array([3.0 - obs[0]]))
    assert terminated and info["success"] is True
    with pytest.raises(UserError, match="task id 2 does not exist"):
        env.reset(seed=0, task_id=2)


def test_episodes_have_a_limit():
    env = own.OwnEnv(Line(), TERMS)
    env.reset(seed=0)
    assert [env.step(np.zeros(1))[3] for _ in range(5)] == [False] * 4 + [True]
    with pytest.raises(UserError, match="how long an episode lasts; give --max-steps"):
        own.OwnEnv(Line(), terms(max_steps=None))


class Spaceless(gymnasium.Env):
    """One whose author forgot to say what an action is."""


class Drawn(Line):
    """The same with pictures: a bright column where the point is."""

    def render(self):
        picture = np.zeros((8, 19, 3), np.uint8)
        picture[:, int(np.clip(round(self.x) + 9, 0, 18))] = 255
        return picture


def test_films_show_an_own_environment():
    film = []
    ahead = lambda goals, ids: lambda obs, step: np.ones((len(obs), 1), np.float32)
    (episode,) = play([own.OwnEnv(Drawn(), TERMS)], ahead, 1, first=0, count=1, film=film)
    places = [int(picture[0].argmax(axis=0)[0]) for picture in film]
    assert len(film) == episode.length + 1 and places[-1] - places[0] == episode.length, "one place further each step"
    with pytest.raises(UserError, match="render.. gives no picture"):
        play([own.OwnEnv(Line(), TERMS)], ahead, 1, first=0, count=1, film=[])


def test_films_are_tried_before_training_and_before_evaluation(tmp_path, capsys, monkeypatch):
    data = episodes(True)
    np.savez(
        tmp_path / "line.npz", observations=data.observations, actions=data.actions, terminals=data.terminals,
        goals=data.goals,
    )  # fmt: skip
    words = ["line", "--data", str(tmp_path), "--rep", "orig", "--algo", "gcbc", "--algo.hidden", "8", "--quiet"]
    words += ["--out", str(tmp_path / "run"), "--steps", "1", "--max-steps", "3", "--batch-size", "4"]
    told = lambda name: ["--env", f"{__file__}:{name}", "--video"]
    for more in ([], ["--dry-run"]):
        assert main(["train", *words, *told("Line"), *more]) == 2
        assert "line: render() gives no picture; make the environment with" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    for more in ([], ["--dry-run"]):
        assert main(["train", *words, *told("Drawn"), *more]) == 2
        assert "a film needs imageio_ffmpeg, which is not installed" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
    assert main(["train", *words, "--episodes", "0"]) == 0
    evaluate = ["eval", str(tmp_path / "run"), *told("Line"), "--max-steps", "3", "--workers", "1"]
    assert main(evaluate) == 2 and "a film needs imageio_ffmpeg" in capsys.readouterr().err
    monkeypatch.undo()
    assert main(evaluate) == 2 and "line: render() gives no picture" in capsys.readouterr().err


def test_listed_goals_are_told_to_the_environment():
    env = own.OwnEnv(Line(), terms(goals=((1.0,), (2.0,), (4.0,))))
    assert env.num_tasks == 3
    for number, goal in enumerate((1.0, 2.0, 4.0), start=1):
        assert env.reset(seed=0, task_id=number)[1]["goal"] == [goal] and env.raw.goal == [goal]
    assert {env.reset(seed=seed)[1]["task_id"] for seed in range(30)} == {1, 2, 3}


def test_an_environment_that_does_not_listen_is_found_out():
    listed = {"goals": ((1.0,), (2.0,))}
    with pytest.raises(UserError, match="does not follow reset.*train with --success: a distance or a function"):
        own.OwnEnv(Deaf(), terms(**listed)).reset(seed=0, task_id=1)
    env = own.OwnEnv(Deaf(), terms(**listed, success="0.25"), first)
    obs, info = env.reset(seed=0, task_id=2)
    assert info["goal"] == [2.0]
    *_, terminated, _, info = env.step(np.array([2.2 - obs[0]]))
    assert terminated and info["success"], (
        "within the distance of the listed goal, which the environment never heard of"
    )


def test_success_is_judged_as_the_user_says():
    for success, moves, expected in (
        ("terminated", (0.0, 3.0), (False, True)),
        (f"{__file__}:far", (0.0, 3.5), (False, True)),
        ("0.1", (0.5, 3.05), (False, True)),
    ):
        env = own.OwnEnv(Deaf(), terms(success=success), first)
        obs, _ = env.reset(seed=0)
        for move, reached in zip(moves, expected, strict=True):
            while abs(obs[0] - move) > 1e-5:
                obs, *_, info = env.step(np.clip([move - obs[0]], -2, 2))
            assert info["success"] is reached, (success, move)
    env = own.OwnEnv(Deaf(), TERMS)
    env.reset(seed=0)
    with pytest.raises(UserError, match="info has no 'success'; give --success"):
        env.step(np.zeros(1))
    with pytest.raises(UserError, match="success 'maybe': expected info, terminated, a distance, or module:function"):
        own.OwnEnv(Line(), terms(success="maybe"))


def test_goals_of_the_shape_of_an_observation_need_not_be_observations():
    """A distance is measured between goals: of the goal that an observation attains, not of the observation itself."""
    swapped = lambda rows: rows[:, ::-1]
    own_goals = terms(goal_shape=(2,), goals=((0.0, 2.0),), success="0.25", goals_as_states=False)
    env = own.OwnEnv(Deaf(), own_goals, swapped)
    obs, _ = env.reset(seed=0, task_id=1)
    obs, *_, info = env.step(np.array([2.0 - obs[0]]))
    assert not info["success"], "at the place, with a speed"
    assert env.step(np.array([0.0]))[4]["success"] and obs[0] == 2.0
    unknown = own.OwnEnv(Deaf(), own_goals)
    unknown.reset(seed=0, task_id=1)
    with pytest.raises(UserError, match=r"--success 0.25 needs the goal that an observation attains.*achieved_goal"):
        unknown.step(np.zeros(1))
    goals = Dataset(np.zeros((4, 2)), np.zeros((4, 1)), np.arange(4) == 3, goals=np.ones((4, 2), np.float32))
    run = config.from_dict({"task": "line", "rep": {"name": "orig"}, "algo": {"name": "gcivl"}, "max_steps": 5})
    made = environment.make(run, preparation.describe(run, goals), Line)
    assert not made.terms.goals_as_states


def test_images_are_bytes():
    class Picture(Line):
        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return np.full((4, 4, 3), 0.5), {"goal": np.zeros((4, 4, 3), np.uint8)}

    images = terms(observation_shape=(4, 4, 3), goal_shape=(4, 4, 3))
    with pytest.raises(UserError, match=r"the environment's observations are images of float64; expected uint8"):
        own.OwnEnv(Picture(), images).reset(seed=0)


def test_noise_on_discrete_actions_is_refused_before_training(tmp_path):
    ends = np.arange(40) % 10 == 9
    data = Dataset(np.zeros((40, 2), np.float32), np.zeros(40, np.int32), ends, provenance={"num_actions": 3})
    values = {"task": "line", "rep": {"name": "orig"}, "algo": {"name": "gcbc", "hidden": [8]}, "max_steps": 5}
    values |= {"steps": 2, "eval_every": 2, "log_every": 2, "save_every": 2, "episodes": 1, "batch_size": 4}
    run = config.from_dict(values | {"seeds": [0]})
    make = lambda: Line(discrete=True)
    noisy = dataclasses.replace(run, action_noise=0.5)
    with pytest.raises(UserError, match="action noise is for actions that are numbers"):
        training.train(noisy, tmp_path / "noisy", datasets=(data, None), env=make, quiet=True)
    assert not (tmp_path / "noisy").exists()


def test_an_environment_that_ends_the_program_is_one_line():
    class Leaving(Line):
        def step(self, action):
            raise SystemExit(3)

    env = own.OwnEnv(Leaving(), TERMS)
    env.reset(seed=0)
    with pytest.raises(UserError, match="the environment's step raised SystemExit: 3"):
        env.step(np.zeros(1))


def test_dict_observations_are_joined_as_the_data_were():
    env = own.OwnEnv(Parts(), terms(observation_keys=("place", "speed")))
    obs, info = env.reset(seed=0)
    obs, *_ = env.step(np.array([0.5]))
    assert obs.tolist() == [np.float32(env.raw.x), 0.5] and info["goal"] == [3.0]
    with pytest.raises(UserError, match=r"no part 'observation' \(they have speed, place"):
        own.OwnEnv(Parts(), TERMS).reset(seed=0)
    near = own.OwnEnv(Parts(), terms(observation_keys=("place", "speed"), goal_keys=("place",), success="9"))
    near.reset(seed=0)
    assert near.step(np.zeros(1))[4]["success"]


def test_discrete_actions():
    env = own.OwnEnv(Line(discrete=True), terms(discrete=True, action_dim=3))
    obs, _ = env.reset(seed=0)
    assert np.isclose(env.step(np.int32(2))[0][0], obs[0] + 1)


@pytest.mark.parametrize(
    "env, changes, message",
    [
        (Line(), {"observation_shape": (3,)}, r"observations are \(2,\), the data's \(3,\)"),
        (Line(), {"goal_shape": (2,)}, r"goals are \(1,\), the data's \(2,\)"),
        (Line(), {"action_dim": 4}, r"actions of the data are 4 numbers, but the environment takes Box"),
        (Line(), {"discrete": True}, "1 discrete action, but the environment takes Box"),
        (Line(discrete=True), {}, r"1 number, but the environment takes Discrete\(3\)"),
        (Older(), {}, r"the environment's reset gives an ndarray; Gymnasium's gives \(observation, info\)"),
    ],
)
def test_an_environment_that_does_not_fit_the_data_is_one_line(env, changes, message):
    with pytest.raises(UserError, match=message):
        own.OwnEnv(env, terms(**changes)).reset(seed=0)


def test_bytes_are_numbers_and_dict_goals_are_joined():
    env = own.OwnEnv(Flags(), terms(observation_keys=("on", "at"), goal_keys=("at",), success="2"))
    obs, info = env.reset(seed=0)
    assert obs.tolist() == [1, 3] and info["goal"].tolist() == [250] and obs.dtype == info["goal"].dtype == np.float32
    assert env.step([0.0])[4]["success"], "249 is one away from 250, not 255"


def test_environments_by_any_name():
    assert isinstance(making.build(f"{__file__}:Line"), gymnasium.Env) and isinstance(making.build(Line), Line)
    given = Line()
    assert making.build(given) is given and making.build("CartPole-v1", 7).spec.max_episode_steps == 7
    for name, message in (
        ("NoSuch-v9", "environment 'NoSuch-v9': .*[^.]; give a Gymnasium id, or module:factory"),
        ("numpy:nothing", "has nothing called nothing"),
        ("nowhere_at_all:make", "No module named"),
        ("numpy:zeros_like_nothing", "has nothing called"),
        (f"{__file__}:NUMBERS", "is a str, which cannot be called"),
        (f"{__file__}:terms", "is a Terms; expected a gymnasium.Env"),
        (f"{__file__}:Spaceless", "has no action_space; set it in the class or in __init__"),
    ):
        with pytest.raises(UserError, match=message):
            making.build(name)


def test_a_file_that_was_meant_is_named(tmp_path, monkeypatch):
    (tmp_path / "arms").mkdir()
    for file in ("meant.py", "arms/meant.py"):
        (tmp_path / file).write_text("import nowhere_at_all")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [part for part in sys.path if part])
    for name, advice in (
        ("meant:Arm", "No module named 'meant'; give meant.py:Arm for the file here, or install the package"),
        ("arms.meant:Arm", "No module named 'arms'; give arms/meant.py:Arm for the file here, or install"),
        ("meant.py:Arm", "No module named 'nowhere_at_all'; install the package or put its folder on PYTHONPATH"),
        ("other:Arm", "No module named 'other'; install the package"),
    ):
        with pytest.raises(UserError, match=f"environment '{name}': {advice}"):
            making.build(name)
    with pytest.raises(UserError, match="representation 'meant:Rep': No module named 'meant'; install the package"):
        registry_of_parts.part("rep", "meant:Rep")


def test_goals_in_a_file(tmp_path):
    (tmp_path / "a.txt").write_text("1, 2\n3 4\n\n")
    (tmp_path / "a.json").write_text("[[1, 2], [3, 4]]")
    np.save(tmp_path / "a.npy", [[1.0, 2.0], [3.0, 4.0]])
    for name in ("a.txt", "a.json", "a.npy"):
        assert environment.read_goals(tmp_path / name, 2) == ((1.0, 2.0), (3.0, 4.0))
    (tmp_path / "b.txt").write_text("1 2\n3\n")
    (tmp_path / "c.json").write_text('{"a": 1}')
    (tmp_path / "d.txt").write_text("")
    (tmp_path / "e.npy").write_bytes(b"\x80\x04N.")
    (tmp_path / "f.txt").write_text("1 nan\n")
    np.save(tmp_path / "g.npy", [["1", "2"]])
    for name in ("b.txt", "c.json", "d.txt", "e.npy", "f.txt", "g.npy", "missing.txt"):
        with pytest.raises(UserError, match=name) as raised:
            environment.read_goals(tmp_path / name, 2)
        assert "\n" not in str(raised.value)
    with pytest.raises(UserError, match=r"goals of shape \(2, 2\); expected one or more rows of 3"):
        environment.read_goals(tmp_path / "a.txt", 3)
    with pytest.raises(UserError, match="goal 2 has 1 number, the first has 2"):
        environment.read_goals(tmp_path / "b.txt", 2)


def episodes(goals: bool) -> Dataset:
    rows = np.arange(24, dtype=np.float32)[:, None] * [1.0, 10.0]
    ends = np.arange(24) % 8 == 7
    return Dataset(
        rows.astype(np.float32), np.zeros((24, 1), np.float32), ends, "line", {}, rows[:, :1] if goals else None
    )


def test_goals_from_validation_episodes():
    drawn = environment.draw_goals(episodes(True), 7)
    goals = np.array(drawn)
    assert goals.shape == (7, 1) and drawn == environment.draw_goals(episodes(True), 7)
    assert {int(g) // 8 for g in goals[:3, 0]} == {0, 1, 2}, "different episodes first"
    assert not (goals % 8 == 7).any() and np.shape(environment.draw_goals(episodes(False), 2)) == (2, 2)


def run(**changes) -> config.Run:
    parts = {"rep": {"name": "orig"}, "algo": {"name": "gcbc", "hidden": [8]}}
    return config.from_dict({"task": "line", "episodes": 2, "steps": 1, "env": f"{__file__}:Line"} | parts | changes)


def facts(run, data, **changes):
    return dataclasses.replace(preparation.describe(run, data), **changes)


def test_a_run_says_where_its_goals_come_from():
    assert environment.source(run()) == ("env", None) and environment.source(run(eval_goals="env:12")) == ("env", 12)
    assert environment.source(run(eval_goals="validation:3")) == ("validation", 3)
    with pytest.raises(UserError, match="expected validation:N with a whole number"):
        environment.source(run(eval_goals="validation:x"))
    with pytest.raises(UserError, match="has no validation episodes"):
        environment.goal_list(run(eval_goals="validation"), (1,), None)
    assert len(environment.goal_list(run(eval_goals="validation"), (1,), episodes(True))) == environment.MANY
    assert environment.goal_list(run(), (1,), None) is None
    with pytest.raises(UserError, match="max_steps is 0"):
        run(max_steps=0)


def test_goals_are_counted_before_training():
    data, limited = episodes(True), run(max_steps=4)
    known = facts(limited, data)
    assert environment.count_goals(limited, known) == 1
    assert environment.count_goals(dataclasses.replace(limited, eval_goals="env:12"), known) == 12
    assert environment.count_goals(limited, dataclasses.replace(known, goal_list=((1.0,), (2.0,)))) == 2
    deaf = dataclasses.replace(limited, env=f"{__file__}:Deaf")
    with pytest.raises(UserError, match="info has no 'success'"):
        environment.count_goals(deaf, known)
    with pytest.raises(UserError, match="observation after 0 steps has nan or infinity"):
        environment.count_goals(limited, known, Lost())
    with pytest.raises(UserError, match="observation after 1 step has nan or infinity"):
        environment.count_goals(limited, known, LostOnTheWay())
    with pytest.raises(UserError, match="argument 'seed'; expected reset.self, .*, seed=None, options=None"):
        environment.count_goals(limited, known, Unseeded())
    with pytest.raises(UserError, match="the environment has 10 tasks, fewer than the 12 to evaluate"):
        environment.count_goals(dataclasses.replace(limited, eval_goals="env:12"), known, Numbered())
    assert type(environment.make(deaf, known, Line()).raw) is Line, "an environment that is handed over is used instead"


def test_a_range_of_actions_that_is_narrower_than_the_recorded_one_is_said():
    def taking(low, high):
        env = Line()
        env.action_space = Box(np.float32(low), np.float32(high))
        return env

    wide, narrow = taking([-np.inf, -2], [3.14, 2]), taking([-9, -1], [9, 1.5])
    limited, plain = run(max_steps=4), dataclasses.replace(episodes(True), actions=np.zeros((24, 2), np.float32))
    scaled = dataclasses.replace(plain, provenance={"action_range": {"low": [-9, -2], "high": [3.1415, 2]}})
    count = lambda held, env, **given: environment.count_goals(limited, facts(limited, held), env, **given)
    with pytest.warns(
        environment.Clipped,
        match="recorded actions go from -2 to 2 in coordinate 1, .* action_space from -1 to 1.5; .* clipped to it",
    ):
        assert count(scaled, narrow) == 1
    with pytest.warns(environment.Clipped, match="from -5 to 5, but .* from -2 to 2; actions are clipped"):
        ones = episodes(True)
        far = dataclasses.replace(ones, actions=np.linspace(-5, 5, ones.rows, dtype=np.float32)[:, None])
        environment.count_goals(limited, facts(limited, far))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert count(scaled, wide) == 1, "but for rounding"
        assert count(plain, narrow, data=plain) == 1


class Degrees(Line):
    """Its place is in other units than the data's."""

    def reset(self, *, seed=None, options=None):
        obs, info = super().reset(seed=seed, options=options)
        return np.array([obs[0], 57.3]), info


def test_an_observation_far_from_the_data_is_said():
    limited, data = run(max_steps=4), episodes(True)
    within = np.stack([np.linspace(-3, 3, data.rows), np.linspace(-1, 1, data.rows)], axis=1).astype(np.float32)
    data = dataclasses.replace(data, observations=within)
    count = lambda held, env: environment.count_goals(limited, facts(limited, held), env, data=held)
    told = "coordinate 1 of the environment's first observation is 57.3, but in the data it"
    with pytest.warns(environment.Unseen, match=f"{told} goes from -1 to 1; is it the same"):
        count(data, Degrees())
    within[:, 1] = 57.4
    with pytest.warns(environment.Unseen, match=f"{told} is always 57.4"):
        count(data, Degrees())
    within[:, 1] = 57.31
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        count(data, Degrees())
        outline = dataclasses.replace(data, observations=np.broadcast_to(np.float32(0), within.shape))
        count(outline, Degrees())  # a dry run has not read them


class Silent(Line):
    """Judges success, and does not say for which goal."""

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed, options=options)[0], {}


def test_an_environment_that_does_not_name_its_goal_is_said_to_follow_no_list():
    limited, listed = run(max_steps=4), dataclasses.replace(facts(run(), episodes(True)), goal_list=((1.0,),))
    with pytest.warns(environment.Unnamed, match="names no goal after reset, so that nobody can tell"):
        environment.count_goals(limited, listed, Silent())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        environment.count_goals(limited, listed, Line())
        environment.count_goals(dataclasses.replace(limited, success=f"{__file__}:far"), listed, Silent())


def plain_episode() -> Dataset:
    return Dataset(np.zeros((3, 1), np.float32), np.zeros((3, 1), np.float32), np.arange(3) == 2, "line")


def test_narrow_actions_are_said_before_training_and_before_evaluation(tmp_path, capsys):
    data = dataclasses.replace(episodes(True), actions=np.linspace(-5, 5, 24, dtype=np.float32)[:, None])
    given = {"observations": data.observations, "actions": data.actions, "terminals": data.terminals}
    np.savez(tmp_path / "raw.npz", **given)
    words = [str(tmp_path / "raw.npz"), "--out", str(tmp_path / "data"), "--task", "line", "--goal-dims", "0"]
    assert main(["data", "import", *words, "--scale-actions"]) == 0
    words = ["line", "--data", str(tmp_path / "data"), "--rep", "orig", "--algo", "gcbc", "--algo.hidden", "8"]
    words += ["--out", str(tmp_path / "run"), "--steps", "1", "--batch-size", "4", "--quiet", "--max-steps", "3"]
    env = ["--env", f"{__file__}:Line"]
    told = {"match": "recorded actions go from -5 to 4.5.*, but the environment's action_space from -2 to 2"}
    with pytest.warns(environment.Clipped, **told):
        assert main(["train", *words, *env, "--episodes", "1", "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert "1 goal x 1 episode per seed" in shown and "actions of 1 number;" in shown and "16 rows, 2 epis" in shown
    assert repr(plain_episode()).startswith("Dataset 'line': 3 rows, 1 episode; ")
    assert main(["train", *words, "--episodes", "0"]) == 0
    later = [*env, "--max-steps", "3", "--workers", "1", "--episodes", "1"]
    with pytest.warns(environment.Clipped, **told):
        assert main(["eval", str(tmp_path / "run"), *later]) == 0
    near = dataclasses.replace(data, actions=data.actions / 5)  # within [-1, 1] as they were recorded
    done = dualgoal.train(
        near, tmp_path / "near", rep="orig", algo="gcbc", steps=1, quiet=True, batch_size=4, episodes=0
    )
    narrow = [*later[2:], "--env", f"{__file__}:Timid"]
    with pytest.warns(environment.Clipped, match="recorded actions go from -1 to 1, .* from -0.5 to 0.5"):
        assert main(["eval", str(done.path), *narrow]) == 0


def test_the_environment_is_part_of_a_runs_id():
    plain = run(env=None)
    assert config.from_dict(json.loads(json.dumps(config.to_dict(run())))) == run()
    assert len({plain.id, run().id, run(success="0.1").id}) == 3


@pytest.mark.filterwarnings("ignore:.*Box")  # advice of the checker about ranges
def test_our_environments_are_gymnasiums_and_can_be_wrapped():
    env = registry.make("pointmaze-medium-navigate-v0")
    assert isinstance(env, gymnasium.Env) and isinstance(env, TaskEnv)
    wrapped = gymnasium.wrappers.TimeLimit(gymnasium.wrappers.RecordEpisodeStatistics(env), 2)
    obs, info = wrapped.reset(seed=3, options={"task_id": 2})
    straight, told = env.reset(3, 2)
    assert np.array_equal(obs, straight) and np.array_equal(info["goal"], told["goal"])
    assert env.observation_space.contains(obs) and env.action_space.shape == (2,)
    wrapped.reset(seed=3)
    wrapped.step(np.zeros(2, np.float32))
    assert wrapped.step(np.zeros(2, np.float32))[3]
    check_env(env, skip_render_check=True)  # of Gymnasium: it raises what it finds
    check_env(own.OwnEnv(Line(), terms()), skip_render_check=True)
    puzzle = registry.make("lightsout-3x3")
    check_env(puzzle, skip_render_check=True)
    assert isinstance(puzzle, TaskEnv) and puzzle.observation_space.contains(puzzle.reset(seed=0)[0])


def test_our_environments_in_another_goal_space():
    space = GoalSpace((1,), dims=(1,))
    data = dataclasses.replace(
        episodes(True), task="pointmaze-medium-navigate-v0", actions=np.zeros((24, 2), np.float32)
    )
    own_space = run(env=None, task="pointmaze-medium-navigate-v0")
    known = facts(own_space, data)
    known = dataclasses.replace(known, dataset=dataclasses.replace(known.dataset, goal_space=space))
    env, plain = environment.make(own_space, known), registry.make(own_space.task)
    obs, info = env.reset(seed=5, task_id=2)
    there, told = plain.reset(5, 2)
    assert np.array_equal(obs, there) and np.array_equal(info["goal"], told["goal"][1:]) and env.num_tasks == 5
    assert env.max_steps == 1000 and env.step(np.zeros(2))[4]["success"] is False

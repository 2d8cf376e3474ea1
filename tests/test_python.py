"""From Python: train on what is at hand, in an environment of this process, and look at what came out."""

import dataclasses
import importlib
import inspect
import shutil
import sys
import types
import warnings
from pathlib import Path
from xml.etree import ElementTree

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium.spaces import Box

import dualgoal
import pages
from dualgoal import api, imports, progress
from dualgoal.cli.main import main
from dualgoal.data import dataset
from dualgoal.data.standard import Standard
from dualgoal.errors import UserError
from dualgoal.runs import config, evaluation, measured
from dualgoal.runs.facts import DataFacts
from run_files import write_run
from tiny import TASK, make_data, record, tiny_run

SMALL = {"batch_size": 16, "log_every": 10, "save_every": 10, "episodes": 2, "seeds": (0, 3), "algo.hidden": (8, 8)}
SMALL |= {"rep": "orig", "algo": "gcbc", "quiet": True}


class Field(gymnasium.Env):
    """A point that goes where it is told; two goals."""

    observation_space, action_space = Box(-99, 99, (2,), np.float32), Box(-1, 1, (2,), np.float32)
    max_steps, num_tasks = 3, 2

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at, self.goal = self.np_random.uniform(0, 1, 2), np.full(2, float(options["task_id"]))
        return self.at, {"goal": self.goal}

    def step(self, action):
        self.at = self.at + action
        return self.at, 0.0, False, False, {"success": bool(self.at[0] > 0.5)}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    loaded = dataset.load(make_data(tmp_path_factory.mktemp("data")), TASK)
    return dualgoal.Dataset(loaded.observations, loaded.actions, loaded.terminals)


@pytest.fixture(autouse=True)
def place(tmp_path, tmp_path_factory, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DUALGOAL_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


def make():
    return Field()


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    """Two seeds of an own environment on own data, with what the callback heard."""
    heard = []
    out = tmp_path_factory.mktemp("run") / "field"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DUALGOAL_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
        run = dualgoal.train(
            data, out, env=lambda: Field(), steps=40, eval_every=10, on_evaluation=heard.append, **SMALL
        )
    return run, heard


def test_a_dataset_is_trained_on_and_evaluated_here(trained):
    run, heard = trained
    assert (run.run.task, run.run.env, run.step, run.run.seeds) == ("my-task", None, 40, (0, 3))
    assert [e.step for e in heard] == [10, 20, 30, 40] and tuple(heard[-1].rows) == tuple(run.evaluations[-4:])
    assert run.success == pytest.approx(np.mean([e.success for e in heard[-3:]]))
    assert {(row.seed, row.goal, row.episodes) for row in run.evaluations} == {
        (s, g, 2) for s in (0, 3) for g in (1, 2)
    }
    assert run.policy.act(np.zeros(2), np.ones(2)).shape == (2,) and dualgoal.load(run, seed=3).seed == 3
    assert repr(run).startswith(f"TrainedRun('{run.path}'): my-task, orig + gcbc, 40 of 40 steps, success ")


def test_the_same_call_with_more_steps_extends_the_run(trained, data):
    """Two seeds, own data and an own environment, which is one object here and was many there."""
    open_ = {name: value for name, value in SMALL.items() if name not in ("log_every", "save_every")}
    for steps, stop in ((100, 10), (200, 20)):  # the second call alone would evaluate every 20 steps
        run = dualgoal.train(data, env=Field(), steps=steps, on_evaluation=lambda e, stop=stop: e.step == stop, **open_)
    assert (run.run.steps, run.run.eval_every, run.step, run.run.id) == (200, 10, 20, trained[0].run.id)
    assert run.path.parent.name == "my-task" and len(list(run.path.parent.iterdir())) == 1
    assert run.evaluations == trained[0].evaluations[:8]
    weights = "step-000000020.safetensors"
    assert record(run.path)[weights] == record(trained[0].path)[weights], "a callback ended it where it said so"


def test_other_data_are_noticed(trained, data):
    other = dataclasses.replace(data, actions=-data.actions)
    with pytest.raises(UserError, match="trained on other data"):
        dualgoal.train(other, trained[0], env=Field(), steps=40, eval_every=10, **SMALL)
    more = type("More", (Field,), {"num_tasks": 3})
    with pytest.raises(UserError, match="evaluated with 2 goals, and 'env' now gives 3 that are not the same"):
        dualgoal.train(data, trained[0], env=more(), steps=80, eval_every=10, **SMALL)


def test_rows_that_are_read_in_another_way_are_other_data(data):
    """Standards and the range of actions are recorded beside the rows, so that these alone are the same."""
    small, out = SMALL | {"episodes": 0, "seeds": (0,)}, "runs/otherwise"
    dualgoal.train(data, out, steps=10, **small)
    standard = {"observation_standard": {"mean": [10.0, 5.0], "std": [4.0, 2.0]}}
    for told, problem in (
        (standard, "runs/otherwise: its data were standardised in another way; give that --data or another --out"),
        ({"action_range": {"low": [-2.0, 0.0], "high": [2.0, 1.0]}}, "its actions were scaled in another way"),
    ):
        other = dataclasses.replace(data, provenance=data.provenance | told)
        with pytest.raises(UserError, match=problem):
            dualgoal.train(other, out, steps=20, **small)


def test_training_reads_standardised_rows(data):
    """A run on data that say how to standardise them is a run on standardised data."""
    units = Standard((10.0, 5.0), (4.0, 2.0))
    done = dataclasses.replace(data, observations=units(data.observations))
    told = dataclasses.replace(data, provenance={"observation_standard": {"mean": [10.0, 5.0], "std": [4.0, 2.0]}})
    small = SMALL | {"episodes": 0, "steps": 10, "seeds": (0,)}
    runs = [dualgoal.train(what, f"runs/{n}", **small) for n, what in enumerate((done, told))]
    weights = "step-000000010.safetensors"
    assert record(runs[0].path)[weights] == record(runs[1].path)[weights]
    rows = data.observations[:4]
    assert np.array_equal(runs[1].policy.act(rows, rows[0]), runs[0].policy.act(units(rows), units(rows[:1])[0]))


def test_what_can_be_trained_on(data, tmp_path):
    configure = lambda what, **given: api._configure(what, *({**CALL, **given}.values()), {"steps": 100})
    folder = make_data(tmp_path / "data")
    run, found = configure(folder)
    assert run.task == TASK and found[0].rows == 492 and run.episodes == 50, "its name says what it is"
    run, found = configure("cube-single-play-v0", rep=dualgoal.REPS["dual"](dim=8))
    assert found is None and run.rep.dim == 8 and run.eval_every == 10
    run, found = configure("antmaze-giant-navigate-oraclerep-v0", data_path=folder)
    assert found is None and run.discount == 0.995, "goals by coordinates have the settings of their task"
    run, found = configure(data, validation=data)
    assert run.episodes == 0 and found[1].provenance["sha256"] == found[0].provenance["sha256"]
    other = configure(dataclasses.replace(data, observations=data.observations.astype(np.float64)))[1][0]
    assert other.observations.dtype == np.float32 and other.provenance != found[0].provenance
    with pytest.raises(UserError, match="unknown task 'cube-singel'"):
        configure("cube-singel")
    for given, words in (
        ({"what": None}, "train was given a NoneType; expected a Run, a Dataset, a path, or a task's name"),
        ({"what": [{}]}, "train was given a list; .*; Dataset.from_episodes makes a Dataset of episodes"),
        ({"what": dataclasses.replace(data, terminals=np.zeros(data.rows))}, "dataset: 'terminals' has no episode end"),
        ({"what": dataclasses.replace(data, actions=data.actions[:-1])}, "dataset: 'actions' has 491 rows but"),
        ({"what": dataclasses.replace(data, goals=data.observations[1:])}, "dataset: 'goals' has shape"),
        ({"what": "nowhere.npz"}, "nowhere.npz: no such file"),
        ({"what": data, "algo": dualgoal.ALGOS["gcbc"]}, "algo is <class .*; expected a name, or an object such as"),
    ):
        with pytest.raises(UserError, match=words):
            configure(**given)
    with pytest.raises(UserError, match="algo is an object, so 'algo.hidden' is an option of it: give it there"):
        dualgoal.train(data, "x", algo=dualgoal.ALGOS["gcbc"](), **{"algo.hidden": (4,)})
    for name, words in (
        ("data", "data is not an option; did you mean 'data_path'. .known: action_noise, "),
        ("track", "track is not an option; did you mean 'track_with'."),
        ("stepz", "stepz is not an option; did you mean 'steps'."),
        ("task", "task is not an option"),
    ):
        with pytest.raises(UserError, match=f"^{words}"):
            dualgoal.train(data, "x", **{name: "d"})
    with pytest.raises(UserError, match="a Run has all its options"):
        dualgoal.train(run, "x", steps=3)
    with pytest.raises(UserError, match="a Run has all its options"):
        dualgoal.train(dataclasses.replace(run, env="CartPole-v1"), "x", env=Field())
    with pytest.raises(UserError, match="out is 'orig', the name of a part; give rep='orig', or out='./orig'"):
        dualgoal.train(folder, "orig")
    with pytest.raises(UserError, match="validation goes with a Dataset"):
        dualgoal.train(folder, "x", validation=data)


def test_options_may_be_what_numpy_gives(data):
    given = {"seeds": range(2), "lr": np.float32(0.5), "rep.hidden": np.array([8, 4]), "eval_goals": Path("goals.txt")}
    run, _ = api._configure(data, *CALL.values(), {**given, "success": 0.5, "steps": np.int64(100)})
    assert run.rep.hidden == (8, 4) and type(run.rep.hidden[0]) is int and type(run.steps) is int
    assert (run.seeds, run.lr, run.eval_goals, run.success) == ((0, 1), 0.5, "goals.txt", "0.5")
    small = SMALL | {"seeds": range(2), "episodes": 0, "log_every": np.int64(5)}
    assert dualgoal.train(data, "runs/x", steps=np.int64(5), **small).step == 5


def test_validation_data_of_another_kind_are_refused_before_training(data):
    plain = {"observations": np.zeros((4, 3)), "actions": np.linspace(-1, 1, 8).reshape(4, 2)}
    made = lambda given={}, **options: dualgoal.Dataset.from_episodes([{**plain, **given}] * 3, **options)
    wide, picks = {"observations": np.zeros((4, 5))}, lambda n: {"actions": np.arange(4) % n}
    for training, validation, words in (
        (made(), made(wide), "validation data have observations 5, .*, but the training data observations 3, .* kind"),
        (made(), made({"goals": np.zeros((4, 3))}), "goals 3 of their own, .*, but the training data .* goals 3, "),
        (made(goal_dims=(0, 1)), made(), "goals 3, .*, but the training data .*, goals 2 of their own"),
        (made(goal_dims=(0, 1)), made(goal_dims=(1, 2)), "validation data: goals there are coordinates 1 2 .* 0 1 of"),
        (made(picks(2)), made(picks(3)), "have .*, 3 discrete actions, but .*, 2 discrete actions"),
        (made(scale_actions=True), made(), "only one of training and validation data were scaled"),
        (made(), [plain], "validation is a list; expected a Dataset"),
    ):
        with pytest.raises(UserError, match=words):
            dualgoal.train(training, "runs/x", validation=validation, steps=1, **SMALL | {"episodes": 0})
    assert not Path("runs/x").exists()
    run = dualgoal.train(made(picks(3)), "runs/few", validation=made(picks(2)), **SMALL | {"steps": 1, "episodes": 0})
    assert run.step == 1, "not every action need occur in validation"


def test_actions_of_validation_data_are_brought_into_the_range_of_training():
    narrow, wide = (
        dualgoal.Dataset.from_episodes(
            [{"observations": np.zeros((4, 2)), "actions": top * np.array([[-1.0], [1.0], [0.5], [0.0]])}],
            scale_actions=True,
        )
        for top in (2, 4)
    )
    facts = DataFacts.of(wide)
    assert facts.as_networks_read(narrow).actions[:, 0] == pytest.approx([-0.5, 0.5, 0.25, 0.0])
    assert facts.as_networks_read(wide) is wide


CALL = {"env": None, "rep": "dual", "algo": "gcivl", "data_path": None, "validation": None}


def test_workers_get_the_name_of_an_environment_where_it_has_one():
    assert imports.name_of("CartPole-v1") == "CartPole-v1" and imports.name_of(make) == f"{__name__}:make"
    assert imports.name_of(Field) == f"{__name__}:Field"
    for own in (Field(), lambda: Field(), type("Field", (Field,), {}), None):
        assert imports.name_of(own) is None


class Told(Field):
    """The same, but it goes where `options` say, and says so when it is there."""

    def reset(self, *, seed=None, options=None):
        _, info = super().reset(seed=seed, options={"task_id": 1})
        self.goal = np.array(options["goal"])
        return {"x": self.at[:1], "y": self.at[1:], "desired_goal": self.goal}, {}

    def step(self, action):
        seen, *rest = super().step(action)
        return {"x": seen[:1], "y": seen[1:]}, *rest


def test_an_environment_of_this_process_serves_after_training_too(trained):
    run, _ = trained
    rows = run.evaluate(episodes=1, seeds=[3], record=False)
    assert [(row.seed, row.goal, row.episodes) for row in rows] == [(3, 1, 1), (3, 2, 1)]
    assert {row.seed for row in dualgoal.evaluate(run, env=Field(), episodes=1, seeds=0)} == {0}
    assert run.policy.rollout(Field(), goal=2).length == 3
    for ask in (run.policy.make_env, run.policy.rollout, lambda: dualgoal.TrainedRun(run.path).evaluate()):
        with pytest.raises(UserError, match="no environment for task 'my-task'; give yours with --env"):
            ask()


class Easy(Field):
    """Another world: every step ends in success."""

    def step(self, action):
        seen, reward, *_ = super().step(action)
        return seen, reward, True, False, {"success": True}


def test_a_run_is_evaluated_in_an_environment_that_is_named_later(trained, tmp_path, capsys):
    path, imported = tmp_path / "run", "import gymnasium\nimport numpy as np\nfrom gymnasium.spaces import Box\n\n\n"
    shutil.copytree(trained[0].path, path)
    (tmp_path / "worlds.py").write_text(imported + inspect.getsource(Field) + "\n\n" + inspect.getsource(Easy))
    shown = {}
    for name in ("Field", "Easy"):
        command = ["eval", str(path), "--env", f"worlds.py:{name}", "--episodes", "2", "--seeds", "3", "--workers", "1"]
        assert main(command) == 0
        shown[name] = capsys.readouterr().out.splitlines()[-1].split()
    here = [row.success for row in evaluation.evaluate(path, env=Field(), episodes=2, seeds=3)]
    assert shown["Field"] == ["3", *(f"{100 * success:.1f}" for success in [*here, np.mean(here)])]
    assert shown["Easy"] == ["3", "100.0", "100.0", "100.0"]
    kept = list(dict.fromkeys(row.conditions for row in measured.read(path)[0]))
    names = [f"{tmp_path.resolve()}/worlds.py:{name}" for name in shown]
    assert [one.env for one in kept] == names and [one.words for one in kept] == [f"--env {name}" for name in names]
    assert main(["eval", str(path), "--env", "worlds.py:Nothing"]) == 2
    assert "Nothing" in capsys.readouterr().err


def test_rows_of_another_environment_are_not_taken_for_the_runs_own(trained, data, tmp_path):
    path = tmp_path / "run"
    shutil.copytree(trained[0].path, path)
    played = lambda env: evaluation.evaluate(path, env=env, episodes=1, seeds=0, record=True)
    for count in (1, 3):
        other = type("Other", (Field,), {"num_tasks": count})()
        assert [row.goal for row in played(other)] == list(range(1, count + 1)), "as many goals as it has"
        assert measured.read(path)[0][-1].env == "Other"
    assert played(Field()) and measured.read(path)[0][-1].env is None, "nothing names the one it was trained with"
    path = dualgoal.train(data, "named", env=Field, steps=1, **SMALL | {"episodes": 0}).path
    for env, name in ((Easy(), "Easy"), (make, f"{__name__}:make"), (Field, None)):
        played(env)
        assert measured.read(path)[0][-1].env == name


def test_a_policy_is_told_a_goal_and_sees_parts(trained):
    policy = trained[0].policy
    shown = "Policy: my-task, orig + gcbc, seed 0, step 40; observations (2,), goals (2,), actions (2,)"
    assert repr(policy) == shown
    parts = dataclasses.replace(policy.facts.dataset, observation_keys=("x", "y"))
    policy.facts = dataclasses.replace(policy.facts, dataset=parts)
    assert policy.rollout(Told(), goal=[0.5, 2.0], seed=1).length == 3
    whole, rows = np.array([0.25, 0.75]), np.arange(6.0).reshape(3, 2)
    seen = policy.act({"x": whole[:1], "y": whole[1:], "z": 5}, [1, 2])
    assert np.array_equal(seen, policy.act(whole, [1, 2]))
    assert np.array_equal(policy.act({"x": rows[:, :1], "y": rows[:, 1:]}, [1, 2]), policy.act(rows, [1, 2]))
    assert np.array_equal(policy.act({"x": 0.25, "y": whole[1]}, [1, 2]), seen), "numbers are vectors of one"
    assert np.array_equal(policy.act({"x": rows[:, 0], "y": rows[:, 1:]}, [1, 2]), policy.act(rows, [1, 2]))
    with pytest.raises(UserError, match="my-task: observations have no part 'y' .they have x."):
        policy.act({"x": whole[:1]}, [1, 2])
    with pytest.raises(UserError, match="my-task: parts of observations have different numbers of rows .x 3, y 2."):
        policy.act({"x": rows[:, 0], "y": rows[:2, 1]}, [1, 2])
    with pytest.raises(UserError, match="observation is no array"):
        policy.act([[1, 2], [3]], [1, 2])
    with pytest.raises(UserError, match="draw is -1; expected at least 0"):
        policy.act(whole, [1, 2], draw=-1)
    with pytest.raises(UserError, match=r"goal has shape \(3,\); this policy takes \(2,\) or \(rows, 2\)"):
        policy.rollout(Told(), goal=[1, 2, 3])
    parts = {"x": [0.5], "y": [2.0]}
    assert policy.rollout(Told(), goal=[[0.5, 2.0]], seed=1).length == 3
    assert policy.rollout(Told(), goal=parts, seed=1) == policy.rollout(Told(), goal=[0.5, 2.0], seed=1)
    for wrong, words in (
        ({"x": [0.5]}, "my-task: goals have no part 'y' .they have x."),
        ({"x": [0.5], "y": ["north"]}, "my-task: 'y' is of type <U5; goals are made of numbers"),
        ("x", "goal is of type <U1; this policy takes numbers"),
        (None, "goal is of type object; this policy takes numbers"),
        ([[1, 2], [3]], "goal is no array"),
        ([[1, 2], [3, 4]], "rollout goes to a single goal, but was given 2 rows; give one of them"),
    ):
        with pytest.raises(UserError, match=words):
            policy.rollout(Told(), goal=wrong)
    with pytest.raises(UserError, match="environments of make_env have numbered goals"):
        policy.rollout(policy.make_env(Told()), goal=[1.0, 2.0])


# Looking at it --------------------------------------------------------------------------------------------------------


def test_rows_are_a_data_frame_where_there_is_pandas(trained, monkeypatch):
    run, _ = trained
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.warns(UserWarning, match="for a data frame, pip install 'dualgoal.notebook.'"):
        rows = run.rows
    assert len(rows) == 16 and rows[0]["step"] == 10 and 0 <= rows[0]["success"] <= 1
    monkeypatch.setitem(sys.modules, "pandas", types.SimpleNamespace(DataFrame=lambda rows: ("frame", rows)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert run.rows == ("frame", rows) and run.metrics[1][0]["split"] == "train" and run.measured == ("frame", [])


def test_pictures_are_svg_with_a_line_per_seed(trained, tmp_path):
    run, _ = trained
    assert len(repr(run.plot())) < 100
    for picture in (run.plot(), run.plot("actor/loss")):
        texts = [element.text for element in ElementTree.fromstring(picture.svg).findall(".//{*}text")]
        assert {"seed 0", "seed 3", run.title} <= set(texts)
        assert picture._repr_svg_() == picture._repr_html_() == picture.svg
    assert picture.save(tmp_path / "x.svg").read_text() == picture.svg
    with pytest.raises(UserError, match="x.png: a picture is an SVG file; give a name that ends in .svg"):
        picture.save(tmp_path / "x.png")
    assert run.plot().svg in run._repr_html_() and "seed 3" in run.plot().svg
    with pytest.raises(UserError, match="has no metric 'loss' .there are: actor/loss"):
        run.plot("loss")
    new = dualgoal.TrainedRun(write_run(tmp_path / "new", tiny_run(), []))
    with pytest.raises(UserError, match="new: has not been evaluated; give plot the name of a loss"):
        new.plot()
    assert "not evaluated" in new._repr_html_() and "<svg" not in new._repr_html_()


def test_a_report_is_written_next_to_the_run(trained, monkeypatch):
    asked = []
    monkeypatch.setattr("dualgoal.report.page.write_report", lambda runs, out: asked.append((runs, out)) or out)
    written = trained[0].report()
    assert written == trained[0].path.with_name("field.html") and asked == [([trained[0].path], written)]


def test_a_notebook_shows_one_output_that_is_drawn_again(monkeypatch):
    shown = []
    output = types.SimpleNamespace(update=lambda html: shown.append(html))
    place = types.ModuleType("IPython.display")
    place.HTML, place.display = str, lambda html, display_id: shown.append(html) or output
    kernel = types.ModuleType("IPython")
    kernel.get_ipython = lambda: types.SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", kernel)
    monkeypatch.setitem(sys.modules, "IPython.display", place)
    display = progress.display("a <task>", 0, 100)
    assert isinstance(display, progress.Notebook) and type(progress.display("", 0, 1, quiet=True)) is progress.Display
    display.advance(40, "evaluating step 20")
    display.losses({"actor/loss": np.array([0.5, 0.6])})
    display.success(20, {0: 50.0, 3: 100.0})
    display.say("a warning")
    display.close()
    assert "<b>a &lt;task&gt;</b>" in shown[-1] and 'max="100" value="40"' in shown[-1]
    assert "step 20 success  seed 0: 50 %  seed 3: 100 %" in shown[-1] and "actor 0.5" in shown[-1]
    assert "a warning" in shown[-1] and "evaluating" not in shown[-1]
    kernel.get_ipython = lambda: None
    assert not progress.in_notebook()


def test_what_the_pages_name_is_reached_from_the_package():
    assert dualgoal.data.dataset.load is dataset.load
    assert callable(dualgoal.collect.generate.generate_dataset) and callable(dualgoal.envs.registry.make)
    assert dualgoal.theory.theorems.__name__ == "dualgoal.theory.theorems"
    with pytest.raises(AttributeError, match="module 'dualgoal.data' has no attribute 'nothing'"):
        dualgoal.data.nothing  # noqa: B018


# Pages and examples ---------------------------------------------------------------------------------------------------


def test_the_page_runs(capsys):
    names, blocks = {}, pages.blocks((pages.ROOT / "docs" / "everyday.md").read_text())
    for _, block in blocks:
        exec(block, names)
    assert len(blocks) == 3 and len(names["rows"]) == 8 and names["again"].run.seeds == (0, 1)
    assert names["page"].is_file() and names["action"].shape == (2,) and names["actions"].shape == (5, 2)
    assert capsys.readouterr().out.count("rep/loss") == 2
    loop = blocks[2][1].strip().splitlines()
    assert len([line for line in loop if line]) <= 20, "a loop of one's own in twenty lines"


def test_the_examples_run(capsys, monkeypatch):
    monkeypatch.syspath_prepend(pages.ROOT / "examples")
    own, new = (importlib.import_module(name) for name in ("own_data", "new_representation"))
    run = own.main(4, "runs/drone", **{"batch_size": 16, "rep.dim": 4, "rep.hidden": (8,), "algo.hidden": (8,)})
    assert run.step == 4 and run.policy.facts.sizes.goal == (2,) and "% of 200 places" in capsys.readouterr().out
    agent, state = new.main(steps=4, batch_size=16, hidden=(8,))
    start = agent.init(jax.random.key(0))
    assert np.array_equal(start.params.rep.at, state.params.rep.at), "nothing trains the landmarks"
    assert config.part_name("rep", agent.rep) == "new_representation:Landmarks", "the command line finds it"

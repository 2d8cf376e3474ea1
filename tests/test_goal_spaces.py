"""Goals that are not whole observations: imported in four ways, drawn from their own array, refused where they cannot
work; and a dataset whose goals are its observations trains exactly as one that says nothing."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dualgoal
import small
from dualgoal.agent import Agent
from dualgoal.data import dataset, importing
from dualgoal.data.goals import GoalSpace
from dualgoal.errors import UserError
from dualgoal.interface import Spec
from dualgoal.loop import TrainingLoop
from dualgoal.report import distances
from dualgoal.runs import config, export, labels, training
from dualgoal.sampler import sample, to_device
from dualgoal.streams import VALUE_GOALS, Waypoint, Window

ROWS = 8


def recordings(episodes: int = 12) -> dict[str, np.ndarray]:
    """Walks in the plane with a third coordinate that is no goal's business."""
    rng = np.random.default_rng(0)
    actions = rng.uniform(-1, 1, (episodes, ROWS, 2)).astype(np.float32)
    noise = rng.normal(size=(episodes, ROWS, 1))
    observations = np.concatenate([np.cumsum(actions, axis=1), noise], axis=-1).astype(np.float32)
    ends = np.zeros((episodes, ROWS), bool)
    ends[:, -1] = True
    flat = {"observations": observations, "actions": actions, "terminals": ends}
    return {key: value.reshape(-1, *value.shape[2:]) for key, value in flat.items()}


def sums(observations: np.ndarray) -> np.ndarray:
    return observations[:, :2].sum(axis=1, keepdims=True)


def imported(folder, content, **options):
    np.savez(folder / "own.npz", **content)
    importing.import_dataset(folder / "own.npz", folder / "data", **options)
    return dataset.load(folder / "data", "own")


def test_some_coordinates(tmp_path):
    data = imported(tmp_path, recordings(), goal_dims=(1, 0))
    assert np.array_equal(data.goals, data.observations[:, [1, 0]]) and data.goal_shape == (2,)
    record = json.loads((tmp_path / "data" / "own.json").read_text())
    assert record["goal_space"] == {"shape": [2], "dims": [1, 0]}
    assert np.array_equal(
        dataset.load(tmp_path / "data", "own", "val").goals[:, 1], recordings()["observations"][72:80, 0]
    )


def test_an_array_of_the_file(tmp_path):
    content = recordings()
    data = imported(tmp_path, content | {"goals": content["observations"][:, :1] * 2})
    assert np.array_equal(data.goals, data.observations[:, :1] * 2)


def test_named_parts(tmp_path):
    content = recordings()
    parts = {"place": content["observations"][:, :2], "rest": content.pop("observations")[:, 2:]}
    options = {"observation_keys": ["rest", "place"], "goal_keys": ["place"]}
    data = imported(tmp_path, content | parts, **options)
    assert np.array_equal(data.goals, data.observations[:, 1:]) and data.provenance["observation_keys"] == [
        "rest",
        "place",
    ]
    with pytest.raises(UserError, match="goals have no part 'palce' .they have .*place"):
        importing.import_dataset(tmp_path / "own.npz", tmp_path / "b", **options | {"goal_keys": ["palce"]})


def test_a_function(tmp_path):
    data = imported(tmp_path, recordings(), goal_function=f"{__file__}:sums")
    assert np.array_equal(data.goals, sums(data.observations)) and data.goal_shape == (1,)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"goal_dims": (0, 3)}, r"--goal-dims 3 is not a coordinate of observations \(3,\)"),
        ({"goal_dims": (0, 0)}, "expected different coordinates"),
        ({"goal_dims": (0,), "goal_keys": ("observations",)}, "--goal-dims and --goal-keys both say"),
        ({"goal_function": "nowhere.at.all:f"}, "No module named 'nowhere'.*PYTHONPATH"),
        ({"goal_function": "numpy:nothing"}, "numpy has nothing called nothing"),
        ({"goal_function": "numpy:pi"}, "is a float, which cannot be called"),
        ({"goal_function": "numpy:sum"}, r"expected \(8, G\) with G numbers"),
        ({"goal_function": "no colon"}, "not of the form module:name"),
        ({"goal_function": "missing.py:f"}, "No such file"),
    ],
)
def test_what_cannot_be_a_goal_is_one_line(tmp_path, options, message):
    with pytest.raises(UserError, match=message) as raised:
        imported(tmp_path, recordings(), **options)
    assert "\n" not in str(raised.value) and not (tmp_path / "data").exists()


def test_bad_goals_in_a_file_are_named(tmp_path):
    content = recordings()
    for goals, message in (
        (np.zeros(96), r"'goals' has shape \(96,\)"),
        (np.zeros((90, 2)), "'goals' has shape"),
        (np.full((96, 1), np.nan), "'goals' is nan in row 0"),
    ):
        np.savez(tmp_path / "a.npz", **content, goals=goals)
        with pytest.raises(UserError, match=message):
            dataset.load(tmp_path / "a.npz")


def test_images_and_vectors_are_not_goals_of_each_other(tmp_path):
    image, vector = np.zeros((4, 8, 8, 3), np.uint8), np.zeros((4, 2))
    for observations, goals in ((image, vector), (vector, image), (image, image[:, :4])):
        rows = {"observations": observations, "actions": np.zeros((4, 2)), "goals": goals}
        np.savez(tmp_path / "a.npz", **rows, terminals=np.arange(4) % 2)
        with pytest.raises(
            UserError, match="'goals' are .* but 'observations' .*; where one is an image, both must be"
        ):
            importing.import_dataset(tmp_path / "a.npz", tmp_path / "out")
        with pytest.raises(UserError, match="where one is an image"):
            dataset.Dataset.from_episodes([rows])
    assert not (tmp_path / "out").exists()


def test_goals_are_looked_up_and_the_state_is_kept():
    """Goal and state of the same row, which is found by its number in the data."""
    data = small.data(lengths=(12, 20, 9))
    rows = jnp.arange(41, dtype=jnp.float32)[:, None]
    data = data._replace(goals=jnp.concatenate([rows, -rows], axis=1))
    spec = Spec((3,), 2, goal_shape=(2,), batch_size=64)
    streams = {"a": VALUE_GOALS, "b": Waypoint(3), "c": Window()}
    batch = sample(data, jax.random.key(0), streams, spec)
    for name in ("a", "b"):
        drawn = batch.draws[name]
        at = np.asarray(drawn.g[:, 0], int)
        assert np.array_equal(drawn.state, data.observations[at]) and np.array_equal(drawn.g[:, 1], -drawn.g[:, 0])
    here = (batch.draws["a"].state == batch.s).all(axis=1)
    assert np.array_equal(batch.draws["a"].success, here) and 0 < here.sum() < 64
    assert batch.draws["c"].last.shape == (64, 2) and batch.draws["c"].first.shape == (64, 3)


def test_goals_that_are_the_observations_change_nothing():
    data = small.data()
    agent = small.agent("dual", "gcivl")
    states = []
    for each in (data, data._replace(goals=data.observations)):
        state = agent.init(jax.random.key(0))
        states.append(jax.jit(agent.update)(state, each, jax.random.key(1))[0])
    leaves = [jax.tree.leaves(state.params) for state in states]
    assert all(np.array_equal(a, b) for a, b in zip(*leaves, strict=True))


@pytest.mark.parametrize("rep", ["orig", "vib", "tra", "dual"])
def test_agents_read_goals_of_another_shape(rep):
    spec = Spec((3,), 2, goal_shape=(2,), batch_size=4)
    agent = Agent(small.rep(rep), small.algo("gcivl"), spec)
    data = small.data()
    data = data._replace(goals=data.observations[:, :2])
    state, info = jax.jit(agent.update)(agent.init(jax.random.key(0)), data, jax.random.key(1))
    assert all(np.isfinite(x).all() for x in jax.tree.leaves((state.params, info)))
    assert agent.act(state.params, jnp.zeros((5, 3)), jnp.ones((5, 2)), jax.random.key(1)).shape == (5, 2)


def test_one_network_for_both_is_refused():
    spec = Spec((3,), 2, goal_shape=(2,))
    symmetric = small.rep("dual", aggregation="symmetric")
    for rep in (small.rep("vip"), small.rep("byol"), small.rep("dual_token"), symmetric):
        with pytest.raises(UserError, match=r"reads states and goals with one network, but observations are \(3,\)"):
            Agent(rep, small.algo("gcivl"), spec)
        with pytest.raises(UserError, match=r"observations are \(3,\) and goals something else of that shape"):
            Agent(rep, small.algo("gcivl"), Spec((3,), 2, goals_as_states=False))
        Agent(rep, small.algo("gcivl"), Spec((3,), 2))
    with pytest.raises(UserError, match="where one is an image, both must be of the same shape"):
        Agent(small.rep("orig"), small.algo("gcivl"), Spec((64, 64, 3), 2, goal_shape=(2,)))


def test_a_run_in_another_goal_space(tmp_path):
    """Trained, loaded, asked, explored and exported: goals have two coordinates everywhere."""
    imported(tmp_path, recordings(), goal_dims=(0, 1))
    options = {"steps": 4, "batch_size": 8, "eval_every": 4, "save_every": 4, "log_every": 4, "episodes": 0}
    parts = {"rep": {"name": "dual", "hidden": [8], "dim": 4}, "algo": {"name": "gcivl", "hidden": [8]}}
    run = config.from_dict({"task": "own"} | options | parts)
    with pytest.raises(UserError, match="VIP reads states and goals with one network"):
        vip = dataclasses.replace(run, rep=small.rep("vip"))
        training.train(vip, tmp_path / "refused", data_path=tmp_path / "data", quiet=True)
    assert not (tmp_path / "refused").exists(), "a run that cannot be is no run directory"
    training.train(run, tmp_path / "run", data_path=tmp_path / "data", quiet=True)
    policy = dualgoal.load(tmp_path / "run")
    assert policy.agent.spec.goal_shape == (2,) and policy.facts.dataset.goal_space.dims == (0, 1)
    assert policy.act(np.zeros(3), np.ones(2)).shape == (2,) and policy.encode(np.ones((4, 2))).shape == (4, 4)
    assert policy.distance(np.zeros((6, 3)), np.ones(2)).shape == (6,)
    with pytest.raises(UserError, match=r"goal has shape \(3,\); this policy takes \(2,\)"):
        policy.act(np.zeros(3), np.ones(3))
    whole = {"observation": np.array([1.0, 1.0, 7.0])}
    np.testing.assert_array_equal(policy.act(np.zeros(3), whole), policy.act(np.zeros(3), np.ones(2)))
    named = dataclasses.replace(policy.facts.dataset, goal_space=GoalSpace((2,), keys=("right", "left")))
    policy.facts = dataclasses.replace(policy.facts, dataset=named)
    there = policy.act(np.zeros(3), {"left": [1.0], "right": [2.0]})
    np.testing.assert_array_equal(there, policy.act(np.zeros(3), [2.0, 1.0]))
    table = distances.explore(tmp_path / "run", states=20, goals=5)
    assert np.shape(table.learned) == (5, 20) and table.kind == "goals"
    recorded = {tuple(row) for row in np.round(dataset.load(tmp_path / "data", "own").goals.astype(float), 3).tolist()}
    assert all(min(abs(x - a) + abs(y - b) for a, b in recorded) < 2e-3 for x, y in table.points), "at their goals"
    export.export_policy(tmp_path / "run", tmp_path / "p.safetensors")
    assert json.loads((tmp_path / "p.json").read_text())["goal_shape"] == [2]


def test_labels_ask_for_goals_of_the_same_meaning(tmp_path):
    imported(tmp_path, recordings(), goal_dims=(1, 0, 2))
    run = config.from_dict({
        "task": "own", "steps": 2, "batch_size": 8, "eval_every": 2, "save_every": 2, "log_every": 2, "episodes": 0,
        "rep": {"name": "dual", "hidden": [8], "dim": 4}, "algo": {"name": "gcivl", "hidden": [8]},
    })  # fmt: skip
    training.train(run, tmp_path / "run", data_path=tmp_path / "data", quiet=True)
    labels.write_labels(tmp_path / "run", tmp_path / "data", tmp_path / "labels.npz")
    words = "goals there are whole observations, but the run was trained on coordinates 1 0 2 of an observation"
    with pytest.raises(UserError, match=words):
        labels.write_labels(tmp_path / "run", tmp_path / "own.npz", tmp_path / "other.npz")
    goal = np.zeros(3)
    labels.write_labels(tmp_path / "run", tmp_path / "own.npz", tmp_path / "other.npz", goal=goal)
    with pytest.raises(UserError, match=r"other.json: would be replaced, and it describes other.npz"):
        labels.write_labels(tmp_path / "run", tmp_path / "data", tmp_path / "other.parquet")


def test_a_missing_last_goal_is_filled_in_only_with_a_missing_last_action():
    observations, actions = np.zeros((5, 2)), np.zeros((5, 1))
    short = {"observations": observations, "actions": actions[1:], "goals": np.ones((4, 1))}
    assert dataset.Dataset.from_episodes([short, short]).goals.shape == (10, 1)
    with pytest.raises(UserError, match="goals"):
        dataset.Dataset.from_episodes([short | {"actions": actions}] * 2)


@pytest.mark.parametrize(
    ("dims", "same"),
    [(np.array([0, 1]), (0, 1)), (list(np.arange(2)), (0, 1)), (range(2), (0, 1)), (1, (1,)), (np.int64(1), (1,))],
)
def test_coordinates_may_be_what_numpy_gives(dims, same):
    data = dataset.Dataset.from_episodes([{"observations": np.eye(4), "actions": np.zeros((4, 2))}], goal_dims=dims)
    assert json.loads(json.dumps(data.provenance))["goal_space"]["dims"] == [*same] and data.goal_shape == (len(same),)


@pytest.mark.parametrize("dims", [slice(0, 2), [0.0, 1.0], None, "01", [[0, 1]], [[0], [0, 1]]])
def test_what_are_no_coordinates_is_one_line(dims):
    with pytest.raises(UserError, match="goal_dims is .*; expected numbers of coordinates, such as .0, 1."):
        GoalSpace.choose(dims, (), None)


def test_a_single_name_is_not_read_letter_by_letter(tmp_path):
    parts = {"observation": np.zeros((4, 3)), "achieved_goal": np.ones((4, 2)), "x": np.zeros((4, 1))}
    episodes = [{"observations": parts, "actions": np.zeros((4, 2))}] * 2
    one = dataset.Dataset.from_episodes(episodes, observation_keys="observation", goal_keys="achieved_goal")
    assert (one.observation_shape, one.goal_shape) == ((3,), (2,))
    np.savez(tmp_path / "a.npz", **parts, actions=np.zeros((4, 2)), terminals=np.arange(4) % 2)
    file = importing.import_dataset(tmp_path / "a.npz", tmp_path, task="b", observation_keys="observation")
    assert dataset.load(file).observation_shape == (3,)
    with pytest.raises(UserError, match="episodes are a NoneType; give a list with a dictionary for each of them"):
        dataset.Dataset.from_episodes(None)


def test_a_function_itself_is_asked_for_its_name():
    episode = {"observations": np.zeros((5, 3)), "actions": np.zeros((5, 2))}
    with pytest.raises(UserError, match="goal_function is a function; give its name, module:name or file.py:name"):
        dataset.Dataset.from_episodes([episode], goal_function=sums)


def test_the_device_gets_the_goals(tmp_path):
    data = to_device(imported(tmp_path, recordings(), goal_dims=(0,)))
    assert data.goals.shape == (88, 1)
    (tmp_path / "b").mkdir()
    assert to_device(imported(tmp_path / "b", recordings())).goals is None
    assert len(jax.tree.leaves(small.data())) == 4, "without goals nothing more travels to the device"
    assert TrainingLoop(small.agent("orig", "gcbc"), (0,)).place_data(data).goals.shape == (88, 1)

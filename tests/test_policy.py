"""What a user loads from a run: one row or many, checked input, and nothing executed from the directory."""

import dataclasses
import json
import re
from pathlib import Path

import numpy as np
import pytest

import dualgoal
from dualgoal.data import dataset
from dualgoal.errors import UserError
from dualgoal.runs import checkpoint, config, directory, export, preparation
from tiny import TASK, make_data, untrained


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_data(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def path(folder, tmp_path_factory):
    path = tmp_path_factory.mktemp("run") / "a"
    untrained(path, folder, "dual", "gcivl")
    return path


@pytest.fixture(scope="module")
def policy(path):
    return dualgoal.load(path, seed=3)


OBS, GOALS = np.random.default_rng(0).normal(size=(2, 5, 2)).astype(np.float32)


def test_one_row_or_many(policy):
    assert policy.act(OBS, GOALS).shape == (5, 2) and policy.act(OBS[0], GOALS[0]).shape == (2,)
    assert policy.encode(GOALS).shape == (5, 4) and policy.encode(GOALS[0]).shape == (4,)
    assert policy.distance(OBS, GOALS).shape == (5,) and policy.distance(OBS[0], GOALS[0]).shape == ()
    assert policy.act(OBS, GOALS[0]).shape == (5, 2) and policy.distance(OBS[0], GOALS).shape == (5,)
    assert policy.act(OBS[:0], GOALS[:0]).shape == (0, 2)
    np.testing.assert_allclose(policy.act(OBS, GOALS)[2], policy.act(OBS[2], GOALS[2]), atol=1e-6)
    assert isinstance(policy.act(OBS, GOALS), np.ndarray) and np.abs(policy.act(OBS * 100, GOALS)).max() <= 1


def test_seeds_are_different_policies(policy, path):
    other = dualgoal.load(path)
    assert other.seed == 0 and not np.allclose(other.act(OBS, GOALS), policy.act(OBS, GOALS))
    assert np.array_equal(dualgoal.load(path, 3).act(OBS, GOALS), policy.act(OBS, GOALS))


def test_temperature_draws(policy):
    assert np.array_equal(policy.act(OBS, GOALS, 1.0, draw=7), policy.act(OBS, GOALS, 1.0, draw=7))
    assert not np.array_equal(policy.act(OBS, GOALS, 1.0), policy.act(OBS, GOALS, 1.0))


def test_wrong_shapes_are_named(policy):
    with pytest.raises(UserError, match=r"observation has shape \(3,\); this policy takes \(2,\)"):
        policy.act(np.zeros(3), GOALS[0])
    with pytest.raises(UserError, match="5 observations and 3 goals"):
        policy.act(OBS, GOALS[:3])


def test_what_is_no_number_is_refused(policy, monkeypatch):
    for wrong, message in (
        ([np.nan, 0], "goal has nan or infinity"), ([0, np.inf], "goal has nan"), (["a", "b"], "goal is of type <U1"),
    ):  # fmt: skip
        with pytest.raises(UserError, match=message):
            policy.act(OBS[0], wrong)
    with pytest.raises(UserError, match="observation has nan"):
        policy.distance([[0, 0], [0, np.nan]], GOALS[0])
    monkeypatch.setattr(type(policy.facts.sizes), "pixels", True)
    for wrong in (np.full(2, 0.5), np.full(2, 256), np.full(2, np.nan)):
        with pytest.raises(UserError, match="this policy takes images of whole numbers from 0 to 255"):
            policy._as_rows("goal", wrong, (2,))
    assert policy._as_rows("goal", np.full(2, 255.0), (2,))[1]


def test_rollout_reaches_an_end(policy):
    episode = policy.rollout(goal=2, seed=1)
    assert 1 <= episode.length <= 1000 and isinstance(episode.success, bool)
    with pytest.raises(UserError, match="has its own goals, numbered 1 to 5, and takes no others; choose one of them"):
        policy.rollout(goal=[1.0, 2.0])


def test_numbers_that_are_none_are_refused_by_name(path, policy):
    assert dualgoal.load(path, np.int64(3)).seed == 3
    for wrong, problem in (
        (lambda: dualgoal.load(path, "3"), "seed is '3'; expected a whole number"),
        (lambda: dualgoal.load(path, True), "seed is True; expected a whole number"),
        (lambda: dualgoal.load(path, 3, 40.0), "step is 40.0; expected a whole number"),
        (lambda: policy.act(OBS, GOALS, temperature="hot"), "temperature is 'hot'; expected a number"),
    ):
        with pytest.raises(UserError, match=problem):
            wrong()


def test_a_run_from_elsewhere_is_checked_before_memory_is_taken(path, tmp_path, folder):
    with pytest.raises(UserError, match="has no seed 5 .seeds: 0, 3."):
        dualgoal.load(path, 5)
    untrained(tmp_path / "b", folder)
    content = json.loads((tmp_path / "b" / "config.json").read_text())
    content["run"]["algo"]["hidden"] = [10**6, 10**6]
    content["id"], content["check"] = config.id_of(content["run"]), config.check_of(content["run"])
    # Whoever forges a configuration can forge its id and all digests.
    (tmp_path / "b" / "config.json").write_text(json.dumps(content))
    sealed = directory.checkpoint_path(tmp_path / "b", 40).with_suffix(".json")
    facts = json.loads(sealed.read_text()) | {"run": content["id"]}
    sealed.write_text(json.dumps(facts | {"check": checkpoint._check(facts)}))
    with pytest.raises(UserError, match=r"array '.*' is .*, expected .*1000000"):
        dualgoal.load(tmp_path / "b")
    directory.checkpoint_path(tmp_path / "b", 40).write_bytes(b"\x80\x04N.")
    with pytest.raises(UserError, match="bytes instead of"):
        dualgoal.load(tmp_path / "b")


def page():
    text = (Path(__file__).parent.parent / "docs" / "export.md").read_text()
    *_, code = re.findall(r"```python\n(.*?)```", text, re.S)
    return code


def test_the_reader_on_the_page_needs_numpy_alone_and_is_short():
    assert len(page().splitlines()) < 50
    assert set(re.findall(r"^(?:import|from) (\w+)", page(), re.M)) == {"json", "pathlib", "numpy"}


PLAIN = {"rep.relative": False}  # z = phi(g), so that an export needs phi alone


@pytest.mark.parametrize(
    "rep, algo, more",
    [
        ("dual", "gcivl", {}),
        ("dual", "gcivl", {"rep.normalize": True}),
        ("orig", "gcbc", {}),
        ("vip", "crl", {}),
        ("dual_siamese", "gcivl", PLAIN),
    ],
)
def test_exported_policy_equals_the_original(folder, tmp_path, rep, algo, more):
    untrained(tmp_path / "run", folder, rep, algo, **more)
    file = export.export_policy(tmp_path / "run", tmp_path / "p.safetensors", seed=3)
    reader: dict = {}
    exec(page(), reader)
    arrays, about = reader["read"](file)
    original = dualgoal.load(tmp_path / "run", 3)
    np.testing.assert_allclose(reader["act"](arrays, about, OBS, GOALS), original.act(OBS, GOALS), atol=2e-6)
    np.testing.assert_allclose(reader["encode"](arrays, about, GOALS), original.encode(GOALS), atol=2e-6)
    assert about["rep"]["name"] == rep and about["seed"] == 3 and about["step"] == 40


def test_actions_come_in_the_units_of_the_data(tmp_path):
    """[-1, 1] inside; what a user, an environment and an export see has the range of the recordings."""
    folder, low, high = make_data(tmp_path / "data"), np.array([-3.14, 0.0]), np.array([3.14, 10.0])
    untrained(tmp_path / "plain", folder)
    (folder / f"{TASK}.json").write_text(json.dumps({"action_range": {"low": low.tolist(), "high": high.tolist()}}))
    untrained(tmp_path / "run", folder)
    plain, policy = (dualgoal.load(tmp_path / name, 3) for name in ("plain", "run"))
    inside = plain.act(OBS, GOALS)
    np.testing.assert_allclose(policy.act(OBS, GOALS), low + (inside + 1) / 2 * (high - low), atol=1e-5)
    assert policy.act(OBS[0], GOALS[0]).dtype == np.float32
    ids = np.arange(5, dtype=np.uint32)
    assert np.array_equal(policy.towards(GOALS, ids)(OBS, 0), plain.towards(GOALS, ids)(OBS, 0)), "noise is added"
    reader: dict = {}
    exec(page(), reader)
    arrays, about = reader["read"](export.export_policy(tmp_path / "run", tmp_path / "p.safetensors", seed=3))
    np.testing.assert_allclose(reader["act"](arrays, about, OBS, GOALS), policy.act(OBS, GOALS), atol=2e-5)


def test_rows_are_standardised_for_the_networks_alone(tmp_path):
    """What a user, an environment and an export see has the units of the recordings."""
    folder, units = make_data(tmp_path / "data"), {"mean": [10.0, -3.0], "std": [5.0, 0.25]}
    untrained(tmp_path / "plain", folder, "dual", "gcivl")
    (folder / f"{TASK}.json").write_text(json.dumps({"observation_standard": units}))
    untrained(tmp_path / "run", folder, "dual", "gcivl")
    plain, policy = (dualgoal.load(tmp_path / name, 3) for name in ("plain", "run"))
    obs, goals = (((rows - units["mean"]) / units["std"]).astype(np.float32) for rows in (OBS, GOALS))
    np.testing.assert_allclose(policy.act(OBS, GOALS), plain.act(obs, goals), atol=1e-5)
    np.testing.assert_allclose(policy.distance(OBS, GOALS), plain.distance(obs, goals), rtol=1e-4)
    ids = np.arange(5, dtype=np.uint32)
    np.testing.assert_allclose(policy.towards(GOALS, ids)(OBS, 0), plain.towards(goals, ids)(obs, 0), atol=1e-5)
    reader: dict = {}
    exec(page(), reader)
    file = export.export_policy(tmp_path / "run", tmp_path / "p.safetensors", seed=3)
    assert np.array_equal(dualgoal.load(file).act(OBS, GOALS), policy.act(OBS, GOALS))
    arrays, about = reader["read"](file)
    np.testing.assert_allclose(reader["act"](arrays, about, OBS, GOALS), policy.act(OBS, GOALS), atol=2e-5)
    np.testing.assert_allclose(reader["encode"](arrays, about, GOALS), policy.encode(GOALS), atol=2e-5)
    second = dataclasses.replace(plain.run, frozen_rep=str(tmp_path / "plain"))
    with pytest.raises(UserError, match="plain: its data were standardised in another way"):
        preparation.describe(second, dataset.load(folder, TASK))
    (folder / f"{TASK}.json").write_text(json.dumps({"observation_standard": {"mean": [1.0], "std": [2.0]}}))
    with pytest.raises(UserError, match="standardised with 1 number, but rows have 2"):
        preparation.describe(plain.run, dataset.load(folder, TASK))


def test_export_says_what_it_cannot_do(path, tmp_path):
    with pytest.raises(UserError, match="ends in .safetensors"):
        export.export_policy(path, tmp_path / "p.bin")

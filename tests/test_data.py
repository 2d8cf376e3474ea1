"""Loading a dataset: the compact form worked by hand, its files and splits, and the record next to it."""

import json

import numpy as np
import pytest

from data_files import arrays, images, write
from dualgoal import files
from dualgoal.data import dataset, info, origin
from dualgoal.data.paths import DatasetFiles
from dualgoal.errors import UserError


def test_the_compact_form_by_hand(tmp_path):
    content = arrays((4, 3))
    loaded = dataset.load(write(tmp_path, content))
    assert (loaded.rows, loaded.episodes, loaded.observation_shape, loaded.action_dim) == (7, 2, (3,), 2)
    assert loaded.starts.tolist() == [0, 4] and loaded.ends.tolist() == [3, 6]
    assert loaded.valids.tolist() == [True, True, True, False, True, True, False]
    assert loaded.compact_terminals.tolist() == [False, False, True, True, False, True, True]
    assert not loaded.discrete and not loaded.pixels and loaded.task is None
    for key in content:
        assert np.array_equal(getattr(loaded, key), content[key])
        assert getattr(loaded, key).dtype == content[key].dtype


def test_the_compact_form_equals_ogbench(tmp_path):
    from ogbench.utils import load_dataset

    path = write(tmp_path, arrays((5, 2, 9)))
    theirs, ours = load_dataset(path, compact_dataset=True), dataset.load(path)
    assert np.array_equal(theirs["valids"], ours.valids) and np.array_equal(theirs["terminals"], ours.compact_terminals)
    assert np.array_equal(theirs["observations"], ours.observations)


def test_float64_files_become_float32_and_other_keys_are_ignored(tmp_path):
    content = arrays()
    wide = {key: value.astype(np.float64) for key, value in content.items()} | {"qpos": np.zeros((12, 9))}
    loaded = dataset.load(write(tmp_path, wide))
    assert loaded.observations.dtype == loaded.actions.dtype == np.float32 and loaded.terminals.dtype == bool
    assert np.array_equal(loaded.observations, content["observations"])


def test_discrete_actions(tmp_path):
    content = arrays() | {"actions": np.arange(12) % 5}
    loaded = dataset.load(write(tmp_path, content))
    assert loaded.discrete and loaded.action_dim == 5 and loaded.actions.dtype == np.int32


def test_as_many_discrete_actions_as_a_task_has_coordinates_do_not_fit_it(tmp_path):
    actions = np.array([0, 4, 1, 2])
    np.savez(tmp_path / "d.npz", observations=np.zeros((4, 28)), actions=actions, terminals=[0, 1, 0, 1])
    with pytest.raises(UserError, match=r"'actions' have shape \(\) but those of cube-single-play-v0 have \(5,\)"):
        dataset.load(tmp_path / "d.npz", "cube-single-play-v0")


@pytest.mark.parametrize(
    "new",
    [
        {},
        images(12),
        {"observations": np.ones((12, 3))},
        {"goals": np.ones((12, 2), int)},
        {"actions": np.arange(12) % 5},
    ],
)
def test_an_outline_has_what_a_dataset_has_but_its_numbers(new, tmp_path, monkeypatch):
    monkeypatch.setattr(dataset, "MAP_ABOVE", 0)
    monkeypatch.setenv("DUALGOAL_CACHE", str(tmp_path / "cache"))
    path = write(tmp_path, arrays() | new)
    seen, validation = dataset.load_splits(path, outline=True)
    assert validation is None and not (tmp_path / "cache").exists(), "nothing is unpacked"
    loaded = dataset.load(path)
    for key in ("observations", "actions", "terminals", "goals"):
        one, other = getattr(seen, key), getattr(loaded, key)
        assert (one is None and other is None) or (one.shape, one.dtype) == (other.shape, other.dtype)
    assert not any(seen.observations.strides), "zeros that take no memory"
    assert seen.episodes == loaded.episodes and seen.action_dim == loaded.action_dim
    assert seen.provenance == loaded.provenance | {"sha256": None}


def test_a_folder_is_searched_by_task_and_split(tmp_path):
    first = write(tmp_path, arrays(), "a-v0.npz")
    write(tmp_path, arrays((6,)), "a-v0-val.npz")
    assert dataset.load(tmp_path).task == "a-v0" and dataset.load(tmp_path).rows == 12
    assert dataset.load(tmp_path, split="val").rows == dataset.load(first, split="val").rows == 6
    write(tmp_path, arrays((7, 7)), "b-v0.npz")
    assert dataset.load(tmp_path, "b-v0").rows == 14
    with pytest.raises(UserError, match=r"holds 2 datasets \(a-v0, b-v0\)"):
        dataset.load(tmp_path)
    with pytest.raises(UserError, match="b-v0-val.npz: no such dataset"):
        dataset.load(tmp_path, "b-v0", split="val")
    with pytest.raises(UserError, match="unknown split"):
        dataset.load(tmp_path, "b-v0", split="test")


def test_of_many_datasets_a_message_names_the_first(tmp_path):
    for k in range(14):
        (tmp_path / f"t{k:02}.npz").touch()
    there = ", ".join(f"t{k:02}" for k in range(12))
    for task, words in ((None, rf"holds 14 datasets \({there}, \.\.\.\)"), ("x", rf"there are: {there}, \.\.\.\)")):
        with pytest.raises(UserError, match=words):
            dataset.load(tmp_path, task)


def test_a_changed_file_no_longer_matches_its_record(tmp_path):
    path = write(tmp_path, arrays(), "a-v0.npz")
    record = {"task": "a-v0", "seed": 3, "files": {"a-v0.npz": {"sha256": files.sha256(path)}}}
    (tmp_path / "a-v0.json").write_text(json.dumps(record))
    assert dataset.load(path).provenance["seed"] == 3
    write(tmp_path, arrays(seed=1), "a-v0.npz")
    with pytest.raises(UserError, match="a-v0.npz: its SHA-256 is not the one in a-v0.json"):
        dataset.load(path)
    (tmp_path / "a-v0.json").write_text("{")
    with pytest.raises(UserError, match="a-v0.json: is not JSON"):
        dataset.load(path)


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ([], "expected an object"),
        ({"seed": "three"}, 'seed is "three"; expected a whole number'),
        ({"task": 7}, "task is 7; expected a text"),
        ({"versions": "3.4"}, "versions is .*; expected an object"),
        ({"files": ["a-v0.npz"]}, "files is .*; expected an object"),
        ({"files": {"a-v0.npz": "abc"}}, "files.a-v0.npz is .*; expected an object"),
        ({"files": {"a-v0.npz": {"sha256": 5}}}, "files.a-v0.npz.sha256 is 5; expected a text"),
        ({"plan": {"task": "a-v0"}}, "plan.seed is missing"),
        ({"action_range": {"low": [1, "x"], "high": []}}, 'action_range.low is "x"; expected a number'),
        ({"shadow_size": 512, "mesh_cell": -1}, "mesh cell -1.0: expected millimetres"),
    ],
)
def test_a_wrong_type_in_the_record_is_one_line_that_names_file_and_field(tmp_path, record, message):
    path = write(tmp_path, arrays(), "a-v0.npz")
    (tmp_path / "a-v0.json").write_text(json.dumps(record))
    with pytest.raises(UserError, match=rf"a-v0\.json:? .*{message}") as caught:
        dataset.load(path)
    assert "\n" not in str(caught.value)


def test_a_record_is_read_as_it_was_written(tmp_path):
    names = DatasetFiles(tmp_path, "a-v0")
    plan = origin.Plan("a-v0", 3, 20, 11, None, None, None, {"mujoco": "3"})
    written = origin.Origin(
        task="a-v0", source="generated", seed=0, versions={"mujoco": "3"}, counts={"episodes": 22},
        files={"a-v0.npz": origin.FileFacts(episodes=20, sha256="abc")}, plan=plan,
        action_range=origin.ActionRange((-1.0, 0.0), (1.0, 2.0)),
    )  # fmt: skip
    origin.write(names, written)
    assert origin.read(names) == written
    assert "files" not in written.facts() and written.facts()["seed"] == 0 and "collector" not in written.facts()
    assert json.loads(names.origin.read_text())["plan"]["shadow_size"] is None
    assert origin.read(DatasetFiles(tmp_path, "b-v0")) == origin.Origin()


def test_the_three_files_of_a_dataset(tmp_path):
    names = DatasetFiles(tmp_path, "a-v0")
    assert DatasetFiles.holding(names.train) == DatasetFiles.holding(names.val) == names
    assert [p.name for p in (names.train, names.val, names.origin)] == ["a-v0.npz", "a-v0-val.npz", "a-v0.json"]
    for wrong in ("", "..", "a/b", "a-val"):
        with pytest.raises(UserError, match="cannot name a dataset"):
            DatasetFiles(tmp_path, wrong)


def test_both_splits_or_only_one(tmp_path):
    first = write(tmp_path, arrays(), "a-v0.npz")
    assert dataset.load_splits(tmp_path)[1] is None
    second = write(tmp_path, arrays((6,)), "a-v0-val.npz")
    train, val = dataset.load_splits(first)
    assert (train.rows, val.rows) == (12, 6)
    assert dataset.load_splits(second)[0].rows == 6 and dataset.load_splits(second)[1] is None


def test_what_a_record_says_is_text_and_no_command_of_the_terminal(tmp_path):
    path = write(tmp_path, arrays())
    odd = "[/red] \x1b[2J [bold]"
    origin.write(DatasetFiles.holding(path), origin.Origin(task=odd, source=odd, collector=odd, versions={"a": odd}))
    shown = info.text(info.summarize(path))
    assert "\x1b" not in shown and "[/red] \\x1b[2J [bold]" in shown

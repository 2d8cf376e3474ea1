"""Episodes in files of a folder, in groups of an HDF5 file and in memory: found, split and named alike everywhere."""

import json
import time

import numpy as np
import pytest

from dualgoal import imports
from dualgoal.cli.main import main
from dualgoal.data import dataset, importing, info, sources, tables
from dualgoal.data.contents import Contents
from dualgoal.data.paths import natural_order
from dualgoal.errors import UserError
from dualgoal.files import sha256

ROWS = 40
LAYOUTS = ["folder", "groups", "memory"]


def recording(k, rows=ROWS, **more):
    """Steps of one file or group, of which each row can be told from all others."""
    rng = np.random.default_rng(k)
    observations = np.concatenate([np.full((rows, 1), k), np.arange(rows)[:, None], rng.normal(size=(rows, 1))], 1)
    return {"observations": observations, "actions": rng.uniform(-1, 1, (rows, 2))} | more


def ends(*last, rows=ROWS):
    return np.isin(np.arange(rows), last)


def hdf5(path, groups):
    """An HDF5 file with these arrays in its groups."""
    h5py = pytest.importorskip("h5py", reason="pip install 'dualgoal[hdf5]'")
    with h5py.File(path, "w") as file:
        for group, arrays in groups.items():
            file.create_group(group)
            for name, array in arrays.items():
                file[f"{group}/{name}"] = array
    return path


def folder(path, files):
    path.mkdir(parents=True)
    for name, arrays in files.items():
        with (path / name).open("wb") as file:
            np.savez(file, **arrays)
    return path


def store(layout, where, recordings):
    """The recordings as a folder of npz files or as groups of an HDF5 file."""
    if layout == "folder":
        return folder(where / "own", {f"ep{k}.npz": arrays for k, arrays in enumerate(recordings)})
    return hdf5(where / "own.hdf5", {f"data/demo_{k}": arrays for k, arrays in enumerate(recordings)})


def imported(source, out, **options):
    """Training and validation rows together, as they are in memory."""
    importing.import_dataset(source, out, task="own", **options)
    train, val = dataset.load(out, "own"), dataset.load(out, "own", split="val")
    return {key: np.concatenate([getattr(train, key), getattr(val, key)]) for key in ("observations", "terminals")}


def lengths(layout, where, recordings, **options):
    """How many rows the episodes have, in their order in the source."""
    if layout == "memory":
        data = dataset.Dataset.from_episodes(recordings, **options)
        return np.diff(data.ends, prepend=-1).tolist()
    rows = imported(store(layout, where, recordings), where / "out", **options)
    return np.diff(np.flatnonzero(rows["terminals"]), prepend=-1).tolist()


def record(out):
    return json.loads((out / "own.json").read_text())


# Ends of episodes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "marks",
    [
        {"terminals": ends(9, 19, 29, 39)},
        {"dones": ends(9, 19, 29)},  # the last row ends one, too
        {"timeouts": ends(9, 29), "terminated": ends(19)},
        {"episode_index": np.arange(ROWS) // 10},
        {"episode_id": np.arange(ROWS)[:, None] // 10, "dones": np.zeros(ROWS)},
        {"dones": ends(39), "episode_index": np.arange(ROWS) // 10},
    ],
)
def test_a_file_a_group_or_a_dictionary_may_hold_several_episodes(layout, marks, tmp_path):
    assert lengths(layout, tmp_path, [recording(k, **marks) for k in range(3)]) == [10] * 12
    if layout != "memory":
        assert set(record(tmp_path / "out")["keys"].values()) == {"observations", "actions", *marks}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "marks",
    [
        {},
        {"dones": np.zeros(ROWS)},
        {"dones": ends(39)},
        {"dones": ends(36, 37, 38, 39)},  # a success that lasts
        {"dones": ends(37, 38, 39), "timeouts": ends(39)},
        {"episode_index": np.full(ROWS, 7)},
        {"episode": np.int64(3), "done": np.array([True])},  # about the file, not about its rows
        {"is_last": ends(40, rows=ROWS + 1), "observations": np.zeros((ROWS + 1, 3))},
        {"dones": ends(39), "observations": np.zeros((ROWS + 1, 3))},
    ],
)
def test_one_that_ends_only_at_its_end_is_one_episode(layout, marks, tmp_path):
    rows = len(marks.get("observations", range(ROWS)))
    assert lengths(layout, tmp_path, [recording(k, **marks) for k in range(3)]) == [rows] * 3


def test_a_folder_gives_the_rows_of_the_single_file(tmp_path):
    parts = [recording(k, terminals=ends(9, 24, 39)) for k in range(4)]
    whole = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
    np.savez(tmp_path / "own.npz", **whole)
    alone = imported(tmp_path / "own.npz", tmp_path / "alone")
    for layout in ("folder", "groups"):
        found = imported(store(layout, tmp_path, parts), tmp_path / layout)
        assert all(np.array_equal(found[key], alone[key]) for key in alone)


def test_groups_in_the_files_of_a_folder(tmp_path):
    (tmp_path / "own").mkdir()
    for k in (0, 1):
        hdf5(tmp_path / "own" / f"shard{k}.h5", {f"traj_{n}": recording(10 * k + n, dones=ends(19)) for n in range(2)})
    found = imported(tmp_path / "own", tmp_path / "out")
    assert np.array_equal(found["observations"][::20, 0], [0, 0, 1, 1, 10, 10, 11, 11])


@pytest.mark.parametrize("layout", ["folder", "groups"])
def test_episodes_are_skipped_by_their_numbers_after_splitting(layout, tmp_path, capsys):
    recordings = [recording(k, dones=ends(19, 39)) for k in range(3)]
    recordings[1]["observations"][25] = np.nan
    source = store(layout, tmp_path, recordings)
    with pytest.raises(UserError, match=r"from row 20: 'observations' is nan in row 5.*\(--skip-episodes 3 leaves"):
        imported(source, tmp_path / "out")
    found = imported(source, tmp_path / "out", skip_episodes=[3, 0], quiet=False)
    assert np.array_equal(found["observations"][::20, 0], [0, 1, 2, 2])
    first, second = ("ep0.npz, from row 0", "ep1.npz, from row 20")
    if layout == "groups":
        first, second = ("own.hdf5 (data/demo_0), from row 0", "own.hdf5 (data/demo_1), from row 20")
    assert record(tmp_path / "out")["skipped_names"] == [first, second]
    said = capsys.readouterr().err
    assert f"left out: {first}, {second}" in said
    assert (f"{source}: 3 files, 6 episodes" in said) == (layout == "folder")


@pytest.mark.parametrize("layout", ["folder", "groups"])
def test_a_key_that_does_not_exist_is_always_an_error(layout, tmp_path):
    source = store(layout, tmp_path, [recording(k) for k in range(2)])
    for key in ("terminals", "timeouts", "episodes", "goals", "next_observations", "actions"):
        with pytest.raises(UserError, match=f"0.*: no array 'nonsense' to use as {key} .it holds .*actions"):
            imported(source, tmp_path / "out", keys={key: "nonsense"})
    (tmp_path / "b").mkdir()
    source = store(layout, tmp_path / "b", [recording(0, last=ends(19)), recording(1)])
    with pytest.raises(UserError, match=r"1.*: no array 'last' to use as terminals.*\(--skip-episodes 2 leaves"):
        imported(source, tmp_path / "out", keys={"terminals": "last"})


def test_marks_that_mean_something_else_are_explained_and_can_be_left_aside(tmp_path):
    source = folder(tmp_path / "own", {f"{k}.npz": recording(k, dones=ends(10, 11, 12, 30)) for k in range(3)})
    words = r"0.npz, from row 11: 'dones' makes row 11 an episode of one row.*if every file.*: --key terminals= \("
    with pytest.raises(UserError, match=words):
        imported(source, tmp_path / "out")
    found = imported(source, tmp_path / "out", keys=["terminals="])
    assert found["terminals"].sum() == 3 and record(tmp_path / "out")["keys"]["terminals"] == ""
    with pytest.raises(UserError, match="leave 'dones' out of the dictionary"):
        dataset.Dataset.from_episodes([recording(0, dones=ends(10, 11, 12, 30))])
    for marks, message in (
        ({"episode_index": np.arange(ROWS)}, "'episode_index' changes in every row, so it does not number episodes"),
        ({"dones": np.full(ROWS, 0.5)}, "'dones' is 0.5 in row 0; expected 0 or 1"),
        ({"dones": ends(3, rows=7)}, "'dones' has 7 rows but 'actions' has 40.*leave 'dones' out of the dictionary"),
        ({"dones": np.zeros((ROWS, 2))}, r"'dones' has shape \(40, 2\).*leave 'dones' out of the dictionary"),
        ({"next_observations": np.zeros((ROWS, 4))}, "cannot follow.*leave 'next_observations' out of the dictionary"),
    ):
        with pytest.raises(UserError, match=message) as caught:
            dataset.Dataset.from_episodes([recording(0, **marks)])
        assert "--key" not in str(caught.value)
    np.savez(tmp_path / "one.npz", **recording(0, episode_index=np.arange(ROWS), terminals=ends(9, 39)))
    with pytest.raises(UserError, match="one.npz: 'episode_index' changes in every row"):
        imported(tmp_path / "one.npz", tmp_path / "out2")
    imported(tmp_path / "one.npz", tmp_path / "out2", keys=["episodes="])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("marks", "keys"),
    [
        ({"terminated": ends(1)}, ["terminals"]),
        ({"terminated": ends(1, 9), "truncated": ends(39)}, ["terminals"]),
        ({"terminated": ends(1), "truncated": ends(1)}, ["terminals", "timeouts"]),
    ],
)
def test_a_success_in_between_where_there_is_one_state_more(layout, marks, keys, tmp_path):
    made = [recording(k, rows=ROWS + 1, **marks) for k in range(2)]
    for episode in made:
        episode["actions"] = episode["actions"][:-1]
    said = " and ".join(f"'{name}'" for name in list(marks)[: len(keys)])
    words = f"{said} marks? row 1, but an episode with one observation more than actions ends only in its last row; "
    cure = f"--key {'= '.join(keys)}= makes one episode of it"
    with pytest.raises(UserError, match=words + (f"leave {said} out" if layout == "memory" else cure)):
        lengths(layout, tmp_path, made)
    if layout != "memory":
        source = tmp_path / ("own" if layout == "folder" else "own.hdf5")
        assert imported(source, tmp_path / "out", keys=dict.fromkeys(keys, ""))["terminals"].sum() == 2


def test_flags_that_are_none_can_be_left_aside(tmp_path):
    source = folder(tmp_path / "own", {f"{k}.npz": recording(k, done=np.full(ROWS, 2)) for k in range(2)})
    with pytest.raises(
        UserError, match=r"'done' is 2 in row 0; expected 0 or 1 \(--key terminals= takes no notice of it"
    ):
        imported(source, tmp_path / "out")
    assert imported(source, tmp_path / "out", keys=["terminals="])["terminals"].sum() == 2


def test_marks_that_had_no_effect_are_not_said_to_be_taken(tmp_path):
    marks = {"terminals": ends(4, 9, 29), "timeouts": np.full(ROWS, 3), "run": np.arange(ROWS) // 20}
    np.savez(tmp_path / "own.npz", **recording(0, **marks))
    found = imported(tmp_path / "own.npz", tmp_path / "out", keys={"episodes": "run"})
    assert np.flatnonzero(found["terminals"]).tolist() == [19, 39]
    assert set(record(tmp_path / "out")["keys"]) == {"observations", "actions", "episodes"}


def test_where_flags_and_numbers_of_episodes_disagree_both_end_one(tmp_path):
    marks = {"terminals": ends(4, 29), "episode_index": np.arange(ROWS) // 10}
    np.savez(tmp_path / "own.npz", **recording(0, **marks))
    found = imported(tmp_path / "own.npz", tmp_path / "out")
    assert np.array_equal(np.flatnonzero(found["terminals"]), [4, 9, 19, 29, 39])


@pytest.mark.parametrize("fact", [np.array(4), np.full(4, 10), np.zeros((4, 2)), np.array([4])])
@pytest.mark.parametrize("name", ["episodes", "episode"])
def test_facts_about_the_episodes_of_a_file_whose_ends_are_marked(name, fact, tmp_path):
    np.savez(tmp_path / "own.npz", **recording(0, terminals=ends(9, 19, 29, 39)), **{name: fact})
    assert imported(tmp_path / "own.npz", tmp_path / "out")["terminals"].sum() == 4
    assert "episodes" not in record(tmp_path / "out")["keys"]
    with pytest.raises(UserError, match=f"'{name}'|episodes|different lengths"):
        imported(tmp_path / "own.npz", tmp_path / "b", keys={"episodes": name})


def test_marks_of_other_lengths_can_be_left_aside(tmp_path):
    np.savez(tmp_path / "own.npz", **recording(0, terminals=ends(9, 39)), timeouts=np.zeros(7))
    words = r"\(terminals 40, timeouts 7\); they must have one row per step \(--key timeouts= takes no notice of it\)"
    with pytest.raises(UserError, match=words):
        imported(tmp_path / "own.npz", tmp_path / "out")
    assert imported(tmp_path / "own.npz", tmp_path / "out", keys={"timeouts": ""})["terminals"].sum() == 2


def test_a_number_beside_the_observations_is_none_of_them(tmp_path):
    steps = recording(0, terminals=ends(9, 39), state=np.array(3))
    steps["obs"] = steps.pop("observations")
    np.savez(tmp_path / "own.npz", **steps)
    imported(tmp_path / "own.npz", tmp_path / "out")
    assert record(tmp_path / "out")["keys"]["observations"] == "obs"


def test_one_number_that_the_user_calls_an_end_is_refused(tmp_path):
    source = folder(tmp_path / "own", {f"{k}.npz": recording(k, done=np.array([True])) for k in range(2)})
    imported(source, tmp_path / "out")
    with pytest.raises(UserError, match=r"0.npz: 'done' has 1 rows but 'actions' has 40; it must have one per step"):
        imported(source, tmp_path / "b", keys={"terminals": "done"})


def test_how_many_marks_there_are_is_known_before_any_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(tables.NpzTable, "column", lambda table, name: pytest.fail(f"{name} is read"))
    claims = folder(tmp_path / "own", {f"{k}.npz": recording(k, dones=np.zeros(10**6, bool)) for k in range(2)})
    with pytest.raises(UserError, match=r"0.npz: 'dones' has 1000000 rows but 'actions' has 40"):
        imported(claims, tmp_path / "out")
    with pytest.raises(UserError, match=r"0.npz: arrays of different lengths \(.*actions 40, dones 1000000\)"):
        imported(claims / "0.npz", tmp_path / "out")


def test_marks_of_hdf5_that_memory_cannot_hold(tmp_path):
    source = store("groups", tmp_path, [recording(k) for k in range(2)])
    with pytest.importorskip("h5py", reason="pip install 'dualgoal[hdf5]'").File(source, "a") as file:
        for group in file["data"].values():
            group.create_dataset("dones", shape=(40_000_000_000,), dtype="u1", chunks=(1 << 20,))
    with pytest.raises(UserError, match=r"data/demo_0.: 'dones' has 40000000000 rows but 'actions' has 40"):
        imported(source, tmp_path / "out")


# Names of arrays ------------------------------------------------------------------------------------------------------


def robomimic(k, **more):
    arrays = recording(k)
    joints = arrays.pop("observations")
    return arrays | {"obs/joints": joints, "obs/gripper": joints[:, :1], "states": joints[:, :2]} | more


def test_several_candidates_for_observations_are_asked_about(tmp_path):
    source = hdf5(tmp_path / "own.hdf5", {f"data/demo_{k}": robomimic(k) for k in range(3)})
    with pytest.raises(
        UserError, match=r"which arrays are the observations \(it holds obs/gripper, obs/joints, states\)"
    ):
        imported(source, tmp_path / "out")
    imported(source, tmp_path / "out", observation_keys=["obs/joints"])
    known = record(tmp_path / "out")
    assert known["observation_keys"] == ["obs/joints"] and known["keys"] == {"actions": "actions"}
    files = {
        f"{k}.npz": {"obs": np.zeros((5, 2)), "state": np.zeros((5, 2)), "act": np.zeros((5, 2))} for k in range(2)
    }
    with pytest.raises(UserError, match=r"0.npz: does not say which .* \(it holds obs, state\).*--observation-keys"):
        imported(folder(tmp_path / "own", files), tmp_path / "b")


@pytest.mark.parametrize("layout", ["folder", "groups"])
def test_which_arrays_were_taken_is_recorded_and_shown(layout, tmp_path, capsys):
    made = [{"state": np.zeros((5, 2)), "act": np.zeros((5, 2)), "dones": ends(4, rows=5)} for _ in range(3)]
    importing.import_dataset(store(layout, tmp_path, made), tmp_path / "out", task="own", quiet=False)
    assert record(tmp_path / "out")["keys"] == {"observations": "state", "actions": "act", "terminals": "dones"}
    said = capsys.readouterr().err
    assert "observations state, actions act, terminals dones" in said and "3 files" not in said
    assert "terminals dones" in " ".join(info.text(info.summarize(tmp_path / "out")).split())


def test_the_same_array_has_the_same_name_in_all_files(tmp_path):
    files = {"0.npz": {"obs": np.zeros((5, 2)), "actions": np.zeros((5, 2))}}
    files |= {f"{k}.npz": {"state": np.zeros((5, 2)), "actions": np.zeros((5, 2))} for k in (1, 2)}
    source = folder(tmp_path / "own", files)
    words = r"0.npz: observations are 'obs', but 'state' in 1.npz; .*--key observations=NAME \(--skip-episodes 0 leaves"
    with pytest.raises(UserError, match=words):
        imported(source, tmp_path / "out")
    imported(source, tmp_path / "out", skip_episodes=[0])
    assert record(tmp_path / "out")["keys"]["observations"] == "state"


def test_the_usual_names_are_found_among_very_many_tables():
    found = [(str(k), Contents({"observations": ("obs" if k else "x",), "actions": ("a",)}, [])) for k in range(40_000)]
    started = time.monotonic()
    assert sources._usual(found)[0] == "1"
    assert time.monotonic() - started < 5


def test_a_group_without_actions_is_an_error_unless_it_is_left_out(tmp_path):
    groups = {f"data/demo_{k}": recording(k, rows=10) for k in range(4)}
    del groups["data/demo_2"]["actions"]
    groups |= {"data/demo_9": {}, "mask/train": {"index": np.arange(3)}}
    source = hdf5(tmp_path / "own.hdf5", groups)
    for skipped, group, numbers in (([], "demo_2", "2 4 leaves all of them"), ([2], "demo_9", "4 leaves this episode")):
        words = rf"own.hdf5 \(data/{group}\): no array looks like .*[(;] ?--skip-episodes {numbers} out\)"
        with pytest.raises(UserError, match=words):
            imported(source, tmp_path / "out", skip_episodes=skipped)
    found = imported(source, tmp_path / "out", skip_episodes=[2, 4])
    assert np.array_equal(found["observations"][::10, 0], [0, 1, 3])


def test_groups_beside_the_episodes_that_are_called_otherwise_are_none(tmp_path):
    groups = {f"demo_{k}": recording(k, rows=10) | {"rewards": np.zeros(10)} for k in range(3)}
    groups |= {"meta": {"rewards": np.zeros(3)}, "stats": {"observations": np.zeros((2, 3))}}
    found = imported(hdf5(tmp_path / "own.hdf5", groups), tmp_path / "out")
    assert np.array_equal(found["observations"][::10, 0], [0, 1, 2])


def test_a_wrong_key_of_groups_is_the_one_that_is_named(tmp_path):
    source = hdf5(tmp_path / "own.hdf5", {f"data/demo_{k}": robomimic(k) for k in range(60)})
    with pytest.raises(UserError, match=r"own.hdf5 \(data/demo_0\): no array 'action' to use as actions") as caught:
        imported(source, tmp_path / "out", observation_keys=["obs/joints"], keys={"actions": "action"})
    assert len(str(caught.value)) < 300
    source = hdf5(
        tmp_path / "b.hdf5", {f"demo_{k}": robomimic(k, **{"robot/cmd": np.zeros((ROWS, 1))}) for k in (0, 1)}
    )
    imported(source, tmp_path / "out", observation_keys=["obs/joints"], keys={"actions": "robot/cmd"})
    assert record(tmp_path / "out")["keys"]["actions"] == "robot/cmd"


# Files of a folder ----------------------------------------------------------------------------------------------------


def test_files_are_in_the_order_of_their_numbers(tmp_path):
    source = folder(tmp_path / "own", {f"ep{k}.npz": recording(k, rows=5) for k in range(12)})
    found = imported(source, tmp_path / "out", skip_episodes=[2])
    assert set(found["observations"][:, 0]) == set(range(12)) - {2}
    assert record(tmp_path / "out")["skipped_names"] == ["ep2.npz"]
    assert np.array_equal(dataset.load(tmp_path / "out", "own").observations[::5, 0], [0, 1, 3, 4, 5, 6, 7, 8, 9, 11])
    assert "ep2.npz" in info.text(info.summarize(tmp_path / "out"))


def test_zeros_before_a_number_do_not_count():
    assert sorted(["ep10", "ep02", "ep1"], key=natural_order) == ["ep1", "ep02", "ep10"]


def test_other_spellings_hidden_files_and_two_kinds_at_once(tmp_path):
    source = folder(tmp_path / "own", {f"ep{k}.NPZ": recording(k, rows=5) for k in range(3)})
    (source / "._ep0.NPZ").write_bytes(b"\x00\x05\x16\x07")
    (source / "old.npz").mkdir()
    assert len(imported(source, tmp_path / "out")["observations"]) == 15
    hdf5(source / "more.H5", {"a": {"x": np.zeros(3)}})
    with pytest.raises(UserError, match="own: holds 3 npz and 1 HDF5 files; import one kind"):
        imported(source, tmp_path / "b")


# Observations after actions -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("marks", [{}, {"dones": ends(19, 39)}])
def test_the_last_state_is_taken_from_what_follows(layout, marks, tmp_path):
    made = [recording(k, **marks) for k in range(2)]
    for episode in made:
        episode["next_observations"] = episode["observations"] + [0, 1, 0]
    assert lengths(layout, tmp_path, made) == ([21] * 4 if marks else [41] * 2)


def test_what_follows_parts_is_found_by_their_names(tmp_path):
    made = [robomimic(k) for k in range(2)]
    for arrays in made:
        arrays |= {f"next_{name}": arrays[name] + 1 for name in ("obs/joints", "obs/gripper", "states")}
    source = hdf5(tmp_path / "own.hdf5", {f"demo_{k}": arrays for k, arrays in enumerate(made)})
    found = imported(source, tmp_path / "out", observation_keys=["obs/gripper", "obs/joints"])
    assert found["observations"].shape == (2 * 41, 4) and np.array_equal(found["observations"][40], [
        *made[0]["obs/gripper"][-1] + 1, *made[0]["obs/joints"][-1].astype(np.float32) + 1
    ])  # fmt: skip
    assert record(tmp_path / "out")["keys"]["next_observations"] == "next_obs/gripper, next_obs/joints"
    parts = {"a": np.zeros((6, 2)), "b": np.ones((6, 1))}
    whole = {"observations": parts, "next_observations": parts, "actions": np.zeros((6, 1))}
    assert dataset.Dataset.from_episodes([whole] * 2).rows == 14


def test_what_follows_belongs_to_the_array_that_is_taken(tmp_path):
    arrays = {"obs": np.zeros((9, 2)), "x": np.ones((9, 2)), "next_obs": np.zeros((9, 2)), "actions": np.zeros((9, 1))}
    np.savez(tmp_path / "own.npz", **arrays, terminals=ends(4, 8, rows=9))
    assert len(imported(tmp_path / "own.npz", tmp_path / "a", observation_keys=["obs"])["observations"]) == 11
    assert len(imported(tmp_path / "own.npz", tmp_path / "b", observation_keys=["x"])["observations"]) == 9
    assert len(imported(tmp_path / "own.npz", tmp_path / "c", keys=["next_observations="])["observations"]) == 9


@pytest.mark.parametrize(
    ("seen", "following"), [("state", "next_observations"), ("observations", "next_states"), ("obs", "next_state")]
)
def test_what_follows_may_have_a_name_of_another_kind_that_no_array_has(seen, following, tmp_path):
    steps = {seen: np.zeros((9, 2)), following: np.ones((9, 2)), "actions": np.zeros((9, 1))}
    np.savez(tmp_path / "own.npz", **steps, terminals=ends(4, 8, rows=9))
    found = imported(tmp_path / "own.npz", tmp_path / "a")
    assert found["observations"][:, 0].tolist() == [0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1]
    other = "states" if following.startswith("next_state") else "observations"
    np.savez(tmp_path / "own.npz", **steps | {other: np.zeros((9, 2))}, terminals=ends(4, 8, rows=9))
    assert len(imported(tmp_path / "own.npz", tmp_path / "b", observation_keys=[seen])["observations"]) == 9


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_cannot_follow_is_one_line(layout, tmp_path):
    made = [recording(k, next_observations=np.zeros((ROWS, 4))) for k in range(2)]
    words = r"rows of 'next_observations' float64 \(4,\) cannot follow rows of 'observations' float64 \(3,\)"
    with pytest.raises(UserError, match=words):
        lengths(layout, tmp_path, made)
    np.savez(tmp_path / "one.npz", **made[0], terminals=ends(9, 39))
    with pytest.raises(UserError, match="one.npz: rows of 'next_observations'.*, or take none with"):
        imported(tmp_path / "one.npz", tmp_path / "out")


# The same command again, and what is refused --------------------------------------------------------------------------


def test_the_same_import_again_says_that_nothing_was_done(tmp_path, capsys):
    source = folder(tmp_path / "own", {f"{k}.npz": recording(k) for k in range(3)})
    words = ["data", "import", str(source), "--out", str(tmp_path / "out")]
    assert main(words) == 0
    assert "nothing was done" not in capsys.readouterr().err
    assert main(words) == 0
    said = capsys.readouterr()
    assert f"{tmp_path / 'out' / 'own.npz'}: already there; nothing was done" in said.err
    assert said.out.strip() == str(tmp_path / "out" / "own.npz")
    assert main([*words, "--quiet"]) == 0 and not capsys.readouterr().err


def test_an_edited_goal_function_makes_other_goals(tmp_path, capsys, monkeypatch):
    source = folder(tmp_path / "own", {f"{k}.npz": recording(k) for k in range(3)})
    code = tmp_path / "my_goals.py"
    code.write_text("def f(rows):\n    return rows[:, :1]\n")
    options = {"goal_function": f"{code}:f", "task": "own"}
    importing.import_dataset(source, tmp_path / "out", **options)
    before = dataset.load(tmp_path / "out", "own")
    code.write_text("def f(rows):\n    return 2 * rows[:, 1:]\n")
    importing.import_dataset(source, tmp_path / "out", **options, quiet=False)
    assert "made again, as the file of the goal function has changed" in capsys.readouterr().err
    after = dataset.load(tmp_path / "out", "own")
    assert np.array_equal(before.goals, before.observations[:, :1])
    assert np.array_equal(after.goals, 2 * after.observations[:, 1:])
    assert after.provenance["goal_function_sha256"] == sha256(code) != before.provenance["goal_function_sha256"]
    importing.import_dataset(source, tmp_path / "out", **options, quiet=False)
    assert "nothing was done" in capsys.readouterr().err
    code.write_text(f"# as before, and the disk is full in between\n{code.read_text()}")
    with monkeypatch.context() as patch, pytest.raises(UserError, match="own.npz: not written .no room."):
        patch.setattr(importing, "_origin", lambda *given: (_ for _ in ()).throw(OSError("no room")))
        importing.import_dataset(source, tmp_path / "out", **options)
    importing.import_dataset(source, tmp_path / "out", **options)
    assert np.array_equal(dataset.load(tmp_path / "out", "own").goals, after.goals)
    code.write_text("def f(rows):\n    raise ValueError(rows)\n")
    with pytest.raises(UserError, match="raised ValueError"):
        importing.import_dataset(source, tmp_path / "out", **options)
    assert np.array_equal(dataset.load(tmp_path / "out", "own").goals, after.goals), "what was there stays"
    with pytest.raises(UserError, match="already there, and not from this import"):
        importing.import_dataset(source, tmp_path / "out", **options, skip_episodes=[0])


def test_an_edited_module_is_not_loaded_twice(tmp_path, monkeypatch):
    source = folder(tmp_path / "own", {f"{k}.npz": recording(k) for k in range(3)})
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "goals_of_mine.py").write_text("def f(rows):\n    return rows[:, :1]\n")
    importing.import_dataset(source, tmp_path / "out", goal_function="goals_of_mine:f")
    (tmp_path / "goals_of_mine.py").write_text("def f(rows):\n    return rows[:, 1:]\n")
    with pytest.raises(UserError, match=r"goals_of_mine.py was edited after this process had .*; start Python again"):
        importing.import_dataset(source, tmp_path / "out", goal_function="goals_of_mine:f")
    assert imports.digest("goal function", "numpy:sum") and imports.digest("goal function", "builtins:abs") is None


def test_a_file_that_is_not_what_it_is_called(tmp_path):
    (tmp_path / "fake.hdf5").write_bytes(b"hello world" * 100)
    pytest.importorskip("h5py", reason="pip install 'dualgoal[hdf5]'")
    with pytest.raises(
        UserError, match=r"fake.hdf5: not a readable HDF5 file .*; it is truncated, damaged or of another"
    ):
        imported(tmp_path / "fake.hdf5", tmp_path / "out")


def test_two_names_for_one_array_are_refused(tmp_path):
    np.savez(tmp_path / "own.npz", **recording(0, terminals=ends(19, 39)))
    for options, message in (
        (
            {"keys": {"observations": "a"}, "observation_keys": ["b"]},
            "--key observations=a and --observation-keys both",
        ),
        ({"keys": {"goals": "a"}, "goal_keys": ["b"]}, "--key goals=a and --goal-keys both say what goals are"),
        ({"keys": {"goals": "a"}, "goal_dims": [0]}, "--key goals=a and --goal-dims both say what goals are"),
        ({"keys": {"actions": ""}}, "--key actions= names no array"),
    ):
        with pytest.raises(UserError, match=message):
            imported(tmp_path / "own.npz", tmp_path / "out", **options)


@pytest.mark.parametrize("layout", ["folder", "groups"])
@pytest.mark.parametrize(
    "change", [{"actions": np.zeros((7, 2))}, {"observations": np.zeros((0, 3)), "actions": np.zeros((0, 2))}]
)
def test_lengths_that_differ_and_empty_episodes_are_told_with_their_number(layout, change, tmp_path):
    source = store(layout, tmp_path, [recording(0), recording(1), recording(2) | change, recording(3)])
    with pytest.raises(UserError, match=r"2.*('actions' has 7 rows but|must not be empty).*\(--skip-episodes 2 leaves"):
        imported(source, tmp_path / "out")
    imported(source, tmp_path / "out", skip_episodes=[2])


def test_a_damaged_file_counts_as_an_episode_and_can_be_left_out(tmp_path):
    source = folder(tmp_path / "own", {f"ep{k}.npz": recording(k, dones=ends(19)) for k in range(3)})
    (source / "ep1.npz").write_bytes(b"PK")
    with pytest.raises(UserError, match=r"ep1.npz: not a readable npz.*\(--skip-episodes 2 leaves this episode out\)"):
        imported(source, tmp_path / "out")
    found = imported(source, tmp_path / "out", skip_episodes=[2])
    assert np.array_equal(found["observations"][::20, 0], [0, 0, 2, 2])

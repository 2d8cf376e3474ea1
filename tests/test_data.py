"""Loading: the compact form worked by hand, memory maps, and every way in which a file can be wrong."""

import io
import json
import os
import subprocess
import sys
import warnings
import zipfile

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from dualgoal import files, machine
from dualgoal.data import checks, dataset, info, npz, origin
from dualgoal.data.paths import DatasetFiles
from dualgoal.errors import UserError


def arrays(lengths=(4, 3, 5), dim=3, seed=0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    rows = sum(lengths)
    terminals = np.zeros(rows, bool)
    terminals[np.cumsum(lengths) - 1] = True
    return {
        "observations": rng.normal(size=(rows, dim)).astype(np.float32),
        "actions": rng.uniform(-1, 1, (rows, 2)).astype(np.float32),
        "terminals": terminals,
    }


def images(rows=6) -> dict[str, np.ndarray]:
    pictures = np.random.default_rng(0).integers(0, 256, (rows, 8, 8, 3)).astype(np.uint8)
    return {**arrays((rows,)), "observations": pictures}


def write(folder, content, name="set.npz"):
    np.savez_compressed(folder / name, **content)
    return folder / name


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


def test_large_images_are_mapped_not_read(tmp_path, monkeypatch):
    monkeypatch.setenv("DUALGOAL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(dataset, "MAP_ABOVE", 0)
    content = images(20)
    path = write(tmp_path, content)
    reads = []
    read = npz.Archive.read
    monkeypatch.setattr(npz.Archive, "read", lambda self, key, *a: (reads.append(key), read(self, key, *a))[1])
    loaded = dataset.load(path)
    assert isinstance(loaded.observations, np.memmap) and "observations" not in reads
    assert np.array_equal(loaded.observations, content["observations"])
    assert loaded.provenance["shadow_size"] == 4096, "files without a record count as official"
    made = [(p, p.stat().st_mtime_ns) for p in sorted((tmp_path / "cache" / "mapped").iterdir())]
    assert dataset.load(path).provenance["sha256"] == files.sha256(path) and len(made) == 2
    assert made == [(p, p.stat().st_mtime_ns) for p in sorted((tmp_path / "cache" / "mapped").iterdir())]
    write(tmp_path, images(30))
    os.utime(path, ns=(1, 1))
    assert dataset.load(path).rows == 30, "a changed file is mapped anew"
    assert len(list((tmp_path / "cache" / "mapped").iterdir())) == 2, "and the stale map is gone"


def test_maps_need_room(tmp_path, monkeypatch):
    monkeypatch.setenv("DUALGOAL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(dataset, "MAP_ABOVE", 0)
    monkeypatch.setattr(files, "free_disk", lambda folder: 10)
    with pytest.raises(UserError, match="set DUALGOAL_CACHE to a larger disk"):
        dataset.load(write(tmp_path, images()))


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


LOAD = """
import sys
from dualgoal.data import dataset
dataset.MAP_ABOVE = 0
print("ready", flush=True)
sys.stdin.readline()
loaded = dataset.load(sys.argv[1])
print(loaded.provenance["sha256"], int(loaded.observations.sum()))
"""


def test_four_processes_map_one_new_image_dataset(tmp_path):
    content = images(20_000)  # large enough that the four overlap
    path = write(tmp_path, content)
    env = {**os.environ, "DUALGOAL_CACHE": str(tmp_path / "cache")}
    command = [sys.executable, "-c", LOAD, str(path)]
    pipe = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen(command, env=env, **pipe) for _ in range(4)]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:  # all at once
        process.stdin.write("go\n")
        process.stdin.flush()
    answers = [process.communicate() for process in processes]
    expected = f"{files.sha256(path)} {content['observations'].astype(int).sum()}\n"
    assert [out for out, _ in answers] == [expected] * 4, answers
    assert sorted(p.suffix for p in (tmp_path / "cache" / "mapped").iterdir()) == [".json", ".npy"]


def changed(**changes):
    content = arrays()
    for key, change in changes.items():
        content[key] = change(content[key]) if callable(change) else change
    return {key: value for key, value in content.items() if value is not None}


def put(row, value):
    def change(array):
        array = array.copy()
        array[row] = value
        return array

    return change


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (changed(actions=None), "'actions' is missing .it holds observations, terminals"),
        (changed(observations=lambda x: x[:, 0]), r"'observations' has shape \(12,\)"),
        (changed(observations=lambda x: x.astype(np.uint8)), r"'observations' is uint8 of shape \(12, 3\)"),
        (changed(observations=lambda x: x.astype("<U3")), "type <U3"),
        (changed(observations=lambda x: x.astype(complex)), "type complex128"),
        (changed(observations=lambda x: x[:, :0]), "must not be empty"),
        (changed(actions=lambda x: x[:-1]), "'actions' has 11 rows but 'observations' has 12"),
        (changed(terminals=lambda x: x[:, None]), "'terminals' has shape"),
        (changed(actions=lambda x: x[:, 0]), "'actions' has shape"),
        (changed(observations=put(7, np.nan)), "'observations' is nan in row 7"),
        (changed(actions=put((3, 1), np.inf)), "'actions' is inf in row 3"),
        (changed(observations=lambda x: put(2, 1e300)(x.astype(float))), r"'observations' is 1e\+300 in row 2"),
        (changed(actions=put((5, 0), -1.5)), r"'actions' is -1.5 in row 5, outside \[-1, 1\]"),
        (changed(actions=np.arange(12) - 4), "'actions' is -4 in row 0; discrete actions count from 0"),
        (changed(terminals=np.zeros(12, bool)), "'terminals' has no episode end; expected at least one True"),
        (changed(terminals=put(11, False)), "'terminals' is False in the last row 11"),
        (changed(terminals=put(4, True)), "'terminals' makes row 4 an episode of one row"),
        (changed(terminals=lambda x: put(6, 0.5)(x.astype(float))), "'terminals' is 0.5 in row 6; expected 0 or 1"),
    ],
)
def test_what_is_wrong_is_said_in_one_line_with_file_key_and_row(tmp_path, content, message):
    with pytest.raises(UserError, match=message) as caught:
        dataset.load(write(tmp_path, content))
    assert "set.npz" in str(caught.value) and "\n" not in str(caught.value)


def test_pickled_objects_are_refused(tmp_path):
    np.savez(tmp_path / "set.npz", **(arrays() | {"observations": np.array([{"a": 1}] * 12, dtype=object)}))
    with pytest.raises(UserError, match="set.npz: 'observations' holds pickled Python objects, which are never loaded"):
        dataset.load(tmp_path / "set.npz")


@pytest.mark.parametrize("raw", [b"", b"PK", b"hello world" * 100, b"\x93NUMPY\x01\x00"])
def test_what_is_no_zip_is_said_so(tmp_path, raw):
    (tmp_path / "set.npz").write_bytes(raw)
    with pytest.raises(UserError, match="set.npz: not a readable npz"):
        dataset.load(tmp_path / "set.npz")
    with pytest.raises(UserError, match="no such dataset"):
        dataset.load(tmp_path / "none.npz")


@pytest.mark.parametrize(
    ("start", "name"), [(b"\x89HDF\r\n\x1a\n", "HDF5"), (b"\x93NUMPY", "npy"), (b"\x80\x04", "pickle")]
)
def test_other_formats_are_named_instead_of_downloaded_again(tmp_path, start, name):
    (tmp_path / "set.npz").write_bytes(start + bytes(2000))
    with pytest.raises(
        UserError, match=f"set.npz: not a readable npz .* but .*{name}.*; (save its arrays|convert it)"
    ) as caught:
        dataset.load(tmp_path / "set.npz")
    assert "again" not in str(caught.value)


def test_an_unreadable_file_is_one_line(tmp_path, monkeypatch):
    path = write(tmp_path, arrays())

    def denied(*_, **__):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(npz, "_refuse_other_formats", denied)
    with pytest.raises(UserError, match="set.npz: cannot be read .permission denied.; change its permissions"):
        dataset.load(path)


def claim(folder, shape: tuple[int, ...], filler: bytes = b""):
    """An archive whose 'observations' header claims a shape that its content does not have."""
    path = write(folder, {key: value for key, value in arrays().items() if key != "observations"})
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": shape})
    with zipfile.ZipFile(path, "a") as file:
        file.writestr("observations.npy", header.getvalue() + filler)
    return path


def test_a_member_cannot_claim_more_than_it_holds(tmp_path):
    with pytest.raises(UserError, match=r"'observations' claims shape \(12, 300000000000\).*holds 5 bytes"):
        dataset.load(claim(tmp_path, (12, 300_000_000_000), b"hello"))


def test_a_member_cannot_claim_more_than_the_machine_has(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "free_memory", lambda: 100)
    with pytest.raises(UserError, match="'observations' and .* claim .* GiB, more than the"):
        dataset.load(write(tmp_path, arrays()))


def test_data_of_another_task_is_noticed(tmp_path):
    path = write(tmp_path, arrays(dim=28), "cube-single-play-v0.npz")
    with pytest.raises(UserError, match=r"play-v0.npz: 'actions' have shape \(2,\) but those of .* have \(5,\)"):
        dataset.load(path)
    with pytest.raises(UserError, match=r"'observations' have shape \(28,\) but those of scene-play-v0 have \(40,\)"):
        dataset.load(path, "scene-play-v0")


def test_columns_first_is_refused_rather_than_scrambled(tmp_path):
    np.savez(tmp_path / "set.npz", **(arrays() | {"observations": np.asfortranarray(arrays()["observations"])}))
    with pytest.raises(UserError, match="stored column by column"):
        dataset.load(tmp_path / "set.npz")


def test_the_same_arrays_give_the_same_bytes(tmp_path):
    npz.save(tmp_path / "a.npz", arrays())
    npz.save(tmp_path / "b.npz", arrays())
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    with np.load(tmp_path / "a.npz") as file:
        assert all(np.array_equal(file[key], value) for key, value in arrays().items())


def test_archives_are_dated_and_compressed_as_asked(tmp_path):
    """`npz.writing` relies on what zipfile (Python 3.11 to 3.14) does for a member opened by name: the date is 1980,
    and the archive's compression level holds."""
    zeros = {"a": np.zeros((1000, 9), np.float32)}
    npz.save(tmp_path / "0.npz", zeros, level=0)
    npz.save(tmp_path / "6.npz", zeros, level=6)
    assert (tmp_path / "0.npz").stat().st_size > 36_000 > 1_000 > (tmp_path / "6.npz").stat().st_size
    with zipfile.ZipFile(tmp_path / "6.npz") as file:
        (info,) = file.infolist()
    assert info.date_time == (1980, 1, 1, 0, 0, 0) and info.compress_type == zipfile.ZIP_DEFLATED


def _valid_bytes(compressed: bool) -> bytes:
    out = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(out, **arrays())
    return out.getvalue()


VALID = {True: _valid_bytes(True), False: _valid_bytes(False)}
edits = st.lists(
    st.tuples(
        st.sampled_from(["set", "cut", "insert", "delete"]), st.floats(0, 1, exclude_max=True), st.binary(max_size=12)
    ),
    min_size=1,
    max_size=4,
)


def mutate(raw: bytes, changes: list[tuple[str, float, bytes]]) -> bytes:
    for kind, where, value in changes:
        at = int(where * len(raw))
        if kind == "set":
            raw = raw[:at] + value + raw[at + len(value) :]
        elif kind == "cut":
            raw = raw[:at]
        elif kind == "insert":
            raw = raw[:at] + value + raw[at:]
        else:
            raw = raw[:at] + raw[at + len(value) :]
    return raw


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(compressed=st.booleans(), changes=edits)
@example(compressed=False, changes=[("cut", 0.5, b"")])
def test_a_mutated_file_loads_rightly_or_fails_in_one_line(tmp_path, compressed, changes):
    path = tmp_path / "set.npz"
    path.write_bytes(mutate(VALID[compressed], changes))
    try:
        loaded = dataset.load(path)
    except UserError as problem:
        assert "set.npz" in str(problem) and "\n" not in str(problem)
        return
    for key, original in arrays().items():  # every byte of an array is under a checksum
        assert np.array_equal(getattr(loaded, key), original)


@pytest.mark.parametrize(
    ("before", "after"),
    [(b"(12, 2), }  ", b"(12, 2), } ["), (b"observations.npy", b"observ\ntions.npy")],
    ids=["a header that never ends", "a name of two lines"],
)
def test_damage_that_once_got_through(tmp_path, before, after):
    path = tmp_path / "set.npz"
    assert before in VALID[False]
    path.write_bytes(VALID[False].replace(before, after))
    with pytest.raises(UserError, match="set.npz") as problem:
        dataset.load(path)
    assert "\n" not in str(problem.value)


DAMAGE = {
    "drop the key": lambda a, r: None,
    "drop rows": lambda a, r: a[: r % (len(a) + 1)],
    "add an axis": lambda a, r: a[..., None],
    "drop an axis": lambda a, r: a.reshape(-1)[: len(a)],
    "nan": lambda a, r: put(r % len(a), np.nan)(a.astype(np.float64)) if len(a) else a,
    "large": lambda a, r: put(r % len(a), 1e39)(a.astype(np.float64)) if len(a) else a,
    "negative": lambda a, r: put(r % len(a), -7)(a.astype(np.int64)) if len(a) else a,
    "flip": lambda a, r: put(r % len(a), 1)(a) if len(a) else a,
    "zero": lambda a, r: np.zeros_like(a),
    "other type": lambda a, r: a.astype(["u1", "i8", "f2", "f8", "c8", "S4", "?", "M8[s]", "O", "V4"][r % 10]),
    "columns first": lambda a, r: np.asfortranarray(a),
    "scalar": lambda a, r: np.float32(r),
}


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    damage=st.lists(
        st.tuples(st.sampled_from(checks.REQUIRED), st.sampled_from(sorted(DAMAGE)), st.integers(0, 1000)),
        min_size=1,
        max_size=3,
    )
)
def test_mutated_arrays_load_rightly_or_fail_in_one_line(tmp_path, damage):
    content = arrays()
    for key, kind, number in damage:
        if np.ndim(content.get(key)):
            try:
                with warnings.catch_warnings(action="ignore"):
                    content[key] = DAMAGE[kind](content[key], number)
            except (TypeError, ValueError, RuntimeError):
                continue  # NumPy has no such conversion
        if content.get(key) is None:
            content.pop(key, None)
    path = tmp_path / "set.npz"
    np.savez(path, **content)
    try:
        loaded = dataset.load(path)
    except UserError as problem:
        assert "set.npz" in str(problem) and "\n" not in str(problem)
        return
    assert loaded.rows == len(loaded.observations) == len(loaded.actions)
    assert np.diff(loaded.ends, prepend=-1).min() >= 2 and loaded.ends[-1] == loaded.rows - 1
    assert np.isfinite(loaded.observations).all() and loaded.observations.dtype == np.float32
    assert loaded.discrete or np.abs(loaded.actions).max() <= 1 + checks.SLACK


def archive_with(path, *names):
    with zipfile.ZipFile(path, "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in names:
            content = io.BytesIO()
            np.save(content, np.zeros(3))
            archive.writestr(name, content.getvalue())
    return path


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("a.npy", "a.npy"), "holds 'a.npy' twice"),
        (("../a.npy",), "leads out of the archive"),
        (("/etc/a.npy",), "leads out of the archive"),
        (("x/..\\..\\a.npy",), "leads out of the archive"),
        (tuple(f"{n}.npy" for n in range(1001)), "holds 1001 members"),
    ],
)
def test_archives_with_odd_names_are_refused(tmp_path, names, message):
    with pytest.raises(UserError, match=message):
        npz.Archive(archive_with(tmp_path / "a.npz", *names))


def test_arrays_that_fit_one_by_one_but_not_together_are_refused(tmp_path, monkeypatch):
    path = write(tmp_path, arrays())
    with npz.Archive(path) as archive:
        sizes = [archive.members[key].nbytes for key in checks.REQUIRED]
    monkeypatch.setattr(machine, "free_memory", lambda: sum(sizes) - 1)
    with pytest.raises(UserError, match="'observations' and 'actions' and 'terminals' claim 0.0 GiB, more than"):
        dataset.load(path)
    monkeypatch.setattr(machine, "free_memory", lambda: sum(sizes))
    dataset.load(path)


def test_parts_compressed_elsewhere_are_joined_as_they_are(tmp_path):
    """The same arrays and digests as from parts that the writer compresses itself, and members after it are found."""
    content = images(50)
    pictures, parts = content["observations"], np.split(content["observations"], [10, 11, 40])
    with npz.writing(tmp_path / "whole.npz") as out:
        digest = out.add("observations", pictures.shape, pictures.dtype, parts)
    with npz.writing(tmp_path / "set.npz") as out:
        pieces = ((part, npz.packed(part)) for part in parts)
        assert out.add_packed("observations", pictures.shape, pictures.dtype, pieces) == digest
        for key in ("actions", "terminals"):
            out.add(key, content[key].shape, content[key].dtype, [content[key]])
    assert zipfile.ZipFile(tmp_path / "set.npz").testzip() is None
    with np.load(tmp_path / "set.npz") as loaded:
        assert all(np.array_equal(loaded[key], content[key]) for key in content)
    assert np.array_equal(dataset.load(tmp_path / "set.npz").observations, pictures)
    with npz.writing(tmp_path / "short.npz") as out, pytest.raises(ValueError, match="10 rows written, 50 announced"):
        out.add_packed("observations", pictures.shape, pictures.dtype, [(parts[0], npz.packed(parts[0]))])


def test_a_damaged_memory_map_is_made_again(tmp_path, monkeypatch):
    monkeypatch.setenv("DUALGOAL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(dataset, "MAP_ABOVE", 0)
    content = images()
    path = write(tmp_path, content)
    folder = tmp_path / "cache" / "mapped"

    def damage(name, changed):
        (file,) = folder.glob(name)
        file.write_bytes(changed(file.read_bytes()))

    assert (dataset.load(path).observations == content["observations"]).all()
    for name, changed in (
        ("*.json", lambda old: b""),
        ("*.json", lambda old: b"[" * 9999),
        ("*.npy", lambda old: old[:-100]),
        ("*.npy", lambda old: old[:200] + bytes(len(old) - 200)),
    ):
        damage(name, changed)
        assert (dataset.load(path).observations == content["observations"]).all()


def test_what_a_record_says_is_text_and_no_command_of_the_terminal(tmp_path):
    path = write(tmp_path, arrays())
    odd = "[/red] \x1b[2J [bold]"
    origin.write(DatasetFiles.holding(path), origin.Origin(task=odd, source=odd, collector=odd, versions={"a": odd}))
    shown = info.text(info.summarize(path))
    assert "\x1b" not in shown and "[/red] \\x1b[2J [bold]" in shown

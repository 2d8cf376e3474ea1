"""Archives of arrays: written reproducibly, and read only if they are what they claim to be."""

import io
import warnings
import zipfile

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from data_files import arrays, images, write
from dualgoal import machine
from dualgoal.data import checks, dataset, npz
from dualgoal.errors import UserError


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
    ("start", "name"),
    [(b"\x89HDF\r\n\x1a\n", "but HDF5"), (b"\x93NUMPY", "but .*npy"), (b"\x80\x04", "but .*pickle"), (b"x,y\n1,2", "")],
)
def test_other_formats_are_named_instead_of_downloaded_again(tmp_path, start, name):
    (tmp_path / "set.npz").write_bytes(start + bytes(2000))
    with pytest.raises(
        UserError, match=f"set.npz: not a readable npz .*{name}.*; (save its arrays|convert it)"
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


def test_columns_first_is_read_rightly_and_refused_where_it_would_be_mapped(tmp_path, monkeypatch):
    turned = arrays() | {key: np.asfortranarray(arrays()[key]) for key in ("observations", "actions")}
    np.savez(tmp_path / "set.npz", **turned)
    loaded = dataset.load(tmp_path / "set.npz")
    np.testing.assert_array_equal(loaded.observations, arrays()["observations"])
    np.testing.assert_array_equal(loaded.actions, arrays()["actions"])
    assert loaded.observations.flags["C_CONTIGUOUS"]
    with npz.Archive(tmp_path / "set.npz") as archive:
        assert archive.members["observations"].by_column
        with pytest.raises(UserError, match="stored column by column; save numpy.ascontiguousarray of it"):
            archive.unpack("observations", tmp_path / "a.npy")
        monkeypatch.setattr(machine, "free_memory", lambda: archive.members["observations"].nbytes)
        with pytest.raises(UserError, match="'observations' claims"):
            archive.read("observations")


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

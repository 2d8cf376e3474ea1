"""Headers of arrays, read without NumPy's parser, give what NumPy's gives."""

import io

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from data_files import arrays, write
from dualgoal.data import dataset, npy

TYPES = ["<f4", "<f8", "<f2", "|u1", "|b1", ">i8", "<U5", "|S3", "<c16", "<M8[s]"]


def saved(array: np.ndarray, version: tuple[int, int] | None = None) -> io.BytesIO:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array, version)
    stream.seek(0)
    return stream


@given(
    st.lists(st.integers(0, 4), max_size=4),
    st.sampled_from(TYPES),
    st.booleans(),
    st.sampled_from([(1, 0), (2, 0)]),
)
@example([], "<f4", False, (1, 0))
@example([3], "<f4", False, (2, 0))
def test_headers_say_what_numpy_reads(shape, kind, by_column, version):
    array = np.zeros(shape, kind, order="F" if by_column else "C")
    stream, same = saved(array, version), saved(array, version)
    found = npy.read_header(stream)
    np.lib.format.read_magic(same)
    reader = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    assert (*found, stream.tell()) == (*reader(same), same.tell())


@given(st.binary(max_size=40), st.integers(0, 127))
def test_a_changed_header_says_what_numpy_reads_or_is_refused(changed, at):
    raw = saved(np.zeros((3, 4), np.float32)).getvalue()
    raw = raw[:at] + changed + raw[at + len(changed) :]

    def read(with_numpy: bool):
        stream = io.BytesIO(raw)
        try:
            if not with_numpy:
                return npy.read_header(stream)
            version = np.lib.format.read_magic(stream)
            known = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
            return known[version](stream)
        except Exception:
            return None

    assert read(with_numpy=False) == read(with_numpy=True)


def test_datasets_are_read_while_another_thread_builds_a_syntax_tree(tmp_path, monkeypatch):
    """What Python 3.11.7 then answers to NumPy's parser, now and again, is what it always answers here."""

    def interrupted(_):
        raise SystemError("AST constructor recursion depth mismatch (before=57, after=177)")

    path = write(tmp_path, arrays())
    monkeypatch.setattr("ast.literal_eval", interrupted)
    with pytest.raises(SystemError):
        np.load(path)["observations"]
    assert dataset.load(path).observations.shape == arrays()["observations"].shape


def test_a_map_is_the_array(tmp_path):
    for array in (np.arange(12.0).reshape(3, 4), np.asfortranarray(np.arange(12.0).reshape(3, 4))):
        np.save(tmp_path / "array.npy", array)
        found = npy.mapped(tmp_path / "array.npy")
        assert isinstance(found, np.memmap) and not found.flags.writeable
        np.testing.assert_array_equal(found, array)


def test_objects_and_unknown_versions_are_refused(tmp_path):
    np.save(tmp_path / "array.npy", np.array([{}], dtype=object))
    with pytest.raises(ValueError, match="Python objects"):
        npy.mapped(tmp_path / "array.npy")
    with pytest.raises(npy.UnknownVersion):
        npy.read_header(io.BytesIO(b"\x93NUMPY\x03\x00" + bytes(100)))

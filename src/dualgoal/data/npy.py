"""Headers of npy data: shape, order and type of an array, without a syntax tree.

NumPy reads headers with `ast.literal_eval`. Older releases of Python 3.11 and 3.12, such as 3.11.7, cannot build two
syntax trees in two threads at once: if the garbage collector runs in one and the other thread goes on, an intact header
raises a SystemError (python/cpython#106905). Datasets are joined in a thread, so what NumPy writes for a plain array is
read here, and everything else, such as arrays of records, by NumPy.
"""

import io
import re
from pathlib import Path
from typing import IO

import numpy as np

Header = tuple[tuple[int, ...], bool, np.dtype]  # shape, whether it is stored by column, type

PLAIN = re.compile(
    rb"\{'descr': '(?P<descr>[<>|=]?[A-Za-z?]\d{0,4})', 'fortran_order': (?P<order>True|False), "
    rb"'shape': \((?P<shape>|\d{1,18},|\d{1,18}(?:, \d{1,18})+)\), \} *\n"
)
_LENGTHS = {(1, 0): 2, (2, 0): 4}  # bytes that hold the length of the header, by version
_READERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
_LIMIT = 1 << 16


class UnknownVersion(Exception):
    """The data have a version that no plain array needs."""


def read_header(stream: IO[bytes]) -> Header:
    """The header at the beginning of a stream, which is left where the data begin."""
    version = np.lib.format.read_magic(stream)
    if version not in _READERS:
        raise UnknownVersion(version)
    length = stream.read(_LENGTHS[version])
    text = stream.read(min(int.from_bytes(length, "little"), _LIMIT))
    plain = PLAIN.fullmatch(text) if len(length) == _LENGTHS[version] else None
    if plain is None:
        return _READERS[version](io.BytesIO(length + text))
    shape = tuple(int(n) for n in plain["shape"].split(b",") if n)
    return shape, plain["order"] == b"True", np.dtype(plain["descr"].decode())


def mapped(path: Path) -> np.ndarray:
    """The array in an npy file as a read-only memory map."""
    with path.open("rb") as file:
        shape, by_column, dtype = read_header(file)
        offset = file.tell()
    if dtype.hasobject:
        raise ValueError("it holds Python objects")
    return np.memmap(path, dtype, "r", offset, shape, "F" if by_column else "C")

"""The named arrays of one npz file, HDF5 file or group, or of one dictionary, known before any of them is read."""

import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dualgoal.data import hdf5, npy, npz
from dualgoal.errors import UserError

IN_MEMORY = 256 << 20  # bytes of an array that is held in memory
SUFFIXES = {"npz": (".npz",), "HDF5": (".hdf5", ".h5")}  # of files, in small letters


class NpzTable:
    """An npz file. Arrays are unpacked when they are asked for, those that are large into a temporary file."""

    def __init__(self, path: Path):
        self.path, self.name = path, path.name
        self._unpacked: list[tempfile.TemporaryDirectory[str]] = []  # removed when nobody reads them any more
        with npz.Archive(path) as archive:
            self.members: dict[str, npz.Member] = archive.members

    def column(self, name: str) -> np.ndarray:
        with npz.Archive(self.path) as archive:
            if self.members[name].nbytes <= IN_MEMORY:
                return archive.read(name)
            self._unpacked.append(tempfile.TemporaryDirectory(prefix="dualgoal-"))
            file = Path(self._unpacked[-1].name) / "array.npy"
            archive.unpack(name, file)
        return npy.mapped(file)

    def require_memory(self, names: Iterable[str]) -> None:
        """Raise if arrays that are held in memory claim more than there is."""
        with npz.Archive(self.path) as archive:
            archive.require_memory(name for name in names if self.members[name].nbytes <= IN_MEMORY)


@dataclass(frozen=True)
class MemoryTable:
    """Arrays that are in memory already."""

    name: str  # in messages
    members: dict[str, np.ndarray]

    def column(self, name: str) -> np.ndarray:
        return self.members[name]

    def require_memory(self, names: Iterable[str]) -> None:
        """Nothing to check."""


Table = NpzTable | hdf5.Hdf5Table | MemoryTable


def open_table(path: Path) -> NpzTable | hdf5.Hdf5Table:
    """The arrays of a file; its first bytes say of which format it is, whatever it is called."""
    if not path.is_file():
        raise UserError(f"{path}: no such file; expected recordings (npz, HDF5, a folder, a LeRobot or Minari dataset)")
    with path.open("rb") as file:
        start = file.read(8)
    if start == hdf5.SIGNATURE or (path.suffix.lower() in SUFFIXES["HDF5"] and not start.startswith(npz.SIGNATURE)):
        return hdf5.open_table(path)
    return NpzTable(path)

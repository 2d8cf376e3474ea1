"""Episodes out of an HDF5 file in D4RL's layout, for `dualgoal data import FILE`; h5py comes with the extra `hdf5`.

All rows of all episodes stand one after the other in datasets such as `observations`, `actions`, `terminals` and
`timeouts`; those inside of groups are called by their path, `infos/qpos`. Only the rows of one episode are read at a
time.
"""

from pathlib import Path
from typing import Any

from dualgoal import imports
from dualgoal.data.foreign import one_line
from dualgoal.errors import UserError

SIGNATURE = b"\x89HDF\r\n\x1a\n"
MOST_MEMBERS = 10_000


class Table:
    """The datasets of an HDF5 file by path; slices of them are read when asked for."""

    def __init__(self, path: Path):
        h5py = imports.optional("h5py", "hdf5", f"{path.name}: reading HDF5")
        self.path = path
        with one_line(path.name):
            self._file = h5py.File(path, "r")
            refuse_outside(self._file)
            self.members: dict[str, Any] = {}
            self._file.visititems(self._add)

    def _add(self, name: str, entry: Any) -> None:
        if not hasattr(entry, "dtype") or entry.dtype.kind not in "bfiu" or not entry.shape:
            return  # groups, texts and single numbers
        if len(self.members) >= MOST_MEMBERS:
            raise UserError(f"{self.path.name}: holds more than {MOST_MEMBERS:,} datasets; expected one per quantity")
        self.members[name] = entry

    def column(self, name: str) -> Any:
        """Something to slice rows from; what is damaged shows when they are read."""
        return Column(self.path.name, self.members[name])

    def require_memory(self, names: Any) -> None:
        """Nothing to check: rows are read as they are needed."""


class Column:
    """The rows of one dataset."""

    def __init__(self, file: str, entry: Any):
        self._file, self._entry = file, entry
        self.shape, self.dtype, self.ndim = entry.shape, entry.dtype, len(entry.shape)

    def __len__(self) -> int:
        return int(self.shape[0])

    def __getitem__(self, rows: Any) -> Any:
        with one_line(self._file):
            return self._entry[rows]


def refuse_outside(file: Any) -> None:
    """HDF5 files can say that part of their data is in another file, anywhere: nothing of that is read."""
    h5py = imports.optional("h5py", "hdf5", "reading HDF5")
    is_outside = lambda entry: isinstance(entry, h5py.Dataset) and (entry.external or entry.is_virtual)
    # Visits end at the first name that the function returns.
    link = file.visititems_links(lambda name, link: name if isinstance(link, h5py.ExternalLink) else None)
    name = link or file.visititems(lambda name, entry: name if is_outside(entry) else None)
    if name is not None:
        raise UserError(f"{file.filename}: '{name}' is kept in another file, which is not opened")

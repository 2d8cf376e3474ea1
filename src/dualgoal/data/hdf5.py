"""The arrays of an HDF5 file, for `dualgoal data import`; h5py comes with the extra `hdf5`.

In D4RL's layout all rows of all episodes stand one after the other in datasets such as `observations`, `actions`,
`terminals` and `timeouts`; those inside of groups are called by their path, `infos/qpos`. In robomimic and
ManiSkill each episode is a group (`data/demo_0`, `traj_0`) with datasets of its own. Only the rows of one episode are
read at a time.
"""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dualgoal import imports
from dualgoal.errors import UserError, one_line

SIGNATURE = b"\x89HDF\r\n\x1a\n"
MOST_MEMBERS = 200_000


@dataclass(frozen=True)
class Table:
    """Datasets by their path in the file or in one of its groups; slices of them are read when asked for."""

    name: str  # in messages
    members: dict[str, Any]
    file: Any  # is open as long as somebody reads

    def episodes(self, names: Collection[str]) -> list["Table"]:
        """The groups side by side that each hold an array of one of these names, in the order of their numbers; none
        where such an array stands outside of groups, or in a single one."""
        paths = [path.split("/") for path in self.members]
        groups = [parts[:-1] for parts in paths if parts[-1].lower() in names]
        depth = min(map(len, groups), default=0)
        chosen: dict[str, dict[str, Any]] = {"/".join(group): {} for group in groups if len(group) == depth}
        if len(chosen) < 2 or len({group.rpartition("/")[0] for group in chosen}) > 1:
            return []
        for parts, entry in zip(paths, self.members.values(), strict=True):
            if (group := "/".join(parts[:depth])) in chosen:
                chosen[group]["/".join(parts[depth:])] = entry
        in_order = sorted(chosen, key=lambda group: (len(group), group))
        return [Table(f"{self.name} ({group})", chosen[group], self.file) for group in in_order]

    def column(self, name: str) -> Any:
        """Something to slice rows from; what is damaged shows when they are read."""
        return Column(self.name, self.members[name])

    def require_memory(self, names: Any) -> None:
        """Nothing to check: rows are read as they are needed."""


def open_table(path: Path) -> Table:
    """All datasets of numbers of a file."""
    h5py = imports.optional("h5py", "hdf5", f"{path.name}: reading HDF5")
    members: dict[str, Any] = {}

    def add(name: str, entry: Any) -> None:
        if not hasattr(entry, "dtype") or entry.dtype.kind not in "bfiu" or not entry.shape:
            return  # groups, texts and single numbers
        if len(members) >= MOST_MEMBERS:
            raise UserError(f"{path.name}: holds more than {MOST_MEMBERS:,} datasets; divide it into several files")
        members[name] = entry

    with one_line(path.name):
        file = h5py.File(path, "r")
        refuse_outside(file)
        file.visititems(add)
    return Table(path.name, members, file)


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

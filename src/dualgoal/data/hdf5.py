"""The arrays of an HDF5 file, for `dualgoal data import`; h5py comes with the extra `hdf5`.

In D4RL's layout all rows of all episodes stand one after the other in datasets such as `observations`, `actions`,
`terminals` and `timeouts`; those inside of groups are called by their path, `infos/qpos`. In robomimic and
ManiSkill each episode is a group (`data/demo_0`, `traj_0`) with datasets of its own. Only the rows of one episode are
read at a time.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dualgoal import imports
from dualgoal.data.paths import natural_order
from dualgoal.errors import UserError, one_line

SIGNATURE = b"\x89HDF\r\n\x1a\n"
MOST_MEMBERS = 200_000


@dataclass(frozen=True)
class Hdf5Table:
    """Datasets by their path in the file or in one of its groups; slices of them are read when asked for."""

    name: str  # in messages
    members: dict[str, Any]
    file: Any  # is open as long as somebody reads
    groups: tuple[str, ...] = ()  # by their path, those without datasets too

    def episodes(self, names: Collection[str]) -> list["Hdf5Table"]:
        """The groups side by side that each hold an array of one of these names (in small letters), in the order of
        their numbers, with those siblings that lack it but are called the same except for numbers; none where such an
        array stands outside of groups, or in a single one."""
        groups = {path[: -len(name) - 1] for path in self.members for name in names if _ends_in(path, name)}
        depth = min((group.count("/") for group in groups), default=0)
        known = {group for group in groups if group.count("/") == depth}
        parents = {_parent(group) for group in known}
        if len(parents) != 1 or any(path.lower() in names for path in self.members):
            return []
        siblings = [group for group in self.groups if group.count("/") == depth and _parent(group) in parents]
        inside: dict[str, dict[str, Any]] = {group: {} for group in siblings}
        for path, entry in self.members.items():
            parts = path.split("/")
            if (group := "/".join(parts[: depth + 1])) in inside:
                inside[group]["/".join(parts[depth + 1 :])] = entry
        numbered = {_without_numbers(group) for group in known}
        episodes = [group for group in siblings if _without_numbers(group) in numbered]
        if len(episodes) < 2:
            return []
        in_order = sorted(episodes, key=natural_order)
        return [Hdf5Table(f"{self.name} ({group})", inside[group], self.file) for group in in_order]

    def column(self, name: str) -> Any:
        """Something to slice rows from; what is damaged shows when they are read."""
        return Column(self.name, self.members[name])

    def require_memory(self, names: Any) -> None:
        """Nothing to check: rows are read as they are needed."""


def _ends_in(path: str, name: str) -> bool:
    return path.lower().endswith(f"/{name}")


def _parent(group: str) -> str:
    return group.rpartition("/")[0]


def _without_numbers(group: str) -> str:
    return re.sub("[0-9]+", "0", group)


def open_table(path: Path) -> Hdf5Table:
    """All datasets of numbers of a file."""
    h5py = imports.optional("h5py", "hdf5", f"{path.name}: reading HDF5")
    members: dict[str, Any] = {}
    groups: list[str] = []

    def add(name: str, entry: Any) -> None:
        if max(len(members), len(groups)) >= MOST_MEMBERS:
            raise UserError(f"{path.name}: holds more than {MOST_MEMBERS:,} datasets; divide it into several files")
        if isinstance(entry, h5py.Group):
            groups.append(name)
        elif hasattr(entry, "dtype") and entry.dtype.kind in "bfiu" and entry.shape:  # no texts or single numbers
            members[name] = entry

    with one_line(path.name, "not a readable HDF5 file", "it is truncated, damaged or of another format"):
        file = h5py.File(path, "r")
        refuse_outside(file)
        file.visititems(add)
    return Hdf5Table(path.name, members, file, tuple(groups))


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

"""The names of a dataset's files: `NAME.npz`, `NAME-val.npz` and `NAME.json` in one folder; and the order of names."""

import re
from dataclasses import dataclass
from pathlib import Path

from dualgoal.envs.tasks import plain
from dualgoal.errors import UserError, listed

SPLITS = ("train", "val")
_VAL = "-val"


def natural_order(name: str) -> tuple[list[tuple[int, str]], str]:
    """A key by which names are sorted as people count: by the numbers in them, whatever zeros lead these.

    >>> sorted(["ep10.npz", "ep2.npz", "ep1.npz"], key=natural_order)
    ['ep1.npz', 'ep2.npz', 'ep10.npz']
    """
    parts = re.split("([0-9]+)", name)
    parts[1::2] = [digits.lstrip("0") for digits in parts[1::2]]
    return [(len(part) if at % 2 else 0, part) for at, part in enumerate(parts)], name


@dataclass(frozen=True)
class DatasetFiles:
    """The three files of the dataset `name` in `folder`, whether they exist or not."""

    folder: Path
    name: str

    def __post_init__(self) -> None:
        if self.name in ("", ".", "..") or "/" in self.name or self.name.endswith(_VAL):
            raise UserError(f"'{self.name}' cannot name a dataset; choose another name")

    @classmethod
    def holding(cls, file: Path) -> "DatasetFiles":
        """The files that belong together with one of the two npz files."""
        return cls(file.parent, file.stem.removesuffix(_VAL))

    @property
    def train(self) -> Path:
        return self.folder / f"{self.name}.npz"

    @property
    def val(self) -> Path:
        return self.folder / f"{self.name}{_VAL}.npz"

    @property
    def origin(self) -> Path:
        """The JSON that says where both npz files come from."""
        return self.folder / f"{self.name}.json"

    @property
    def lock(self) -> Path:
        """Held by the process that makes these files."""
        return self.folder / f".{self.name}.lock"

    def split(self, split: str) -> Path:
        if split not in SPLITS:
            raise UserError(f"unknown split '{split}'; use 'train' or 'val'")
        return self.train if split == "train" else self.val


def find(path: Path, task: str | None, split: str) -> Path:
    """The npz file of a split. `path` is one of the npz files, or a folder; then `task` says which of its datasets."""
    if path.is_dir():
        wanted = DatasetFiles(path, plain(task) if task else _only_name(path)).split(split)
    else:  # a training file may have any name
        wanted = path if split == "train" else DatasetFiles.holding(path).split(split)
    if not wanted.is_file():
        others = _names(path) if path.is_dir() else []
        there = f" (there are: {listed(others)})" if others else ""
        raise UserError(f"{wanted}: no such dataset{there}; make it with 'dualgoal data import', 'generate' or 'fetch'")
    return wanted


def _names(folder: Path) -> list[str]:
    return sorted(p.stem for p in folder.glob("*.npz") if not p.stem.endswith(_VAL))


def _only_name(folder: Path) -> str:
    names = _names(folder)
    if len(names) != 1:
        there = f"holds {len(names)} datasets ({listed(names)})" if names else "holds no npz dataset"
        raise UserError(f"{folder}: {there}; name a task or the file itself")
    return names[0]

"""Datasets: flat arrays with an episode index, loaded from OGBench files or our own (section 2.1 of the method).

All rows are kept once (the compact form): the successor of row i is row i + 1, and the last row of an episode has none.
State sets live in memory as float32; large pixel sets stay uint8 in a memory-mapped cache, so that 12 GB of images
never need 24. Whatever is wrong with a file is found here, before anything trains, and said in one line.
"""

import hashlib
import json
import os
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from dualgoal.data import checks, npz
from dualgoal.errors import UserError

MAP_ABOVE = 256 << 20  # pixel arrays larger than this are memory-mapped
OFFICIAL_SHADOW_SIZE = 4096  # of the renderer's shadow map in official pixel files; MuJoCo's default
SIMULATORS = ("mujoco", "ogbench")


class Mismatch(UserWarning):
    """The environments here are not quite those a dataset was made with."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """Rows of all episodes, one after the other. `terminals` is raw: True on the last row of each episode."""

    observations: np.ndarray  # (T, D) float32 or (T, H, W, C) uint8
    actions: np.ndarray  # (T, A) float32, or (T,) int32 when discrete
    terminals: np.ndarray  # (T,) bool
    task: str | None = None
    provenance: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def ends(self) -> np.ndarray:
        """Row of each episode's last observation, (E,) int64."""
        return np.flatnonzero(self.terminals).astype(np.int64)

    @cached_property
    def starts(self) -> np.ndarray:
        """Row of each episode's first observation, (E,) int64."""
        return np.concatenate([np.zeros(1, np.int64), self.ends[:-1] + 1])

    @property
    def rows(self) -> int:
        return len(self.terminals)

    @property
    def episodes(self) -> int:
        return int(np.count_nonzero(self.terminals))

    @property
    def observation_shape(self) -> tuple[int, ...]:
        return self.observations.shape[1:]

    @property
    def discrete(self) -> bool:
        return self.actions.ndim == 1

    @property
    def action_dim(self) -> int:
        """Length of an action vector, or the number of actions when they are discrete."""
        if self.discrete:
            return int(self.provenance.get("num_actions") or self.actions.max() + 1)
        return self.actions.shape[1]

    @property
    def pixels(self) -> bool:
        return self.observations.ndim > 2

    @property
    def valids(self) -> np.ndarray:
        """True where a row has a successor."""
        return ~self.terminals

    @property
    def compact_terminals(self) -> np.ndarray:
        """True on the last two rows of each episode: the last transition, and the row that only ends it."""
        following = np.append(self.terminals[1:], True)
        return self.terminals | following


def cache_folder() -> Path:
    """Where downloads and memory maps go: `$DUALGOAL_CACHE`, or the platform's cache folder."""
    chosen = os.environ.get("DUALGOAL_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")) / "dualgoal"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "dualgoal"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dualgoal"


def load(path: str | Path, task: str | None = None, split: str = "train") -> Dataset:
    """Load one split from an npz file or from a folder that holds `TASK.npz` and `TASK-val.npz`."""
    file = find(Path(path).expanduser(), task, split)
    record = read_record(file)
    task = task or record.get("task") or _task_in_name(file)
    with npz.Archive(file) as archive:
        checks.members(archive)
        observations, digest = _observations(archive)
        actions = archive.read("actions")
        terminals = archive.read("terminals")
    actions, terminals = checks.arrays(file.name, observations, actions, terminals)
    if observations.dtype != np.uint8:
        observations = observations.astype(np.float32, copy=False)
    dataset = Dataset(observations, actions, terminals, task, _provenance(file, record, observations, digest))
    if task is not None:
        checks.fits_task(dataset, task, file.name)
    for line in mismatches(dataset.provenance):
        warnings.warn(f"{file.name}: {line}", Mismatch, stacklevel=2)
    return dataset


def simulators() -> dict[str, str]:
    """Installed versions of what decides how an environment behaves, read without importing it."""
    return {name: version(name) for name in SIMULATORS}


def mismatches(provenance: Mapping[str, Any], shadow_size: int | None = None) -> list[str]:
    """One line for each way in which this machine's environments differ from those a dataset was made with.

    `shadow_size` is what will be rendered with, where that has been chosen apart from the dataset's own.
    """
    made = provenance.get("versions") or {}
    lines = [
        f"made with {name} {made[name]}, evaluated with {name} {here}: scores may differ"
        for name, here in simulators().items()
        if made.get(name, here) != here
    ]
    rendered = provenance.get("shadow_size")
    if rendered is not None and shadow_size is not None and rendered != shadow_size:
        lines.append(f"rendered with shadow size {rendered}, evaluated with {shadow_size}: pixels differ a little")
    return lines


def find(path: Path, task: str | None, split: str) -> Path:
    """The npz file that holds a split of a dataset."""
    if split not in ("train", "val"):
        raise UserError(f"unknown split '{split}'; use 'train' or 'val'")
    if path.is_dir():
        path = path / f"{task or _only_task(path)}.npz"
    if split == "val":
        path = path.with_name(f"{path.stem.removesuffix('-val')}-val.npz")
    if not path.is_file():
        raise UserError(f"{path}: no such dataset; make it with 'dualgoal data generate' or 'dualgoal data fetch'")
    return path


def _only_task(folder: Path) -> str:
    tasks = sorted(p.stem for p in folder.glob("*.npz") if not p.stem.endswith("-val"))
    if len(tasks) != 1:
        there = f"holds {len(tasks)} datasets ({', '.join(tasks)})" if tasks else "holds no npz dataset"
        raise UserError(f"{folder}: {there}; name a task or the file itself")
    return tasks[0]


def _task_in_name(file: Path) -> str | None:
    stem = file.stem.removesuffix("-val")
    return stem if stem.endswith("-v0") else None


def record_path(file: Path) -> Path:
    """The JSON beside a dataset that says where both of its files come from."""
    return file.with_name(f"{file.stem.removesuffix('-val')}.json")


def read_record(file: Path) -> dict[str, Any]:
    """What is recorded about a file's origin, or {} if nothing is."""
    path = record_path(file)
    if not path.is_file():
        return {}
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError) as problem:
        raise UserError(f"{path}: not readable as JSON ({problem}); remove it or make the dataset again") from problem
    if not isinstance(record, dict):
        raise UserError(f"{path}: expected a JSON object; remove it or make the dataset again")
    return record


def _provenance(file: Path, record: dict[str, Any], observations: np.ndarray, digest: str | None) -> dict[str, Any]:
    digest = digest or npz.sha256(file)
    files = record.get("files")
    recorded = files.get(file.name, {}).get("sha256") if isinstance(files, dict) else None
    if recorded is not None and recorded != digest:
        raise UserError(
            f"{file.name}: its SHA-256 is not the one in {record_path(file).name}; make the dataset again, "
            "or remove that JSON if you changed the file on purpose"
        )
    provenance = {"source": "file", **{k: v for k, v in record.items() if k != "files"}}
    provenance |= {"file": str(file), "sha256": digest}
    if observations.ndim > 2:
        provenance.setdefault("shadow_size", OFFICIAL_SHADOW_SIZE)
    return provenance


def _observations(archive: npz.Archive) -> tuple[np.ndarray, str | None]:
    """The observations, memory-mapped if they are large images; then also the file's digest, kept beside the map."""
    member = archive.members["observations"]
    if len(member.shape) < 4 or member.nbytes <= MAP_ABOVE:
        return archive.read("observations"), None
    array_path, meta_path = _map_paths(archive.path)
    if not array_path.is_file() or not meta_path.is_file():
        _build_map(archive, array_path, meta_path)
    return np.load(array_path, mmap_mode="r"), json.loads(meta_path.read_text())["sha256"]


def _map_paths(file: Path) -> tuple[Path, Path]:
    """Names that change with the file's place, size and time of change, so that a stale map is never used."""
    place = hashlib.sha256(str(file.resolve()).encode()).hexdigest()[:16]
    stat = file.stat()
    stamp = hashlib.sha256(f"{stat.st_size}-{stat.st_mtime_ns}".encode()).hexdigest()[:16]
    base = cache_folder() / "mapped" / f"{place}-{stamp}"
    return base.with_suffix(".npy"), base.with_suffix(".json")


def _build_map(archive: npz.Archive, array_path: Path, meta_path: Path) -> None:
    array_path.parent.mkdir(parents=True, exist_ok=True)
    for stale in array_path.parent.glob(f"{array_path.stem.split('-')[0]}-*"):
        stale.unlink(missing_ok=True)
    needed = archive.members["observations"].nbytes
    free = checks.free_disk(array_path.parent)
    if needed > free:
        raise UserError(
            f"{archive.path.name}: its images need {needed / 2**30:.1f} GiB in {array_path.parent}, where "
            f"{free / 2**30:.1f} GiB are free; set DUALGOAL_CACHE to a larger disk"
        )
    partial = array_path.with_name(f"{array_path.name}.{os.getpid()}.partial")
    try:
        archive.spill("observations", partial)
        os.replace(partial, array_path)
    finally:
        partial.unlink(missing_ok=True)
    meta_path.write_text(json.dumps({"file": str(archive.path), "sha256": npz.sha256(archive.path)}))

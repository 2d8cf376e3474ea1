"""Episodes to import, from one npz or HDF5 file or from a folder with one such file per episode.

Arrays are found by their usual names. Where a file stores `next_observations`, the state after an episode's last action
is taken from there.
"""

import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dualgoal.data import checks, goals, hdf5, npy, npz
from dualgoal.data.origin import Origin, digest
from dualgoal.errors import UserError, kind_of, listed, one_line
from dualgoal.files import sha256

ALIASES = {
    "observations": ("observations", "observation", "obs", "states", "state", "images", "pixels"),
    "actions": ("actions", "action", "acts", "act"),
    "terminals": ("terminals", "terminal", "dones", "done", "ends", "terminated", "terminations", "is_last"),
    "timeouts": ("timeouts", "timeout", "truncated", "truncations", "truncateds"),
    "episodes": ("episode_index", "episode_id", "episode_ids", "episodes", "episode"),
    "goals": ("goals",),
    "next_observations": ("next_observations", "next_observation", "next_obs", "next_states"),
}
IN_MEMORY = 256 << 20  # bytes of an array that is held in memory
SUFFIXES = ((".npz",), (".hdf5", ".h5"))  # of files in a folder, of which one kind is read
OPTIONAL = ("terminals", "timeouts", "episodes", "goals", "next_observations")
ENDS = ("terminals", "timeouts", "episodes")  # any of them says where episodes end


class Rows(NamedTuple):
    """One episode. Observations may have one row more than actions; goals only where they were recorded."""

    observations: np.ndarray
    actions: np.ndarray
    goals: np.ndarray | None = None


@dataclass(frozen=True)
class Parts:
    """Which parts of the source to use: our names of arrays and those in the file, and the parts of observations and
    goals to join."""

    keys: dict[str, str] = field(default_factory=dict)
    observation: tuple[str, ...] = ()
    goal: tuple[str, ...] = ()

    @property
    def joined(self) -> dict[str, tuple[str, ...]]:
        """The arrays that are joined from several of the file, with their names there."""
        return {key: names for key, names in (("observations", self.observation), ("goals", self.goal)) if names}


class Episode(NamedTuple):
    """An episode that is read when it is needed."""

    name: str  # in messages
    read: Callable[[], Rows]


class Source(NamedTuple):
    """Where episodes come from."""

    episodes: list[Episode]
    origin: Origin


class NpzTable:
    """An npz file. Arrays are unpacked once, those that are large into a temporary file."""

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


Table = NpzTable | hdf5.Table
Columns = dict[str, dict[str, Any]]  # for our name of an array the columns to join, by their names in the file


def open_file(path: Path, parts: Parts) -> Source:
    """One npz or HDF5 file with all episodes one after the other, or an HDF5 file with a group for each."""
    table = _open_table(path)
    origin = Origin(
        source="imported", imported_from=path.name, imported_sha256=sha256(path), observation_keys=parts.observation
    )
    actions = (parts.keys["actions"].lower(),) if "actions" in parts.keys else ALIASES["actions"]
    if isinstance(table, hdf5.Table) and (groups := table.episodes(actions)):
        episodes = [Episode(group.name, partial(_read_all, group, parts)) for group in groups]
        return Source(episodes, replace(origin, keys=parts.keys))
    columns = _choose(table, parts, tuple(ALIASES))
    used = {key: name for key, found in columns.items() if key not in parts.joined for name in found}
    marks = {key: columns.pop(key)[used[key]][...] for key in ENDS if key in columns}
    ends = _ends(table, marks, used, "episodes" in parts.keys)
    parts_too = {name: part for key in parts.joined for name, part in columns[key].items()}
    wholes = {key: columns[key][used[key]] for key in columns if key in used}
    _equal_rows(path.name, wholes | parts_too | {"ends": ends})
    ends[-1:] = True  # files often stop in the middle of an episode
    last = np.flatnonzero(ends)
    first = np.concatenate([[0], last[:-1] + 1])
    spans = [slice(int(a), int(b) + 1) for a, b in zip(first, last, strict=True)]
    read = partial(_read_rows, path.name, columns)
    return Source(
        [
            Episode(f"{path.name} (episode {k}, from row {span.start})", partial(read, span))
            for k, span in enumerate(spans)
        ],
        replace(origin, keys=used),
    )


def _ends(table: Table, given: dict[str, np.ndarray], used: dict[str, str], by_number: bool) -> np.ndarray:
    """Which rows are the last of an episode: those that `terminals` or `timeouts` mark; where these mark none, or the
    user says so (`by_number`), those after which the number of the episode changes."""
    name = table.name
    flags = {key: _booleans(name, key, array) for key, array in given.items() if key != "episodes"}
    _equal_rows(name, flags)
    marked = np.logical_or.reduce(list(flags.values())) if flags else None
    if "episodes" in given and (by_number or marked is None or not marked.any()):
        numbers = _without_axis_of_one(given["episodes"])
        if numbers.ndim != 1 or not len(numbers):
            raise UserError(f"{name}: numbers of episodes have shape {given['episodes'].shape}; expected (T,)")
        return np.append(numbers[1:] != numbers[:-1], True)
    if marked is None:
        raise UserError(
            f"{name}: nothing says where episodes end (it holds {listed(table.members)}); "
            "name it: --key terminals=NAME for flags, --key episodes=NAME for the number of each row's episode, "
            "or save a file per episode"
        )
    if not marked.any():
        raise UserError(
            f"{name}: no row ends an episode ({' and '.join(used[key] for key in flags)} are false everywhere); mark "
            "the last row of each, or name what tells episodes apart: --key terminals=NAME or --key episodes=NAME"
        )
    return marked


def _open_table(path: Path) -> Table:
    return hdf5.open_table(path) if _signature(path) == hdf5.SIGNATURE else NpzTable(path)


def _signature(path: Path) -> bytes:
    if not path.is_file():
        raise UserError(f"{path}: no such file; expected recordings (npz, HDF5, a folder, a LeRobot or Minari dataset)")
    with path.open("rb") as file:
        return file.read(8)


def open_folder(path: Path, parts: Parts) -> Source:
    """One npz or HDF5 file per episode, in the order of their names."""
    found = sorted(path.iterdir())
    files = next((same for end in SUFFIXES if (same := [file for file in found if file.suffix in end])), [])
    if not files:
        raise UserError(f"{path}: holds no npz or HDF5 file; expected one per episode")

    def read(file: Path) -> Rows:
        return _read_all(_open_table(file), parts)

    return Source(
        [Episode(file.name, partial(read, file)) for file in files],
        Origin(
            source="imported", imported_from=path.name, episode_files=len(files), imported_sha256=digest(path, files),
            keys=parts.keys, observation_keys=parts.observation,
        ),
    )  # fmt: skip


def _read_all(table: Table, parts: Parts) -> Rows:
    """All rows of a table that holds one episode."""
    return _read_rows(table.name, _choose(table, parts, ("observations", "actions", "goals")))


def from_memory(episodes: Sequence[Mapping[str, Any]], parts: Parts) -> Source:
    """Episodes as dictionaries with `observations` (an array, or a dictionary of parts), `actions`, perhaps `goals`.
    Where nobody names the parts to join, they are those of the first episode, in its order."""
    if not episodes:
        raise UserError("no episodes; give at least one with observations and actions")
    first = episodes[0].get("observations") if isinstance(episodes[0], Mapping) else None
    chosen = parts.observation or (tuple(first) if isinstance(first, Mapping) else ())
    wanted = "give a dictionary with arrays 'observations' and 'actions'"

    def read(name: str, episode: Mapping[str, Any]) -> Rows:
        if not isinstance(episode, Mapping):
            raise UserError(f"{name}: is {kind_of(episode)}; {wanted}")
        with one_line(name, "not an episode", wanted):
            if missing := [key for key in ("observations", "actions") if key not in episode]:
                raise UserError(f"{name}: '{missing[0]}' is missing (it holds {', '.join(episode)})")
            seen, given = episode["observations"], episode.get("goals")
            if isinstance(seen, Mapping):
                given = goals.join(name, "observations", seen, parts.goal) if parts.goal else given
                seen = goals.join(name, "observations", seen, chosen)
            return Rows(np.asarray(seen), np.asarray(episode["actions"]), None if given is None else np.asarray(given))

    named = ((f"episode {k}", episode) for k, episode in enumerate(episodes))
    origin = Origin(source="memory", observation_keys=chosen)
    return Source([Episode(name, partial(read, name, episode)) for name, episode in named], origin)


def _choose(table: Table, parts: Parts, wanted: tuple[str, ...]) -> Columns:
    """The wanted arrays; optional ones that the file does not have are left out."""
    names: dict[str, tuple[str, ...]] = {}
    for key in wanted:
        if key in parts.joined:
            goals.require_parts(table.name, key, table.members, parts.joined[key])
            names[key] = parts.joined[key]
        elif (name := _pick(table, key, parts.keys, key not in OPTIONAL)) is not None:
            names[key] = (name,)
    if parts.observation:
        names.pop("next_observations", None)  # they are whole, so they would not fit
    every = {name for group in names.values() for name in group}
    table.require_memory(every)
    columns = {name: table.column(name) for name in sorted(every)}
    return {key: {name: columns[name] for name in group} for key, group in names.items()}


def _pick(table: Table, key: str, keys: dict[str, str], required: bool = True) -> str | None:
    """The name in the file of one of our arrays."""
    have = listed(table.members)
    if key in keys:
        if keys[key] not in table.members:
            raise UserError(f"{table.name}: no array '{keys[key]}' to use as {key} (it holds {have})")
        return keys[key]
    by_lower = {name.lower(): name for name in table.members}
    found = next((by_lower[alias] for alias in ALIASES[key] if alias in by_lower), None)
    if found is None and required:
        joining = ", or the parts to join: --observation-keys NAME NAME" if key == "observations" else ""
        raise UserError(
            f"{table.name}: no array looks like {key} (it holds {have or 'nothing'}); "
            f"name it: --key {key}=NAME{joining}"
        )
    return found


def _read_rows(file: str, columns: Columns, rows: slice | None = None) -> Rows:
    """One episode: these rows of the columns, or all."""

    def read(key: str) -> np.ndarray:
        parts = {name: np.asarray(column[... if rows is None else rows]) for name, column in columns[key].items()}
        return goals.join(file, key, parts, tuple(parts))

    observations = read("observations")
    if rows is not None and "next_observations" in columns:  # transitions: only there is the state after the last one
        (following,) = columns["next_observations"].values()
        observations = np.concatenate([observations, np.asarray(following[rows.stop - 1 : rows.stop])])
    return Rows(observations, read("actions"), read("goals") if "goals" in columns else None)


def _without_axis_of_one(array: np.ndarray) -> np.ndarray:
    return array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array


def _booleans(name: str, key: str, array: np.ndarray) -> np.ndarray:
    array = _without_axis_of_one(array)
    if array.ndim != 1 or array.dtype.kind not in "bfiu":
        raise UserError(f"{name}: '{key}' has shape {array.shape} and type {array.dtype}; expected (T,) of 0 and 1")
    return checks.booleans(name, key, array)


def _equal_rows(name: str, arrays: dict[str, np.ndarray]) -> None:
    lengths = {key: len(array) if array.ndim else 0 for key, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        counts = ", ".join(f"{key} {rows}" for key, rows in lengths.items())
        raise UserError(f"{name}: arrays of different lengths ({counts}); they must have one row per step")

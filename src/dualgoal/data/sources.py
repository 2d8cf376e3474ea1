"""Episodes to import, from one npz file or from a folder with one npz file per episode.

Arrays are found by their usual names. Where a file stores `next_observations`, the state after an episode's last action
is taken from there.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dualgoal.data import checks, goals, npz
from dualgoal.data.origin import Origin
from dualgoal.errors import UserError
from dualgoal.files import sha256

ALIASES = {
    "observations": ("observations", "observation", "obs", "states", "state", "images", "pixels"),
    "actions": ("actions", "action", "acts", "act"),
    "terminals": ("terminals", "terminal", "dones", "done", "ends", "terminated", "terminations", "is_last"),
    "timeouts": ("timeouts", "timeout", "truncated", "truncations", "truncateds"),
    "goals": ("goals",),
    "next_observations": ("next_observations", "next_observation", "next_obs", "next_states"),
}
OPTIONAL = ("timeouts", "goals", "next_observations")


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


@dataclass(frozen=True)
class Source:
    """Where episodes come from: `episodes[k]()` reads one, called `names[k]` in messages."""

    names: list[str]
    episodes: Sequence[Callable[[], Rows]]
    origin: Origin


def open_file(path: Path, parts: Parts) -> Source:
    """One npz with all episodes one after the other."""
    with npz.Archive(path) as archive:
        found, used = _read(archive, parts, tuple(ALIASES))
    ends = _booleans(path.name, "terminals", found["terminals"])
    if "timeouts" in found:
        timeouts = _booleans(path.name, "timeouts", found["timeouts"])
        _equal_rows(path.name, {"terminals": ends, "timeouts": timeouts})
        ends = ends | timeouts
    aligned = {key: found[key] for key in ("observations", "actions", "goals", "next_observations") if key in found}
    _equal_rows(path.name, aligned | {"terminals": ends})
    ends[-1:] = True  # files often stop in the middle of an episode
    episodes, first = [], 0
    for last in np.flatnonzero(ends):
        episodes.append(_slice(found, slice(first, int(last) + 1)))
        first = int(last) + 1
    return Source(
        [f"{path.name} (episode {k})" for k in range(len(episodes))], episodes,
        Origin(
            source="imported", imported_from=path.name, imported_sha256=sha256(path), keys=used,
            observation_keys=parts.observation,
        ),
    )  # fmt: skip


def open_folder(path: Path, parts: Parts) -> Source:
    """One npz per episode, in the order of their names."""
    files = sorted(path.glob("*.npz"))
    if not files:
        raise UserError(f"{path}: holds no npz file; expected one per episode")

    def reader(file: Path) -> Callable[[], Rows]:
        def read() -> Rows:
            with npz.Archive(file) as archive:
                found, _ = _read(archive, parts, ("observations", "actions", "goals"))
            return Rows(**found)

        return read

    return Source(
        [file.name for file in files], [reader(file) for file in files],
        Origin(
            source="imported", imported_from=path.name, episode_files=len(files), observation_keys=parts.observation
        ),
    )  # fmt: skip


def from_memory(episodes: Sequence[Mapping[str, Any]], parts: Parts) -> Source:
    """Episodes as dictionaries with `observations` (an array, or a dictionary of parts), `actions`, perhaps `goals`."""
    if not episodes:
        raise UserError("no episodes; give at least one with observations and actions")

    def reader(name: str, episode: Mapping[str, Any]) -> Callable[[], Rows]:
        def read() -> Rows:
            if missing := [key for key in ("observations", "actions") if key not in episode]:
                raise UserError(f"{name}: '{missing[0]}' is missing (it holds {', '.join(episode)})")
            seen, given = episode["observations"], episode.get("goals")
            if isinstance(seen, Mapping):
                given = goals.join(name, "observations", seen, parts.goal) if parts.goal else given
                seen = goals.join(name, "observations", seen, parts.observation or tuple(seen))
            return Rows(np.asarray(seen), np.asarray(episode["actions"]), None if given is None else np.asarray(given))

        return read

    names = [f"episode {k}" for k in range(len(episodes))]
    origin = Origin(source="memory", observation_keys=parts.observation)
    return Source(names, [reader(name, one) for name, one in zip(names, episodes, strict=True)], origin)


def _read(archive: npz.Archive, parts: Parts, wanted: tuple[str, ...]) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The wanted arrays by our names, and their names in the file."""
    joined = {"observations": parts.observation, "goals": parts.goal}
    whole = [key for key in wanted if not joined.get(key)]
    picked = {key: _pick(archive, key, parts.keys, key not in OPTIONAL) for key in whole}
    used = {key: name for key, name in picked.items() if name is not None}
    pieces = {name for names in joined.values() for name in names if name in archive.members}
    archive.require_memory({*used.values(), *pieces})
    found = {}
    for key in wanted:
        if joined.get(key):
            arrays = {name: archive.read(name) for name in joined[key] if name in archive.members}
            missing = {name: None for name in archive.members if name not in arrays}
            found[key] = goals.join(archive.path.name, key, {**arrays, **missing}, joined[key])
        elif key in used:
            found[key] = archive.read(used[key])
    if parts.observation:
        found.pop("next_observations", None)  # they are whole, so they would not fit
    return found, used


def _pick(archive: npz.Archive, key: str, keys: dict[str, str], required: bool = True) -> str | None:
    """The name in the file of one of our arrays."""
    if key in keys:
        if keys[key] not in archive.members:
            have = ", ".join(archive.members)
            raise UserError(f"{archive.path.name}: no array '{keys[key]}' to use as {key} (it holds {have})")
        return keys[key]
    by_lower = {name.lower(): name for name in archive.members}
    found = next((by_lower[alias] for alias in ALIASES[key] if alias in by_lower), None)
    if found is None and required:
        have = ", ".join(archive.members) or "nothing"
        raise UserError(f"{archive.path.name}: no array looks like {key} (it holds {have}); name it: --key {key}=NAME")
    return found


def _slice(found: dict[str, np.ndarray], rows: slice) -> Callable[[], Rows]:
    def read() -> Rows:
        observations, actions = found["observations"][rows], found["actions"][rows]
        if "next_observations" in found:  # transitions: the state after the last one is stored there only
            observations = np.concatenate([observations, found["next_observations"][rows][-1:]])
        return Rows(observations, actions, found["goals"][rows] if "goals" in found else None)

    return read


def _booleans(name: str, key: str, array: np.ndarray) -> np.ndarray:
    array = array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array
    if array.ndim != 1 or array.dtype.kind not in "bfiu":
        raise UserError(f"{name}: '{key}' has shape {array.shape} and type {array.dtype}; expected (T,) of 0 and 1")
    return checks.booleans(name, key, array)


def _equal_rows(name: str, arrays: dict[str, np.ndarray]) -> None:
    lengths = {key: len(array) if array.ndim else 0 for key, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        counts = ", ".join(f"{key} {rows}" for key, rows in lengths.items())
        raise UserError(f"{name}: arrays of different lengths ({counts}); they must have one row per step")

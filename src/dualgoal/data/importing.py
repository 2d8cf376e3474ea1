"""Bringing your own data: other key names, a folder of episodes, or a Minari dataset, into the files of section 2.1.

Every source becomes a list of episodes that are read one at a time, in which observations may have one row more than
actions (the state after the last action); the missing last action, which nothing ever uses, is zero. Every tenth
episode goes to the validation file. What was done (keys, scaling, digests) is recorded beside the result.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dualgoal.data import checks, npz
from dualgoal.errors import UserError

ALIASES = {
    "observations": ("observations", "observation", "obs", "states", "state", "images", "pixels"),
    "actions": ("actions", "action", "acts", "act"),
    "terminals": ("terminals", "terminal", "dones", "done", "ends", "terminated", "terminations", "is_last"),
    "timeouts": ("timeouts", "timeout", "truncated", "truncations", "truncateds"),
    "next_observations": ("next_observations", "next_observation", "next_obs", "next_states"),
}
VALIDATION_EVERY = 10
Rows = tuple[np.ndarray, np.ndarray]  # observations, actions


@dataclass(frozen=True)
class Source:
    """Where episodes come from: `episodes[k]()` reads one, named `names[k]` in messages."""

    names: list[str]
    episodes: Sequence[Callable[[], Rows]]
    provenance: dict[str, Any] = field(default_factory=dict)


def import_dataset(
    src: str | Path,
    out: str | Path,
    *,
    task: str | None = None,
    keys: Mapping[str, str] | Sequence[str] = (),
    observation_keys: Sequence[str] = (),
    scale_actions: bool = False,
) -> Path:
    """Write SRC as `TASK.npz` and `TASK-val.npz` in `out`; returns the training file.

    `src` is an npz file, a folder of npz files with one episode each, or `minari:ID` (or a Minari folder). `keys` maps
    our names to those in the files where they are not found by themselves (or lists pairs `ours=theirs`);
    `observation_keys` says which parts of dict observations to join; `scale_actions` maps the range of each action
    coordinate onto [-1, 1].
    """
    source = _open(src, _pairs(keys), list(observation_keys))
    folder = Path(out).expanduser()
    name = task or Path(str(src).removeprefix("minari:").rstrip("/")).stem.replace(" ", "-")
    if name in ("", ".", "..") or "/" in name or name.endswith("-val"):
        raise UserError(f"'{name}' cannot name a dataset; choose a name with --task")
    if (folder / f"{name}.npz").exists():
        raise UserError(f"{folder / name}.npz: already there; choose another --out or --task")
    if len(source.episodes) < 2:
        raise UserError(f"{src}: holds {len(source.episodes)} episode; at least 2 are needed, as one is for validation")
    survey = _survey(source, scale_actions)
    return _write(source, survey, folder, name)


def _pairs(keys: Mapping[str, str] | Sequence[str]) -> dict[str, str]:
    if isinstance(keys, Mapping):
        return dict(keys)
    if wrong := [pair for pair in keys if "=" not in pair]:
        raise UserError(f"--key '{wrong[0]}' is not a pair; write it as observations=NAME")
    return dict(pair.split("=", 1) for pair in keys)


def _open(src: str | Path, keys: dict[str, str], observation_keys: list[str]) -> Source:
    path = Path(src).expanduser()
    if unknown := set(keys) - set(ALIASES):
        raise UserError(f"no key is called '{sorted(unknown)[0]}' here; rename to one of {', '.join(ALIASES)}")
    if str(src).startswith("minari:") or (path / "data" / "metadata.json").is_file():
        from dualgoal.data.minari import open_minari

        return open_minari(src, observation_keys)
    if path.is_dir():
        return _folder(path, keys)
    return _flat_file(path, keys)


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


def _flat_file(path: Path, keys: dict[str, str]) -> Source:
    """One npz with all episodes one after the other."""
    with npz.Archive(path) as archive:
        names = {key: _pick(archive, key, keys, key in checks.REQUIRED) for key in ALIASES}
        found = {key: archive.read(name) for key, name in names.items() if name is not None}
    ends = _flat(path.name, "terminals", found["terminals"])
    if "timeouts" in found:
        timeouts = _flat(path.name, "timeouts", found["timeouts"])
        _equal_rows(path.name, {"terminals": ends, "timeouts": timeouts})
        ends = ends | timeouts
    _equal_rows(path.name, {key: found[key] for key in ("observations", "actions")} | {"terminals": ends})
    ends[-1:] = True  # files often stop in the middle of an episode
    episodes, first = [], 0
    for last in np.flatnonzero(ends):
        episodes.append(_slice(found, slice(first, int(last) + 1)))
        first = int(last) + 1
    used = {key: name for key, name in names.items() if name is not None}
    return Source(
        [f"{path.name} (episode {k})" for k in range(len(episodes))], episodes,
        {"imported_from": path.name, "imported_sha256": npz.sha256(path), "keys": used},
    )  # fmt: skip


def _slice(found: dict[str, np.ndarray], rows: slice) -> Callable[[], Rows]:
    def read() -> Rows:
        observations, actions = found["observations"][rows], found["actions"][rows]
        if "next_observations" in found:  # transitions: the state after the last one is stored there only
            observations = np.concatenate([observations, found["next_observations"][rows][-1:]])
        return observations, actions

    return read


def _flat(name: str, key: str, array: np.ndarray) -> np.ndarray:
    array = array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array
    if array.ndim != 1 or array.dtype.kind not in "bfiu":
        raise UserError(f"{name}: '{key}' has shape {array.shape} and type {array.dtype}; expected (T,) of 0 and 1")
    return array.astype(bool)


def _equal_rows(name: str, arrays: dict[str, np.ndarray]) -> None:
    lengths = {key: len(array) if array.ndim else 0 for key, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        counts = ", ".join(f"{key} {rows}" for key, rows in lengths.items())
        raise UserError(f"{name}: arrays of different lengths ({counts}); they must have one row per step")


def _folder(path: Path, keys: dict[str, str]) -> Source:
    """One npz per episode, in the order of their names."""
    files = sorted(path.glob("*.npz"))
    if not files:
        raise UserError(f"{path}: holds no npz file; expected one per episode")

    def reader(file: Path) -> Callable[[], Rows]:
        def read() -> Rows:
            with npz.Archive(file) as archive:
                wanted = [_pick(archive, key, keys) for key in ("observations", "actions")]
                observations, actions = (archive.read(str(key)) for key in wanted)
            return observations, actions

        return read

    return Source(
        [file.name for file in files], [reader(file) for file in files],
        {"imported_from": path.name, "episode_files": len(files)},
    )  # fmt: skip


@dataclass(frozen=True)
class Survey:
    """What a first pass over all episodes finds: lengths, shapes, and the scaling of actions if asked for."""

    rows: list[int]
    observation: tuple[tuple[int, ...], np.dtype]
    action: tuple[tuple[int, ...], np.dtype]
    scale: tuple[np.ndarray, np.ndarray] | None  # lowest and highest action per coordinate


def _survey(source: Source, scale_actions: bool) -> Survey:
    rows, low, high = [], None, None
    kinds: list[tuple[tuple[int, ...], np.dtype]] = []
    for name, read in zip(source.names, source.episodes, strict=True):
        observations, actions = _tidy(name, *read())
        if actions.ndim == 2 and scale_actions:
            least, most = actions[:-1].min(axis=0), actions[:-1].max(axis=0)
            low = least if low is None else np.minimum(low, least)
            high = most if high is None else np.maximum(high, most)
            actions = np.zeros_like(actions)  # their range is judged after scaling
        terminals = np.zeros(len(observations), bool)
        terminals[-1:] = True
        checks.arrays(name, observations, actions, terminals)
        found = [(array.shape[1:], _dtype(array)) for array in (observations, actions)]
        kinds = kinds or found
        if found != kinds:
            this, before = ([kind[0] for kind in each] for each in (found, kinds))
            raise UserError(f"{name}: observations and actions of shapes {this}, but earlier episodes have {before}")
        rows.append(len(observations))
    scale = None if low is None or high is None else (low.astype(np.float64), high.astype(np.float64))
    if scale is not None and not np.isfinite(scale).all():
        raise UserError(f"{source.names[0]}: actions hold NaN or infinity, so they cannot be scaled")
    return Survey(rows, kinds[0], kinds[1], scale)


def _dtype(array: np.ndarray) -> np.dtype:
    if array.ndim == 1:
        return np.dtype(np.int32)
    return np.dtype(np.uint8) if array.dtype == np.uint8 else np.dtype(np.float32)


def _tidy(name: str, observations: np.ndarray, actions: np.ndarray) -> Rows:
    """Channels last, a trailing axis of one dropped from discrete actions, and the last action filled in."""
    if observations.ndim == 4 and observations.shape[1] in (1, 3, 4) and observations.shape[-1] not in (1, 3, 4):
        observations = np.moveaxis(observations, 1, -1)
    if actions.ndim == 2 and actions.shape[1] == 1 and actions.dtype.kind in "iu":
        actions = actions[:, 0]
    if observations.ndim and actions.ndim and len(observations) == len(actions) + 1:
        actions = np.concatenate([actions, np.zeros_like(actions[:1])])
    return observations, actions


def _write(source: Source, survey: Survey, folder: Path, name: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    chosen = range(VALIDATION_EVERY - 1, len(survey.rows), VALIDATION_EVERY)
    held_out = set(chosen) or {len(survey.rows) - 1}
    target, files = folder / f"{name}.npz", {}
    for file, kept in ((target.with_name(f"{name}-val.npz"), True), (target, False)):
        picked = [k for k in range(len(survey.rows)) if (k in held_out) is kept]
        _write_split(source, survey, picked, file)
        total = sum(survey.rows[k] for k in picked)
        files[file.name] = {"episodes": len(picked), "rows": total, "sha256": npz.sha256(file)}
    record = {"task": name, "source": "imported", **source.provenance, "files": files}
    if survey.scale is not None:
        record["action_range"] = {"low": survey.scale[0].tolist(), "high": survey.scale[1].tolist()}
    partial = target.with_suffix(".json.partial")
    partial.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    os.replace(partial, target.with_suffix(".json"))
    return target


def _write_split(source: Source, survey: Survey, picked: list[int], file: Path) -> None:
    total = sum(survey.rows[k] for k in picked)

    def column(which: int) -> Iterator[np.ndarray]:
        for k in picked:
            array = _tidy(source.names[k], *source.episodes[k]())[which]
            yield _scaled(array, survey.scale) if which == 1 else array

    ends = np.zeros(total, bool)
    ends[np.cumsum([survey.rows[k] for k in picked]) - 1] = True
    with npz.Writer(file) as out:
        out.add("observations", (total, *survey.observation[0]), survey.observation[1], column(0))
        out.add("actions", (total, *survey.action[0]), survey.action[1], column(1))
        out.add("terminals", (total,), np.dtype(bool), [ends])


def _scaled(actions: np.ndarray, scale: tuple[np.ndarray, np.ndarray] | None) -> np.ndarray:
    if scale is None:
        return actions
    low, high = scale
    width = np.where(high > low, high - low, 1.0)  # a coordinate that never changes becomes -1
    return np.clip(2.0 * (actions - low) / width - 1.0, -1.0, 1.0).astype(np.float32)

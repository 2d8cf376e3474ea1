"""Where a dataset comes from: the contents of the JSON file next to it, with one writer and one reader.

Generated, downloaded and imported datasets fill different fields; what does not apply stays empty and out of the file.
"""

import dataclasses
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dualgoal import jsons
from dualgoal.data.goals import GoalSpace
from dualgoal.data.paths import SPLITS, DatasetFiles
from dualgoal.data.standard import Standard
from dualgoal.envs.own_maze import MazeMap
from dualgoal.envs.versions import Quality
from dualgoal.errors import UserError
from dualgoal.files import sha256

Item = tuple[str, int]  # split and number of an episode


@dataclass(frozen=True)
class FileFacts:
    """What is recorded about one npz file."""

    episodes: int | None = None
    rows: int | None = None
    url: str | None = None  # where it was downloaded from
    bytes: int | None = None
    sha256: str | None = None
    arrays: dict[str, str] = field(default_factory=dict)  # SHA-256 of each array's data


@dataclass(frozen=True)
class Plan:
    """Everything that decides the bytes of a generated dataset."""

    task: str
    seed: int
    episodes: int  # of training data
    rows: int  # per episode
    shadow_size: int | None  # of the renderer's shadow map; None for vectors
    renderer: str | None
    expert: str | None  # SHA-256 of the files, or the name of a function
    versions: dict[str, str]
    maze: MazeMap | None = None  # of one's own
    mesh_cell: float | None = None  # see `envs.versions.Quality`; None for vectors

    @property
    def quality(self) -> Quality | None:
        """How images are drawn; None for vectors."""
        return Quality.recorded(vars(self))

    @property
    def items(self) -> list[Item]:
        """All episodes, training first; validation has a tenth as many."""
        counts = {"train": self.episodes, "val": max(1, self.episodes // 10)}
        return [(split, k) for split in SPLITS for k in range(counts[split])]

    def generator(self, split: str, episode: int) -> np.random.Generator:
        """The source of everything random in one episode."""
        return np.random.default_rng([self.seed, SPLITS.index(split), episode])


@dataclass(frozen=True)
class ActionRange:
    """The smallest and largest action per coordinate before they were scaled to [-1, 1]."""

    low: tuple[float, ...]
    high: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.low) != len(self.high):
            raise UserError(f"action_range has {len(self.low)} lowest but {len(self.high)} highest actions")

    @classmethod
    def of(cls, actions: np.ndarray) -> "ActionRange":
        """Of the rows of (T, A)."""
        low, high = actions.min(axis=0), actions.max(axis=0)
        return cls(tuple(low.tolist()), tuple(high.tolist()))

    def scaled(self, actions: np.ndarray) -> np.ndarray:
        """Actions in the user's units, mapped to [-1, 1]. A coordinate that never changes becomes -1."""
        low, high = np.array(self.low), np.array(self.high)
        width = np.where(high > low, high - low, 1.0)
        return np.clip(2.0 * (actions - low) / width - 1.0, -1.0, 1.0).astype(np.float32)

    def in_units(self, actions: np.ndarray) -> np.ndarray:
        """The inverse: actions in [-1, 1] in the units of the recorded data."""
        low, high = np.array(self.low), np.array(self.high)
        return (low + (np.asarray(actions, np.float64) + 1.0) / 2.0 * (high - low)).astype(np.float32)


@dataclass(frozen=True)
class Origin:
    """Where the rows of a dataset come from. Without a JSON file next to it, only `source` is known."""

    task: str | None = None
    source: str = "file"  # "generated", "downloaded", "imported", "memory", or "file" where nothing is recorded
    # generated
    collector: str | None = None
    seed: int | None = None
    versions: dict[str, str] = field(default_factory=dict)
    shadow_size: int | None = None
    mesh_cell: float | None = None
    counts: dict[str, int] = field(default_factory=dict)  # episodes, goals reached, plans finished, ...
    # imported
    imported_from: str | None = None
    imported_sha256: str | None = None
    keys: dict[str, str] = field(default_factory=dict)  # our names of arrays: those in the imported file
    observation_keys: tuple[str, ...] = ()
    episode_files: int | None = None
    skipped_episodes: tuple[int, ...] = ()  # of the source, counted from 0
    skipped_names: tuple[str, ...] = ()  # of the same episodes
    goal_function_sha256: str | None = None  # of the file that the goal function comes from
    image_size: tuple[int, ...] = ()  # height and width to which frames were scaled
    num_actions: int | None = None  # of discrete actions, in both files together
    # by file name
    files: dict[str, FileFacts] = field(default_factory=dict)
    plan: Plan | None = None
    action_range: ActionRange | None = None
    goal_space: GoalSpace | None = None  # None: goals are whole observations
    observation_standard: Standard | None = None  # None: networks read observations as they are
    goal_standard: Standard | None = None  # where goals are not observations
    cpu_seconds: float | None = None  # what generating took, of all processes together
    maze: MazeMap | None = None  # of one's own

    def __post_init__(self) -> None:
        Quality.recorded(vars(self))  # an impossible one is told with the name of the file

    def facts(self) -> dict[str, Any]:
        """What a run records about its dataset: everything but the facts of single files, as plain JSON values."""
        return {key: value for key, value in _to_json(self).items() if key != "files"}


def digest(folder: Path, files: Iterable[Path]) -> str:
    """One SHA-256 for files of a folder: of the lines that `sha256sum` would print about them."""
    lines = (f"{sha256(file)}  {file.relative_to(folder).as_posix()}\n" for file in files if file.is_file())
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def read(files: DatasetFiles) -> Origin:
    """The recorded origin of a dataset, or `Origin()` without a record. A wrong type is one line naming its field."""
    path = files.origin
    if not path.is_file():
        return Origin()
    return jsons.read_as(Origin, path, "correct it, or remove the file and make the dataset again", follow=True)


def write(files: DatasetFiles, origin: Origin) -> None:
    jsons.write(files.origin, _to_json(origin))


def _to_json(value: Any) -> Any:
    """A dataclass as JSON values, without the optional fields that are empty."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        pairs = ((f, getattr(value, f.name)) for f in dataclasses.fields(value))
        kept = [(f.name, content) for f, content in pairs if jsons.required(f) or content not in (None, {}, ())]
        return {name: _to_json(content) for name, content in kept}
    if isinstance(value, dict):
        return {key: _to_json(content) for key, content in value.items()}
    return [_to_json(entry) for entry in value] if isinstance(value, tuple) else value

"""Datasets: flat arrays with an episode index, loaded from OGBench files or our own (section 2.1 of the method).

All rows are kept once (the compact form): the successor of row i is row i + 1, and the last row of an episode has none.
Vectors are held in memory as float32; large image arrays stay uint8 in a memory-mapped cache, so that 12 GB of images
never need 24. Whatever is wrong with a file is found here, before anything trains, and reported in one line.
"""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from dualgoal.data import checks, mapped, npz, oracle, origin
from dualgoal.data.goals import GoalSpace
from dualgoal.data.origin import Origin
from dualgoal.data.paths import DatasetFiles, find
from dualgoal.envs.tasks import is_oracle
from dualgoal.envs.versions import Mismatch, Quality, mismatches
from dualgoal.errors import UserError, number_of
from dualgoal.files import os_errors_in_one_line, sha256

MAP_ABOVE = 256 << 20  # image arrays larger than this many bytes are memory-mapped


@dataclass(frozen=True, eq=False)
class Dataset:
    """Rows of all episodes, one after the other. `terminals` is True on the last row of each episode.

    >>> ends = np.array([False, False, True, False, True])
    >>> data = Dataset(np.zeros((5, 3), np.float32), np.zeros((5, 2), np.float32), ends)
    >>> data.episodes, data.starts.tolist(), data.ends.tolist()
    (2, [0, 3], [2, 4])
    >>> data
    Dataset: 5 rows, 2 episodes; observations (3,), actions (2,)
    """

    observations: np.ndarray  # (T, D) float32 or (T, H, W, C) uint8
    actions: np.ndarray  # (T, A) float32, or (T,) int32 when discrete
    terminals: np.ndarray  # (T,) bool
    task: str | None = None
    provenance: dict[str, Any] = field(default_factory=dict)
    goals: np.ndarray | None = None  # (T, ...) where goals are not observations

    @classmethod
    def from_episodes(
        cls,
        episodes: Iterable[Mapping[str, Any]],
        task: str | None = None,
        *,
        observation_keys: Sequence[str] = (),
        scale_actions: bool = False,
        goal_dims: Sequence[int] = (),
        goal_keys: Sequence[str] = (),
        goal_function: str | None = None,
        standardize: bool = False,
    ) -> "Dataset":
        """A dataset of episodes in memory, each a dictionary with `observations`, `actions` and perhaps `goals`.

        There may be one observation more than actions, or `next_observations`, of which the state after the last action
        is taken. A dictionary with `terminals`, `timeouts` or `episode_index` may hold several episodes, as a file may.
        Observations may be dictionaries of arrays, of which `observation_keys` are joined (default: all) and
        `goal_keys` make a goal. The other options are those of `dualgoal data import`.

        >>> episode = {"observations": np.zeros((5, 3)), "actions": np.full((4, 2), 3.14)}
        >>> data = Dataset.from_episodes([episode, episode], scale_actions=True, goal_dims=(0, 1))
        >>> data.rows, data.episodes, data.goal_shape
        (10, 2, (2,))
        """
        from dualgoal.data import importing

        space = GoalSpace.choose(goal_dims, goal_keys, goal_function)
        arrays, known = importing.gather(episodes, space, observation_keys, scale_actions, standardize)
        return cls(**arrays, task=task, provenance=known.facts())

    def __repr__(self) -> str:
        """A line, not all its numbers."""
        actions = number_of(self.action_dim, "discrete action") if self.discrete else f"actions ({self.action_dim},)"
        goals = "" if self.goals is None else f", goals {self.goal_shape}"
        name = "Dataset" if self.task is None else f"Dataset '{self.task}'"
        sizes = f"observations {self.observation_shape}{goals}, {actions}"
        return f"{name}: {number_of(self.rows, 'row')}, {number_of(self.episodes, 'episode')}; {sizes}"

    @cached_property
    def ends(self) -> np.ndarray:
        """Row of each episode's last observation, (E,) int64."""
        return np.flatnonzero(self.terminals).astype(np.int64)

    @cached_property
    def starts(self) -> np.ndarray:
        """Row of each episode's first observation, (E,) int64."""
        return np.concatenate([np.zeros(1, np.int64), self.ends[:-1] + 1])

    @property
    def is_outline(self) -> bool:
        """Whether observations are not those of the file but zeros in their place (`load` with `outline`)."""
        return self.observations.strides[0] == 0

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
    def goal_shape(self) -> tuple[int, ...]:
        return self.attained.shape[1:]

    @property
    def attained(self) -> np.ndarray:
        """(T, ...) the goal that each row attains."""
        return self.observations if self.goals is None else self.goals

    @property
    def discrete(self) -> bool:
        return self.actions.ndim == 1

    @property
    def action_dim(self) -> int:
        """Length of an action vector, or the number of actions when they are discrete."""
        if self.discrete:
            return max(int(self.provenance.get("num_actions", 0)), int(self.actions.max()) + 1)
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
        """True on the last two rows of each episode: the last transition, and the final row, which has no successor."""
        following = np.append(self.terminals[1:], True)
        return self.terminals | following


def checked(name: str, data: Dataset) -> Dataset:
    """The same rows as training holds them, whatever types of numbers they were given in. What is wrong with them is
    one line that begins with `name`."""
    actions, terminals = checks.arrays(name, data.observations, data.actions, data.terminals)
    goals = None if data.goals is None else checks.goals(name, data.goals, data.observations)
    observations = data.observations if data.pixels else data.observations.astype(np.float32, copy=False)
    return replace(data, observations=observations, actions=actions, terminals=terminals, goals=goals)


@os_errors_in_one_line
def load(path: str | Path, task: str | None = None, split: str = "train", *, outline: bool = False) -> Dataset:
    """Load one split from an npz file or from a folder that holds `TASK.npz` and `TASK-val.npz`.

    With `outline`, observations and goals are zeros that take no memory, and there is no SHA-256: enough for whoever
    asks for shapes, episodes and where the data come from, and most of the file is not read."""
    file = find(Path(path).expanduser(), task, split)
    recorded = origin.read(DatasetFiles.holding(file))
    task = task or recorded.task or _task_in_name(file)
    with npz.Outline(file) if outline else npz.Archive(file) as archive:
        checks.members(archive)
        archive.require_memory(key for key in checks.REQUIRED if not _is_mapped(archive, key))
        observations, digest = (archive.read("observations"), None) if outline else _observations(archive)
        actions = archive.read("actions")
        terminals = archive.read("terminals")
        goals = archive.read("goals") if "goals" in archive.members else None
        if task is not None and is_oracle(task):
            goals = oracle.goals(task, archive)
            recorded = replace(recorded, goal_space=GoalSpace(goals.shape[1:], keys=("oraclerep",)))
    dataset = checked(file.name, Dataset(observations, actions, terminals, task, goals=goals))
    provenance = _provenance(file, recorded, None if outline else digest or sha256(file))
    if dataset.pixels:
        provenance.setdefault("shadow_size", Quality().shadow_size)
    dataset = replace(dataset, provenance=provenance)
    if task is not None:
        checks.fits_task(file.name, task, dataset.observation_shape, dataset.actions.shape[1:])
    for line in mismatches(provenance):
        warnings.warn(f"{file.name}: {line}", Mismatch, stacklevel=2)
    return dataset


def with_digest(found: Dataset) -> Dataset:
    """The same rows, or outline, with the SHA-256 of the file that they come from."""
    return replace(found, provenance=found.provenance | {"sha256": sha256(Path(found.provenance["file"]))})


def load_splits(path: str | Path, task: str | None = None, *, outline: bool = False) -> tuple[Dataset, Dataset | None]:
    """The training split at `path`, and the validation split if there is one."""
    file = find(Path(path).expanduser(), task, "train")
    val = DatasetFiles.holding(file).val
    there = val.is_file() and val != file
    return load(file, task, outline=outline), load(val, task, outline=outline) if there else None


def _task_in_name(file: Path) -> str | None:
    name = DatasetFiles.holding(file).name
    return name if name.endswith("-v0") else None


def _observations(archive: npz.Archive) -> tuple[np.ndarray, str | None]:
    """The observations; large images as a memory map, which comes with the digest of the file."""
    if _is_mapped(archive, "observations"):
        return mapped.observations(archive)
    return archive.read("observations"), None


def _is_mapped(archive: npz.Archive, key: str) -> bool:
    member = archive.members[key]
    return key == "observations" and len(member.shape) == 4 and member.nbytes > MAP_ABOVE


def _provenance(file: Path, recorded: Origin, digest: str | None) -> dict[str, Any]:
    facts = recorded.files.get(file.name)
    if digest is not None and facts is not None and facts.sha256 not in (None, digest):
        raise UserError(
            f"{file.name}: its SHA-256 is not the one in {DatasetFiles.holding(file).origin.name}; make the dataset "
            "again, or remove that JSON if you changed the file on purpose"
        )
    return recorded.facts() | {"file": str(file.absolute()), "sha256": digest}

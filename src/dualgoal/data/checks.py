"""What a dataset must satisfy before anything trains on it; each failed check is one line naming file, key and row.

Shapes and types are checked from the archive's headers, before anything large is read; values in blocks of rows, so
that a memory-mapped file is never read into memory as a whole. The rules are those of section 2.1 of the method.
"""

from collections.abc import Iterator

import numpy as np

from dualgoal.data.npz import Archive
from dualgoal.envs.tasks import TASKS, plain
from dualgoal.errors import UserError

REQUIRED = ("observations", "actions", "terminals")
SLACK = 1e-5  # float32 rounding of clipped actions
_ROWS = 1 << 16


def members(archive: Archive) -> None:
    """Keys, ranks, kinds of numbers and lengths, from the headers alone."""
    name, found = archive.path.name, archive.members
    for key in REQUIRED:
        if key not in found:
            have = ", ".join(sorted(found)) or "nothing"
            raise UserError(f"{name}: '{key}' is missing (it holds {have}); 'dualgoal data import' renames keys")
    _check_kinds(name, {key: (found[key].shape, found[key].dtype) for key in REQUIRED})


def _check_kinds(name: str, kinds: dict[str, tuple[tuple[int, ...], np.dtype]]) -> None:
    (obs, obs_type), (act, act_type), (end, end_type) = (kinds[key] for key in REQUIRED)
    if obs_type == np.uint8 and len(obs) != 4:
        raise UserError(f"{name}: 'observations' is uint8 of shape {obs}, which is no image; expected (T, H, W, C)")
    if obs_type != np.uint8 and (len(obs) != 2 or obs_type.kind not in "fiu"):
        raise UserError(
            f"{name}: 'observations' has shape {obs} and type {obs_type}; expected (T, D) numbers or (T, H, W, C) uint8"
        )
    if len(act) not in (1, 2) or act_type.kind not in "fiu" or (len(act) == 1 and act_type.kind == "f"):
        raise UserError(
            f"{name}: 'actions' has shape {act} and type {act_type}; expected (T, A) numbers in [-1, 1], "
            "or (T,) integers for discrete actions"
        )
    if len(end) != 1 or end_type.kind not in "bfiu":
        raise UserError(f"{name}: 'terminals' has shape {end} and type {end_type}; expected (T,) of 0 and 1")
    for key, shape in (("actions", act), ("terminals", end)):
        if shape[0] != obs[0]:
            raise UserError(f"{name}: '{key}' has {shape[0]} rows but 'observations' has {obs[0]}; they must be equal")
    if 0 in obs or 0 in act:
        raise UserError(f"{name}: 'observations' {obs} and 'actions' {act} must not be empty")


def arrays(
    name: str, observations: np.ndarray, actions: np.ndarray, terminals: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Check the values; returns actions as float32 (or int32) and terminals as bool."""
    given = dict(zip(REQUIRED, (observations, actions, terminals), strict=True))
    _check_kinds(name, {key: (array.shape, array.dtype) for key, array in given.items()})
    for key, array in given.items():
        _finite(name, key, array)
    ends = _episode_ends(name, terminals)
    if actions.ndim == 1:
        return _discrete(name, actions), ends
    return _bounded(name, actions).astype(np.float32, copy=False), ends


def goals(name: str, goals: np.ndarray, observations: np.ndarray) -> np.ndarray:
    """Check the goals of all rows, where they are not the observations; returns them as float32 or uint8 images."""
    shape, image = goals.shape, goals.dtype == np.uint8 and goals.ndim == 4
    if not image and (goals.ndim != 2 or goals.dtype.kind not in "fiu"):
        raise UserError(f"{name}: 'goals' has shape {shape} and type {goals.dtype}; expected (T, G) numbers")
    if len(goals) != len(observations) or 0 in shape:
        raise UserError(f"{name}: 'goals' has shape {shape}; expected {len(observations)} rows, one per observation")
    _finite(name, "goals", goals)
    return goals if image else goals.astype(np.float32, copy=False)


def _blocks(array: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    for at in range(0, len(array), _ROWS):
        yield at, array[at : at + _ROWS]


def _finite(name: str, key: str, array: np.ndarray) -> None:
    if array.dtype.kind != "f":
        return
    largest = np.finfo(np.float32).max
    for at, block in _blocks(array):
        # A float64 beyond float32's range would turn into infinity on conversion, so it counts as infinite.
        bad = ~(np.abs(block) <= largest)
        if bad.any():
            row = at + int(np.argmax(bad.reshape(len(block), -1).any(axis=1)))
            value = array[row].reshape(-1)[bad[row - at].reshape(-1)][0]
            raise UserError(f"{name}: '{key}' is {value} in row {row}; expected finite numbers")


def booleans(name: str, key: str, array: np.ndarray) -> np.ndarray:
    """An array of zeros and ones as booleans; anything else in it is refused, NaN included."""
    odd = (array != 0) & (array != 1)
    if odd.any():
        row = int(np.argmax(odd))
        raise UserError(f"{name}: '{key}' is {array[row]} in row {row}; expected 0 or 1")
    return array.astype(bool)


def _episode_ends(name: str, terminals: np.ndarray) -> np.ndarray:
    ends = booleans(name, "terminals", terminals)
    if not ends.any():
        raise UserError(f"{name}: 'terminals' has no episode end; expected at least one True")
    if not ends[-1]:
        raise UserError(f"{name}: 'terminals' is False in the last row {len(ends) - 1}; expected an episode end there")
    last = np.flatnonzero(ends)
    lengths = np.diff(last, prepend=-1)
    if (lengths < 2).any():
        row = int(last[np.argmax(lengths < 2)])
        raise UserError(f"{name}: 'terminals' makes row {row} an episode of one row; an episode needs two or more")
    return ends


def _bounded(name: str, actions: np.ndarray) -> np.ndarray:
    for at, block in _blocks(actions):
        outside = (block > 1 + SLACK) | (block < -1 - SLACK)
        if outside.any():
            row = at + int(np.argmax(outside.any(axis=1)))
            value = actions[row][outside[row - at]][0]
            raise UserError(
                f"{name}: 'actions' is {value:g} in row {row}, outside [-1, 1]; rescale them "
                "('dualgoal data import --scale-actions' does)"
            )
    return actions


def _discrete(name: str, actions: np.ndarray) -> np.ndarray:
    outside = (actions < 0) | (actions > np.iinfo(np.int32).max)
    if outside.any():
        row = int(np.argmax(outside))
        raise UserError(f"{name}: 'actions' is {actions[row]} in row {row}; discrete actions count from 0")
    return actions.astype(np.int32, copy=False)


def fits_task(name: str, task: str, observation_shape: tuple[int, ...], action_dim: int) -> None:
    """Raise if a dataset does not fit a task of the paper; other tasks are checked when their environment is made."""
    known = TASKS.get(plain(task))
    if known is None:
        return
    for key, found, wanted in (
        ("observations", observation_shape, known.observation_shape),
        ("actions", (action_dim,), (known.action_dim,)),
    ):
        if found != wanted:
            whose = f"those of {task} have {wanted}"
            raise UserError(f"{name}: '{key}' have shape {found} but {whose}; is this another task's data?")

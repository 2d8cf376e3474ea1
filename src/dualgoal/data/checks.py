"""What a dataset must satisfy before anything trains on it; each failed check is one line naming file, key and row.

Shapes and types are checked from the archive's headers, before anything large is read; values in blocks of rows, so
that a memory-mapped file is never read into memory as a whole. The rules are those of section 2.1 of the method.
"""

from collections.abc import Callable

import numpy as np

from dualgoal.data.npz import Archive
from dualgoal.envs.tasks import TASKS, plain
from dualgoal.errors import UserError

REQUIRED = ("observations", "actions", "terminals")
SLACK = 1e-5  # float32 rounding of clipped actions
RESCALE = "rescale them ('dualgoal data import --scale-actions' does, or scale_actions=True in Python)"
FINITE = "expected finite numbers; repair that row or leave its episode out"
_ROWS = 1 << 16


class BadEpisode(UserError):
    """Wrong with one episode and not with how all of them were recorded: without it the others may be usable."""


def members(archive: Archive) -> None:
    """Keys, ranks, kinds of numbers and lengths, from the headers alone."""
    name, found = archive.path.name, archive.members
    for key in REQUIRED:
        if key not in found:
            have = ", ".join(sorted(found)) or "nothing"
            raise UserError(f"{name}: '{key}' is missing (it holds {have}); 'dualgoal data import' renames keys")
    archive.require_plain(REQUIRED)
    _check_kinds(name, {key: (found[key].shape, found[key].dtype) for key in REQUIRED})


def _check_kinds(name: str, kinds: dict[str, tuple[tuple[int, ...], np.dtype]]) -> None:
    (obs, obs_type), (act, act_type), (end, end_type) = (kinds[key] for key in REQUIRED)
    if obs_type == np.uint8 and len(obs) != 4:
        cure = "; 'dualgoal data import' makes vectors of it" if len(obs) == 2 else ""
        found = f"'observations' is uint8 of shape {obs}, which is no image"
        raise UserError(f"{name}: {found}; expected (T, H, W, C){cure}")
    if obs_type.kind == "f" and len(obs) == 4:
        raise UserError(f"{name}: 'observations' are images of {obs_type}; expected uint8 with values from 0 to 255")
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
            raise BadEpisode(f"{name}: '{key}' has {shape[0]} rows but 'observations' has {obs[0]}; they must be equal")
    if 0 in obs or 0 in act:
        raise BadEpisode(f"{name}: 'observations' {obs} and 'actions' {act} must not be empty")


def arrays(
    name: str, observations: np.ndarray, actions: np.ndarray, terminals: np.ndarray, *, any_range: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Check the values; returns actions as float32 (or int32) and terminals as bool.

    `any_range` is for vectors of actions that are still to be scaled to [-1, 1]."""
    given = dict(zip(REQUIRED, (observations, actions, terminals), strict=True))
    _check_kinds(name, {key: (array.shape, array.dtype) for key, array in given.items()})
    for key, array in given.items():
        _finite(name, key, array)
    ends = _episode_ends(name, terminals)
    if actions.ndim == 1:
        outside = lambda block: (block < 0) | (block > np.iinfo(np.int32).max)
        _refuse(name, "actions", actions, outside, "; discrete actions count from 0")
        return actions.astype(np.int32, copy=False), ends
    if not any_range:
        outside = lambda block: (block > 1 + SLACK) | (block < -1 - SLACK)
        whole = actions.shape[1] == 1 and bool((actions == np.rint(actions)).all())
        choice = ", or save them as integers if they are discrete" if whole else ""
        _refuse(name, "actions", actions, outside, f", outside [-1, 1]; {RESCALE}{choice}")
    return actions.astype(np.float32, copy=False), ends


def goals(name: str, goals: np.ndarray, observations: np.ndarray) -> np.ndarray:
    """Check the goals of all rows, where they are not the observations; returns them as float32 or uint8 images."""
    shape, image = goals.shape, goals.dtype == np.uint8 and goals.ndim == 4
    if not image and (goals.ndim != 2 or goals.dtype.kind not in "fiu"):
        raise UserError(f"{name}: 'goals' has shape {shape} and type {goals.dtype}; expected (T, G) numbers")
    if len(goals) != len(observations) or 0 in shape:
        raise UserError(f"{name}: 'goals' has shape {shape}; expected {len(observations)} rows, one per observation")
    if goals.shape[1:] != observations.shape[1:] and 4 in (goals.ndim, observations.ndim):
        raise UserError(
            f"{name}: 'goals' are {shape[1:]} but 'observations' {observations.shape[1:]}; where one is an image, both "
            "must be of the same shape"
        )
    _finite(name, "goals", goals)
    return goals if image else goals.astype(np.float32, copy=False)


def _refuse(
    name: str, key: str, array: np.ndarray, wrong: Callable[[np.ndarray], np.ndarray], why: str,
    error: type[UserError] = UserError,
) -> None:  # fmt: skip
    """Raise if there is a wrong number in an array, with the first of them, where it is and the reason."""
    for at in range(0, len(array), _ROWS):
        block = array[at : at + _ROWS]
        bad = wrong(block)
        if bad.any():
            row = int(np.argmax(bad.reshape(len(block), -1).any(axis=1)))
            column = int(np.argmax(bad[row])) if block.ndim == 2 else None
            value = block[row] if column is None else block[row, column]
            place = f"row {at + row}" if column is None else f"row {at + row}, column {column}"
            raise error(f"{name}: '{key}' is {value:g} in {place}{why}")


def _finite(name: str, key: str, array: np.ndarray) -> None:
    if array.dtype.kind == "f":
        # A float64 beyond float32's range would turn into infinity on conversion, so it counts as infinite.
        largest = np.finfo(np.float32).max
        _refuse(name, key, array, lambda block: ~(np.abs(block) <= largest), f"; {FINITE}", BadEpisode)


def booleans(name: str, key: str, array: np.ndarray) -> np.ndarray:
    """An array of zeros and ones as booleans; anything else in it is refused, NaN included."""
    _refuse(name, key, array, lambda block: (block != 0) & (block != 1), "; expected 0 or 1")
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
        raise BadEpisode(f"{name}: 'terminals' makes row {row} an episode of one row; an episode needs two or more")
    return ends


def fits_task(name: str, task: str, observation_shape: tuple[int, ...], action_shape: tuple[int, ...]) -> None:
    """Raise if a dataset does not fit a task of the paper; other tasks are checked when their environment is made."""
    known = TASKS.get(plain(task))
    if known is None:
        return
    for key, found, wanted in (
        ("observations", observation_shape, known.observation_shape),
        ("actions", action_shape, (known.action_dim,)),
    ):
        if found != wanted:
            whose = f"those of {task} have {wanted}"
            raise UserError(f"{name}: '{key}' have shape {found} but {whose}; is this another task's data?")

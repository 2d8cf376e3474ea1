"""One episode as it is stored, whatever form it was recorded in."""

import numpy as np

from dualgoal.data.sources import Rows

CHANNELS = (1, 3, 4, 6, 9, 12)  # of an image, or of up to four frames in colour


def arrays(rows: Rows) -> dict[str, np.ndarray]:
    """The arrays of an episode: images with channels last, single numbers as vectors of length one, discrete actions
    without a trailing axis of one. A last action that is missing is filled in, and then a missing last goal too (the
    last row of an episode is never a goal)."""
    observations, actions = _vectors_or_images(rows.observations), np.atleast_1d(rows.actions)
    if actions.ndim == 1 and actions.dtype.kind == "f":
        actions = actions[:, None]
    if actions.ndim == 2 and actions.shape[1] == 1 and actions.dtype.kind in "iu":
        actions = actions[:, 0]
    short = len(observations) == len(actions) + 1
    if short:
        actions = np.concatenate([actions, np.zeros_like(actions[:1])])
    if rows.goals is None:
        return {"observations": observations, "actions": actions}
    goals = _vectors_or_images(rows.goals)
    if short and len(goals) == len(observations) - 1:
        goals = np.concatenate([goals, goals[-1:]])
    return {"observations": observations, "actions": actions, "goals": goals}


def _vectors_or_images(rows: np.ndarray) -> np.ndarray:
    rows = rows.reshape(-1, 1) if rows.ndim < 2 else rows
    if rows.ndim == 2 and rows.dtype in (np.bool_, np.uint8):  # flags and small counts, not pixels
        return rows.astype(np.float32)
    channels_first = rows.ndim == 4 and rows.shape[1] in CHANNELS and rows.shape[-1] not in CHANNELS
    return np.moveaxis(rows, 1, -1) if channels_first else rows


def stored(key: str, array: np.ndarray) -> np.dtype:
    """The type in which an array is stored."""
    if key == "actions":
        return np.dtype(np.int32 if array.ndim == 1 else np.float32)
    return np.dtype(np.uint8 if array.dtype == np.uint8 else np.float32)

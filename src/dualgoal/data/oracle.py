"""OGBench's oracle goals: of each row only what its tasks ask for, computed from the simulator's state in the files.

Mazes: where the body is, or the ball. Arms: where the cubes are, which buttons are lit, how far drawer and window are
open, each in the units of OGBench's observations.
"""

import numpy as np

from dualgoal.data.npz import Archive
from dualgoal.envs.tasks import family
from dualgoal.errors import UserError

BALL = 15  # first coordinate of the ball in `qpos`, after the ant's
ARM, CUBE = 14, 7  # coordinates of the arm with its gripper, and of each cube after it
CENTRE, METRE = np.array([0.425, 0.0, 0.0]), 10.0  # of the table, and a metre in observations
SCENE_BUTTONS, DRAWER, WINDOW = 2, 18.0, 15.0


def goals(task: str, archive: Archive) -> np.ndarray:
    """The goal that each row of a dataset attains, (T, G) float32."""
    kind = family(task)
    if kind == "puzzle":
        return _stored(task, archive, "button_states").astype(np.float32)
    qpos = _stored(task, archive, "qpos")
    if kind not in ("cube", "scene"):
        first = BALL if kind == "antsoccer" else 0
        return qpos[:, first : first + 2].astype(np.float32)
    cubes = (qpos.shape[1] - ARM) // CUBE if kind == "cube" else 1
    starts = [ARM + n * CUBE for n in range(cubes)]
    places = [(qpos[:, at : at + 3] - CENTRE) * METRE for at in starts]
    if kind == "cube":
        return np.concatenate(places, axis=1).astype(np.float32)
    drawer = ARM + cubes * CUBE + SCENE_BUTTONS
    opened = [qpos[:, drawer, None] * DRAWER, qpos[:, drawer + 1, None] * WINDOW]
    return np.concatenate([*places, _stored(task, archive, "button_states"), *opened], axis=1).astype(np.float32)


def _stored(task: str, archive: Archive, key: str) -> np.ndarray:
    if key not in archive.members:
        raise UserError(f"{archive.path.name}: no array '{key}', from which the goals of '{task}' are computed")
    return archive.read(key)

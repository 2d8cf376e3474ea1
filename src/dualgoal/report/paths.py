"""Where a trained policy walks in a maze whose states are places: paths from sampled starts to sampled goals.

They are played in the task's own simulator before the page is written, so a reader who clicks on a start and a goal
sees what the policy did. A state of a point maze is its position, so one simulator serves all episodes in turn: before
each step of an episode it is set to that episode's state.
"""

from typing import Any

import numpy as np

STARTS = 12
STEPS = 300  # of an episode at most; the longest shortest path of the largest maze takes about as many
CORNER = 0.15  # metres that a drawn path may be off the walked one

Walk = list[float]  # steps, negative if the goal was not reached within them, then x and y of every corner


def walk(policy: Any, starts: np.ndarray, goals: np.ndarray) -> list[list[Walk]]:
    """A path for every goal (outer list) and start (inner list), both given as places (n, 2)."""
    from dualgoal.envs import ogbench

    simulator = ogbench.build(policy.run.task, own=policy.facts.dataset.maze)
    places = np.tile(starts, (len(goals), 1)).astype(np.float32)
    targets = np.repeat(goals, len(starts), axis=0).astype(np.float32)
    trails = [[place] for place in places.copy()]
    reached = np.zeros(len(places), bool)
    for _ in range(STEPS):
        going = np.flatnonzero(~reached)
        if not len(going):
            break
        for i, action in zip(going, policy.act(places[going], targets[going], draw=0), strict=True):
            simulator.data.qpos[:] = places[i]
            simulator.cur_goal_xy = targets[i]
            places[i], _, _, _, info = simulator.step(action)
            trails[i].append(places[i].copy())
            reached[i] = bool(info["success"])
    paths = [_path(np.array(trail), bool(there)) for trail, there in zip(trails, reached, strict=True)]
    return [paths[row * len(starts) : (row + 1) * len(starts)] for row in range(len(goals))]


def _path(trail: np.ndarray, reached: bool) -> Walk:
    count = len(trail) - 1
    corners = trail[_corners(trail)].astype(float).round(1)
    return [count if reached else -count, *corners.ravel().tolist()]


def _corners(trail: np.ndarray) -> list[int]:
    """The rows that a line through the trail has to keep, to stay within `CORNER` of all of them."""
    kept, todo = {0, len(trail) - 1}, [(0, len(trail) - 1)]
    while todo:
        first, last = todo.pop()
        if last - first < 2:
            continue
        along = trail[last] - trail[first]
        off = trail[first + 1 : last] - trail[first]
        share = np.clip(off @ along / max(float(along @ along), 1e-9), 0, 1)
        gaps = np.linalg.norm(off - share[:, None] * along, axis=1)
        if gaps.max() > CORNER:
            middle = first + 1 + int(gaps.argmax())
            kept.add(middle)
            todo += [(first, middle), (middle, last)]
    return sorted(kept)

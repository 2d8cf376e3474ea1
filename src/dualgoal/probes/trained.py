"""What a trained run knows of a puzzle's buttons, from recorded rows alone: the scores of `scores.py` for its learned
distance and its representation of goals. Files of OGBench's puzzles hold the buttons and the joints of the arm."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dualgoal import texts
from dualgoal.data import dataset, npz
from dualgoal.envs.lightsout_puzzle import Puzzle
from dualgoal.envs.lightsout_puzzle import distance as presses_between
from dualgoal.errors import UserError
from dualgoal.files import os_errors_in_one_line
from dualgoal.probes import scores
from dualgoal.runs import directory, policy
from dualgoal.runs.policy import Owner

JOINTS = 6  # of the arm, the first numbers of `qpos`
BOARDS = {9: Puzzle(3, 3), 16: Puzzle(4, 4), 20: Puzzle(4, 5), 24: Puzzle(4, 6)}  # OGBench's, by number of buttons
NEAR = 0.3  # radians over all joints: arms that are in one place for the area under the curve


class Rows(NamedTuple):
    """Recorded rows in the order of the file."""

    observations: np.ndarray
    goals: np.ndarray
    boards: np.ndarray  # (R, n) zeros and ones
    joints: np.ndarray  # (R, 6)


@dataclass(frozen=True)
class ButtonScores:
    """What one checkpoint of one seed knows."""

    run: str
    """The run directory, as it was given."""
    rep: str
    algo: str
    seed: int
    step: int
    value: Owner
    """Whose value the distances are from: the representation's or the algorithm's."""
    slope: float
    """Steps of learned distance per button that differs, at the same distance of the arms."""
    press: float | None
    """Steps per press that is needed, where as many buttons differ and the arms are as far apart: a network that counts
    buttons has 0, one that counts presses more than 0. None: not a board of OGBench's."""
    arm: float
    """Steps per radian of distance of the arms, at the same buttons."""
    area: float | None
    """Probability that different boards get a larger distance than equal ones, arms in one place; None: no such pairs
    among the rows."""
    near: int
    """Number of such pairs of different boards, each with one of equal boards."""
    probe: float | None
    """Share of the goal's buttons that a linear map reads from z, seen from one row; None: goals are not encoded."""


@os_errors_in_one_line
def probe_run(
    run: str | Path,
    data: str | Path,
    *,
    seeds: Sequence[int],
    step: int | None,
    value: Owner | None,
    split: str,
    count: int,
    draw: int,
) -> list[ButtonScores]:
    """The scores of every seed of a run on `count` rows of a dataset, chosen by the seed `draw`."""
    rows: Rows | None = None
    out = []
    for seed in directory.choose_seeds(Path(run), directory.read_run(run), seeds or None):
        loaded = policy.load(run, seed, step)
        if rows is None:
            rows = some_rows(data, loaded.run.task if Path(data).is_dir() else None, split, count, draw)
            loaded.facts.sizes.require_fit(data, rows.observations.shape[1:], rows.goals.shape[1:])
        encode = loaded.encode if loaded.run.rep.learned else None
        rep, algo = loaded.run.names
        whose: Owner = value or ("rep" if loaded.agent.has_rep_value else "algo")
        distance = functools.partial(loaded.distance, of=whose)
        found = scored(rows, distance, encode, draw)
        out.append(ButtonScores(str(run), rep, algo, seed, loaded.step, whose, *found))
    return out


def some_rows(data: str | Path, task: str | None, split: str, count: int, draw: int) -> Rows:
    """Random rows of a file in their order, so that the halves of a linear probe share at most one episode."""
    stored = dataset.load(data, task, split)
    with npz.Archive(Path(stored.provenance["file"])) as archive:
        for key in ("button_states", "qpos"):
            if key not in archive.members:
                raise UserError(f"{archive.path.name}: no array '{key}'; buttons are probed on datasets of puzzles")
        boards, qpos = archive.read("button_states"), archive.read("qpos")
    if stored.rows < 4:
        raise UserError(f"{data}: {stored.rows} rows; expected at least 4")
    chosen = np.sort(np.random.default_rng(draw).choice(stored.rows, min(count, stored.rows), replace=False))
    return Rows(stored.observations[chosen], stored.attained[chosen], boards[chosen], qpos[chosen, :JOINTS])


def scored(
    rows: Rows,
    distance: Callable[[np.ndarray, np.ndarray], np.ndarray],
    encode: Callable[[np.ndarray, np.ndarray], np.ndarray] | None,
    draw: int,
) -> tuple[float, float | None, float, float | None, int, float | None]:
    """(slope, press, arm, area, near, probe) of a learned distance and a representation, both functions of rows."""
    count, rng = len(rows.boards), np.random.default_rng([1, draw])
    far = lambda i, j: scores.in_parts(lambda part: distance(rows.observations[i[part]], rows.goals[j[part]]), len(i))
    i, j = rng.integers(count, size=(2, 2 * count))
    differ = np.abs(rows.boards[i].astype(float) - rows.boards[j]).sum(-1)
    learned, apart = far(i, j), np.linalg.norm(rows.joints[i] - rows.joints[j], axis=-1)
    slope, arm = scores.slopes(learned, differ, apart)
    press = None
    if (board := BOARDS.get(rows.boards.shape[1])) is not None:
        needed = np.asarray(presses_between(board, rows.boards[i], rows.boards[j]))
        can = np.isfinite(needed)  # on 4x4 some boards cannot be reached from others
        press = scores.slopes(learned[can], needed[can], differ[can], apart[can])[0]
    here, same, other = near_pairs(rows)
    area = scores.area_under_curve(far(here, same), far(here, other)) if len(here) else None
    probe = None
    if encode is not None:
        one_place = np.broadcast_to(rows.observations[0], rows.observations.shape)
        z = scores.in_parts(lambda part: encode(rows.goals[part], one_place[part]), count)
        probe = scores.linear_probe(z, rows.boards)
    return slope, press, arm, area, len(here), probe


def near_pairs(rows: Rows) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Triples of rows: any row, one with the same board and one with another, the arm in one place in all three.

    Of all rows with an arm in that place, the two are taken whose arms are most nearly equally far from the first, so
    that only the board tells them apart. (Rows with equal boards are close in time, so their arms are closer on
    average.)"""
    numbers = np.unique(rows.boards, axis=0, return_inverse=True)[1].reshape(-1)
    found = []
    for n, number in enumerate(numbers):
        apart = np.linalg.norm(rows.joints - rows.joints[n], axis=-1)
        near = apart <= NEAR
        near[n] = False
        same, other = (np.flatnonzero(near & kind) for kind in (numbers == number, numbers != number))
        if len(same) and len(other):
            gaps = np.abs(apart[same][:, None] - apart[other][None])
            a, b = np.unravel_index(gaps.argmin(), gaps.shape)
            found.append((n, same[a], other[b]))
    here, same_, other_ = np.array(found, int).reshape(-1, 3).T
    return here, same_, other_


def text(rows: Sequence[ButtonScores]) -> str:
    pairs = [f"{row.rep} + {row.algo}" for row in rows]
    of = {pair: {row.run for row, same in zip(rows, pairs, strict=True) if same == pair} for pair in pairs}
    pairs = [f"{pair} ({row.run})" if len(of[pair]) > 1 else pair for pair, row in zip(pairs, rows, strict=True)]
    lines = [
        [
            "",
            "value",
            "seed",
            "     step",
            "steps per button",
            "per press",
            "per radian",
            "area (pairs)",
            "linear probe",
        ]
    ]
    show = lambda value: "-" if value is None else f"{value:.2f}"
    for pair, row in zip(pairs, rows, strict=True):
        cells = [pair, row.value, str(row.seed), f"{row.step:,}", show(row.slope), show(row.press), show(row.arm)]
        lines.append([*cells, f"{show(row.area)} ({row.near})", show(row.probe)])
    return "\n".join(texts.aligned(lines, right=range(2, len(lines[0]))))

"""From the rows of eval.jsonl to the number a table prints (section 7 of the method).

A run's score is the mean over its last three evaluations of the mean over tasks of the success rate, in percent, one
number per seed. An evaluation at step 1 never counts, nor does one that lacks a task: it was cut off.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

LAST = 3


@dataclass(frozen=True)
class Scores:
    """Success in percent by (seed, step, task); NaN where that evaluation does not exist."""

    seeds: tuple[int, ...]
    steps: tuple[int, ...]
    tasks: tuple[int, ...]
    success: np.ndarray

    def complete(self) -> np.ndarray:
        """(seeds, steps): whether every task of that evaluation is there."""
        return ~np.isnan(self.success).any(axis=2)

    def curve(self) -> np.ndarray:
        """(seeds, steps): the mean over tasks, NaN where the evaluation is incomplete."""
        return np.where(self.complete(), self.success.mean(axis=2), np.nan)

    def per_task(self, last: int = LAST) -> np.ndarray:
        """(seeds, tasks): the mean over each seed's last complete evaluations; NaN rows for seeds without one."""
        out = np.full((len(self.seeds), len(self.tasks)), np.nan)
        for i, there in enumerate(self.complete()):
            if there.any():
                out[i] = self.success[i, np.flatnonzero(there)[-last:]].mean(axis=0)
        return out

    def per_seed(self, last: int = LAST) -> np.ndarray:
        """(seeds with an evaluation,): the number a table averages."""
        scores = self.per_task(last)
        return np.array([row.mean() for row in scores if row.size and not np.isnan(row).any()])

    def counted(self, last: int = LAST) -> tuple[int, ...]:
        """The evaluation steps that enter the score of some seed."""
        used = {int(i) for there in self.complete() for i in np.flatnonzero(there)[-last:]}
        return tuple(self.steps[i] for i in sorted(used))


def scores(
    rows: Iterable[Mapping[str, Any]],
    *,
    goal_noise: float = 0.0,
    seeds: Collection[int] | None = None,
    until: int | None = None,
) -> Scores:
    """Rows of one run under one goal noise; of two rows for the same episode set the later one counts.

    `until` drops evaluations after that step, so that a long run can stand beside a shorter one.
    """
    cells: dict[tuple[int, int, int], float] = {}
    for row in rows:
        seed, step, task = int(row["seed"]), int(row["step"]), int(row["task"])
        plain = float(row.get("goal_noise") or 0.0) == goal_noise and not row.get("action_noise")
        if plain and step > 1 and (seeds is None or seed in seeds) and (until is None or step <= until):
            cells[seed, step, task] = 100.0 * float(row["success"])
    axes = [tuple(sorted({key[axis] for key in cells})) for axis in range(3)]
    success = np.full([len(a) for a in axes], np.nan)
    for (seed, step, task), value in cells.items():
        success[axes[0].index(seed), axes[1].index(step), axes[2].index(task)] = value
    return Scores(axes[0], axes[1], axes[2], success)

"""Evaluation rows, and the path from them to the number a table prints (section 7 of the method).

One row says how often one seed's policy reached one evaluation goal at one step. A run's score is the mean over its
last three evaluations of the mean over goals of the success rate, in percent, one number per seed. An evaluation at
step 1 never counts, nor does one that is not complete: it was interrupted.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import numpy as np

from dualgoal import jsons
from dualgoal.errors import UserError

LAST = 3  # evaluations that a score is the mean of
LARGEST = 2**53  # no number of a row is
CRITERIA = ("success", "max_steps", "eval_goals")  # fields of conditions, and of a run


class Conditions(NamedTuple):
    """What must be equal for two evaluations to be comparable."""

    goal_noise: float = 0.0  # standard deviations
    action_noise: float = 0.0
    eval_seed: int = 0
    random: bool = False  # actions uniformly at random instead of the policy's
    env: str | None = None  # the environment, where it is not the run's own
    success: str | None = None  # the same for when a goal is reached,
    max_steps: int | None = None  # for how long an episode lasts,
    eval_goals: str | None = None  # and for which goals there are

    @property
    def words(self) -> str:
        """As options of `dualgoal eval`."""
        words = []
        for name, value in self._asdict().items():
            flag = f"--{name.replace('_', '-')}"
            words += [flag if value is True else f"{flag} {value}"] if value else []
        return " ".join(words)


@dataclass(frozen=True)
class EvalRow:
    """One line of eval.jsonl: how often one seed reached one evaluation goal at one step."""

    seed: int
    step: int
    goal: int  # number of the evaluation goal, from 1 on
    episodes: int
    successes: int
    length: float  # mean number of steps of an episode
    goal_noise: float = 0.0
    action_noise: float = 0.0
    cpu_seconds: float = field(default=0.0, compare=False)  # what playing took; not in the file, which is reproducible

    @property
    def success(self) -> float:
        """Share of the episodes that reached the goal."""
        return self.successes / self.episodes

    def to_json(self) -> dict[str, Any]:
        """Plain values, as written to eval.jsonl and to row files."""
        out: dict[str, Any] = {"seed": self.seed, "step": self.step, "goal": self.goal, "episodes": self.episodes}
        out |= {"successes": self.successes, "success": self.success, "length": self.length}
        out["goal_noise"] = self.goal_noise
        return out | ({"action_noise": self.action_noise} if self.action_noise else {})

    @classmethod
    def from_json(cls, values: Any, where: str) -> Self:
        """The inverse of `to_json`; `where` names the file and line for the error. Rows written before the field was
        called "goal" say "task"."""
        if isinstance(values, dict) and "task" in values:
            values = {"goal": values["task"], **values}
        row = jsons.typed_file(values, cls, where)
        if row.episodes < 1 or not 0 <= row.successes <= row.episodes or min(row.seed, row.step, row.goal) < 0:
            raise UserError(f"{where}: {row.successes} successes in {row.episodes} episodes of goal {row.goal}")
        numbers = (row.seed, row.step, row.goal, row.episodes, row.length, row.goal_noise, row.action_noise)
        if max(map(abs, numbers)) >= LARGEST:
            raise UserError(f"{where}: {max(numbers, key=abs):g} is too large a number")
        return row


def complete(rows: Iterable[EvalRow], goals: int) -> set[tuple[int, int]]:
    """The (seed, step) of every complete evaluation: one with a row for each evaluation goal from 1 to `goals`."""
    found: dict[tuple[int, int], set[int]] = {}
    for row in rows:
        found.setdefault((row.seed, row.step), set()).add(row.goal)
    return {evaluation for evaluation, there in found.items() if there.issuperset(range(1, goals + 1))}


def missing(rows: Iterable[EvalRow], *, steps: Iterable[int], seeds: Iterable[int], goals: int) -> list[int]:
    """Those of `steps` whose evaluation is not complete for every one of `seeds`."""
    there, seeds = complete(rows, goals), list(seeds)
    return [step for step in steps if any((seed, step) not in there for seed in seeds)]


def success_by_seed(rows: Iterable[EvalRow]) -> dict[int, float]:
    """Mean success over goals in percent, by seed."""
    rates: dict[int, list[float]] = {}
    for row in rows:
        rates.setdefault(row.seed, []).append(100 * row.success)
    return {seed: sum(found) / len(found) for seed, found in rates.items()}


@dataclass(frozen=True)
class Scores:
    """Success in percent by (seed, step, goal); NaN where that evaluation does not exist or is not complete."""

    seeds: tuple[int, ...]
    steps: tuple[int, ...]
    goals: tuple[int, ...]
    success: np.ndarray

    def complete(self) -> np.ndarray:
        """(seeds, steps): whether that evaluation is complete."""
        return ~np.isnan(self.success).any(axis=2)

    def curve(self) -> np.ndarray:
        """(seeds, steps): the mean over goals, NaN where the evaluation is not complete."""
        return self.success.mean(axis=2)

    def per_goal(self) -> np.ndarray:
        """(seeds, goals): the mean over each seed's last complete evaluations; NaN for seeds without one."""
        out = np.full((len(self.seeds), len(self.goals)), np.nan)
        for i, there in enumerate(self.complete()):
            if there.any():
                out[i] = self.success[i, np.flatnonzero(there)[-LAST:]].mean(axis=0)
        return out

    def per_seed(self) -> np.ndarray:
        """(seeds with an evaluation,): the number a table averages."""
        return np.array([row.mean() for row in self.per_goal() if row.size and not np.isnan(row).any()])

    def counted(self) -> tuple[int, ...]:
        """The evaluation steps that enter the score of some seed."""
        used = {int(i) for there in self.complete() for i in np.flatnonzero(there)[-LAST:]}
        return tuple(self.steps[i] for i in sorted(used))


def scores(
    rows: Iterable[EvalRow],
    *,
    goals: int | None = None,
    goal_noise: float = 0.0,
    action_noise: float = 0.0,
    seeds: Collection[int] | None = None,
    until: int | None = None,
) -> Scores:
    """Rows of one run under one goal noise and action noise; of two rows for the same episodes the later one counts.

    `goals` is the number of evaluation goals (default: the largest that occurs). `until` drops evaluations after that
    step, so that a long run can be compared with a shorter one.
    """
    kept = [
        row
        for row in rows
        if row.goal_noise == goal_noise and row.action_noise == action_noise and row.step > 1
        if (seeds is None or row.seed in seeds) and (until is None or row.step <= until)
    ]
    if goals is None:  # no evaluation has more goals than there are rows, whatever number a damaged row has
        goals = min(max((row.goal for row in kept), default=0), len(kept) + 1)
    whole = complete(kept, goals)
    seed_axis, step_axis = (tuple(sorted({getattr(row, name) for row in kept})) for name in ("seed", "step"))
    success = np.full((len(seed_axis), len(step_axis), goals), np.nan)
    for row in kept:
        if (row.seed, row.step) in whole and 1 <= row.goal <= goals:
            success[seed_axis.index(row.seed), step_axis.index(row.step), row.goal - 1] = 100.0 * row.success
    return Scores(seed_axis, step_axis, tuple(range(1, goals + 1)), success)

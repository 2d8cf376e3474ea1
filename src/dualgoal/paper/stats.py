"""Statistics of a few seeds, said carefully: interquartile means, stratified bootstrap, probability of improvement.

Scores come as one array of seeds per task (a stratum); tasks may have different numbers of seeds. Randomness is an
explicit generator, so a table built twice is the same table. The highlight rule is that of section 7 of the method.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

Strata = Sequence[np.ndarray]  # one 1-D array of per-seed scores for each task
Interval = tuple[float, float]

LEVEL = 0.95
RESAMPLES = 2000
HIGHLIGHT = 0.95

# Two-sided 95 % quantiles of Student's t for 1 to 30 degrees of freedom.
_T95 = (
    12.7062,
    4.3027,
    3.1824,
    2.7764,
    2.5706,
    2.4469,
    2.3646,
    2.3060,
    2.2622,
    2.2281,
    2.2010,
    2.1788,
    2.1604,
    2.1448,
    2.1314,
    2.1199,
    2.1098,
    2.1009,
    2.0930,
    2.0860,
    2.0796,
    2.0739,
    2.0687,
    2.0639,
    2.0595,
    2.0555,
    2.0518,
    2.0484,
    2.0452,
    2.0423,
)


def mean_std(scores: np.ndarray) -> tuple[float, float]:
    """Mean and population standard deviation over seeds (the paper does not say which convention it uses, A8)."""
    scores = np.asarray(scores, float)
    return float(scores.mean()), float(scores.std())


def iqm(scores: np.ndarray, axis: int = -1) -> np.ndarray:
    """Mean of the middle half along an axis; values on the quartile borders count with the part inside."""
    ordered = np.sort(np.asarray(scores, float), axis=axis)
    n = ordered.shape[axis]
    borders = np.arange(n + 1)
    inside = np.clip(borders[1:], n / 4, 3 * n / 4) - np.clip(borders[:-1], n / 4, 3 * n / 4)
    return np.tensordot(np.moveaxis(ordered, axis, -1), inside / inside.sum(), axes=1)


def resample(strata: Strata, rng: np.random.Generator, resamples: int = RESAMPLES) -> list[np.ndarray]:
    """For each task, `resamples` draws with replacement of as many seeds as it has: arrays (resamples, seeds)."""
    return [np.asarray(s, float)[rng.integers(len(s), size=(resamples, len(s)))] for s in strata]


def mean_of_tasks(strata: Strata) -> np.ndarray:
    """Average over tasks of each task's mean over seeds: the tables' Average row."""
    return np.mean([np.mean(s, axis=-1) for s in strata], axis=0)


def iqm_of_all(strata: Strata) -> np.ndarray:
    """Interquartile mean of all seeds of all tasks together."""
    return iqm(np.concatenate(list(strata), axis=-1))


def bootstrap(
    strata: Strata,
    statistic: Callable[[Strata], np.ndarray],
    rng: np.random.Generator,
    *,
    resamples: int = RESAMPLES,
    level: float = LEVEL,
) -> Interval | None:
    """Percentile interval of a statistic, seeds resampled within each task; None if no task has two seeds.

    The statistic sees arrays whose last axis is seeds, with or without a leading axis of resamples.
    """
    if not strata or max(len(s) for s in strata) < 2:
        return None
    return _percentiles(statistic(resample(strata, rng, resamples)), level)


def _percentiles(draws: np.ndarray, level: float) -> Interval:
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def improvement(x: Strata, y: Strata) -> np.ndarray:
    """P(X > Y) + P(X = Y)/2 for a seed of x and a seed of y on the same task, averaged over tasks."""
    if len(x) != len(y):
        raise ValueError(f"improvement compares the same tasks: {len(x)} against {len(y)}")
    signs = [np.sign(a[..., :, None] - b[..., None, :]).mean(axis=(-2, -1)) for a, b in zip(x, y, strict=True)]
    return 0.5 + 0.5 * np.mean(signs, axis=0)


def improvement_interval(
    x: Strata, y: Strata, rng: np.random.Generator, *, resamples: int = RESAMPLES, level: float = LEVEL
) -> Interval | None:
    """Bootstrap interval of `improvement`, seeds of both sides resampled within each task."""
    if not x or max(len(s) for s in (*x, *y)) < 2:
        return None
    return _percentiles(improvement(resample(x, rng, resamples), resample(y, rng, resamples)), level)


class Gap(NamedTuple):
    """A difference of means and its 95 % intervals; None with fewer than two seeds on either side."""

    mean: float
    bootstrap: Interval | None
    welch: Interval | None


def difference(x: np.ndarray, y: np.ndarray, rng: np.random.Generator, *, resamples: int = RESAMPLES) -> Gap:
    """Mean of x minus mean of y with two intervals: the bootstrap's, and Welch's, which is honest with four seeds."""
    x, y = np.asarray(x, float), np.asarray(y, float)
    gap = float(x.mean() - y.mean())
    if min(len(x), len(y)) < 2:
        return Gap(gap, None, None)
    draws = [d.mean(axis=-1) for d in resample([x, y], rng, resamples)]
    a, b = x.var(ddof=1) / len(x), y.var(ddof=1) / len(y)
    freedom = (a + b) ** 2 / (a**2 / (len(x) - 1) + b**2 / (len(y) - 1)) if a + b > 0 else len(x) + len(y) - 2
    half = t_quantile(freedom) * float(np.sqrt(a + b))
    return Gap(gap, _percentiles(draws[0] - draws[1], LEVEL), (gap - half, gap + half))


def t_quantile(freedom: float) -> float:
    """The two-sided 95 % quantile of Student's t, degrees of freedom rounded down (so never too narrow)."""
    if freedom < 1:
        raise ValueError(f"{freedom} degrees of freedom; at least two seeds are needed")
    return _T95[min(int(freedom), len(_T95)) - 1]


def highlights(values: Sequence[float | None]) -> list[bool]:
    """Which entries of a row the paper would print in bold: at least 0.95 times the row's best."""
    best = max((v for v in values if v is not None), default=0.0)
    return [v is not None and v >= HIGHLIGHT * best for v in values]


def ranks(values: np.ndarray) -> np.ndarray:
    """Ranks from 1, equal values share the mean of their ranks."""
    values = np.asarray(values)
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[inverse]


def rank_correlation(x: np.ndarray, y: np.ndarray) -> float | None:
    """Spearman's correlation of the finite pairs; None when there are fewer than three or one side is constant."""
    x, y = np.asarray(x, float).ravel(), np.asarray(y, float).ravel()
    ok = np.isfinite(x) & np.isfinite(y)
    if ok.sum() < 3:
        return None
    a, b = ranks(x[ok]), ranks(y[ok])
    if a.std() == 0 or b.std() == 0:
        return None
    return float(np.corrcoef(a, b)[0, 1])

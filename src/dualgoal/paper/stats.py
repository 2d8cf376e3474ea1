"""Statistics of a few seeds: interquartile mean, stratified bootstrap, probability of improvement, Welch, Wilson.

Scores come as one array of seeds per task (a stratum); tasks may have different numbers of seeds. Every function that
resamples takes a random generator, so building a table twice gives the same table. SciPy computes what it has; it has
no bootstrap that resamples within strata, so that one is written here. The rule for bold entries is that of section 7.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import scipy.stats

Strata = Sequence[np.ndarray]  # one 1-D array of per-seed scores for each task
Interval = tuple[float, float]

LEVEL = 0.95
RESAMPLES = 2000
HIGHLIGHT = 0.95


def mean_std(scores: np.ndarray) -> tuple[float, float]:
    """Mean and population standard deviation over seeds (the paper does not say which convention it uses, A8)."""
    scores = np.asarray(scores, float)
    return float(scores.mean()), float(scores.std())


def iqm(scores: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """Mean of the middle half along the last axis; with weights (one per value), of the middle half of their sum.

    A value that straddles a quartile counts with the fraction of it that lies inside, which SciPy's trimmed mean does
    not do: it drops whole values.
    """
    scores = np.asarray(scores, float)
    weights = np.ones(scores.shape[-1]) if weights is None else np.asarray(weights, float)
    order = np.argsort(scores, axis=-1, kind="stable")
    upper = np.cumsum(weights[order], axis=-1) / weights.sum()
    lower = np.concatenate([np.zeros_like(upper[..., :1]), upper[..., :-1]], axis=-1)
    inside = np.clip(upper, 0.25, 0.75) - np.clip(lower, 0.25, 0.75)
    return 2 * (np.take_along_axis(scores, order, axis=-1) * inside).sum(axis=-1)


def mean_of_tasks(strata: Strata) -> np.ndarray:
    """Average over tasks of each task's mean over seeds: the Average row of a table."""
    return np.mean([np.mean(s, axis=-1) for s in strata], axis=0)


def iqm_of_all(strata: Strata) -> np.ndarray:
    """Interquartile mean of all seeds of all tasks together, in which every task weighs the same: a seed of a task with
    more seeds weighs less."""
    weights = np.concatenate([np.full(np.shape(s)[-1], 1 / np.shape(s)[-1]) for s in strata])
    return iqm(np.concatenate(list(strata), axis=-1), weights)


def resample(strata: Strata, rng: np.random.Generator, resamples: int = RESAMPLES) -> list[np.ndarray]:
    """For each task, `resamples` samples with replacement of as many seeds as it has: arrays (resamples, seeds)."""
    return [np.asarray(s, float)[rng.integers(len(s), size=(resamples, len(s)))] for s in strata]


def bootstrap(
    strata: Strata,
    statistic: Callable[[Strata], np.ndarray],
    rng: np.random.Generator,
    *,
    resamples: int = RESAMPLES,
) -> Interval | None:
    """Percentile interval of a statistic, seeds resampled within each task; None if no task has two seeds.

    The statistic gets arrays whose last axis is seeds, with or without a leading axis of resamples.
    """
    if not strata or max(len(s) for s in strata) < 2:
        return None
    return _percentiles(statistic(resample(strata, rng, resamples)))


def _percentiles(samples: np.ndarray) -> Interval:
    low, high = np.quantile(samples, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def improvement(x: Strata, y: Strata) -> np.ndarray:
    """P(X > Y) + P(X = Y)/2 for a seed of x and a seed of y on the same task, averaged over tasks.

    Scores are equal to nine decimals: two means of the same fractions may differ in the last bit.
    """
    if len(x) != len(y):
        raise ValueError(f"improvement compares the same tasks: {len(x)} against {len(y)}")
    gaps = [np.round(a[..., :, None] - b[..., None, :], 9) for a, b in zip(x, y, strict=True)]
    return 0.5 + 0.5 * np.mean([np.sign(gap).mean(axis=(-2, -1)) for gap in gaps], axis=0)


def improvement_interval(x: Strata, y: Strata, rng: np.random.Generator) -> Interval | None:
    """Bootstrap interval of `improvement`, seeds of both sides resampled within each task."""
    if not x or max(len(s) for s in (*x, *y)) < 2:
        return None
    return _percentiles(improvement(resample(x, rng), resample(y, rng)))


class Gap(NamedTuple):
    """A difference of means and its 95 % intervals; None with fewer than two seeds on either side."""

    mean: float
    bootstrap: Interval | None
    welch: Interval | None


def difference(x: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> Gap:
    """Mean of x minus mean of y with a bootstrap interval and with Welch's, which is also valid for four seeds. There
    is none for a single seed, nor for seeds that agree on both sides: they show no spread."""
    x, y = np.asarray(x, float), np.asarray(y, float)
    gap = float(x.mean() - y.mean())
    if min(len(x), len(y)) < 2 or np.ptp(x) == np.ptp(y) == 0:
        return Gap(gap, None, None)
    means = [sample.mean(axis=-1) for sample in resample([x, y], rng)]
    return Gap(gap, _percentiles(means[0] - means[1]), welch_interval(x, y))


def student_interval(scores: Sequence[float]) -> Interval | None:
    """Student's interval of a mean, valid for a few seeds; None for one seed."""
    if len(scores) < 2:
        return None
    error = float(np.std(scores, ddof=1)) / math.sqrt(len(scores))
    half = float(scipy.stats.t.ppf((1 + LEVEL) / 2, len(scores) - 1)) * error
    return float(np.mean(scores)) - half, float(np.mean(scores)) + half


def success_interval(scores: np.ndarray) -> Interval | None:
    """The same for success in percent, limited to 0 and 100. A bootstrap of two seeds would only find these two numbers
    again and call them a 95 % interval. None also for seeds that agree: they show no spread."""
    found = student_interval(scores.tolist())
    return (max(found[0], 0.0), min(found[1], 100.0)) if found and found[0] < found[1] else None


def welch_interval(x: np.ndarray, y: np.ndarray) -> Interval:
    """Welch's interval of the difference of two means. For normal values its coverage is about the nominal one, even
    with two seeds on each side: then 94 to 98 of 100 intervals hold the true difference."""
    return welch_of_summaries((x.mean(), x.std(), len(x)), (y.mean(), y.std(), len(y)))


Summary = tuple[float, float, int]  # mean, population standard deviation, number of seeds


def welch_of_summaries(x: Summary, y: Summary) -> Interval:
    """The same from numbers that a paper prints. Its standard deviations, read as population values, give the wider
    interval."""
    gap = float(x[0] - y[0])
    squares = [std**2 / (count - 1) for _, std, count in (x, y)]  # squared standard errors of the two means
    error = math.sqrt(sum(squares))
    if error == 0:  # no spread on either side, so no degrees of freedom
        return gap, gap
    freedom = sum(squares) ** 2 / sum(s**2 / (count - 1) for s, (_, _, count) in zip(squares, (x, y), strict=True))
    low, high = scipy.stats.t.interval(LEVEL, freedom, loc=gap, scale=error)
    return float(low), float(high)


def wilson_interval(successes: int, trials: int) -> Interval:
    """Wilson's interval of a success probability."""
    low, high = scipy.stats.binomtest(successes, trials).proportion_ci(LEVEL, method="wilson")
    return float(low), float(high)


def highlights(values: Sequence[float | None]) -> list[bool]:
    """Which entries of a row the paper would print in bold: at least 0.95 times the row's best."""
    best = max((v for v in values if v is not None), default=0.0)
    return [v is not None and v >= HIGHLIGHT * best for v in values]


def rank_correlation(x: np.ndarray, y: np.ndarray) -> float | None:
    """Spearman's correlation of the finite pairs; None when there are fewer than three or one side is constant."""
    x, y = np.asarray(x, float).ravel(), np.asarray(y, float).ravel()
    finite = np.isfinite(x) & np.isfinite(y)
    x, y = x[finite], y[finite]
    if len(x) < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return None
    return float(scipy.stats.spearmanr(x, y).statistic)

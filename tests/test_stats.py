"""Statistics against numbers worked by hand, against SciPy, and coverage on data whose mean is known."""

import json
from importlib import resources

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from dualgoal.paper import stats


def test_iqm_by_hand():
    assert stats.iqm(np.array([0.0, 1, 2, 100])) == pytest.approx(1.5)
    # Six values: the middle half is [1.5, 4.5] of [0, 6]: half of the 2nd and 5th, all of the 3rd and 4th.
    assert stats.iqm(np.array([60.0, 1, 2, 3, 4, 5])) == pytest.approx((0.5 * 2 + 3 + 4 + 0.5 * 5) / 3)
    assert stats.iqm(np.array([7.0])) == 7
    # Weights 1, 2 and 1: the middle half is that of the second value alone; 3 and 1: it is the first value's.
    assert stats.iqm(np.array([9.0, 1, 5]), np.array([1.0, 1, 2])) == pytest.approx(5)
    assert stats.iqm(np.array([8.0, 4]), np.array([1.0, 3])) == pytest.approx(4)


def test_a_task_with_many_seeds_weighs_no_more_in_the_iqm():
    few, many = np.array([0.0, 40]), np.array([80.0] * 8)
    # By weight, the few are the lower half: a quarter each. The middle half is the 40 and as much of the many.
    assert stats.iqm_of_all([few, many]) == pytest.approx((40 + 80) / 2)
    assert stats.iqm_of_all([few, many[:2]]) == pytest.approx((40 + 80) / 2)
    assert stats.iqm_of_all([few, few + 80]) == pytest.approx(stats.iqm(np.array([0.0, 40, 80, 120])))
    samples = np.tile(few, (3, 1)), np.tile(many, (3, 1))
    assert stats.iqm_of_all(samples) == pytest.approx([60, 60, 60]), "over the last axis"


@settings(deadline=None)
@given(st.lists(st.floats(-100, 100), min_size=1, max_size=12))
def test_iqm_lies_between_the_extremes_and_moves_with_a_shift(values):
    x = np.array(values)
    assert x.min() - 1e-9 <= stats.iqm(x) <= x.max() + 1e-9
    assert stats.iqm(x + 3) == pytest.approx(stats.iqm(x) + 3)


def test_bootstrap_is_reproducible_and_needs_two_seeds():
    strata = [np.array([1.0, 2, 3, 4]), np.array([10.0, 20])]
    first, again = (stats.bootstrap(strata, stats.mean_of_tasks, np.random.default_rng(0)) for _ in range(2))
    assert first == again and first[0] < stats.mean_of_tasks(strata) < first[1]
    assert stats.bootstrap([np.array([5.0])], stats.mean_of_tasks, np.random.default_rng(0)) is None
    assert stats.bootstrap([], stats.mean_of_tasks, np.random.default_rng(0)) is None


def test_bootstrap_keeps_tasks_apart():
    """Two tasks far apart but each without spread: resampling within tasks gives an interval of no width."""
    strata = [np.full(4, 0.0), np.full(4, 100.0)]
    assert stats.bootstrap(strata, stats.mean_of_tasks, np.random.default_rng(0)) == (50, 50)


def test_bootstrap_covers_the_true_mean():
    rng = np.random.default_rng(1)
    hits = 0
    for _ in range(200):
        low, high = stats.bootstrap([rng.normal(3, 1, 30)], stats.mean_of_tasks, rng, resamples=300)
        hits += low <= 3 <= high
    assert 0.88 <= hits / 200 <= 0.99


def test_improvement_by_hand():
    x, y = np.array([2.0, 3]), np.array([1.0, 2])
    assert stats.improvement([x], [y]) == pytest.approx(7 / 8)  # pairs: win, tie, win, win
    assert stats.improvement([x, y], [y, x]) == pytest.approx(0.5)
    thirds = np.mean([85.0, 86, 85]), np.mean([85.0, 85, 86]), 256 / 3
    equal = [np.array([score]) for score in (*thirds, np.nextafter(256 / 3, 0))]
    assert all(stats.improvement([a], [b]) == 0.5 for a in equal for b in equal), "a tie, whatever the rounding"
    low, high = stats.improvement_interval([x], [y], np.random.default_rng(0))
    assert 0 <= low <= 7 / 8 <= high <= 1


def test_welch_is_scipys():
    rng = np.random.default_rng(0)
    x, y = rng.normal(88, 3, 4), rng.normal(60, 5, 4)
    found = stats.difference(x, y, rng)
    exact = scipy.stats.ttest_ind(x, y, equal_var=False).confidence_interval(0.95)
    low, high = found.welch
    assert (low, high) == pytest.approx((exact.low, exact.high))
    assert found.mean == pytest.approx(x.mean() - y.mean())
    assert stats.difference(x, y[:1], rng).welch is None
    same = stats.difference(np.full(2, 90.0), np.zeros(2), rng)
    assert (same.mean, same.welch, same.bootstrap) == (90.0, None, None), "no spread on either side says nothing"
    assert stats.difference(x, np.zeros(2), rng).welch is not None


@pytest.mark.parametrize("spread", [1.0, 3.0])
def test_welch_holds_for_two_seeds(spread):
    """Of 4,000 pairs of two seeds, whose means are equal, 95 % or more have zero in the interval."""
    rng = np.random.default_rng(0)
    found = [stats.welch_interval(rng.normal(size=2), spread * rng.normal(size=2)) for _ in range(4000)]
    assert 0.945 < np.mean([low < 0 < high for low, high in found]) < 0.985


def test_welch_by_hand():
    # Means 2 and 6, both with variance 1 and three seeds: four degrees of freedom, standard error sqrt(2/3).
    low, high = stats.welch_interval(np.array([1.0, 2, 3]), np.array([5.0, 6, 7]))
    assert (low, high) == pytest.approx((-4 - 2.7764 * (2 / 3) ** 0.5, -4 + 2.7764 * (2 / 3) ** 0.5), abs=1e-4)
    assert stats.welch_interval(np.full(3, 5.0), np.full(2, 1.0)) == (4, 4)


def test_wilson_by_hand():
    # (p + z^2/2n +- z sqrt(p(1-p)/n + z^2/4n^2)) / (1 + z^2/n) for 8 of 10 with z = 1.96.
    assert stats.wilson_interval(8, 10) == pytest.approx((0.4902, 0.9433), abs=1e-4)
    assert stats.wilson_interval(0, 10)[0] == 0


def test_highlights_reproduce_the_papers_counts():
    paper = json.loads(resources.files("dualgoal.paper").joinpath("paper_results.json").read_text())
    counts = {
        t: sum(sum(stats.highlights([m for m, _ in row.values()])) for row in rows.values())
        for t, rows in paper.items()
        if t != "fusion"
    }
    assert counts == {
        "state_gcivl": 24,
        "state_crl": 19,
        "state_gcfbc": 26,
        "pixel_gcivl": 9,
        "parameterization": 20,
        "direct": 6,
    }
    assert stats.highlights([None, 10.0, 9.5, 9.4]) == [False, True, True, False]


def test_rank_correlation_with_ties_and_infinities():
    ties = stats.rank_correlation(np.array([10, 20, 20, 5]), np.array([1, 2, 3, 4]))
    assert ties == pytest.approx(np.corrcoef([2, 3.5, 3.5, 1], [1, 2, 3, 4])[0, 1])
    x = np.arange(6.0)
    assert stats.rank_correlation(x, np.exp(x)) == pytest.approx(1)
    assert stats.rank_correlation(x, np.r_[np.exp(-x[:-1]), np.inf]) == pytest.approx(-1)
    assert stats.rank_correlation(x, np.ones(6)) is None


def test_students_interval_of_three_seeds():
    low, high = stats.student_interval([1.0, 2.0, 3.0])
    assert (low, high) == pytest.approx((2 - 4.303 / 3**0.5, 2 + 4.303 / 3**0.5), abs=1e-3)  # t(0.975, 2) = 4.303
    assert stats.student_interval([1.0]) is None


def test_the_interval_of_two_seeds_is_wide_and_ends_where_percents_do():
    assert stats.success_interval(np.array([60.0])) is None and stats.success_interval(np.array([60.0, 60.0])) is None
    assert stats.success_interval(np.array([60.0, 61.0])) == pytest.approx((60.5 - 6.353, 60.5 + 6.353), abs=1e-3)
    assert stats.success_interval(np.array([90.0, 100.0])) == pytest.approx((95 - 63.531, 100), abs=1e-3)
    assert stats.success_interval(np.array([0.0, 10.0]))[0] == 0

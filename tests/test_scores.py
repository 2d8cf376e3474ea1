"""The reported number against one worked by hand, with everything that must not count thrown in."""

import numpy as np

from dualgoal.runs.rows import scores


def row(seed, step, task, success, **more):
    return {
        "seed": seed,
        "step": step,
        "task": task,
        "episodes": 10,
        "successes": round(10 * success),
        "success": success,
        "length": 5.0,
        "goal_noise": 0.0,
        **more,
    }


def test_last_three_evaluations_mean_over_tasks_one_number_per_seed():
    steps = (1, 100, 200, 300, 400)
    rows = [row(s, step, t, (s + t * step / 100) / 10) for s in (0, 1) for step in steps for t in (1, 2)]
    found = scores(rows)
    expected = [100 * np.mean([(s + t * step / 100) / 10 for step in (200, 300, 400) for t in (1, 2)]) for s in (0, 1)]
    assert np.allclose(found.per_seed(), expected)
    assert found.counted() == (200, 300, 400) and found.steps == (100, 200, 300, 400)
    assert np.allclose(scores(rows, until=200).per_seed()[0], 100 * np.mean([0.1, 0.2, 0.2, 0.4]))


def test_the_evaluation_at_step_one_never_counts():
    assert scores([row(0, 1, t, 1.0) for t in (1, 2)]).per_seed().size == 0


def test_a_cut_off_evaluation_and_noisy_goals_do_not_count():
    rows = [row(0, 100, t, 0.5) for t in (1, 2)] + [row(0, 200, 1, 1.0)]
    rows += [row(0, 100, t, 0.1, goal_noise=0.2) for t in (1, 2)]
    rows += [row(0, 100, t, 0.0, action_noise=0.1) for t in (1, 2)]
    assert scores(rows).per_seed().tolist() == [50.0]
    assert scores(rows, goal_noise=0.2).per_seed().tolist() == [10.0]
    assert np.isnan(scores(rows).curve()[0, 1])


def test_of_two_equal_evaluations_the_later_counts_and_seeds_can_be_chosen():
    rows = [row(0, 100, 1, 0.1), row(1, 100, 1, 0.9), row(0, 100, 1, 0.3)]
    assert scores(rows).per_seed().tolist() == [30.0, 90.0]
    assert scores(rows, seeds=[1]).per_seed().tolist() == [90.0]


def test_no_rows_no_score():
    empty = scores([])
    assert empty.per_seed().size == 0 and empty.counted() == ()

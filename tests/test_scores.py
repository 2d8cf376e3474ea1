"""The reported number against one worked by hand, with everything that must not count thrown in."""

import json

import numpy as np
import pytest

from dualgoal.errors import UserError
from dualgoal.runs import directory
from dualgoal.runs.rows import EvalRow, complete, missing, scores


def row(seed, step, goal, success, **noise):
    return EvalRow(seed, step, goal, episodes=10, successes=round(10 * success), length=5.0, **noise)


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


def test_a_goal_that_was_never_evaluated_is_missed_when_their_number_is_known():
    rows = [row(0, 100, g, 0.5) for g in (1, 2, 3)]
    assert scores(rows).per_seed().tolist() == scores(rows, goals=3).per_seed().tolist() == [50.0]
    assert scores(rows, goals=4).per_seed().size == 0 and scores(rows, goals=4).goals == (1, 2, 3, 4)


def test_a_row_of_a_goal_that_cannot_exist_takes_no_memory():
    rows = [row(0, 100, t, 0.5) for t in (1, 2)]
    assert scores(rows).goals == (1, 2)
    damaged = scores([*rows, row(0, 200, 2**31, 0.5)])
    assert damaged.success.size < 10 and damaged.per_seed().size == 0


def test_no_rows_no_score():
    empty = scores([])
    assert empty.per_seed().size == 0 and empty.counted() == ()


def test_an_evaluation_is_complete_when_every_goal_of_every_seed_is_there():
    rows = [row(s, step, g, 0.5) for s in (0, 1) for step in (10, 20) for g in (1, 2, 3)]
    assert complete(rows, 3) == {(0, 10), (0, 20), (1, 10), (1, 20)}
    assert missing(rows, steps=(10, 20, 30), seeds=(0, 1), goals=3) == [30]
    assert missing(rows[:-1], steps=(10, 20), seeds=(0, 1), goals=3) == [20]
    assert missing(rows[:-1], steps=(10, 20), seeds=(0,), goals=3) == []
    assert missing([*rows, rows[0]], steps=(10, 20), seeds=(0, 1), goals=4) == [10, 20]


def test_rows_are_read_as_they_were_written_and_damage_is_one_line(tmp_path):
    file, rows = tmp_path / "eval.jsonl", [row(0, 10, 1, 0.5), row(0, 10, 2, 0.3, action_noise=0.5)]
    file.write_text("".join(json.dumps(r.to_json()) + "\n" for r in rows))
    assert directory.evaluations(tmp_path) == rows and directory.usable_evaluations(tmp_path) == (rows, None)
    assert directory.evaluations(tmp_path / "nothing") == []
    with file.open("a") as out:
        out.write('{"seed": 0, "step": 10, "goal": 3, "episodes": 10, "successes": 11, "length": 5.0}\n{"seed":\n{"se')
    good, problem = directory.usable_evaluations(tmp_path)
    assert good == rows
    assert problem == f"{file}: line 3: 11 successes in 10 episodes of goal 3 (and 1 more damaged line)"
    with pytest.raises(UserError, match="line 3: 11 successes.*remove what is damaged or restore the file"):
        directory.evaluations(tmp_path)
    old = {"seed": 0, "step": 10, "task": 4, "episodes": 10, "successes": 5, "success": 0.5, "length": 5.0}
    assert EvalRow.from_json(old, "x").goal == 4

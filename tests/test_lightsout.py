"""Lights Out: three ways to the same distances, the ten published tasks, singular boards, data and environment."""

import gymnasium.utils.env_checker
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dualgoal.collect.lightsout import view_dataset
from dualgoal.envs import lightsout_puzzle
from dualgoal.envs.lightsout import LightsOut, View
from dualgoal.envs.lightsout_puzzle import TASKS, Puzzle, anchor_distances, distance, linear_table, press, search
from dualgoal.errors import UserError
from dualgoal.theory import processes

SMALL = ["1x1", "1x4", "2x2", "2x3", "3x3", "3x4", "4x4"]  # 2x3 and 4x4 are singular
sizes = st.builds(Puzzle, st.integers(1, 3), st.integers(1, 4))
quick = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def test_toggles_by_hand():
    np.testing.assert_array_equal(Puzzle(2, 2).toggles, [[1, 1, 1, 0], [1, 1, 0, 1], [1, 0, 1, 1], [0, 1, 1, 1]])
    assert Puzzle(4, 5).toggles.sum(1).tolist() == [3, 4, 4, 4, 3] + [4, 5, 5, 5, 4] * 2 + [3, 4, 4, 4, 3]


@pytest.mark.parametrize("size", TASKS)
def test_published_distances_of_every_task(size):
    puzzle = Puzzle.parse(size)
    starts, goals = lightsout_puzzle.task_boards(puzzle)
    expected = [task.distance for task in TASKS[size]]
    assert distance(puzzle, starts, goals).tolist() == expected
    table = linear_table(puzzle)
    assert table[puzzle.numbers(starts ^ goals)].tolist() == expected
    assert max(expected) <= puzzle.buttons == table.max()


def test_published_distances_by_search():
    puzzle = Puzzle(4, 5)
    starts, goals = lightsout_puzzle.task_boards(puzzle)
    table = search(puzzle)
    assert table[puzzle.numbers(starts ^ goals)].tolist() == [4, 10, 14, 16, 20]
    third = search(puzzle, int(puzzle.numbers(starts[2])))
    assert third[puzzle.numbers(goals[2])] == 14


@quick
@given(sizes, st.integers(0, 2**32 - 1))
def test_three_ways_agree_on_any_start(puzzle, seed):
    rng = np.random.default_rng(seed)
    start = int(rng.integers(2**puzzle.buttons))
    every = np.arange(2**puzzle.buttons, dtype=np.uint32)
    by_search = search(puzzle, start)
    np.testing.assert_array_equal(by_search, search(puzzle)[every ^ np.uint32(start)])
    np.testing.assert_array_equal(by_search, linear_table(puzzle)[every ^ np.uint32(start)])
    by_presses = np.asarray(distance(puzzle, puzzle.boards(np.uint32(start)), puzzle.boards(every)))
    np.testing.assert_array_equal(by_presses, np.where(by_search == lightsout_puzzle.UNREACHABLE, np.inf, by_search))


@pytest.mark.parametrize("size", SMALL)
def test_tables_agree(size):
    puzzle = Puzzle.parse(size)
    np.testing.assert_array_equal(search(puzzle), linear_table(puzzle))


def test_the_puzzle_is_a_process_with_these_distances():
    puzzle = Puzzle(2, 3)
    every = np.arange(2**6, dtype=np.uint32)
    process = processes.Process((every[:, None] ^ puzzle.masks)[..., None], np.ones((64, 6, 1)))
    boards = puzzle.boards(every)
    np.testing.assert_array_equal(
        processes.distances(process, 0.95), np.asarray(distance(puzzle, boards[:, None], boards[None]))
    )


def test_distance_counts_are_binomial_where_invertible():
    assert np.bincount(linear_table(Puzzle(3, 3))).tolist() == [1, 9, 36, 84, 126, 126, 84, 36, 9, 1]


def test_singular_board_takes_the_lightest_of_its_coset():
    puzzle = Puzzle(4, 4)
    assert len(puzzle.quiet) == 4 and not puzzle.invertible
    assert not (puzzle.quiet_patterns @ puzzle.toggles % 2).any()
    table = search(puzzle)
    assert (table != lightsout_puzzle.UNREACHABLE).sum() == 2**12 and table[
        table != lightsout_puzzle.UNREACHABLE
    ].max() == 7
    corner = np.zeros(16, np.uint8)
    corner[0] = 1
    assert np.isinf(distance(puzzle, np.zeros(16), corner)) == (table[1] == lightsout_puzzle.UNREACHABLE)
    with pytest.raises(UserError, match="rank 12 of 16"):
        anchor_distances(puzzle, np.zeros((1, 16)), corner)


@quick
@given(st.integers(1, 5), st.integers(1, 9), st.integers(0, 2**32 - 1))
def test_elimination_solves_what_presses_made(rows, columns, seed):
    puzzle = Puzzle(rows, columns)
    pattern = np.random.default_rng(seed).integers(0, 2, puzzle.buttons, dtype=np.uint8)
    lights = pattern @ puzzle.toggles % 2
    found = lights @ puzzle.inverse % 2
    np.testing.assert_array_equal(found @ puzzle.toggles % 2, lights)
    if puzzle.invertible:
        np.testing.assert_array_equal(found, pattern)


def test_large_boards_need_no_table():
    puzzle = Puzzle(20, 20)
    zero = np.zeros(400, np.uint8)
    pattern = np.random.default_rng(0).integers(0, 2, 400, dtype=np.uint8)
    assert puzzle.invertible
    assert distance(puzzle, zero, pattern @ puzzle.toggles % 2) == pattern.sum()


@quick
@given(st.sampled_from(["3x3", "4x5", "4x6"]), st.integers(0, 2**32 - 1))
def test_anchor_map_is_the_distances_affine_and_injective(size, seed):
    puzzle, rng = Puzzle.parse(size), np.random.default_rng(seed)
    anchors, boards = lightsout_puzzle.random_boards(puzzle, 64, rng), lightsout_puzzle.random_boards(puzzle, 50, rng)
    phi = np.asarray(anchor_distances(puzzle, anchors, boards))
    np.testing.assert_array_equal(phi, np.asarray(distance(puzzle, anchors[None], boards[:, None])))
    unit = np.asarray(anchor_distances(puzzle, anchors, puzzle.toggles))  # one press from the dark board each
    zero = np.asarray(anchor_distances(puzzle, anchors, np.zeros(puzzle.buttons)))
    x = np.asarray(lightsout_puzzle.presses(puzzle, boards))
    np.testing.assert_array_equal(phi, zero + x @ (unit - zero))
    assert np.linalg.matrix_rank(unit - zero) == puzzle.buttons


def test_representation_is_unique_for_every_board():
    puzzle = Puzzle(3, 3)
    anchors = lightsout_puzzle.random_boards(puzzle, 64, np.random.default_rng(0))
    phi = np.asarray(anchor_distances(puzzle, anchors, puzzle.boards(np.arange(512))))
    assert len(np.unique(phi, axis=0)) == 512


def test_press_is_pure_and_cancels_itself():
    puzzle = Puzzle(4, 5)
    boards = jnp.asarray(lightsout_puzzle.random_boards(puzzle, 8, np.random.default_rng(0)), jnp.float32)
    buttons = jnp.arange(8)
    once = jax.jit(jax.vmap(lambda b, a: press(puzzle, b, a)))(boards, buttons)
    np.testing.assert_array_equal(once, (boards + puzzle.toggles[:8]) % 2)
    np.testing.assert_array_equal(press(puzzle, once, buttons), boards)
    assert once.dtype == boards.dtype


def test_a_dataset_is_random_presses():
    puzzle = Puzzle(3, 3)
    data = view_dataset(View(puzzle), episodes=200, length=25, seed=1)
    assert data.rows == 200 * 26 and data.episodes == 200 and data.discrete and data.action_dim == 9
    now = np.flatnonzero(~data.terminals)
    expected = (data.observations[now] + puzzle.toggles[data.actions[now]]) % 2
    np.testing.assert_array_equal(data.observations[now + 1], expected)
    assert data.observations.dtype == np.float32 and data.actions.dtype == np.int32
    assert abs(data.observations[data.starts].mean() - 0.5) < 0.05 and len(np.unique(data.actions)) == 9
    again = view_dataset(View(puzzle), episodes=200, length=25, seed=1)
    assert data.provenance == again.provenance
    assert data.provenance["sha256"] != view_dataset(View(puzzle), 200, 25, seed=2).provenance["sha256"]


@pytest.mark.parametrize("size", ["3x3", "4x4"])
def test_environment_follows_gymnasium(size):
    gymnasium.utils.env_checker.check_env(LightsOut(size), skip_render_check=True)


def test_environment_solves_the_longest_task_by_pressing_everything():
    env = LightsOut("4x5")
    board, info = env.reset(options={"task_id": 5})
    assert info["distance"] == 20 and board.sum() == 0
    for button in range(20):
        board, reward, terminated, truncated, info = env.step(button)
        assert info["distance"] == 19 - button
        assert terminated == (button == 19) and reward == (0 if button == 19 else -1)
    assert info["success"] and truncated and (board == info["goal"]).all()


def test_environment_goals_can_be_reached_and_seeds_repeat():
    env, other = LightsOut("4x4"), LightsOut("4x4")
    for seed in range(5):
        board, info = env.reset(seed=seed)
        assert np.isfinite(info["distance"])
        np.testing.assert_array_equal(board, other.reset(seed=seed)[0])


def test_environment_pictures():
    env = LightsOut("2x2", render_mode="ansi")
    env.reset(options={"start": [1, 0, 0, 1], "goal": [0, 0, 0, 0]})
    assert env.render() == "#.   ..\n.#   .."
    picture = LightsOut("2x3", render_mode="rgb_array")
    picture.reset(seed=0)
    assert picture.render().shape == (32, 16 * 7, 3)


@pytest.mark.parametrize(
    ("use", "words"),
    [
        (lambda: Puzzle.parse("0x3"), "at least 1"),
        (lambda: Puzzle.parse("axb"), "ROWSxCOLUMNS"),
        (lambda: Puzzle.parse("4"), "ROWSxCOLUMNS"),
        (lambda: Puzzle.parse("-4x5"), "ROWSxCOLUMNS"),
        (lambda: Puzzle.parse("99x99"), "at most 1024"),
        (lambda: search(Puzzle.parse("8x8")), "2\\^64 boards does not fit in memory; .* up to 24 buttons"),
        (lambda: linear_table(Puzzle.parse("5x5")), "up to 24 buttons"),
        (lambda: lightsout_puzzle.task_boards(Puzzle(3, 4)), "no evaluation tasks; boards with tasks: 3x3, 4x5, 4x6"),
        (lambda: Puzzle(2, 2).read("01/2"), "2 rows of 2"),
        (lambda: LightsOut("3x3").reset(options={"task_id": 6}), "1 to 5"),
        (lambda: LightsOut("3x3").reset(options={"goal": [2] * 9}), "'goal'"),
        (lambda: LightsOut("3x3").step(9), "0 to 8"),
        (lambda: LightsOut("3x3", render_mode="human"), "ansi"),
    ],
)
def test_bad_input_says_what_is_possible(use, words):
    with pytest.raises(UserError, match=words):
        use()

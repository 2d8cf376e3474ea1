"""The Lights Out experiment as an ordinary run: its settings, its views, on-device evaluation, and a solved board."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from dualgoal.agent import Agent
from dualgoal.cli.main import main
from dualgoal.collect.lightsout import view_dataset
from dualgoal.envs import lightsout_puzzle
from dualgoal.envs.lightsout import ANCHORS, SeededLightsOut, View
from dualgoal.envs.lightsout_puzzle import Puzzle
from dualgoal.errors import UserError
from dualgoal.paper import lightsout, lightsout_evaluation
from dualgoal.paper.lightsout import Experiment
from dualgoal.report import boards, reader
from dualgoal.reps import Dual, Orig
from dualgoal.runs import config, directory, policy
from dualgoal.runs.episodes import play

SMALL = {"algo.hidden": [64, 64], "batch_size": 64, "lr": 2e-3, "tau": 0.05}


def test_preset_is_table_t8():
    run = Experiment("4x6", "ideal").to_run()
    assert (run.lr, run.discount, run.tau, run.batch_size, run.steps) == (1e-4, 0.95, 0.005, 1024, 1_000_000)
    assert run.algo.hidden == (1024,) * 4 and run.seeds == (0, 1, 2, 3) and run.episodes == 15
    goals = run.algo.roles["value"].goals
    assert (goals.current, goals.geometric, goals.uniform, goals.random) == (0.2, 0, 0.5, 0.3)
    assert run.reached_by == "state" and run.eval_every == 100_000
    assert isinstance(run.rep, Orig) and isinstance(Experiment("4x5", "dual").to_run().rep, Dual)
    assert config.from_dict(config.to_dict(run)) == run
    ids = {Experiment(size, rep).to_run().id for size in ("4x5", "4x6") for rep in lightsout.REPS}
    assert len(ids) == 2 * len(lightsout.REPS)


def test_a_view_is_its_name():
    for view in (View(Puzzle(4, 5)), View(Puzzle(4, 6), True), View(Puzzle(3, 3), True, "standardised", 7)):
        assert View.parse(view.task) == view
        if view.ideal:
            goals = replace(view, goals_only=True)
            assert View.parse(goals.task) == goals != view
    assert View(Puzzle(4, 5), ideal=True).task == "lightsout-4x5-ideal"
    assert View.parse("lightsout-3x3-drawn") == View(Puzzle(3, 3), drawn=True)


def test_a_drawn_board_shows_every_light_in_its_place():
    view = View(Puzzle(2, 3), drawn=True)
    board = np.array([1, 0, 0, 0, 0, 1], np.float32)
    image = np.asarray(view.state(board))
    assert image.shape == (16, 24, 3) and image.dtype == np.uint8
    middles = image[3::8, 3::8]
    np.testing.assert_array_equal(middles[..., 2] > middles[..., 0], board.reshape(2, 3) == 1)  # lit ones are blue
    assert (image[::8] == 160).all() and (image[:, ::8] == 160).all(), "between lights is the board"
    np.testing.assert_array_equal(view.goal(np.stack([board, 1 - board]))[0], image)


def test_drawn_data_are_the_boards_of_the_bits(monkeypatch):
    monkeypatch.setattr("dualgoal.collect.lightsout.BLOCK", 100)
    drawn, bits = View(Puzzle(2, 3), drawn=True), View(Puzzle(2, 3))
    seen, boards = (view_dataset(view, 12, 25, seed=0) for view in (drawn, bits))
    assert seen.observations.shape == (12 * 26, 16, 24, 3) and seen.observations.dtype == np.uint8
    np.testing.assert_array_equal(seen.observations, drawn.state(boards.observations))
    np.testing.assert_array_equal(seen.actions, boards.actions)


def test_ideal_views_hold_distances():
    view, scaled = View(Puzzle(4, 5), True), View(Puzzle(4, 5), True, "standardised")
    data = view_dataset(view, episodes=200, length=25, seed=0)
    assert data.observations.shape == (200 * 26, ANCHORS) and data.action_dim == 20
    assert data.observations.min() >= 0 and data.observations.max() <= 20
    assert abs(data.observations.mean() - 10) < 0.1
    other = view_dataset(scaled, episodes=200, length=25, seed=0)
    assert abs(other.observations.mean()) < 0.05 and abs(other.observations.std() - 1) < 0.05
    assert data.provenance["sha256"] != other.provenance["sha256"]
    bits = view_dataset(View(Puzzle(4, 5)), episodes=200, length=25, seed=0)
    np.testing.assert_array_equal(bits.actions, data.actions)
    np.testing.assert_array_equal(np.asarray(view.state(bits.observations)), data.observations)
    assert (View(Puzzle(4, 5), True, anchor_seed=1).anchors != view.anchors).any()


def test_distances_can_stand_for_goals_alone():
    both, goals = View(Puzzle(3, 3), True, "standardised"), View(Puzzle(3, 3), True, "standardised", goals_only=True)
    bits, seen, data = (view_dataset(view, 20, 25, seed=0) for view in (View(Puzzle(3, 3)), both, goals))
    np.testing.assert_array_equal(data.observations, bits.observations)
    np.testing.assert_array_equal(data.goals, seen.observations)
    other = view_dataset(replace(goals, anchor_seed=1), 20, 25, seed=0)
    assert len({x.provenance["sha256"] for x in (bits, seen, data, other)}) == 4


def test_corners_can_be_pressed_more_often():
    view = View(Puzzle(2, 3))
    uniform, corners = (view_dataset(view, 400, 25, 0, weight) for weight in (1.0, 4.0))
    share = [
        np.bincount(data.actions.reshape(400, 26)[:, :-1].ravel(), minlength=6) / 10_000 for data in (uniform, corners)
    ]
    np.testing.assert_allclose(share[0], np.full(6, 1 / 6), atol=0.015)
    np.testing.assert_allclose(share[1], np.array([4, 1, 4, 4, 1, 4]) / 18, atol=0.015)
    boards, pressed = corners.observations.reshape(400, 26, 6), corners.actions.reshape(400, 26)[:, :-1]
    np.testing.assert_array_equal(np.abs(np.diff(boards, axis=1)), view.puzzle.toggles[pressed])
    assert corners.provenance["corner_presses"] == 4 and "corner_presses" not in uniform.provenance
    assert corners.provenance["source"].endswith(", corners 4 times as often")  # printed below a table


def test_a_small_board_without_goals_is_tried_on_all_pairs(tmp_path, capsys):
    out = str(tmp_path / "run")
    small = [
        "--scaling",
        "standardised",
        "--hidden",
        "32",
        "--batch-size",
        "64",
        "--lr",
        "5e-3",
        "--tau",
        "0.1",
        "--seeds",
        "0",
        "--quiet",
    ]
    command = ["lightsout", "--size", "2x2", "--rep", "ideal", "--steps", "600", "--trajectories", "200", "--out", out]
    assert main([*command, *small]) == 0
    assert "this board has no evaluation goals, try --pairs" in capsys.readouterr().out
    assert main([*command, *small, "--pairs"]) == 0
    assert capsys.readouterr().out.startswith("seed 0, step 600: solves 100.0000% of all pairs\n")


def test_pairs_of_a_large_board_are_refused_before_training(tmp_path, capsys):
    words = ["lightsout", "--size", "4x5", "--pairs", "--steps", "1", "--trajectories", "2", "--hidden", "8", "--quiet"]
    assert main([*words, "--seeds", "0", "--out", str(tmp_path / "run")]) == 2
    assert "run: a 4x5 board has 4^20 pairs; all are tried up to 12 buttons" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("rep", lightsout.REPS)
def test_every_representation_trains_and_plays_as_its_environment_shows_boards(rep, tmp_path):
    options = SMALL | ({} if rep in ("orig", *lightsout.EXACT) else {"rep.hidden": [16], "rep.dim": 8})
    run = Experiment("3x3", rep, seeds=(0,), steps=4, eval_every=4).to_run(**options | {"algo.hidden": [16]})
    out = lightsout.train(run, tmp_path / "run", trajectories=50, quiet=True)
    losses = [row[name] for row in directory.inspect(out).metrics for name in row if name.endswith("/loss")]
    assert losses and np.isfinite(losses).all()
    loaded = policy.load(out)
    env = loaded.make_env()
    for row in directory.evaluations(out):
        played = play([env], loaded.towards, row.goal, first=0, count=1)[0]
        assert (float(played.success), float(played.length)) == (row.success, row.length)


@pytest.mark.parametrize("rep", ["orig", "dual_siamese"])
def test_agents_learn_from_drawn_boards_and_play_on_them(rep, tmp_path):
    learned = {} if rep == "orig" else {"rep.hidden": [16], "rep.dim": 8}
    experiment = Experiment("3x3", rep, seeds=(0,), steps=2, eval_every=2, batch_size=16, drawn=True)
    run = experiment.to_run(**learned, **{"algo.hidden": [16]})
    assert run.task == "lightsout-3x3-drawn" and run.reached_by == "state"
    out = lightsout.train(run, tmp_path / "run", trajectories=20, quiet=True)
    loaded = policy.load(out)
    env = loaded.make_env()
    assert env.observation_space.contains(env.reset(seed=0, options={"task_id": 1})[0])
    for row in directory.evaluations(out):
        played = play([env], loaded.towards, row.goal, first=0, count=1)[0]
        assert (float(played.success), float(played.length)) == (row.success, row.length)
    learned, exact = lightsout_evaluation.one_light_apart(out, seed=0)
    assert learned.shape == exact.shape == (9,) and np.isfinite(learned).all()
    view, problems = reader.read(out)
    assert not problems and view.part("rep") == ("images" if rep == "orig" else rep)
    with pytest.raises(UserError, match="a page plays boards that are bits or distances, not images"):
        boards.player(out, view.board_view(), "drawn", 0)


@pytest.fixture(scope="module")
def solved(tmp_path_factory):
    """A 3x3 board solved by a small network, two seeds."""
    out = tmp_path_factory.mktemp("lightsout") / "run"
    run = Experiment("3x3", "ideal", seeds=(0, 1), steps=1500, scaling="standardised").to_run(**SMALL)
    return lightsout.train(run, out, trajectories=1000, quiet=True)


def test_ideal_solves_all_pairs_of_a_board(solved):
    assert lightsout_evaluation.all_pairs(solved, seed=0) == 1.0


def test_a_solved_board_is_known_by_every_light(solved):
    learned, exact = lightsout_evaluation.one_light_apart(solved, seed=0)
    assert exact.tolist() == [5, 4, 5, 4, 5, 4, 5, 4, 5]
    np.testing.assert_allclose(learned, exact, atol=1)
    said = lightsout_evaluation.summary(solved, pairs=True).splitlines()
    assert said[0] == "seed 0, step 1,500: solves goals 1, 2, 3, 4, 5; 100.0000% of all pairs" and len(said) == 6
    assert said[1].startswith("  distance of boards that differ in one light: learned ")
    assert said[1].endswith("; exact 5 4 5 4 5 4 5 4 5")
    agreement, followed = lightsout_evaluation.learned_distance(solved, seed=0)
    assert agreement > 0.9 and followed == 1.0
    words = f"rank correlation {agreement:.2f}; going where the learned one is least solves 100.0%"
    assert said[2] == f"  learned and exact distances of all pairs: {words}"


def test_following_a_distance_that_counts_lights_solves_what_it_can(tmp_path, monkeypatch):
    """Pressing whatever leaves fewest lights wrong, against a search by hand of the four boards of a 1x2 puzzle."""
    run = Experiment("1x2", "orig", seeds=(0,), steps=2).to_run(**SMALL)
    out = lightsout.train(run, tmp_path / "run", trajectories=50, quiet=True)
    monkeypatch.setattr(Agent, "value", lambda self, params, s, g, key, of: -jnp.abs(s - g).sum(axis=-1))
    agreement, followed = lightsout_evaluation.learned_distance(out, seed=0)
    assert followed == 0.5, "both buttons flip both lights: a board reaches itself and its opposite, nothing else"
    assert agreement == pytest.approx(1), "of those pairs, the only ones with a distance"


def test_pairs_may_be_solved_without_a_light(tmp_path, monkeypatch):
    """A policy to which the goal and the board that differs from it in the centre are the same."""
    run = Experiment("3x3", "orig", seeds=(0,), steps=2).to_run(**SMALL)
    out = lightsout.train(run, tmp_path / "run", trajectories=50, quiet=True)
    puzzle = Puzzle(3, 3)
    centre = lightsout_puzzle.presses(puzzle, np.eye(9)[4])

    def act(self, params, s, g, key, temperature=0.0):
        to_goal = lightsout_puzzle.presses(puzzle, jnp.abs(s - g))
        to_other = jnp.abs(to_goal - centre[None])
        nearer = (to_other.sum(axis=-1) < to_goal.sum(axis=-1))[:, None]
        return jnp.where(nearer, to_other, to_goal).argmax(axis=-1)

    monkeypatch.setattr(Agent, "act", act)
    assert lightsout_evaluation.all_pairs(out, 0, without=4) == 1.0
    assert lightsout_evaluation.all_pairs(out, 0) == 0.5


def test_a_network_that_ignores_a_light_has_learned_no_distance_for_it(tmp_path, monkeypatch):
    run = Experiment("3x3", "orig", seeds=(0,), steps=2).to_run(**SMALL)
    out = lightsout.train(run, tmp_path / "run", trajectories=50, quiet=True)
    corners = np.array([1, 0, 1, 0, 0, 0, 1, 0, 1])
    monkeypatch.setattr(policy.Policy, "distance", lambda self, s, g: (np.abs(s - g) @ corners).astype(float))
    assert lightsout_evaluation.one_light_apart(out, seed=0)[0].tolist() == corners.tolist()


def test_a_run_is_an_ordinary_run(solved):
    rows = directory.evaluations(solved)
    assert len(rows) == 10 * 2 * 5 and {row.goal for row in rows} == {1, 2, 3, 4, 5}
    assert all(row.successes in (0, 15) and row.episodes == 15 for row in rows)
    assert directory.read_run(solved).task == "lightsout-3x3-ideal-standardised"
    first, last = ([row for row in rows if row.step == step] for step in (150, 1500))
    assert np.mean([row.success for row in first]) < 0.5
    assert [row.length for row in last] == 2 * [2, 5, 8, 9, 7]  # optimal, both seeds


def test_on_device_and_environment_agree(solved):
    env = SeededLightsOut(directory.read_run(solved).task)
    for step in directory.steps(solved):
        loaded = policy.load(solved, seed=1, step=step)
        for row in [r for r in directory.evaluations(solved) if r.step == step and r.seed == 1]:
            played = play([env], loaded.towards, row.goal, first=0, count=1)[0]
            assert (float(played.success), float(played.length)) == (row.success, row.length)


def test_running_again_finds_it_complete_and_other_data_are_refused(solved):
    run = directory.read_run(solved)
    before = (solved / "eval.jsonl").read_bytes()
    lightsout.train(run, solved, trajectories=1000, quiet=True)
    assert (solved / "eval.jsonl").read_bytes() == before
    with pytest.raises(UserError, match="other data"):
        lightsout.train(run, solved, trajectories=1001, quiet=True)


@pytest.fixture
def asked(monkeypatch):
    """What would be trained, instead of training it."""
    calls = []
    monkeypatch.setattr(lightsout, "train", lambda run, out, *data, **options: calls.append((run, data)))
    return calls


def test_experiment_takes_every_open_choice(asked):
    Experiment(
        "3x3", "ideal", seeds=(0,), steps=40, batch_size=16, hidden=(16,), scaling="standardised",
        network="onehot", double=True, loss="huber", reached_by="row", trajectories=50, anchor_seed=3,
    ).train("x")  # fmt: skip
    Experiment("4x5", "dual", hidden=(32,), trained_by="all", hard_goals=0.25).train("x")
    (run, data), (learned, _) = asked
    assert run.task == "lightsout-3x3-ideal-standardised-anchors3" and run.reached_by == "row"
    assert (run.algo.network, run.algo.double, run.algo.loss, run.eval_every) == ("onehot", True, "huber", 4)
    assert data == (50, 25, 0, 1.0)
    assert learned.rep.hidden == learned.algo.hidden == (32,) and learned.task == "lightsout-4x5"
    assert learned.rep.hard_goals == 0.25 and Experiment("4x5", "dual").to_run().rep.hard_goals == 0
    assert learned.rep.trained_by == "all" and Experiment("4x5", "dual").to_run().rep.trained_by == "rep"


def test_a_cell_of_the_figure_is_the_default_experiment():
    for size in ("4x5", "4x6"):
        for column, rep in (("orig", "orig"), ("dual", "ideal")):
            assert lightsout.configure(f"lightsout-{size}", column, "dqn") == Experiment(size, rep).to_run()
    assert lightsout.configure("lightsout-4x5", "orig", "dqn", steps=1000).eval_every == 100


@pytest.mark.parametrize(
    ("use", "words"),
    [
        (lambda: Experiment("4x5", "vib").to_run(), "orig, ideal, ideal_goals, dual"),
        (lambda: Experiment("0x3", "orig").to_run(), "at least 1"),
        (lambda: Experiment("five", "orig").to_run(), "ROWSxCOLUMNS"),
        (lambda: Experiment("5x6", "orig").to_run(), "no evaluation tasks; boards with tasks: 3x3, 4x5, 4x6"),
        (lambda: Experiment("3x3", "orig", corner_presses=0).to_run(), "corner_presses is 0; expected at least 0.001"),
        (lambda: Experiment("3x3", "orig", length=1).train("x"), "length is 1; expected at least 2"),
        (lambda: Experiment("4x5", "ideal", scaling="log").to_run(), "unknown scaling 'log'"),
        (lambda: Experiment("4x5", "orig").to_run(colour=1), "colour"),
        (lambda: Experiment("4x5", "ideal", trained_by="all").to_run(), "ideal has nothing that could be trained"),
        (lambda: Experiment("4x5", "orig", hard_goals=0.5).to_run(), "hard_goals: orig has no loss of its own"),
        (lambda: Experiment("4x5", "dual_pair", hard_goals=0.5).to_run(), "which a phi that reads both cannot"),
        (lambda: Experiment("4x5", "ideal", drawn=True).to_run(), "not as both"),
        (lambda: View(Puzzle(3, 3), ideal=True, drawn=True), r"as an image \(drawn\) or as exact distances"),
        (lambda: View.parse("lightsout-4x5-deal"), "expected lightsout-ROWSxCOLUMNS"),
        (lambda: View.parse("lightsout-4x5-ideal-drawn"), "not as both"),
        (lambda: View(Puzzle(4, 4), True).state(np.zeros(16)), "rank 12 of 16"),
        (lambda: lightsout.train(Experiment("4x5").to_run(goal_noise=0.1), "x"), "without noise"),
        (
            lambda: lightsout.train(Experiment("4x5").to_run(), "x", trajectories=0),
            "trajectories is 0; expected at least 1",
        ),
    ],
)
def test_bad_input_says_what_is_possible(use, words):
    with pytest.raises(UserError, match=words):
        use()


def test_evaluation_tasks_are_the_published_ones():
    starts, goals = lightsout_puzzle.task_boards(Puzzle(4, 6))
    env = SeededLightsOut("lightsout-4x6")
    for task in range(5):
        board, info = env.reset(seed=0, task_id=task + 1)
        np.testing.assert_array_equal(board, starts[task])
        np.testing.assert_array_equal(info["goal"], goals[task])
    assert env.num_tasks == 5 and env.max_steps == 24 and env.observation_shape == (24,)

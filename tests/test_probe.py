"""`dualgoal probe`: scores of a learned distance on recorded puzzles, and the command on a tiny run."""

import json
import math
import shutil

import numpy as np
import pytest

import pages
import tiny
from dualgoal.cli.main import main
from dualgoal.envs import lightsout_puzzle
from dualgoal.envs.lightsout_puzzle import Puzzle
from dualgoal.probes import trained


def rows(count=400, episodes=20, seed=0):
    """Boards that change now and then while an arm wanders through few places; an observation is all of it."""
    rng = np.random.default_rng(seed)
    boards = rng.integers(0, 2, (episodes, 9))[rng.integers(episodes, size=count)]
    joints = 0.5 * rng.integers(0, 2, (count, 6)) + 0.02 * rng.normal(size=(count, 6))
    seen = np.concatenate([boards, joints], axis=-1)
    return trained.Rows(seen, seen, boards, joints)


def knowing(s, g):
    return 3 * np.abs(s - g)[:, :9].sum(-1) + 2 * np.linalg.norm(s[:, 9:] - g[:, 9:], axis=-1)


def test_a_distance_that_counts_buttons_gets_full_marks():
    read = lambda g, s: g[:, :9] @ np.tri(9) - s[:, :9]
    slope, press, arm, area, near, probe = trained.scored(rows(), knowing, read, 0)
    assert (slope, press, arm) == pytest.approx((3, 0, 2), abs=1e-9) and near > 100
    assert area == 1 and probe == 1


def test_a_distance_that_counts_presses_is_told_from_one_that_counts_buttons():
    board, given = Puzzle(4, 4), rows()
    given = given._replace(boards=np.random.default_rng(1).integers(0, 2, (400, 16)))
    given = given._replace(observations=np.arange(400), goals=np.arange(400))
    exact = lambda s, g: np.asarray(lightsout_puzzle.distance(board, given.boards[s], given.boards[g]))
    assert np.isinf(exact(np.arange(200), np.arange(200, 400))).any(), "not every board can be reached"
    counting = lambda s, g: np.nan_to_num(5 * exact(s, g), posinf=7.0)
    assert trained.scored(given, counting, None, 0)[1] == pytest.approx(5)
    assert trained.scored(given._replace(boards=given.boards[:, :8]), lambda s, g: s, None, 0)[1] is None


def test_a_distance_that_sees_the_arm_alone_gets_none():
    blind = lambda s, g: 2 * np.linalg.norm(s[:, 9:] - g[:, 9:], axis=-1)
    slope, _, arm, area, _, probe = trained.scored(rows(), blind, lambda g, s: g[:, 9:], 0)
    assert (slope, arm) == pytest.approx((0, 2), abs=1e-9)
    assert abs(area - 0.5) < 0.1, "equal boards are as far apart as different ones, arm by arm"
    assert probe < 0.75


def test_near_pairs_differ_in_the_board_and_in_nothing_else():
    given = rows()
    here, same, other = trained.near_pairs(given)
    assert (given.boards[here] == given.boards[same]).all() and (here != same).all()
    assert (given.boards[here] != given.boards[other]).any(-1).all()
    apart = lambda there: np.linalg.norm(given.joints[here] - given.joints[there], axis=-1)
    assert max(apart(same).max(), apart(other).max()) <= trained.NEAR
    assert abs(apart(same).mean() - apart(other).mean()) < 0.005
    alone = given._replace(boards=np.zeros_like(given.boards))
    assert all(len(part) == 0 for part in trained.near_pairs(alone))
    assert trained.scored(alone, knowing, None, 0)[3:] == (None, 0, None)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("probe")
    tiny.untrained(folder / "run", tiny.make_data(folder / "data"), "dual", "none")
    rng = np.random.default_rng(0)
    file = folder / "data" / f"{tiny.TASK}-val.npz"
    with np.load(file) as stored:
        arrays = dict(stored)
    count = len(arrays["terminals"])
    np.savez(file, **arrays, button_states=rng.integers(0, 2, (count, 9)), qpos=rng.normal(size=(count, 20)) / 50)
    return folder


def test_the_command(run, capsys):
    assert main(["probe", str(run / "run"), "--data", str(run / "data"), "--count", "50"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 3 and "linear probe" in printed[0]
    assert main(["probe", str(run / "run"), "--data", str(run / "data"), "--seeds", "3", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["rep"], found["algo"], found["seed"], found["step"]) == ("dual", "none", 3, 40)
    assert found["value"] == "rep"
    assert main(["probe", str(run / "run"), "--data", str(run / "data"), "--value", "algo"]) == 2
    assert "NoAlgorithm learns no value" in capsys.readouterr().err
    assert all(math.isfinite(found[k]) for k in ("slope", "arm", "probe"))


def test_no_run_is_one_line(capsys):
    assert main(["probe", "--data", "data"]) == 2
    assert capsys.readouterr().err == "dualgoal: no run to probe; give one or more run directories\n"


def test_several_runs_stand_below_each_other(run, capsys):
    twice = [str(run / "run")] * 2
    assert main(["probe", *twice, "--data", str(run / "data"), "--seeds", "3", "--count", "50"]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 and lines[0] == lines[1] and lines[0].startswith("dual + none  rep       3         40  ")
    assert len(head) == len(lines[0]) and head.endswith("linear probe")


def test_runs_of_one_pair_are_told_apart(run, tmp_path, capsys):
    shutil.copytree(run / "run", tmp_path / "again")
    words = ["probe", str(run / "run"), str(tmp_path / "again"), "--data", str(run / "data"), "--seeds", "3"]
    assert main([*words, "--count", "50"]) == 0
    _, first, second = capsys.readouterr().out.splitlines()
    assert first.startswith(f"dual + none ({run / 'run'}) ") and second.startswith(
        f"dual + none ({tmp_path / 'again'}) "
    )
    assert main([*words, "--count", "50", "--json"]) == 0
    assert [row["run"] for row in json.loads(capsys.readouterr().out)] == words[1:3]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--split", "train"], "no array 'button_states'; buttons are probed on datasets of puzzles"),
        (["--count", "1"], "count is 1; expected at least 4"),
        (["--seeds", "7"], "seed 7"),
    ],
)
def test_what_cannot_be_probed_is_one_line(run, words, problem, capsys):
    assert main(["probe", str(run / "run"), "--data", str(run / "data"), *words]) == 2
    said = capsys.readouterr().err
    assert problem in said and said.count("\n") == 1


def test_the_page_on_visual_puzzles_has_the_scores_of_its_file():
    rows = json.loads((pages.ROOT / "results" / "probe_visual_puzzle.json").read_text())
    runs: dict = {}
    for row in rows:
        runs.setdefault((row["rep"], row["algo"], row["step"]), []).append(row)
    both = lambda seeds, name, digits: ", ".join(f"{row[name]:.{digits}f}" for row in seeds if row[name] is not None)
    page = (pages.ROOT / "docs" / "visual_puzzles.md").read_text()
    assert pages.table(page, "## On visual-puzzle-3x3 itself") == [
        [
            *(f"`{rep}`", f"`{algo}`", f"{step:,}", both(seeds, "slope", 2), both(seeds, "arm", 2)),
            *(both(seeds, "area", 3), both(seeds, "probe", 3) or "no z"),
        ]
        for (rep, algo, step), seeds in runs.items()
    ]
    assert {(row["seed"], row["near"]) for row in rows} == {(0, 1360), (1, 1360)}

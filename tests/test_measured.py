"""`eval` leaves its rows where `report` and `compare` find them, and never among those of training."""

import dataclasses
import hashlib
import json
import re
import warnings
from pathlib import Path

import numpy as np
import pytest

from dualgoal import imports
from dualgoal.cli.main import main
from dualgoal.errors import UserError
from dualgoal.paper import pairwise, stats
from dualgoal.report import page
from dualgoal.runs import directory, environment, evaluation, measured
from dualgoal.runs.evaluation import Plan
from dualgoal.runs.facts import DataFacts
from dualgoal.runs.rows import Conditions, EvalRow
from run_files import rows, write_run
from tiny import tiny_run

RUN = tiny_run(episodes=10, eval_every=10)


def row(seed=0, step=40, goal=1, successes=5, noise=0.0):
    return EvalRow(seed, step, goal, 10, successes, 50.0, noise)


@pytest.fixture
def run(tmp_path):
    return write_run(tmp_path / "a", RUN, rows(RUN, 4))


def test_rows_are_read_as_they_were_written_and_the_later_one_counts(run):
    before = (run / directory.EVALUATIONS).read_bytes()
    measured.write(run, [row(), row(goal=2)], Conditions())
    measured.write(run, [row(successes=9)], Conditions())
    measured.write(run, [row(successes=1)], Conditions(eval_seed=7, random=True))
    found, problem = measured.read(run)
    assert problem is None and len((run / measured.FILE).read_text().splitlines()) == 4
    assert [(m.goal, m.successes, m.eval_seed, m.random) for m in found] == [
        (1, 9, 0, False), (2, 5, 0, False), (1, 1, 7, True),
    ]  # fmt: skip
    assert found[2].conditions.words == "--eval-seed 7 --random"
    exact = Conditions(goal_noise=0.12345678, action_noise=0.5, eval_seed=1234567)
    assert exact.words == "--goal-noise 0.12345678 --action-noise 0.5 --eval-seed 1234567", "it repeats the evaluation"
    assert (run / directory.EVALUATIONS).read_bytes() == before and directory.evaluations(run) == rows(RUN, 4)
    assert directory.inspect(run).measured == tuple(found)


@pytest.mark.parametrize("damage", ["nonsense", "{}", '{"eval_seed": "a"}', json.dumps(row().to_json())])
def test_damaged_rows_cost_only_themselves(run, damage):
    measured.write(run, [row()], Conditions())
    with (run / measured.FILE).open("a") as file:
        file.write(damage + "\n")
    found, problem = measured.read(run)
    assert len(found) == 1 and f"{measured.FILE}: line 2" in problem
    with pytest.raises(UserError, match="line 2.*remove what is damaged"):
        pairwise.compare([run, run], rows="eval")
    assert any(f"{measured.FILE}: line 2" in line for line in directory.inspect(run).problems)


class Instant:
    """In place of worker processes: every second episode reaches its goal."""

    def __init__(self, plan, workers, env):
        self.plan = plan

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def submit(self, path, step):
        self.step = step
        Instant.films = {job.goal: Path(job.video).name for job in self.plan.jobs(path, step) if job.video}

    def collect(self, wait):
        plan, noise = self.plan, self.plan.conditions.goal_noise
        half = (plan.episodes, plan.episodes // 2, 9.0, noise)
        return [(self.step, [EvalRow(s, self.step, g, *half) for s in plan.seeds for g in range(1, plan.goals + 1)])]


@pytest.fixture
def instant(monkeypatch):
    monkeypatch.setattr(evaluation, "WorkerEvaluator", Instant)
    monkeypatch.setattr(directory, "choose_step", lambda path, step: step or 40)
    monkeypatch.setattr(environment, "count_goals", lambda run, facts, env, video: 2)


def test_eval_records_unless_told_not_to(run, instant, capsys):
    assert main(["eval", str(run), "--episodes", "4", "--goal-noise", "0.5", "--no-record"]) == 0
    assert not (run / measured.FILE).exists()
    assert main(["eval", str(run), "--episodes", "4", "--goal-noise", "0.5", "--seeds", "3"]) == 0
    found, _ = measured.read(run)
    assert [(m.seed, m.goal, m.successes) for m in found] == [(3, goal, 2) for goal in range(1, 6)]
    assert found[0].conditions == Conditions(goal_noise=0.5)
    capsys.readouterr()


def test_python_records_on_request_and_keeps_the_numbers_where_it_cannot(run, instant):
    assert len(evaluation.evaluate(run, episodes=2)) == 10 and not (run / measured.FILE).exists()
    (run / measured.FILE).mkdir()
    with pytest.warns(evaluation.NotRecorded, match="not recorded: .*measured.jsonl"):
        assert len(evaluation.evaluate(run, episodes=2, record=True)) == 10
    (run / measured.FILE).rmdir()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        evaluation.evaluate(run, episodes=2, record=True)
    assert len(measured.read(run)[0]) == 10


def test_numbers_of_numpy_are_recorded_as_pythons_own(run, instant):
    """A sweep over np.linspace must not lose its evaluations when their rows are written."""
    told = {"goal_noise": np.float32(0.5), "eval_seed": np.int64(3), "max_steps": np.int32(9), "random": np.True_}
    evaluation.evaluate(run, episodes=np.int64(2), seeds=np.array([3]), success=0.5, record=True, **told)
    evaluation.evaluate(run, episodes=2, seeds=np.int64(0), record=True)
    found, problem = measured.read(run)
    assert problem is None and [(m.seed, m.goal) for m in found] == [(3, 1), (3, 2), *((0, g) for g in range(1, 6))]
    assert found[0].conditions == Conditions(0.5, 0.0, 3, True, success="0.5", max_steps=9)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"seeds": [3, 3]}, "seeds 3, 3 are not all different; give each of them once"),
        ({"seeds": [0.0]}, "seeds is 0.0; expected a whole number"),
        ({"seeds": "0"}, "seeds is '0'; expected a tuple of whole numbers"),
        ({"random": 1}, "random is 1; expected True or False"),
        ({"max_steps": 2.5}, "max_steps is 2.5; expected a whole number"),
        ({"goal_noise": "0.1"}, "goal_noise is '0.1'; expected a number"),
        ({"eval_goals": [[1, 2]]}, "eval_goals is ((1, 2),); expected a text"),
    ],
)
def test_what_could_not_be_read_again_is_refused_before_playing(run, instant, wrong, words):
    with pytest.raises(UserError, match=re.escape(words)):
        evaluation.evaluate(run, episodes=2, record=True, **wrong)
    assert not (run / measured.FILE).exists()


def test_films_under_other_conditions_replace_none_of_training(tmp_path, instant):
    noisy = tiny_run(episodes=10, goal_noise=0.2)
    path = write_run(tmp_path / "a", noisy, [])
    film = lambda **options: evaluation.evaluate(path, video=True, **options) and Instant.films[2]
    trained = Plan.of(noisy, 2, video=True).jobs(path, 40)[-1]
    assert film() == film(goal_noise=0.2) == Path(trained.video).name == "step-000000040-seed-0-goal-2.mp4"
    assert film(random=True) == "step-000000040-seed-0-goal-2-goal-noise-0.2-random.mp4"
    assert film(goal_noise=0) == "step-000000040-seed-0-goal-2-no-noise.mp4"
    assert len(film(env=f"{'x' * 300}/{__file__}:Tiny", goal_noise=0)) < 150


def test_the_report_shows_them(run, tmp_path):
    measured.write(run, [row(goal=g, successes=g) for g in range(1, 6)], Conditions(eval_seed=3))
    text = page.write_report([run], tmp_path / "r.html").read_text()
    assert "Evaluated again" in text and "--eval-seed 3" in text and ">30<" in text, "the mean of 10 to 50 percent"
    assert "not part of a run" not in text


# Comparisons ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def pair(tmp_path):
    """Two runs of two seeds: 40 % against 70 % and 80 %, where goal 5 is never reached."""
    first = write_run(tmp_path / "a", RUN, rows(RUN, 4))
    better = tiny_run("dual", "gcivl", episodes=10, eval_every=10)
    made = [
        EvalRow(seed, step, goal, 10, 0 if goal == 5 else 7 + (seed == 3), 5.0)
        for step in better.eval_steps for seed in better.seeds for goal in range(1, 6)
    ]  # fmt: skip
    return first, write_run(tmp_path / "b", better, made)


def test_two_runs_are_compared_per_goal_and_overall(pair, capsys):
    found = pairwise.compare(pair)
    a, b = found.sides
    assert a.overall.mean == 40.0
    assert a.overall.interval == pytest.approx((34.6, 45.6), abs=0.05), "Wilson's, as the seeds agree"
    assert a.steps == (20, 30, 40)
    assert b.overall.mean == pytest.approx(60.0) and {g: s.mean for g, s in b.goals.items()} == {
        1: 75.0, 2: 75.0, 3: 75.0, 4: 75.0, 5: 0.0,
    }  # fmt: skip
    (change,) = found.differences
    assert change.overall.mean == pytest.approx(20.0) and change.goals[5].mean == -40.0
    assert change.goals[5].welch is None, "the seeds of both agree, which is no interval without width"
    assert pairwise._gap(stats.Gap(-11.7, None, (-117.6, 94.2))) == "-11.7 [-100.0, +94.2]"
    low, high = change.overall.welch
    assert low < 20 < high and change.improvement == 1.0, "both seeds are better than both of the other"
    assert main(["compare", *map(str, pair)]) == 0
    text = capsys.readouterr().out
    assert "overall  40.0 [34.6, 45.6]  60.0 [9.2, 100.0]   +20.0 [" in text and "goal 5   40.0 [28.6, 52.6]" in text
    assert "a seed of B is better than one of A with probability 1.00 (too few seeds for an interval)" in text
    assert main(["compare", *map(str, pair), "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert plain["differences"][0]["goals"]["5"]["mean"] == -40.0 and plain["runs"][1]["overall"]["mean"] == 60.0


def test_one_seed_has_an_interval_over_episodes_and_says_so(tmp_path):
    runs = [tiny_run(episodes=10, seeds=(seed,)) for seed in (0, 1)]
    paths = [write_run(tmp_path / str(i), run, rows(run, 4 + i)) for i, run in enumerate(runs)]
    found = pairwise.compare(paths)
    low, high = found.sides[0].overall.interval
    assert 30 < low < 40 < high < 50 and found.differences[0].overall.welch is None
    assert "of a single seed, or of seeds that agree, over episodes" in pairwise.text(found)
    both = tiny_run(episodes=10, seeds=(0, 3))
    uneven = [r for r in rows(both, 4) if r.seed == 0] + [r for r in rows(both, 10) if r.seed == 3 and r.goal < 5]
    (side, _) = pairwise.compare([write_run(tmp_path / "u", both, uneven), paths[0]]).sides
    assert (side.seeds, side.episodes, side.overall) == ((0,), 10 * len(side.steps), found.sides[0].overall)


def test_longer_runs_are_compared_at_the_same_step(tmp_path):
    short, long = tiny_run(episodes=10), tiny_run(episodes=10, steps=80, lr=1e-3)
    paths = [write_run(tmp_path / "s", short, rows(short, 4)), write_run(tmp_path / "l", long, rows(long, 6))]
    assert "different numbers of steps; --until" in pairwise.text(pairwise.compare(paths))
    found = pairwise.compare(paths, until=40)
    assert found.sides[1].steps == (20, 40) and "different numbers" not in pairwise.text(found)
    with pytest.raises(
        UserError, match="s: has no complete evaluation up to step 15, the first is of step 20; .*--until"
    ):
        pairwise.compare(paths, until=15)


def test_runs_with_other_goals_are_told_how_to_be_compared(tmp_path):
    run = tiny_run(episodes=10)
    few = [row for row in rows(run, 4) if row.goal == 1]
    paths = [write_run(tmp_path / "a", run, rows(run, 4)), write_run(tmp_path / "b", run, few, goals=1)]
    advice = "evaluate them all with one --eval-goals, by dualgoal eval, and compare with --rows eval"
    with pytest.raises(UserError, match=rf"the runs have different numbers of goals \(1, 5\); {advice}"):
        pairwise.compare(paths)


def test_the_heading_says_how_many_evaluations_there_are(tmp_path):
    def heading(*every):
        runs = [tiny_run(episodes=1, seeds=(0,), eval_every=each) for each in every]
        one = lambda run: [EvalRow(0, step, goal, 1, 1, 5.0) for step in run.eval_steps for goal in range(1, 6)]
        paths = [write_run(tmp_path / f"{each}", run, one(run)) for each, run in zip(every, runs, strict=True)]
        return pairwise.text(pairwise.compare([*paths, *paths]))

    assert "success in %, one evaluation during training; 95" in heading(40) and " 1 episode per seed" in heading(40)
    assert "mean of the last 2 evaluations during training" in heading(20) and " 2 episodes per seed" in heading(20)
    assert "mean of the last 1 to 3 evaluations during training" in heading(40, 10)


def test_rows_of_eval_are_compared_under_equal_conditions(pair):
    full = lambda step, successes, noise: [row(s, step, g, successes, noise) for s in (0, 3) for g in range(1, 6)]
    with pytest.raises(UserError, match="a: has no evaluation by dualgoal eval; run 'dualgoal eval"):
        pairwise.compare(pair, rows="eval")
    measured.write(pair[0], full(40, 9, 0.2), Conditions())
    with pytest.raises(UserError, match="b: has not been evaluated .*--goal-noise 0.2'"):
        pairwise.compare(pair, rows="eval")
    measured.write(pair[1], full(40, 3, 0.0), Conditions())
    measured.write(pair[1], full(30, 5, 0.2), Conditions())
    found = pairwise.compare(pair, rows="eval")
    assert [side.overall.mean for side in found.sides] == [90.0, 50.0] and found.sides[1].steps == (30,)
    assert "dualgoal eval --goal-noise 0.2" in pairwise.text(found)
    for order in (pair, pair[::-1]):
        with pytest.raises(UserError, match="a: .* first is of step 40; give a larger --until"):
            pairwise.compare(order, rows="eval", until=35)


def test_rows_of_eval_are_compared_in_one_environment(tmp_path):
    here, there = (tiny_run(episodes=10, seeds=(0, 3), env=env) for env in ("worlds:Here", "worlds:There"))
    first, second = (write_run(tmp_path / run.env[-4:], run, rows(run, 4)) for run in (here, there))
    evaluated = lambda path, goals, env: measured.write(
        path, [row(s, 40, g, goals) for s in (0, 3) for g in range(1, goals + 1)], Conditions(env=env)
    )
    evaluated(first, 5, None)
    evaluated(second, 5, None)
    with pytest.raises(UserError, match="here: has not been evaluated .*run 'dualgoal eval .*--env worlds:Here'"):
        pairwise.compare([first, second], rows="eval")
    evaluated(second, 5, "worlds:Here")
    found = pairwise.compare([first, second], rows="eval")
    assert [len(side.goals) for side in found.sides] == [5, 5] and "dualgoal eval --env worlds:Here" in found.source
    for path in (first, second):
        evaluated(path, 7, "worlds:Seven")
    found = pairwise.compare([first, second], rows="eval")
    assert [len(side.goals) for side in found.sides] == [7, 7] and found.sides[0].overall.mean == 70.0
    plain = tiny_run(episodes=10, seeds=(0, 3))
    third = write_run(tmp_path / "c", plain, rows(plain, 4))
    evaluated(third, 5, None)
    with pytest.raises(UserError, match="Here: is evaluated in worlds:Here; evaluate the first run there too"):
        pairwise.compare([third, first], rows="eval")


def test_what_differs_in_how_runs_were_evaluated_is_said(tmp_path):
    def made(name, goals=None, **options):
        run = tiny_run(episodes=10, **options)
        path, noise = tmp_path / name, {"goal_noise": run.goal_noise}
        write_run(path, run, [dataclasses.replace(r, **noise) for r in rows(run, 4)], goal_list=goals)
        for goal in range(1, 6):
            measured.write(path, [row(seed, goal=goal) for seed in run.seeds], Conditions(env="worlds:Own"))
        return path

    one, two = ([[float(k)] * 2] * 5 for k in (1, 2))
    first = made("a", one, eval_goals="validation:5")
    others = [
        made("b", one, max_steps=7, success="0.5", goal_noise=0.2, eval_goals="copy.npy"),
        made("c", two, eval_goals="other.npy"),
        made("d", two, eval_goals="validation:5"),
        made("e", one, eval_goals="validation:5", lr=1e-3, seeds=(0, 1)),
    ]
    during, later = pairwise.compare([first, *others]), pairwise.compare([first, *others[2:]], rows="eval")
    goals = ('eval_goals: "validation:5" -> "other.npy"',), ("eval_goals: other goals of 'validation:5'",)
    world = ("goal_noise: 0.0 -> 0.2", "max_steps: null -> 7", 'success: "info" -> "0.5"')
    assert [change.otherwise for change in during.differences] == [world, *goals, ()]
    assert [change.otherwise for change in later.differences] == [goals[1], ()], "other conditions are not compared"
    assert f"\nD was evaluated otherwise than A ({goals[1][0]})\n" in (text := pairwise.text(during))
    assert text.count("otherwise") == 3 and during.to_json()["differences"][1]["otherwise"] == goals[0]


def test_an_environment_that_was_edited_in_between_is_said(tmp_path):
    """Its name stays the same, and so do the conditions."""
    run, paths = tiny_run(episodes=10, env="world.py:Mine"), [tmp_path / name for name in "abc"]
    data = DataFacts(rows=40, episodes=60, sha256="cd" * 32)
    for path, digest, more in zip(paths, ("1", "2", "1"), ({}, {}, {"dataset": dataclasses.asdict(data)}), strict=True):
        write_run(path, run, rows(run, 4), env_sha256=digest, **more)
        for goal in range(1, 6):
            measured.write(path, [row(seed, goal=goal) for seed in run.seeds], Conditions(), digest)
    edited = ("env: its file was edited in between",)
    for found in (pairwise.compare(paths), pairwise.compare(paths, rows="eval")):
        assert [change.otherwise for change in found.differences] == [edited, ()]
        assert [change.other_data for change in found.differences] == [False, True]
        assert "C was trained on other data than A" in pairwise.text(found)
        assert found.to_json()["differences"][1]["other_data"]
    text = page.write_report(paths, tmp_path / "r.html").read_text()
    assert text.count("env: its file was edited in between") == 1 and text.count("trained on other data than") == 1


def test_a_file_is_hashed_without_being_run(tmp_path, monkeypatch):
    (tmp_path / "world_of_mine.py").write_text("raise SystemExit")
    expected = hashlib.sha256(b"raise SystemExit").hexdigest()
    monkeypatch.syspath_prepend(tmp_path)
    names = (f"{tmp_path}/world_of_mine.py:Mine", "world_of_mine:Mine")
    assert [imports.file_digest(name) for name in names] == [expected] * 2
    others = ("CartPole-v1", "package:Name-v0", "no_such_module:Mine", f"{tmp_path}/none.py:Mine", "a..b:c", "sys:exit")
    assert [imports.file_digest(name) for name in others] == [None] * 6


def test_what_cannot_be_compared(pair, tmp_path):
    other = tiny_run(episodes=10, seeds=(0,))
    with pytest.raises(UserError, match="compare needs two run directories"):
        pairwise.compare(pair[:1])
    elsewhere = write_run(tmp_path / "c", type(other)("scene-play-v0", other.rep, other.algo), [])
    with pytest.raises(UserError, match="trained on 'scene-play-v0'"):
        pairwise.compare([pair[0], elsewhere])
    with pytest.raises(UserError, match="no complete evaluation"):
        pairwise.compare([pair[0], write_run(tmp_path / "d", other, rows(other, 1)[:3])])

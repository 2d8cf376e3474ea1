"""A finished run is extended by asking for more steps: the same directory, the same id, the same bits."""

import dataclasses
import json
from pathlib import Path

import pytest

from dualgoal.cli.main import main
from dualgoal.data import dataset
from dualgoal.errors import UserError
from dualgoal.paper import jobs
from dualgoal.paper.tables import PlannedRun
from dualgoal.runs import config, continuing, directory, overview, preparation, training
from run_files import rows, write_run
from tiny import TASK, Scorer, make_data, record, tiny_run

RUN = tiny_run(steps=40, eval_every=20, episodes=1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_data(tmp_path_factory.mktemp("data"))


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("DUALGOAL_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


def train(folder, out, steps, **changes):
    run = dataclasses.replace(RUN, steps=steps, **changes)
    return training.train(run, out, data_path=folder, evaluator=Scorer(RUN.seeds))


@pytest.fixture(scope="module")
def at_once(folder, tmp_path_factory):
    return train(folder, tmp_path_factory.mktemp("at-once") / "run", 80)


def test_an_extended_run_is_the_longer_run_bit_for_bit(folder, tmp_path, at_once, capsys):
    out = tmp_path / "a"
    for steps in (40, 80):
        train(folder, out, steps)
        assert directory.read_run(out).steps == steps and overview.look(out).state == "finished"
    assert "resuming from step 40" in capsys.readouterr().out
    assert record(out) == record(at_once)
    for name in ("run", "id", "check", "goals"):
        assert directory.read_config(out)[name] == directory.read_config(at_once)[name]
    settings = directory.read_config(out)
    train(folder, out, 20)
    assert "complete (80 steps, more than the 20 that were asked for)" in capsys.readouterr().out
    assert record(out) == record(at_once) and directory.read_config(out) == settings, "fewer steps change nothing"
    settings["run"]["steps"] = 10**6  # as after a mistake that was interrupted; the number that was meant ends the run
    settings["check"] = config.check_of(settings["run"])
    (out / directory.CONFIG).write_text(json.dumps(settings))
    assert overview.look(out).state == "unfinished"
    train(folder, out, 80)
    assert directory.read_run(out).steps == 80 and overview.look(out).state == "finished"


def test_a_last_step_outside_of_the_schedule_leaves_its_rows_and_no_other_trace(folder, tmp_path, at_once):
    train(folder, tmp_path / "a", 30)
    train(folder, tmp_path / "a", 80)
    extra = [row for row in directory.evaluations(tmp_path / "a") if row.step == 30]
    assert len(extra) == len(RUN.seeds)
    assert [row for row in directory.evaluations(tmp_path / "a") if row.step != 30] == directory.evaluations(at_once)
    mine, theirs = record(tmp_path / "a"), record(at_once)
    assert {name for name in theirs if mine[name] != theirs[name]} == {"eval.jsonl"} and mine.keys() == theirs.keys()


def test_the_number_of_steps_is_not_changed_by_hand(at_once, tmp_path):
    content = (at_once / directory.CONFIG).read_text()
    (tmp_path / directory.CONFIG).write_text(content.replace('"steps": 80', '"steps": 90'))
    with pytest.raises(UserError, match="edited after the run began"):
        directory.read_run(tmp_path)


def test_the_same_command_with_more_steps_finds_the_run(tmp_path, monkeypatch):
    """Without --out; the schedule that the preset derived from fewer steps is kept, a chosen one is not."""
    monkeypatch.chdir(tmp_path)
    short, long = (tiny_run(steps=n, eval_every=n // 10, log_every=n // 10) for n in (1000, 2000))
    assert continuing.find(long, None) == (long, directory.default_folder(long))
    there = write_run(directory.default_folder(short), short, [])
    run, path = continuing.find(long, None)
    assert path == there and (run.steps, run.eval_every) == (2000, 100) and run.id == short.id
    assert continuing.find(long, None, ("log_every",))[1] != there
    chosen = dataclasses.replace(long, log_every=100)
    assert continuing.find(long, there, ("log_every",))[0] == chosen, "training says what differs"
    other = dataclasses.replace(long, lr=1e-3)
    assert continuing.find(other, None)[1] == directory.default_folder(other)


def test_what_nobody_chose_is_not_among_what_differs(folder, tmp_path, capsys):
    words = ["train", "own", "--data", str(folder / f"{TASK}.npz"), "--rep", "orig", "--algo", "gcbc", "--quiet"]
    words += ["--algo.hidden", "8", "--batch-size", "8", "--out", str(tmp_path / "run")]
    for steps in ("20", "30"):
        assert main([*words, "--steps", steps]) == 0
    for chosen, told in (([], "(lr: "), (["--log-every", "5"], "(log_every: 2 -> 5; lr: ")):
        assert main([*words, "--steps", "30", "--lr", "1e-3", *chosen]) == 2
        assert f"configuration {told}0.0003 -> 0.001); choose another --out" in capsys.readouterr().err


def test_the_same_command_elsewhere_finds_data_and_goals(tmp_path, monkeypatch):
    make_data(tmp_path / "data")
    (tmp_path / "goals.txt").write_text("1 2\n")
    (tmp_path / "other").mkdir()
    run = tiny_run(steps=1, eval_goals="goals.txt")
    for place, path in (("", ""), ("other", "../")):
        monkeypatch.chdir(tmp_path / place)
        asked = dataclasses.replace(run, eval_goals=f"{path}goals.txt")
        assert continuing.absolute(asked).eval_goals == str(tmp_path / "goals.txt")
        facts = preparation.describe(run, dataset.load(f"{path}data", run.task))
        assert Path(facts.dataset.file).is_absolute() and Path(facts.dataset.file).is_file()
    for other in ("env", "env:3", "validation:5", "nowhere.txt"):
        assert continuing.absolute(dataclasses.replace(run, eval_goals=other)).eval_goals == other


def planned(run) -> PlannedRun:
    return PlannedRun("t", run.task, "orig", "orig", "gcbc", run.seeds, config.to_dict(run), run.id)


def test_plans_see_by_their_steps_whether_a_run_is_finished(tmp_path):
    """A longer run fills a shorter plan with its first evaluations; a shorter one is extended; in one plan both are
    separate runs, and a longer run without the evaluation that is asked for is left alone."""
    of = {n: dataclasses.replace(RUN, steps=n) for n in (80, 40, 50)}
    long, short, odd = (planned(run) for run in of.values())
    (job,) = jobs.locate([long], tmp_path)
    write_run(job.out, of[40], rows(of[40], 4))
    assert [j.status for j in jobs.locate([short], tmp_path)] == ["finished"]
    (again,) = jobs.locate([long], tmp_path)
    assert (again.out, again.status) == (job.out, "unfinished")
    write_run(job.out, of[80], rows(of[80], 4))
    assert [j.status for j in jobs.locate([long], tmp_path)] == ["finished"]
    (filled,) = jobs.locate([short], tmp_path)
    assert (filled.out, filled.status) == (job.out, "finished")
    assert jobs.read_record(job.out, short).done == 40 and jobs.read_record(job.out, long).done == 80
    both = jobs.locate([long, odd], tmp_path)
    assert [j.status for j in both] == ["finished", "new"] and both[1].out.name == f"{job.out.name}-50"

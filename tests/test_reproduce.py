"""Reproducing a part of a table with a trainer that only writes the files a run leaves."""

import json
from dataclasses import replace

import pytest

from dualgoal import errors
from dualgoal.cli.main import main
from dualgoal.paper import jobs, reproduce, results_page, tables
from dualgoal.paper.jobs import Execution
from dualgoal.runs import config, directory
from run_files import rows, write_run

PART = {"tasks": ["cube-single-play-v0"], "reps": ["orig", "dual"], "seeds": [0, 1], "steps": 1000, "episodes": 4}


class Trainer:
    """Writes config.json and eval.jsonl as training does; remembers what it was asked for."""

    def __init__(self, until=1.0, fail=()):
        self.calls, self.until, self.fail = [], until, fail

    def __call__(self, run, out, *, data_path, workers, quiet, background=None):
        if run.task in self.fail:
            raise errors.UserError(f"{run.task}: no data")
        self.calls.append((run, out))
        successes = 9 if config.part_name("rep", run.rep) == "dual" else 5
        write_run(out, run, [row for row in rows(run, successes) if row.step <= self.until * run.steps])


def quiet(_):
    pass


def read(job):
    return jobs.read_record(job.out, job.planned)


def test_runs_are_done_once_and_the_table_is_written(tmp_path):
    trainer = Trainer()
    outcome = reproduce.carry_out("state_gcivl", out=tmp_path, execution=Execution(train=trainer), say=quiet, **PART)
    assert len(trainer.calls) == 2 and not outcome.problems
    assert {f.suffix for f in outcome.files} == {".txt", ".json", ".tex", ".svg", ".png"}
    assert all(f.exists() for f in outcome.files)
    text = (tmp_path / "tables" / "state_gcivl.txt").read_text()
    assert "90±0*" in text and "50±0" in text and "89±3*" in text and "steps: 1,000 (paper: 1,000,000)" in text
    saved = json.loads((tmp_path / "tables" / "state_gcivl.json").read_text())
    assert saved["lines"][0]["cells"]["dual"]["measured"]["mean"] == pytest.approx(90)
    again = Trainer()
    reproduce.carry_out("state_gcivl", out=tmp_path, execution=Execution(train=again), say=quiet, **PART)
    assert not again.calls


def test_an_unfinished_run_is_resumed_in_its_directory(tmp_path):
    half = Trainer(until=0.5)
    reproduce.carry_out("state_gcivl", out=tmp_path, execution=Execution(train=half), say=quiet, **PART)
    assert [job.status for job in reproduce.plan("state_gcivl", out=tmp_path, **PART)] == ["unfinished"] * 2
    full = Trainer()
    reproduce.carry_out("state_gcivl", out=tmp_path, execution=Execution(train=full), say=quiet, **PART)
    assert [c[1] for c in full.calls] == [c[1] for c in half.calls]


def test_a_run_with_more_seeds_serves_and_is_resumed_as_it_is(tmp_path):
    trainer = Trainer(until=0.5)
    reproduce.carry_out(
        "state_gcivl", out=tmp_path, execution=Execution(train=trainer), say=quiet, **PART | {"reps": ["dual"]}
    )
    one_seed = PART | {"reps": ["dual_inner_product"], "seeds": [1]}
    job = reproduce.plan("parameterization", out=tmp_path, **one_seed)[0]
    assert (job.status, job.out) == ("unfinished", trainer.calls[0][1])
    full = Trainer()
    reproduce.carry_out("parameterization", out=tmp_path, execution=Execution(train=full), say=quiet, **one_seed)
    assert full.calls[0][0].seeds == (0, 1)
    assert reproduce.plan("parameterization", out=tmp_path, **one_seed)[0].status == "finished"
    assert read(reproduce.plan("parameterization", out=tmp_path, **one_seed)[0]).seeds == (1,)


def test_what_cannot_be_run_is_reported_and_the_rest_goes_on(tmp_path):
    trainer, said = Trainer(fail=("antmaze-medium-navigate-v0",)), []
    part = PART | {"tasks": ["antmaze-medium-navigate-v0", "cube-single-play-v0"]}
    outcome = reproduce.carry_out(
        "state_gcivl", out=tmp_path, execution=Execution(train=trainer), say=said.append, **part
    )
    assert len(outcome.problems) == 2 and len(trainer.calls) == 2
    assert "not run" in (tmp_path / "tables" / "state_gcivl.txt").read_text()
    assert any("no data" in line for line in said)
    assert "left out: state_gcivl/antmaze-medium" in outcome.text and json.loads(outcome.json)["problems"]


def test_a_failure_is_told_when_it_happens_and_at_the_end(tmp_path, capsys):
    words = ["reproduce", "state_gcivl", "--tasks", "cube-single-play-v0", "--reps", "orig", "--steps", "10"]
    words += ["--data", str(tmp_path / "nowhere"), "--out", str(tmp_path / "runs")]
    assert main(words) == 2
    told = capsys.readouterr()
    assert told.out.count("no such dataset") == 2
    assert told.err == "dualgoal: 1 of the runs of state_gcivl failed; see 'left out' above\n"
    assert main([*words, "--json"]) == 2
    told = capsys.readouterr()
    assert "no such dataset" in json.loads(told.out)["problems"][0] and "see 'problems' in the JSON" in told.err


@pytest.mark.parametrize("noticed", [False, True])
def test_a_run_with_unreadable_rows_costs_only_itself(tmp_path, noticed):
    def torn(run, out, **options):
        Trainer()(run, out, **options)
        if config.part_name("rep", run.rep) == "orig":
            with (out / "eval.jsonl").open("a") as file:
                file.write('{"seed": 0, "step": 1000, "goal": 1, "episodes": 0}\n')
            if noticed:  # by training, too
                directory.evaluations(out)

    outcome = reproduce.carry_out("state_gcivl", out=tmp_path, execution=Execution(train=torn), say=quiet, **PART)
    (problem,) = outcome.problems
    assert problem.startswith("state_gcivl/cube-single-play-v0/orig: ") and "eval.jsonl: line 101: " in problem
    cells = outcome.values["lines"][0]["cells"]
    assert cells["dual"]["measured"]["mean"] == pytest.approx(90) and cells["orig"]["measured"] is None
    assert [job.status for job in reproduce.plan("state_gcivl", out=tmp_path, **PART)] == ["unfinished", "finished"]


def test_an_evaluation_that_lacks_a_goal_is_not_finished(tmp_path):
    part = PART | {"reps": ["dual"]}
    reproduce.carry_out("state_gcivl", out=tmp_path, execution=Execution(train=Trainer()), say=quiet, **part)
    job = reproduce.plan("state_gcivl", out=tmp_path, **PART)[1]
    lines = (job.out / "eval.jsonl").read_text().splitlines(keepends=True)
    (job.out / "eval.jsonl").write_text("".join(lines[:-1]))
    assert job.status == "finished"
    assert reproduce.plan("state_gcivl", out=tmp_path, **PART)[1].status == "unfinished"


def test_noise_evaluates_the_same_run_again_and_draws_a_figure(tmp_path, monkeypatch):
    asked = []

    def evaluate(path, *, step, goal_noise, seeds, workers):
        asked.append((path, step, goal_noise))
        run = directory.read_run(path)
        return [row for row in rows(run, 3, steps=[step], noise=goal_noise) if row.seed in seeds]

    monkeypatch.setattr("dualgoal.runs.evaluation.evaluate", evaluate)
    reproduce.carry_out("state_gcivl", out=tmp_path, execution=Execution(train=Trainer()), say=quiet, **PART)
    trainer = Trainer()
    outcome = reproduce.carry_out("noise", out=tmp_path, execution=Execution(train=trainer), say=quiet, **PART)
    assert {path for path, *_ in asked} == {out for _, out in trainer.calls}  # the runs of state_gcivl
    assert [a[1:] for a in asked] == [(step, 0.2) for step in (800, 900, 1000)] * 2
    assert {f.name for f in outcome.files} >= {"noise.svg", "noise.png"}
    cells = outcome.values["lines"][0]["cells"]
    assert [cells[name]["measured"]["mean"] for name in ("dual", "dual_noisy")] == pytest.approx([90, 30])
    assert [job.status for job in reproduce.plan("noise", out=tmp_path, **PART)] == ["finished"] * 2
    # The run's own record is untouched: its score is still that of clean goals.
    assert read(reproduce.plan("state_gcivl", out=tmp_path, **PART)[1]).scores().per_seed().mean() == 90


def test_dry_run_lists_full_configurations(tmp_path):
    found = [job.to_dict() for job in reproduce.plan("fusion", out=tmp_path)]
    json.dumps(found)
    assert jobs.text(found).endswith("4 runs, 16 counting every seed") and " 4 seeds x " in jobs.text(found)
    one, *_ = (job.to_dict() for job in reproduce.plan("fusion", out=tmp_path, seeds=[0]))
    assert " 1 seed x " in jobs.text([one]) and jobs.text([one]).endswith("\n1 run, 1 counting every seed")
    many = one | {"seeds": [*range(1624)]}
    assert jobs.text([many]).endswith("\n1 run, 1,624 counting every seed")
    assert len(found) == 4 and {job["status"] for job in found} == {"new"}
    run = config.from_dict(found[0]["config"])
    assert run.id == found[0]["id"] and found[0]["out"].endswith(run.id)
    assert replace(run, seeds=(0,)).id != run.id


def test_all_dry_runs_add_up(tmp_path):
    papers = [name for name, table in tables.TABLES.items() if table.published]
    found = [job.to_dict() for name in papers for job in reproduce.plan(name, out=tmp_path)]
    assert len(found) == 328 and sum(len(job["seeds"]) for job in found) == 1624


def test_a_foreign_directory_is_not_taken_for_a_run(tmp_path):
    job = reproduce.plan("state_gcivl", out=tmp_path, **PART)[0]
    job.out.mkdir(parents=True)
    (job.out / "config.json").write_text("{broken")
    again = reproduce.plan("state_gcivl", out=tmp_path, **PART)[0]
    assert again.status == "unfinished" and read(again) is None


def test_lights_out_for_real_from_runs_to_the_figure(tmp_path):
    small = {"tasks": ["lightsout-4x5"], "reps": ["dual"], "seeds": [0, 1], "steps": 20}
    small |= {"batch_size": 8, "algo.hidden": [8]}
    outcome = reproduce.carry_out("lightsout", out=tmp_path, execution=Execution(quiet=True), say=quiet, **small)
    assert not outcome.problems and {f.suffix for f in outcome.files} >= {".svg", ".png", ".txt"}
    dual = outcome.values["lines"][0]["cells"]["dual"]["measured"]
    assert (dual["seeds"], dual["steps"]) == (2, 20)
    assert [job.status for job in reproduce.plan("lightsout", out=tmp_path, **small)] == ["finished"]
    # Networks of width 8 are not the paper's: such runs are no cells of its tables.
    assert results_page.collect(tmp_path, tmp_path / "results", quiet) == []

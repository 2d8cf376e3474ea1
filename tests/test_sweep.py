"""Sweeps: a file becomes different runs, done once each, with a table at the end; engines are chosen by a word."""

import dataclasses
import json
from dataclasses import replace
from pathlib import Path

import pytest

from dualgoal.cli.main import main
from dualgoal.cli.train import Train
from dualgoal.data import dataset
from dualgoal.engine import choice, sites
from dualgoal.engine.items import Item, Patience, Placement, perform
from dualgoal.errors import UserError
from dualgoal.files import InUse, locked
from dualgoal.paper import jobs, reproduce, sweep
from dualgoal.paper.jobs import Execution
from dualgoal.runs import continuing, directory, owner, training
from dualgoal.runs.facts import DataFacts
from run_files import rows, write_run
from test_reproduce import Trainer
from tiny import TASK, make_data

FILE = """
tasks = ["cube-single-play-v0"]
reps = ["orig", "dual"]
seeds = [0, 1]
[options]
steps = 1000
[grid]
lr = [3e-4, 1e-3]
rep.dim = [64, 256]
"""


def write(folder, content=FILE):
    file = folder / "mine.toml"
    file.write_text(content)
    return file


def test_the_grid_is_expanded_and_equal_runs_are_one(tmp_path):
    found = sweep.plan(write(tmp_path), tmp_path / "runs")
    assert [job.planned.column for job in found] == [
        "orig+gcivl lr=0.0003", "orig+gcivl lr=0.001",
        "dual+gcivl lr=0.0003 rep.dim=64", "dual+gcivl lr=0.0003 rep.dim=256",
        "dual+gcivl lr=0.001 rep.dim=64", "dual+gcivl lr=0.001 rep.dim=256",
    ]  # fmt: skip
    assert len({job.out for job in found}) == 6 and {job.status for job in found} == {"new"}
    # The paper's own setting is the run that its table asks for.
    table = reproduce.plan(
        "state_gcivl", out=tmp_path / "runs", tasks=["cube-single-play-v0"], seeds=[0, 1], steps=1000
    )
    assert {found[0].out, found[3].out} <= {job.out for job in table}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (("tasks", "taks"), "unknown key 'taks'; did you mean 'tasks'"),
        (('tasks = ["cube-single-play-v0"]', ""), "no tasks"),
        (("seeds = [0, 1]", 'seeds = "01"'), "seeds is '01'; expected a list"),
        (("seeds = [0, 1]", "seeds = [true]"), r"seeds is \[True\]; expected whole numbers"),
        (("lr = [3e-4, 1e-3]", "lr = 3e-4"), "grid.lr is 0.0003; expected a list"),
        (("lr = ", "steps = "), r"steps is in \[options\] and in \[grid\]"),
        (("rep.dim", "rep.dmi"), "unknown option 'rep.dmi'; did you mean 'rep.dim'"),
        (("rep.dim", "rep"), "'rep' has a list of its own"),
        (('"orig"', '"origg"'), "unknown representation 'origg'; did you mean 'orig'"),
        (("[grid]", "[grid"), "not TOML"),
        (
            ("cube-single-play-v0", "lightsout-4x5"),
            r"lightsout-4x5: .* under dqn here, not orig under gcivl; take another",
        ),
    ],
)
def test_what_is_wrong_with_a_file_is_one_line(tmp_path, change, problem):
    with pytest.raises(UserError, match=problem) as found:
        sweep.plan(write(tmp_path, FILE.replace(*change)), tmp_path)
    assert "\n" not in str(found.value)


def test_runs_are_done_once_and_summarised_with_intervals(tmp_path):
    trainer, said = Trainer(), []
    execution, out = Execution(train=trainer, quiet=True), tmp_path / "runs"
    done = sweep.carry_out(write(tmp_path), out=out, execution=execution, say=said.append)
    assert len(trainer.calls) == 6 and not done.problems
    found = [(line["mean"], line["seeds"], line["steps"]) for line in done.values["runs"]]
    assert found == [(50, 2, 1000)] * 2 + [(90, 2, 1000)] * 4
    assert done.values["runs"][0]["interval"] is None and "90.0 ± 0.0  seeds agree\n" in done.text, "seeds that agree"
    assert json.loads((out / "tables" / "mine.json").read_text())["runs"][0]["mean"] == 50
    assert len((out / jobs.LOG).read_text().splitlines()) == len(said) == 12
    sweep.carry_out(write(tmp_path), out=out, execution=execution, say=said.append)
    assert len(trainer.calls) == 6, "finished"


def test_a_run_that_is_not_finished_is_shown_as_far_as_it_was_evaluated(tmp_path):
    class Uneven(Trainer):
        """Seeds that do not agree, so that there would be an interval."""

        def __call__(self, run, out, **options):
            found = [row for row in rows(run, 5) if row.step <= self.until * run.steps]
            write_run(out, run, [replace(row, successes=row.successes + row.seed) for row in found])

    file, out = write(tmp_path), tmp_path / "runs"
    done = sweep.carry_out(file, out=out, execution=Execution(train=Uneven(until=0.3)), say=lambda text: None)
    assert "   2 300 of 1,000   55.0 ± 5.0  not finished\n" in done.text
    first = json.loads((out / "tables" / "mine.json").read_text())["runs"][0]
    shown = [first[name] for name in ("mean", "steps", "evaluated", "finished", "interval")]
    assert shown == [55, 1000, 300, False, None]
    done = sweep.carry_out(file, out=out, execution=Execution(train=Uneven()), say=lambda text: None)
    first = done.values["runs"][0]
    assert (first["evaluated"], first["finished"]) == (1000, True) and first["interval"] is not None
    assert "   2     1,000   55.0 ± 5.0  [" in done.text and "not finished" not in done.text


def test_a_run_without_evaluation_is_finished_when_its_last_step_is_saved(tmp_path):
    file = write(tmp_path, FILE.replace("steps = 1000", "steps = 1000\nepisodes = 0"))
    out = tmp_path / "runs"
    train = lambda run, folder, **options: write_run(folder, run, [])
    done = sweep.carry_out(file, out=out, execution=Execution(train=train), say=lambda text: None)
    assert done.text.count("   2     1,000  no evaluation  not finished\n") == 6
    for job in sweep.plan(file, out):
        saved = directory.checkpoint_path(job.out, 1000).with_suffix(".json")
        saved.parent.mkdir()
        saved.write_text("{}")
    done = sweep.carry_out(file, out=out, execution=Execution(train=train), say=lambda text: None)
    assert done.text.count("   2     1,000  no evaluation\n") == 6 and done.values["runs"][0]["evaluated"] is None


def test_more_seeds_are_another_run_and_fewer_seeds_are_found(tmp_path):
    file, out = write(tmp_path, FILE.replace("[0, 1]", "[0]")), tmp_path / "runs"
    sweep.carry_out(file, out=out, execution=Execution(train=Trainer()), say=lambda text: None)
    done = {job.out for job in sweep.plan(file, out)}
    more = sweep.plan(write(tmp_path), out)
    assert {job.status for job in more} == {"new"} and not done & {job.out for job in more}
    sweep.carry_out(file, out=out, execution=Execution(train=Trainer()), say=lambda text: None)
    fewer = sweep.plan(write(tmp_path, FILE.replace("[0, 1]", "[1]")), out)
    assert [(job.status, job.out) for job in fewer] == [("finished", job.out) for job in more]


def test_a_file_may_be_edited_while_its_runs_go_on(tmp_path):
    file, trainer = write(tmp_path), Trainer()

    def train(*args, **options):
        file.write_text("tasks = [")
        trainer(*args, **options)

    done = sweep.carry_out(file, out=tmp_path / "runs", execution=Execution(train=train), say=lambda text: None)
    assert not done.problems and (tmp_path / "runs" / "tables" / "mine.json").exists()


def test_a_run_that_cannot_be_done_is_named_and_remembered(tmp_path):
    failing = Execution(train=Trainer(fail=("cube-single-play-v0",)))
    done = sweep.carry_out(write(tmp_path), out=tmp_path / "runs", execution=failing, say=lambda text: None)
    assert len(done.problems) == 6 and done.problems[0].endswith("cube-single-play-v0: no data")
    assert owner.read_status(Path(done.values["runs"][0]["out"])).why == "cube-single-play-v0: no data"
    assert "2 0 of 1,000  no evaluation  not finished\n" in done.text, "seeds that were asked for, none of them judged"


def test_own_data_can_be_swept(tmp_path):
    content = FILE.replace("cube-single-play-v0", "my-robot")
    (first, *_) = sweep.plan(write(tmp_path, content), tmp_path, data=tmp_path)
    assert first.planned.config["task"] == "my-robot" and first.planned.config["episodes"] == 0
    trainer = Trainer()
    with pytest.raises(UserError, match=r"mine.toml: unknown task 'my-robot' .*; data of your own need --data FOLDER"):
        sweep.carry_out(write(tmp_path, content), out=tmp_path, execution=Execution(train=trainer))
    assert not trainer.calls, "found before anything is trained"
    file = write(tmp_path, content.replace("[options]", '[options]\nenv = "robot:Env"'))
    (first, *_) = sweep.plan(file, tmp_path, data=tmp_path)
    assert first.planned.config["env"] == "robot:Env" and first.planned.config["episodes"] == 50, "as train does"


def test_a_distance_may_be_a_number(tmp_path):
    """As on the command line and in Python; in a run's configuration `success` is a text."""
    content = FILE.replace("cube-single-play-v0", "my-robot").replace("[options]", '[options]\nenv = "robot:Env"')
    file = write(tmp_path, content.replace("lr = [3e-4, 1e-3]", 'success = [0.45, 1, "info"]'))
    found = {job.planned.run.success for job in sweep.plan(file, tmp_path, data=tmp_path)}
    assert found == {"0.45", "1", "info"}


def test_results_of_other_data_are_refused(tmp_path):
    """A finished run is not trained again, so that nothing but the plan would see that its data were others."""
    folders = [make_data(tmp_path / name, seed=seed) for seed, name in enumerate(("first", "second"))]
    file, out = write(tmp_path, FILE.replace("cube-single-play-v0", TASK)), tmp_path / "runs"
    (first, *_) = sweep.plan(file, out, data=folders[0])
    facts = DataFacts.of(dataset.load(folders[0], TASK))
    run = first.planned.run
    write_run(first.out, run, rows(run, 5), dataset=dataclasses.asdict(facts))
    assert sweep.plan(file, out, data=folders[0])[0].status == "finished"
    with pytest.raises(UserError, match=r"trained on other data .* give that --data or another --out"):
        sweep.plan(file, out, data=folders[1])
    part = {"tasks": [TASK], "reps": ["orig"], "seeds": [0, 1], "steps": 1000}
    with pytest.raises(UserError, match="trained on other data"):
        reproduce.carry_out("state_gcivl", out=out, execution=Execution(data=folders[1], train=Trainer()), **part)
    for gone in (None, tmp_path / "removed"):
        assert sweep.plan(file, out, data=gone)[0].status == "finished", "results may outlive their data"


def test_a_misspelt_task_is_refused_by_the_dry_run_too(tmp_path, capsys):
    file = str(write(tmp_path, FILE.replace("single", "singel")))
    words = ["sweep", file, "--out", str(tmp_path / "runs"), "--dry-run"]
    assert main(words) == 2
    assert "mine.toml: unknown task 'cube-singel-play-v0'; did you mean 'cube-single" in capsys.readouterr().err
    assert main([*words, "--data", str(tmp_path)]) == 0, "data of that name may be there"


def test_engines_are_named_and_what_they_need_is_said_before_anything_is_trained(tmp_path, monkeypatch):
    for on, problem in (
        ("rey", "unknown engine 'rey'; did you mean 'ray'"),
        ("slurm", "there is no sbatch here"),
    ):
        with pytest.raises(UserError, match=problem):
            choice.engine(on, tmp_path, Placement(), None)
    with pytest.raises(UserError, match="--gpus is 1.5; expected a whole number, or a fraction below 1"):
        Placement(gpus=1.5)
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(UserError, match=r"pip install 'dualgoal\[ray\]'"):
        choice.engine("ray", tmp_path, Placement(), None)
    monkeypatch.setitem(__import__("sys").modules, "submitit", None)
    with pytest.raises(UserError, match=r"pip install 'dualgoal\[slurm\]'"):
        choice.engine("slurm", tmp_path, Placement(), None)


def test_machines_must_share_the_folder_and_the_versions(tmp_path):
    planted = sites.plant(tmp_path)
    here = sites.look(planted)
    sites.require_equal(here, here, planted)
    elsewhere = sites.Site("node7", here.versions, None)
    with pytest.raises(UserError, match=f"node node7 does not see {tmp_path}; give an --out on storage"):
        sites.require_equal(elsewhere, here, planted)
    older = sites.Site("node7", here.versions | {"dualgoal": "0.0.1"}, here.nonce)
    with pytest.raises(UserError, match="node node7 has dualgoal 0.0.1, here it is .*; install the same on all"):
        sites.require_equal(older, here, planted)


def test_a_share_of_a_gpu_is_a_share_of_its_memory(tmp_path, monkeypatch):
    monkeypatch.delenv("XLA_PYTHON_CLIENT_MEM_FRACTION", raising=False)
    seen = []

    def call(workers):
        import os

        seen.append((workers, os.environ.get("XLA_PYTHON_CLIENT_MEM_FRACTION")))

    assert perform(Item("a", tmp_path, call), 3, gpus=1) is None
    monkeypatch.setenv("XLA_PYTHON_CLIENT_MEM_FRACTION", "")  # restored afterwards
    assert perform(Item("a", tmp_path, call), 3, gpus=0.25) is None
    assert seen == [(3, None), (3, "0.225")]

    def full(workers):
        raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 1 bytes")

    assert "not enough memory for this run in 0.25 of a GPU" in perform(Item("a", tmp_path, full), 3, gpus=0.25)


def test_a_run_is_given_up_only_if_it_gets_nowhere(tmp_path, monkeypatch):
    saved, item, patience = [0], Item("a", tmp_path, print), Patience()
    monkeypatch.setattr(directory, "steps", lambda path: saved)
    assert [patience.again(item) for _ in range(4)] == [True] * 4
    saved.append(10)
    assert [patience.again(item) for _ in range(5)] == [True] * 4 + [False]


@pytest.fixture
def begun(tmp_path, monkeypatch):
    """A sweep whose first run has given a sign of life just now, and what its engine is asked to do, one list of runs
    after the other. `begun(host)` carries it out and returns the problems."""
    monkeypatch.setattr(jobs, "LOOK_SECONDS", 0.05)
    file, out, asked, said = write(tmp_path), tmp_path / "runs", [], []
    (first, *_) = planned = sweep.plan(file, out)
    first.out.mkdir(parents=True)

    class Engine:
        def execute(self, items, say):
            asked.append([item.out for item in items])
            return ((item, None) for item in items)

    def carry_out(host):
        alive = owner.Status("abc", host, 12, owner.time.time(), 0.1)
        (first.out / owner.STATUS).write_text(json.dumps(owner.asdict(alive)))
        (first.out / owner.LOCK).write_text("process 12")
        monkeypatch.setattr(choice, "engine", lambda *_: Engine())
        assert jobs.carry_out(planned, out, Execution(on="ray"), say=said.append) == jobs.Undone([], [])

    carry_out.first, carry_out.rest = first, [job.out for job in planned[1:]]
    carry_out.asked, carry_out.said = asked, said
    return carry_out


def test_a_run_that_somebody_else_is_training_is_waited_for(begun):
    begun("node7")
    assert begun.asked == [begun.rest, [begun.first.out]], "it comes last, when node7 is silent"
    assert any("waiting: process 12 on node7 is training it" in line for line in begun.said)


def test_a_run_that_somebody_else_has_finished_meanwhile_is_not_begun(begun, monkeypatch):
    monkeypatch.setattr(jobs, "is_finished", lambda path, planned: path == begun.first.out)
    begun("node7")
    assert begun.asked == [begun.rest] and any(line.endswith(f"finished, in {begun.first.out}") for line in begun.said)


def test_a_run_that_was_killed_on_this_machine_is_resumed_at_once(begun):
    begun(owner.platform.node())
    assert begun.asked == [[begun.first.out, *begun.rest]]


def test_a_run_that_lives_on_this_machine_is_waited_for(begun):
    with locked(begun.first.out / owner.LOCK):
        begun(owner.platform.node())
    assert begun.asked == [begun.rest, [begun.first.out]]


def test_a_run_of_another_process_on_the_same_sweep_is_no_failure(tmp_path, monkeypatch, capsys):
    def train(run, out, **options):
        out.mkdir(parents=True, exist_ok=True)
        held = owner.acquire(out)
        Trainer()(run, out, **options)
        held.release("finished")

    monkeypatch.setattr(training, "train", train)
    file, out = write(tmp_path), tmp_path / "runs"
    (first, *_) = sweep.plan(file, out)
    Trainer(until=0.3)(first.planned.run, first.out, data_path=None, workers=None, quiet=True)
    words = ["sweep", str(file), "--out", str(out), "--data", str(tmp_path)]
    held = owner.acquire(first.out)
    assert main(words) == 75
    told = capsys.readouterr()
    assert f"[1/6] {first.planned.task} orig+gcivl lr=0.0003: trained elsewhere: {first.out}: in use by" in told.out
    assert "\ntrained elsewhere: mine/cube" in told.out and "give this command again when it is done\n" in told.out
    assert "300 of 1,000   50.0 ± 0.0  not finished\n" in told.out and "fail" not in told.out + told.err
    assert owner.read_status(first.out).state == "running"
    assert told.err == f"dualgoal: {file}: another process trains 1 run of it; {jobs.LATER}\n"
    assert main([*words, "--json"]) == 75
    values = json.loads(capsys.readouterr().out)
    assert values["problems"] == [] and "in use by process" in values["elsewhere"][0]
    held.release("interrupted")
    assert main(words) == 0 and "elsewhere" not in capsys.readouterr().out


def test_a_run_that_another_process_finishes_meanwhile_is_done(tmp_path):
    file, out, said = write(tmp_path), tmp_path / "runs", []
    (first, *_) = sweep.plan(file, out)

    def train(run, folder, **options):
        if folder == first.out:
            raise InUse(folder, "process 12 on node7")
        Trainer()(first.planned.run, first.out, **options)
        Trainer()(run, folder, **options)

    done = sweep.carry_out(file, out=out, execution=Execution(train=train), say=said.append)
    assert any(f"trained elsewhere: {first.out}" in line for line in said)
    assert not done.problems and not done.elsewhere and all(line["finished"] for line in done.values["runs"])


def test_training_into_a_folder_of_another_process_ends_with_the_status_of_what_is_temporary(monkeypatch, capsys):
    def busy(self):
        raise InUse(Path("runs/a"), "process 12 on node7")

    monkeypatch.setattr(Train, "run", busy)
    assert main(["train", "cube-single-play-v0"]) == 75
    said = capsys.readouterr().err
    assert said == "dualgoal: runs/a: in use by process 12 on node7; wait for it or choose another --out\n"


def test_paths_in_a_sweep_are_those_that_training_records(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = write(tmp_path, FILE.replace("[options]", "[options]\nfrozen_rep = 'stage'\nenv = 'envs.py:Make'"))
    train = lambda run, out, **options: Trainer()(continuing.absolute(run), out, **options)
    done = sweep.carry_out(file, out="runs", execution=Execution(train=train), say=lambda text: None)
    assert [line["mean"] for line in done.values["runs"]] == [50] * 2 + [90] * 4
    assert {job.status for job in sweep.plan(file, "runs")} == {"finished"}


def test_rows_are_read_from_the_directories(tmp_path):
    file, out = write(tmp_path), tmp_path / "runs"
    (job, *_) = sweep.plan(file, out)
    write_run(job.out, job.planned.run, [])
    with (job.out / "eval.jsonl").open("a") as stream:
        stream.write('{"seed": 0}\n')
    done = sweep.carry_out(file, out=out, execution=Execution(train=lambda *a, **o: None), say=lambda text: None)
    assert any("eval.jsonl: line 1" in problem for problem in done.problems)

"""`dualgoal runs`: states, rates, time left and success of many runs, read from their directories alone."""

import json
import platform
import time
from dataclasses import asdict

import pytest

from dualgoal import files
from dualgoal.cli.main import main
from dualgoal.errors import UserError
from dualgoal.paper import jobs, settings
from dualgoal.paper.tables import PlannedRun
from dualgoal.runs import config, directory, overview, owner
from run_files import rows, write_run

RUN = settings.preset("cube-single-play-v0", "dual", "gcivl", steps=1000, seeds=(0, 1))


def make(path, *, until=1000, saved=(), **status):
    write_run(path, RUN, [row for row in rows(RUN, 5) if row.step <= until])
    timing = ({"step": 500, "steps_per_second": 20.0, "time": 0.0}, {"step": 500, "evaluation_cpu_seconds": 3.0})
    (path / "timing.jsonl").write_text("".join(json.dumps(row) + "\n" for row in timing))
    for step in saved:
        file = directory.checkpoint_path(path, step).with_suffix(".json")
        file.parent.mkdir(exist_ok=True)
        file.write_text("{}")
    if status:
        values = {"token": "t", "host": "node7", "pid": 1, "time": time.time(), "every": 5.0} | status
        (path / owner.STATUS).write_text(json.dumps(asdict(owner.Status(**values))))
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    make(folder / "a" / "going", until=500, saved=[500], step=600, rate=10.0, busy="evaluating step 500")
    make(folder / "a" / "gone", until=0, step=100, rate=10.0, time=time.time() - 600)
    make(folder / "b" / "done", saved=[1000], state="finished", step=1000, rate=10.0)
    make(folder / "b" / "old", saved=[1000])  # from before there were signs of life
    make(folder / "b" / "half", until=500, saved=[500])
    make(folder / "b" / "broken", until=0, state="failed", why="actor/loss is not finite at step 7", step=7)
    make(folder / "b" / "unevaluated", until=900, saved=[1000], state="interrupted", step=1000, why="interrupted")
    owner.note_failure(folder / "c" / "never", "no data")
    return folder


def test_states_and_numbers(folder):
    found = {line.path.rsplit("/", 1)[1]: line for line in map(overview.look, overview.find(folder))}
    assert {name: line.state for name, line in found.items()} == {
        "going": "running", "gone": "lost", "done": "finished", "old": "finished", "half": "unfinished",
        "broken": "failed", "unevaluated": "interrupted", "never": "failed",
    }  # fmt: skip
    going = found["going"]
    assert (going.step, going.rate, going.left, going.success, going.success_step) == (600, 10, 40, 50, 500)
    assert (going.task, going.run, going.seeds, going.node) == ("cube-single-play-v0", "dual+gcivl", 2, "node7")
    assert going.why == "evaluating step 500" and going.seen < 60
    assert found["gone"].why == "no sign of life for 0:10:00" and found["gone"].left is None
    assert found["broken"].why.startswith("actor/loss") and found["never"].why == "no data"
    assert found["half"].rate == 20


def test_an_evaluated_run_without_its_checkpoints_is_finished_for_the_list_and_for_the_plan(tmp_path):
    line = overview.look(make(tmp_path / "a"))
    planned = PlannedRun("t", RUN.task, "c", "dual", "gcivl", RUN.seeds, config.to_dict(RUN), RUN.id)
    assert (line.state, line.step) == ("finished", 1000) and jobs.is_finished(tmp_path / "a", planned)
    line = overview.look(make(tmp_path / "b", until=900))
    assert (line.state, line.step) == ("unfinished", 900) and not jobs.is_finished(tmp_path / "b", planned)


def test_a_sign_of_life_from_the_future_is_none(tmp_path):
    """The clock of its machine is, or was, ahead of this one's."""
    found = overview.look(make(tmp_path / "ahead", until=0, time=time.time() + 7230))
    assert found.state == "lost" and found.why.startswith("its last sign of life is 2:00:")
    assert found.why.endswith(" ahead of this machine's clock")


def test_a_run_whose_process_was_killed_here_is_lost_at_once(tmp_path):
    here = make(tmp_path / "here", until=0, host=platform.node(), pid=7)
    (here / owner.LOCK).write_text("process 7")  # as kill -9 leaves it: nobody holds it
    before = sorted(tmp_path.rglob("*"))
    found = overview.look(here)
    assert (found.state, found.why) == ("lost", "process 7 has ended without saying so")
    with files.locked(here / owner.LOCK):
        assert overview.look(here).state == "running"
    assert overview.look(make(tmp_path / "there", until=0, host="elsewhere", pid=7)).state == "running"
    assert set(before) - set(tmp_path.rglob("*")) == {here / owner.LOCK}  # the lock that this test held; no other file


def test_sorting(folder):
    lines = [overview.look(path) for path in overview.find(folder)]
    assert [line.state for line in overview.ordered(lines, "state")][:2] == ["running", "lost"]
    assert overview.ordered(lines, "step", reverse=True)[0].step == 1000
    assert overview.ordered(lines, "left")[0].state == "running" and overview.ordered(lines, "left")[-1].left is None
    with pytest.raises(UserError, match="unknown column 'stat'; did you mean 'state'"):
        overview.ordered(lines, "stat")


def test_the_command(folder, capsys):
    assert main(["runs", str(folder)]) == 0
    said = capsys.readouterr().out
    assert said.splitlines()[-1] == "8 runs, 1 running, 1 lost, 2 failed, 1 interrupted, 1 unfinished, 2 finished"
    first = said.splitlines()[1].split()
    assert first[:8] == ["running", "cube-single-play-v0", "dual+gcivl", "x2", "600", "60", "%", "10/s"]
    assert first[8:13] == ["0:00:40", "50.0", "%", "at", "500"]
    assert main(["runs", str(folder), "--json", "--state", "failed", "--sort", "path"]) == 0
    assert [line["why"] for line in json.loads(capsys.readouterr().out)][1] == "no data"
    assert main(["runs", str(folder / "nowhere")]) == 2 and main(["runs", str(folder), "--state", "lots"]) == 2


def test_a_damaged_directory_is_shown_as_far_as_it_can_be_read(tmp_path):
    make(tmp_path / "a", until=500, saved=[500], step=500)
    (tmp_path / "a" / "status.json").write_text('{"token": 3}')
    (tmp_path / "a" / "timing.jsonl").write_text("nonsense\n")
    (tmp_path / "a" / "config.json").write_text("{")
    line = overview.look(tmp_path / "a")
    assert (line.state, line.task, line.step, line.rate) == ("unfinished", "?", 500, None)
    (tmp_path / "a" / "checkpoints").rename(tmp_path / "elsewhere")
    (tmp_path / "a" / "checkpoints").symlink_to(tmp_path / "elsewhere")
    assert overview.look(tmp_path / "a").step == 500, "by its evaluations"
    (tmp_path / "a" / "eval.jsonl").unlink()
    assert overview.look(tmp_path / "a").step == 0, "the link is not followed"

"""Runs as submitit's jobs, on this machine: one is asked to leave and put back into the queue."""

import os
import signal
import sys
import threading
import time

import pytest

from dualgoal.engine.items import Item, Placement
from dualgoal.engine.on_slurm import LOGS, OnSlurm
from dualgoal.errors import UserError
from dualgoal.paper import jobs, sweep
from dualgoal.paper.jobs import Execution
from dualgoal.runs import directory, owner
from tiny import SWEEP, make_data, record

submitit = pytest.importorskip("submitit", reason="submitit is not installed (pip install 'dualgoal[slurm]')")
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Slurm is not for Windows")


def local(folder, **placement):
    return OnSlurm(Placement(gpus=0, **placement), folder, workers=1, cluster="local")


def test_a_job_that_is_interrupted_and_requeued_ends_bit_equal(tmp_path, monkeypatch):
    data, file = make_data(tmp_path / "data"), tmp_path / "one.toml"
    file.write_text(SWEEP.format(rates="1e-4"))
    submitted, said = [], []

    class Interrupted(OnSlurm):
        def _submit(self, items, task):
            submitted.extend(super()._submit(items, task))
            threading.Thread(target=interrupt, daemon=True).start()
            return submitted

    def interrupt():
        """As Slurm does it: the process of the job gets the signal."""
        (planned,) = sweep.plan(file, tmp_path / "slurm")
        while not directory.steps(planned.out):
            time.sleep(0.01)
        os.kill(owner.read_status(planned.out).pid, signal.SIGUSR2)

    engine = Interrupted(Placement(gpus=0), tmp_path / "slurm", workers=1, cluster="local")
    monkeypatch.setattr(jobs.choice, "engine", lambda *_: engine)
    done = sweep.carry_out(file, out=tmp_path / "slurm", execution=Execution(on="slurm", data=data), say=said.append)
    (log,) = (tmp_path / "slurm" / LOGS).glob("*/*_log.out")
    assert not done.problems, (done.problems, log.read_text())
    assert "Requeued job" in log.read_text()
    monkeypatch.undo()
    sweep.carry_out(file, out=tmp_path / "here", execution=Execution(data=data, quiet=True), say=said.append)
    (there,), (here,) = (sweep.plan(file, tmp_path / name) for name in ("slurm", "here"))
    assert record(there.out) == record(here.out)


def test_what_slurm_cannot_do_is_one_line(tmp_path):
    with pytest.raises(UserError, match=r"Slurm gives whole GPUs, not 0.5"):
        OnSlurm(Placement(gpus=0.5), tmp_path, cluster="local")
    with pytest.raises(UserError, match="--slurm takes NAME=VALUE, for instance partition=gpu, not 'gpu'"):
        local(tmp_path, slurm=("gpu",))
    for word in ("time=soon", "time="):
        with pytest.raises(UserError, match=f"--slurm {word}: expected minutes"):
            local(tmp_path, slurm=(word,))
    options = local(tmp_path, slurm=("time=90", "partition=gpu", "mem-per-cpu=4G"))._options
    assert (options["timeout_min"], options["slurm_partition"], options["slurm_mem_per_cpu"]) == (90, "gpu", "4G")


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """A folder that is all of PATH, with an sbatch that keeps the script that it is given, and an srun."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, line in (("sbatch", f"/bin/cp $1 {tmp_path}/script; echo Submitted batch job 12"), ("srun", "exit 1")):
        (folder / name).write_text(f"#!/bin/sh\n{line}\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    return folder


def test_options_of_sbatch_reach_it(tmp_path, programs):
    given = ("partition=gpu", "time=90", "mem-per-cpu=4G", "reservation=mine", "nice=100", "licenses=a:2", "chdir=/tmp")
    given += ("export=NONE", "tmp=10G", "begin=now+1hour", "ntasks=1", "exclusive=", "mail_type=END", "contiguous=")
    engine = OnSlurm(Placement(gpus=0, slurm=given), tmp_path / "runs", workers=1)
    items = [Item(name, tmp_path / "runs" / name, print) for name in "ab"]
    assert [job.job_id for job in engine._submit(items, None)] == ["12_0", "12_1"]
    script = (tmp_path / "script").read_text().splitlines()
    expected = [f"#SBATCH --{word.rstrip('=').replace('_', '-')}" for word in given]
    assert not set(expected) - set(script) and "#SBATCH --requeue" in script


def test_options_that_are_decided_here_are_one_line(tmp_path):
    for word in ("output=a.log", "error=a.log", "array=0-3", "signal=USR1@60", "requeue=", "gpus=2", "parsable="):
        with pytest.raises(UserError, match=f"^--slurm {word}: "):
            local(tmp_path, slurm=(word,))
    with pytest.raises(UserError, match="--slurm ntasks=4: a run is one process; expected ntasks=1"):
        local(tmp_path, slurm=("ntasks=4",))


@pytest.mark.parametrize("name", ["sbatch", "srun"])
def test_a_missing_program_is_one_line(tmp_path, programs, name):
    (programs / name).unlink()
    with pytest.raises(UserError, match=f"--on slurm: there is no {name} here; run this on a machine from which"):
        OnSlurm(Placement(gpus=0), tmp_path)

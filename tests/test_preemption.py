"""A scheduler's signal saves a run at the next step and ends it with a status that asks to be started again."""

import dataclasses
import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

import tiny
from dualgoal import loop
from dualgoal.errors import Preempted
from dualgoal.runs import directory, interruption, preparation, training
from tiny import Scorer, flags, record, tiny_run

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="schedulers that send these signals run on Unix"),
    pytest.mark.usefixtures("one_program"),
]
RUN = tiny_run(steps=40, eval_every=20, episodes=1, seeds=(0,))


def train(folder, out, ask=lambda: None, run=RUN):
    training.train(run, out, data_path=folder, quiet=True, evaluator=Scorer(run.seeds, ask))


@pytest.fixture(scope="module")
def undisturbed(folder, tmp_path_factory, cache, one_program):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DUALGOAL_CACHE", str(cache))
        out = tmp_path_factory.mktemp("undisturbed") / "run"
        train(folder, out)
        return record(out)


def signalling(number, when):
    """A function that sends this process a signal at its call number `when`."""
    calls = []

    def ask():
        calls.append(1)
        if len(calls) == when:
            os.kill(os.getpid(), number)

    return ask


@pytest.mark.parametrize("name", ["SIGTERM", "SIGUSR1", "SIGUSR2"])
def test_during_training_the_next_step_is_saved_and_the_rest_follows_bit_for_bit(folder, tmp_path, undisturbed, name):
    number = getattr(signal, name)
    with pytest.raises(Preempted, match="interrupted; step .* is saved in .* run the same command") as found:
        train(folder, tmp_path / "a", signalling(number, 2))
    assert found.value.number == number and signal.getsignal(number) is signal.SIG_DFL, "as before"
    assert 0 < directory.steps(tmp_path / "a")[-1] < RUN.steps
    train(folder, tmp_path / "a")
    assert record(tmp_path / "a") == undisturbed


def test_a_complete_run_keeps_no_checkpoint_of_an_interruption(folder, tmp_path):
    """Not even where it is among the last few, because the run saves but once."""
    run = dataclasses.replace(RUN, eval_every=RUN.steps, save_every=RUN.steps, log_every=10)
    with pytest.raises(Preempted):
        train(folder, tmp_path / "a", signalling(signal.SIGTERM, 2), run)
    assert 0 < directory.steps(tmp_path / "a")[-1] < run.steps
    train(folder, tmp_path / "a", run=run)
    assert directory.steps(tmp_path / "a") == [run.steps]


def test_during_the_last_evaluation_it_is_done_again(folder, tmp_path, undisturbed):
    class Never(Scorer):
        def collect(self):
            if self.pending == [20, 40]:
                self.ask()
            return []

    never = Never(RUN.seeds, signalling(signal.SIGTERM, 2))
    with pytest.raises(Preempted, match="step 40 is saved"):
        training.train(RUN, tmp_path / "a", data_path=folder, quiet=True, evaluator=never)
    assert not directory.evaluations(tmp_path / "a")
    train(folder, tmp_path / "a")
    assert record(tmp_path / "a") == undisturbed


def test_during_compilation_nothing_is_begun(folder, tmp_path, undisturbed, monkeypatch):
    compile_loop = loop.compile_loop

    def slowly(lowered):
        os.kill(os.getpid(), signal.SIGTERM)
        return compile_loop(lowered)

    monkeypatch.setattr(loop, "compile_loop", slowly)
    monkeypatch.setattr(preparation, "TrainingLoop", loop.TrainingLoop)  # which compiles
    with pytest.raises(Preempted, match="nothing has been trained yet"):
        train(folder, tmp_path / "a")
    monkeypatch.undo()
    assert directory.steps(tmp_path / "a") == []
    train(folder, tmp_path / "a")
    assert record(tmp_path / "a") == undisturbed


def test_the_second_signal_stops_at_once_with_the_last_checkpoint_intact(folder, tmp_path, undisturbed):
    with pytest.raises(Preempted, match="second signal"):
        train(folder, tmp_path / "a", lambda: [os.kill(os.getpid(), signal.SIGTERM) for _ in range(2)])
    train(folder, tmp_path / "a")
    assert record(tmp_path / "a") == undisturbed


def test_the_second_signal_stops_what_never_returns_to_python(tmp_path):
    code = """
        import hashlib, sys
        from dualgoal.runs.interruption import Interruption
        with Interruption():
            print("in", flush=True)
            hashlib.pbkdf2_hmac("sha256", b"a long", b"compilation", 10**9)  # and no Python meanwhile
    """
    for number, status in ((signal.SIGTERM, interruption.PREEMPTED), (signal.SIGINT, interruption.INTERRUPTED)):
        command = [sys.executable, "-c", textwrap.dedent(code)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert process.stdout.readline() == "in\n"
        process.send_signal(number)
        time.sleep(0.2)
        assert process.poll() is None, "the first one waits"
        process.send_signal(number)
        said = process.communicate(timeout=20)[1]
        assert process.returncode == status and said.count("\n") == 1 and "second signal" in said


def test_the_program_exits_with_the_documented_status_and_its_workers_go_on_until_then(folder, cache, tmp_path):
    """The whole process group is signalled, as Slurm does it."""
    run = tiny_run(steps=400_000, eval_every=1_000, save_every=400_000, log_every=1_000, episodes=1)
    code = "import os; os.setpgrp(); from dualgoal.cli.main import main; raise SystemExit(main())"
    words = [*flags(run), "--data", str(folder), "--workers", "1", "--out", str(tmp_path / "a")]
    environment = {**os.environ, "DUALGOAL_CACHE": str(cache)}
    command = [sys.executable, "-c", code, *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
    while not (directory.steps(tmp_path / "a")):
        assert process.poll() is None, process.stdout.read()
        time.sleep(0.02)
    time.sleep(1)  # the worker of the evaluation starts
    os.killpg(process.pid, signal.SIGTERM)
    said = process.communicate(timeout=60)[0]
    assert process.returncode == interruption.PREEMPTED == 75, said
    last = directory.steps(tmp_path / "a")[-1]
    assert f"interrupted; step {last:,} is saved" in said and "crashed" not in said and "Traceback" not in said


def test_before_training_the_program_leaves_with_the_same_status(tmp_path):
    code = """
        import os, signal
        from dualgoal.cli import main, train
        train.Train.run = lambda self: os.kill(os.getpid(), signal.SIGTERM)
        raise SystemExit(main.main())
    """
    command = [sys.executable, "-c", textwrap.dedent(code), "train", tiny.TASK]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (75, f"dualgoal: stopped: dualgoal train {tiny.TASK}\n")

"""One writer at a time: signs of life, taking over from a process that is gone, and one that wakes up too late."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from dualgoal.errors import UserError
from dualgoal.files import remove_leftovers
from dualgoal.runs import directory, owner
from dualgoal.runs.owner import Owner, Status
from tiny import dualgoal, flags, make_data, record, tiny_run

RUN = tiny_run(steps=400_000, eval_every=400_000, save_every=500, log_every=50)


@pytest.fixture(autouse=True)
def quick_heart(monkeypatch, tmp_path):
    monkeypatch.setenv("DUALGOAL_HEARTBEAT", "0.1")


def put(path, owned, **status):
    """The files of another owner; nobody holds the lock."""
    path.mkdir(exist_ok=True)
    (path / "owner.json").write_text(owner.json.dumps(owner.asdict(owned)))
    if status:
        values = {"token": owned.token, "host": owned.host, "pid": owned.pid, "every": 0.05} | status
        (path / "status.json").write_text(owner.json.dumps(owner.asdict(Status(**values))))


OTHER = Owner("abc", "another-machine", 7)


def test_an_owner_on_another_machine_that_lives_is_respected_although_the_lock_is_free(tmp_path):
    put(tmp_path, OTHER, time=time.time())
    with pytest.raises(UserError, match="in use by process 7 on another-machine; wait for it or choose another --out"):
        owner.acquire(tmp_path)
    assert owner.read_owner(tmp_path) == OTHER and not (tmp_path / "lock").exists()


def test_an_owner_on_another_machine_without_signs_of_life_is_replaced(tmp_path):
    put(tmp_path, OTHER, time=time.time() - 60)
    held = owner.acquire(tmp_path)
    assert held.took_over and owner.read_owner(tmp_path).pid == os.getpid()
    held.release("finished")
    assert owner.read_owner(tmp_path) is None and owner.read_status(tmp_path).state == "finished"


def test_what_a_process_leaves_that_was_killed_when_it_was_done_is_removed(tmp_path):
    put(tmp_path, Owner("abc", owner.platform.node(), 7))
    (tmp_path / "lock").write_text("process 7")
    (tmp_path / ".status.json.abc.99999999.tmp").write_text("{")
    owner.tidy(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["status.json"]
    held = owner.acquire(tmp_path)
    owner.tidy(tmp_path)
    held.check()
    held.release("finished")
    put(tmp_path, OTHER)
    owner.tidy(tmp_path)
    assert owner.read_owner(tmp_path) == OTHER


@pytest.mark.parametrize("status", ['{"every": 1e300}', '{"every": -1}', '{"time": -1e300}', "[" * 10_000])
def test_a_damaged_sign_of_life_is_none(tmp_path, status):
    put(tmp_path, OTHER, time=time.time())
    whole = owner.json.loads((tmp_path / "status.json").read_text())
    damaged = status if status.startswith("[") else owner.json.dumps(whole | owner.json.loads(status))
    (tmp_path / "status.json").write_text(damaged)
    assert owner.read_status(tmp_path) is None
    held = owner.acquire(tmp_path)  # nobody has been heard of while it watched
    held.release("finished")
    assert held.took_over


def test_what_a_killed_sign_of_life_leaves_is_removed(tmp_path):
    held = owner.acquire(tmp_path)
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    left = tmp_path / f".status.json.{held._owner.token}.{child.pid}.tmp"
    left.write_text("{")
    remove_leftovers(tmp_path)
    held.release("finished")
    assert not left.exists()


def test_a_clock_that_is_ahead_does_not_make_a_dead_owner_alive(tmp_path):
    put(tmp_path, OTHER, time=time.time() + 1000)
    assert not owner.seems_alive(owner.read_status(tmp_path))
    held = owner.acquire(tmp_path)  # it has watched, and nothing came
    held.release("finished")
    assert held.took_over


@pytest.mark.parametrize("seconds", [-1000, 1000])
def test_a_clock_that_is_late_or_ahead_does_not_make_an_owner_dead(tmp_path, monkeypatch, seconds):
    put(tmp_path, OTHER, time=time.time() + seconds)
    before, beats = owner.read_status(tmp_path), []

    def beating(path):
        beats.append(1)
        return replace(before, time=before.time + len(beats))

    monkeypatch.setattr(owner, "read_status", beating)
    with pytest.raises(UserError, match="in use by process 7"):
        owner.acquire(tmp_path)


def test_waiting_ends_when_the_other_one_does(tmp_path):
    put(tmp_path, OTHER, time=time.time() + 0.4)  # silent from then on
    said = []
    held = owner.acquire(tmp_path, wait=True, say=said.append)
    held.release("finished")
    assert held.took_over
    assert said == [f"{tmp_path}: in use by process 7 on another-machine; waiting for it to finish"]


def test_signs_of_life_say_how_far_the_run_is_and_how_it_ended(tmp_path):
    held = owner.acquire(tmp_path)
    held.report(30, 12.5, "evaluating step 20")
    deadline = time.monotonic() + 10
    while (status := owner.read_status(tmp_path)).step != 30:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert (status.rate, status.busy, status.state) == (12.5, "evaluating step 20", "running")
    assert owner.seems_alive(status) and not owner.seems_alive(replace(status, time=status.time - 60))
    held.release("failed", "no data")
    assert (owner.read_status(tmp_path).state, owner.read_status(tmp_path).why) == ("failed", "no data")


def test_a_nonsensical_heartbeat_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setenv("DUALGOAL_HEARTBEAT", "often")
    with pytest.raises(UserError, match="DUALGOAL_HEARTBEAT is 'often'"):
        owner.acquire(tmp_path)
    assert not (tmp_path / "lock").exists()


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="no way to stop a process")
def test_a_writer_that_wakes_up_after_a_takeover_writes_nothing_more(tmp_path):
    folder, out = make_data(tmp_path / "data"), tmp_path / "a"
    process = dualgoal(*flags(RUN), "--data", str(folder), "--out", str(out), "--quiet", cache=tmp_path / "cache")
    try:
        while len(directory.steps(out)) < 2:
            assert process.poll() is None, process.stdout.read()
            time.sleep(0.02)
        process.send_signal(signal.SIGSTOP)
        with pytest.raises(UserError, match=f"in use by process {process.pid}"):
            owner.acquire(out)  # it may still be alive
        time.sleep(owner.MISSED * 0.1)
        facts = directory.read(out).facts
        with directory.Store(out, RUN, facts) as store:
            assert store.owner.took_over
            before = record(out)
            process.send_signal(signal.SIGCONT)
            said = process.communicate(timeout=60)[0]
            assert process.returncode == 75 and said.count("\n") == 1, said
            assert f"taken over by process {os.getpid()} on" in said and "it has stopped writing" in said
            assert record(out) == before
            store.metrics.append([{"step": 1, "seed": 0}])
        assert record(out)["metrics.jsonl"].startswith(before["metrics.jsonl"])
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_write_in_the_very_moment_of_a_takeover_goes_nowhere(tmp_path, monkeypatch):
    """The old owner has asked whether it may write, is stopped, and writes after the takeover."""
    from test_store import FACTS
    from test_store import RUN as STORED

    old = directory.Store(tmp_path, STORED, FACTS)
    old.metrics.append([{"step": 1, "seed": 0}])
    old.owner._ended.set()  # it is stopped
    old.owner._thread.join()
    monkeypatch.setattr(owner, "MISSED", 0)
    with directory.Store(tmp_path, STORED, FACTS) as new:
        assert new.owner.took_over
        old.metrics._guard = lambda: None
        old.metrics.append([{"step": 2, "seed": 0}])
        assert [row["step"] for row in new.metrics.rows()] == [1]
        with pytest.raises(owner.Replaced):
            old.save(3, {})
        old.__exit__(None, None, None)
        assert (tmp_path / "lock").exists() and owner.read_owner(tmp_path) is not None, "those of the new one"

"""A pool of processes: replaced when they die, one thread each, deaf to Ctrl-C, gone when their parent is."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dualgoal.errors import UserError
from dualgoal.workers import ATTEMPTS, Pool


def square(number):
    return number**2, os.getpid()


def die_once(place):
    """Kill the process unless one has died here before."""
    if not Path(place).exists():
        Path(place).write_text("")
        os.kill(os.getpid(), signal.SIGKILL)
    return os.getpid()


def always_die(_):
    print("the graphics driver is missing", file=sys.stderr)
    os._exit(3)


def complain(job):
    if job == "user":
        raise UserError("the file is empty")
    raise KeyError(job)


def look(_):
    pid, flags = os.getpid(), Path("/proc/self/status").read_text()
    (blocked,) = [int(line.split()[1], 16) for line in flags.splitlines() if line.startswith("SigBlk")]
    threads = [os.environ[name] for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")]
    on = [sorted(os.sched_getaffinity(int(t))) for t in os.listdir("/proc/self/task")]
    return {"pid": pid, "blocked": blocked, "threads": threads, "on": on, "own": os.environ["OWN"], "path": sys.path}


def chatter(job):
    print("a library that prints")
    os.system("echo and a program that does")
    return job


def test_answers_come_from_other_processes_in_any_order():
    with Pool(square, 2) as pool:
        answers = list(pool.each(range(20)))
    assert sorted(value for value, _ in answers) == [n**2 for n in range(20)]
    assert os.getpid() not in {pid for _, pid in answers} and len({pid for _, pid in answers}) <= 2


def test_a_process_that_dies_is_replaced_and_its_job_is_tried_again(tmp_path):
    with Pool(die_once, 1) as pool:
        pid = pool.submit(str(tmp_path / "died")).result()
        assert pool.pids == [pid]
    assert not pool.pids


def stop_once(path):
    if not os.path.exists(path):
        open(path, "w").close()
        os.kill(os.getpid(), signal.SIGSTOP)
    return "done"


def hang(_):
    time.sleep(600)


def test_a_process_that_hangs_is_ended_and_its_job_is_tried_again(tmp_path):
    with Pool(stop_once, 1, job_seconds=3) as pool:
        assert pool.submit(str(tmp_path / "stopped")).result(timeout=30) == "done"


def test_a_job_that_always_hangs_is_one_line():
    words = f"crashed {ATTEMPTS} times at the same job; it did not answer within 0.5 seconds"
    with Pool(hang, 1, job_seconds=0.5) as pool, pytest.raises(UserError, match=words):
        pool.submit(0).result(timeout=30)


def test_a_job_that_kills_every_process_is_one_line():
    words = f"crashed {ATTEMPTS} times at the same job; exit code 3, last line of its stderr: the graphics driver"
    with Pool(always_die, 1) as pool, pytest.raises(UserError, match=words):
        pool.submit(0).result()


def test_what_is_wrong_with_a_job_reaches_the_caller():
    with Pool(complain, 1) as pool:
        with pytest.raises(UserError, match="^the file is empty$"):
            pool.submit("user").result()
        with pytest.raises(RuntimeError, match="KeyError: 'bug'"):
            pool.submit("bug").result()


def test_what_libraries_print_does_not_disturb_the_answers(capfd):
    with Pool(chatter, 1) as pool:
        assert list(pool.each([1, 2])) in ([1, 2], [2, 1])
    assert capfd.readouterr() == ("", "")


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_a_process_has_one_thread_its_cores_and_no_ctrl_c():
    here = os.sched_getaffinity(0)
    with Pool(look, 1, environment={"OWN": "x"}, cpus=[max(here)]) as pool:
        seen = pool.submit(0).result()
        os.kill(seen["pid"], signal.SIGINT)
        assert pool.submit(0).result()["pid"] == seen["pid"], "still alive"
    assert (
        seen["threads"] == ["1"] * 3 and seen["own"] == "x" and seen["path"] == [os.path.abspath(p) for p in sys.path]
    )
    assert seen["blocked"] & (1 << (signal.SIGINT - 1))
    assert all(cpus == [max(here)] for cpus in seen["on"]) and os.sched_getaffinity(0) == here


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_orphans_end(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import os, time\n"
        "from dualgoal.workers import Pool\n"
        "pool = Pool(os.getpgid, 2)\n"  # any function of a number that takes no time
        "list(pool.each([0, 0, 0, 0]))\n"
        "print(*pool.pids, flush=True)\n"
        "time.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    pids = parent.stdout.readline().split()
    assert pids and all(Path("/proc", pid).exists() for pid in pids)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 20
    while any(Path("/proc", pid).exists() for pid in pids):
        assert time.monotonic() < deadline, "a worker outlived its parent"
        time.sleep(0.05)


GUARDED = """
from dualgoal.workers import Pool

def double(x):
    return 2 * x

if __name__ == "__main__":
    with Pool(double, 1, needs_script=True) as pool:
        print(pool.submit(4).result())
"""


def test_functions_of_a_script_can_be_used_if_the_script_can_be_loaded(tmp_path):
    (tmp_path / "good.py").write_text(GUARDED)
    (tmp_path / "bad.py").write_text(GUARDED.replace('if __name__ == "__main__"', "if True"))
    good, bad = (
        subprocess.run([sys.executable, str(tmp_path / name)], capture_output=True, text=True)
        for name in ("good.py", "bad.py")
    )
    assert (good.returncode, good.stdout) == (0, "8\n"), good.stderr
    assert bad.returncode and "put the call under `if __name__ == '__main__':`" in bad.stderr.splitlines()[-1]

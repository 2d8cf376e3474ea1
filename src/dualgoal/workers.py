"""A pool of worker processes, for collecting data and for evaluating policies.

A process is started afresh, never forked; it computes on one thread and leaves Ctrl-C and the signals of schedulers to
its parent. It reads jobs from one pipe and answers on another, so it ends when its parent is gone. A process that dies
is replaced and its job is tried again. What a job computes must not depend on the process it runs in: then neither
crashes nor the number of workers change a result.
"""

import contextlib
import json
import os
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import spawn
from multiprocessing.reduction import ForkingPickler
from queue import LifoQueue
from typing import IO, Any, Generic, TypeVar

from dualgoal.errors import UserError

ATTEMPTS = 3
JOB_SECONDS = 1800.0  # the longest job (an episode with images on one slow core) takes a few minutes
# Cores are for more workers, and rounding must not depend on the number of threads.
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")

# Signals that ask a program to stop.
REQUESTS = {getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGUSR1", "SIGUSR2") if hasattr(signal, name)}

Job = TypeVar("Job")
Answer = TypeVar("Answer")


class Pool(Generic[Job, Answer], contextlib.AbstractContextManager["Pool[Job, Answer]"]):
    """Processes that answer jobs with `work(job)`. Use as a context manager: leaving it ends them.

    `work` travels to every process once and may keep things there between jobs. `needs_script` says that it holds
    something defined in the caller's script, which every process then loads. `environment` adds environment variables,
    `cpus` are the cores to run on. A process that does not answer a job within `job_seconds` is ended, and the job is
    tried again as if it had crashed.
    """

    def __init__(
        self,
        work: Callable[[Job], Answer],
        workers: int,
        *,
        environment: Mapping[str, str] | None = None,
        cpus: Sequence[int] | None = None,
        needs_script: bool = False,
        job_seconds: float = JOB_SECONDS,
    ):
        if _loading_script:
            guard = "if __name__ == '__main__':"
            raise UserError(f"worker processes load this script for what it defines; put the call under `{guard}`")
        count = max(1, workers)
        setup = _Setup(bytes(ForkingPickler.dumps(work)), _script() if needs_script else {}, tuple(cpus or ()))
        variables = {**os.environ, **ONE_THREAD, **(environment or {})}
        self._workers = [_Worker(setup, variables, job_seconds) for _ in range(count)]
        self._idle: LifoQueue[_Worker] = LifoQueue()  # so that a process that runs is used before another is started
        for worker in self._workers:
            self._idle.put(worker)
        self._threads = ThreadPoolExecutor(count)  # each waits for one process at a time

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers that are running."""
        return [process.pid for w in self._workers if (process := w.process) is not None and process.poll() is None]

    def submit(self, job: Job) -> "Future[Answer]":
        """Put a job at the end of the queue and return at once."""
        return self._threads.submit(self._do, job)

    def each(self, jobs: Iterable[Job]) -> Iterator[Answer]:
        """The answers to `jobs` in the order in which they arrive; the first that fails raises."""
        for future in as_completed([self.submit(job) for job in jobs]):
            yield future.result()

    def close(self) -> None:
        """End the processes; jobs that are not done are abandoned."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for worker in self._workers:
            worker.stop()

    def _do(self, job: Job) -> Answer:
        worker = self._idle.get()
        try:
            return worker.ask(job)
        finally:
            self._idle.put(worker)


class InProcess(Generic[Job, Answer]):
    """In place of a `Pool`, where no other process can do the work: a job is done when it is submitted."""

    def __init__(self, work: Callable[[Job], Answer]):
        self._work = work

    def submit(self, job: Job) -> "Future[Answer]":
        answer: Future[Answer] = Future()
        answer.set_result(self._work(job))
        return answer

    def close(self) -> None:
        pass


@dataclass(frozen=True)
class _Setup:
    """The first message to a process."""

    work: bytes
    script: Mapping[str, str]  # how to load the caller's script; empty if nothing is needed from it
    cpus: tuple[int, ...]


class _Worker:
    """One process; started at its first job, and again when it has died."""

    def __init__(self, setup: _Setup, environment: Mapping[str, str], job_seconds: float):
        self.process: subprocess.Popen[bytes] | None = None
        self._setup, self._environment, self._job_seconds = setup, environment, job_seconds
        self._late = False
        self._errors: IO[bytes] | None = None
        self._end = "it has not been started"
        self._stopped = False
        self._lock = threading.Lock()  # nothing is started after `stop`

    def ask(self, job: Any) -> Any:
        for _ in range(ATTEMPTS):
            try:
                kind, value = self._exchange(job)
            except (OSError, EOFError):
                self._remove()
                continue
            if kind == "problem":
                raise UserError(value)
            if kind == "crash":
                raise RuntimeError(f"a worker process failed\n{value}")
            return value
        raise UserError(f"a worker process crashed {ATTEMPTS} times at the same job; {self._end}")

    def _exchange(self, job: Any) -> tuple[str, Any]:
        with self._lock:
            if self._stopped:
                raise UserError("the job was abandoned")
            if self.process is None:
                self._start()
            process = self.process
        assert process is not None and process.stdin is not None and process.stdout is not None
        alarm = threading.Timer(self._job_seconds, self._end_late, [process])
        alarm.daemon = True
        alarm.start()
        try:
            _write(process.stdin, job)
            return _read(process.stdout)
        finally:
            alarm.cancel()

    def _end_late(self, process: "subprocess.Popen[bytes]") -> None:
        """Whoever waits for an answer sees the pipe close. A process that was stopped (SIGSTOP) ends as well."""
        self._late = True
        process.kill()

    def _start(self) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (open as long as the process runs)
        # The parent's import path and no other: `python -c` alone would put the current folder first.
        boot = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from dualgoal import workers; workers.serve()"
        command = [sys.executable, "-P", "-c", boot, json.dumps([os.path.abspath(folder) for folder in sys.path])]
        pipe = subprocess.PIPE
        with _requests_blocked():
            self.process = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, stderr=self._errors, env=dict(self._environment)
            )
        assert self.process.stdin is not None
        _write(self.process.stdin, self._setup)

    def _remove(self) -> None:
        """See that the process is gone: one that has closed its pipe may not have ended yet."""
        process, self.process = self.process, None
        if process is None or self._errors is None:
            return
        process.kill()
        code = process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        self._end = f"exit code {code}" + (f", last line of its stderr: {lines[-1]}" if lines else "")
        self._errors.close()
        if self._late:
            self._end, self._late = f"it did not answer within {self._job_seconds:g} seconds", False

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
        self._remove()


@contextlib.contextmanager
def _requests_blocked() -> Iterator[None]:
    """Ctrl-C reaches every process of a terminal, and a scheduler may signal every process of a job. A process inherits
    what its parent's thread blocks, so workers never see these; the parent decides what happens to them."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, REQUESTS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _script() -> dict[str, str]:
    """How a process that was not forked finds the caller's script."""
    facts = spawn.get_preparation_data("worker")
    return {name: value for name, value in facts.items() if name.startswith("init_main_from")}


# In the process -------------------------------------------------------------------------------------------------------

_loading_script = False


def serve() -> None:
    """Answer jobs until the parent closes the pipe or is gone."""
    for number in REQUESTS:
        signal.signal(number, signal.SIG_IGN)  # where it could not be blocked
    jobs, answers = _take_pipes()
    work: Callable[[Any], Any] | None = None
    with contextlib.suppress(OSError, EOFError):
        setup: _Setup = _read(jobs)
        if setup.cpus and sys.platform == "linux":
            os.sched_setaffinity(0, setup.cpus)
        while True:
            packed = _read_bytes(jobs)
            try:
                if work is None:
                    _load_script(setup.script)
                    work = ForkingPickler.loads(setup.work)
                answer = bytes(ForkingPickler.dumps(("done", work(ForkingPickler.loads(packed)))))
            except UserError as problem:
                answer = bytes(ForkingPickler.dumps(("problem", str(problem))))
            except Exception:
                answer = bytes(ForkingPickler.dumps(("crash", traceback.format_exc())))
            _write_bytes(answers, answer)


def _take_pipes() -> tuple[IO[bytes], IO[bytes]]:
    """Standard input and output, which from here on give libraries nothing to read and print to standard error."""
    jobs, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    return jobs, answers


def _load_script(script: Mapping[str, str]) -> None:
    global _loading_script
    _loading_script = True
    try:
        spawn.prepare(dict(script))
    finally:
        _loading_script = False


# Messages: eight bytes of length, then the value ----------------------------------------------------------------------


def _write(pipe: IO[bytes], value: Any) -> None:
    _write_bytes(pipe, bytes(ForkingPickler.dumps(value)))


def _write_bytes(pipe: IO[bytes], content: bytes) -> None:
    pipe.write(struct.pack(">Q", len(content)) + content)
    pipe.flush()


def _read(pipe: IO[bytes]) -> Any:
    return ForkingPickler.loads(_read_bytes(pipe))


def _read_bytes(pipe: IO[bytes]) -> bytes:
    header = pipe.read(8)
    size = struct.unpack(">Q", header)[0] if len(header) == 8 else None
    content = pipe.read(size) if size is not None else b""
    if size is None or len(content) < size:
        raise EOFError("the other side has closed the pipe")
    return content

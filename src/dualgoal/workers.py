"""A crew of processes that share a list of work and report to one parent.

Processes are spawned, never forked. Each holds one end of a pipe: it breaks when the parent is gone, and the next
report ends the orphan; it closes when the process is gone, and the parent says so in one line.
"""

import multiprocessing
import os
import signal
import sys
import threading
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from typing import Any

from dualgoal.errors import UserError

Report = Callable[[int], None]
Work = Callable[[Any, Report], None]


def run(work: Work, shares: Sequence[Any], report: Report, needs_script: bool = False) -> None:
    """Do `work(share, report)` for every share, each in its own process; `report` is called here.

    `needs_script` says that `work` holds functions defined in the caller's script, which every process then runs again.
    """
    context = multiprocessing.get_context("spawn")
    running: dict[Connection, Any] = {}
    try:
        for share in shares:
            receive, send = context.Pipe(duplex=False)
            process = context.Process(target=_serve, args=(work, share, send), daemon=True)
            with _inheriting(needs_script):
                process.start()
            send.close()
            running[receive] = process
        while running:
            for pipe in wait(list(running)):
                _listen(pipe, running, report)  # type: ignore[arg-type]
    finally:
        for process in running.values():
            process.terminate()
        for process in running.values():
            process.join()


def _serve(work: Work, share: Any, pipe: Connection) -> None:
    try:
        work(share, pipe.send)
    except UserError as problem:
        pipe.send(problem)
    except BrokenPipeError:
        os._exit(1)


def _listen(pipe: Connection, running: dict[Connection, Any], report: Report) -> None:
    try:
        message = pipe.recv()
    except EOFError:
        process = running.pop(pipe)
        process.join()
        if process.exitcode != 0:
            raise UserError(
                f"a worker process ended with code {process.exitcode}; run the same command again to resume"
            ) from None
        return
    if isinstance(message, UserError):
        raise message
    report(message)


@contextmanager
def _inheriting(needs_script: bool) -> Iterator[None]:
    """What a process inherits: one thread for linear algebra (the crew fills the cores), and a deaf ear for Ctrl-C,
    which reaches the whole process group; the parent hears it and ends its crew.

    A spawned process runs the caller's script again to find what was defined there. Where nothing is needed from it,
    showing it an empty main module spares scripts the `if __name__ == "__main__"`.
    """
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    before = {name: os.environ.get(name) for name in names}
    script = sys.modules["__main__"]
    main_thread = threading.current_thread() is threading.main_thread()
    listening = signal.signal(signal.SIGINT, signal.SIG_IGN) if main_thread else None
    os.environ.update(dict.fromkeys(names, "1"))
    if not needs_script:
        sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = script
        if main_thread:
            signal.signal(signal.SIGINT, listening)
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value

"""A terminal that may go away and a Ctrl-C that may come at any time: neither may stop or hide what a command does."""

import _thread
import errno
import io
import os
import signal
import sys
import threading
import warnings
from types import FrameType
from typing import Any

from dualgoal.errors import Preempted, printable
from dualgoal.runs.interruption import FROM_SCHEDULERS, INTERRUPTED, PREEMPTED

RETRY_SECONDS = 0.02


class Output(io.FileIO):
    """A file descriptor that discards what can no longer be written, for instance because its reader has ended.

    Printing would raise otherwise, in the middle of a training that nobody wants to lose with its log.
    """

    problem: OSError | None = None

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as problem:
            self.problem = problem
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)
            return memoryview(data).nbytes


def protect_output() -> list[Output]:
    """Let standard output and error go through `Output`, unless somebody has replaced them (tests, notebooks)."""
    outputs = []
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None or stream is not getattr(sys, f"__{name}__"):
            continue
        stream.flush()
        outputs.append(Output(stream.fileno(), "w", closefd=False))
        by_line = stream.line_buffering or name == "stderr"
        text = io.TextIOWrapper(
            io.BufferedWriter(outputs[-1]), encoding=stream.encoding, errors=stream.errors, line_buffering=by_line
        )
        setattr(sys, name, text)
    return outputs


def lost_output(outputs: list[Output]) -> str | None:
    """Why some of the output was lost; None if nothing was, or if its reader ended because it had seen enough."""
    sys.stdout.flush()
    sys.stderr.flush()
    problems = [output.problem for output in outputs if output.problem is not None]
    other = [problem for problem in problems if problem.errno != errno.EPIPE]
    return f"output was lost: {other[0].strerror}" if other else None


def protect_signals(farewell: str, resumes: bool) -> None:
    """Let Ctrl-C, and for a command that can be resumed the signals of schedulers, raise an exception; but end the
    process at once, with a farewell, in an import: extension modules do not expect an exception while they are set up
    (jaxlib crashed in one of ten attempts), and nothing has been begun at that time.

    Training has handlers of its own, which save first; these are for the time before it, and for its data.
    """

    def leave(number: int, frame: FrameType | None) -> None:
        interrupted = number == signal.SIGINT
        if importing(frame):
            os.write(2, f"{farewell}\n".encode())
            os._exit(INTERRUPTED if interrupted else PREEMPTED)
        raise KeyboardInterrupt if interrupted else Preempted("stopped", number)

    usual: dict[int, Any] = {signal.SIGINT: signal.default_int_handler}
    usual |= dict.fromkeys(FROM_SCHEDULERS if resumes else (), signal.SIG_DFL)
    for number, handler in usual.items():
        if signal.getsignal(number) is handler:  # else somebody has decided, as a shell that runs it in the background
            signal.signal(number, leave)


def repeat_lost_signals() -> None:
    """Make every signal count, also in finalizers and in the callbacks of the garbage collector, of which JAX has one:
    there Python prints the exception of a handler and continues. The signal is sent again a moment later."""

    def unraisable(found: "sys.UnraisableHookArgs") -> None:
        if isinstance(found.exc_value, KeyboardInterrupt):
            number = int(signal.SIGINT)
        elif isinstance(found.exc_value, Preempted):
            number = found.exc_value.number
        else:
            report(found)
            return
        again = threading.Timer(RETRY_SECONDS, signal_main_thread, (number,))
        again.daemon = True
        again.start()

    report, sys.unraisablehook = sys.unraisablehook, unraisable


def shorten_warnings() -> None:
    """Print our own warnings as one line, without the place in the source and the line that is there."""

    def show(message: Warning | str, category: type[Warning], *place: Any, **rest: Any) -> None:
        if category.__module__.startswith("dualgoal."):
            print(f"dualgoal: {printable(str(message))}", file=sys.stderr)
        else:
            otherwise(message, category, *place, **rest)

    otherwise, warnings.showwarning = warnings.showwarning, show


def importing(frame: FrameType | None) -> bool:
    """Whether an import is under way in this frame or in one that waits for it."""
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


def signal_main_thread(number: int) -> None:
    """By a real signal where there is one, which also ends waiting."""
    if hasattr(signal, "pthread_kill"):
        signal.pthread_kill(threading.main_thread().ident or 0, number)
    else:
        _thread.interrupt_main(signal.Signals(number))

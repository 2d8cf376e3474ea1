"""Signals that ask a run to stop: it saves at the next step and ends, so that the same command resumes it.

Ctrl-C comes from a person; SIGTERM, SIGUSR1 and SIGUSR2 come from schedulers, which take the machine away a little
later. A process learns of a signal only between two Python instructions, and compiling a large program is one of them
that takes minutes. So a thread of its own sees signals arrive, and ends the process at the second one.
"""

import contextlib
import os
import signal
import threading
from types import FrameType
from typing import Any

from dualgoal.errors import Preempted

NAMES = ("SIGTERM", "SIGUSR1", "SIGUSR2")  # Windows has only the first
FROM_SCHEDULERS = tuple(int(getattr(signal, name)) for name in NAMES if hasattr(signal, name))
INTERRUPTED = 130  # the exit status of a program that Ctrl-C has ended
PREEMPTED = 75  # EX_TEMPFAIL: nothing is wrong, run the same command again
LEFT_TO_OTHERS: set[int] = set()  # signals that another library of this process has to answer
GRACE_SECONDS = 1.0  # for the orderly way out after the second signal


class Interruption:
    """While it is entered, the first signal becomes a request that the loop grants; the second one stops at once."""

    def __init__(self) -> None:
        self.number: int | None = None
        self._before: dict[int, Any] = {}
        self._left = threading.Event()

    @property
    def requested(self) -> bool:
        return self.number is not None

    def error(self, message: str) -> BaseException:
        """What to raise once everything is saved."""
        return stopped(message, self.number or signal.SIGINT)

    def __enter__(self) -> "Interruption":
        if threading.current_thread() is not threading.main_thread():
            return self  # only the main thread can have handlers
        read, self._pipe = os.pipe()
        os.set_blocking(self._pipe, False)
        wanted = {int(signal.SIGINT), *FROM_SCHEDULERS} - LEFT_TO_OTHERS
        self._before = {number: signal.signal(number, self._note) for number in sorted(wanted)}
        self._wakeup = signal.set_wakeup_fd(self._pipe, warn_on_full_buffer=False)
        threading.Thread(target=self._watch, args=(read,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        if not self._before:
            return
        self._left.set()
        signal.set_wakeup_fd(self._wakeup)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}
        os.close(self._pipe)  # which ends the thread

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise stopped("stopped by a second signal, before the first was granted", number)
        self.number = number

    def _watch(self, read: int) -> None:
        """Count the signals, whose numbers arrive as bytes. `_note` answers the second one if Python gets to it."""
        seen = 0
        while content := os.read(read, 16):
            for number in content:
                seen += number in self._before
                if seen >= 2 and not self._left.wait(GRACE_SECONDS):
                    with contextlib.suppress(OSError):
                        os.write(2, b"dualgoal: stopped at once by a second signal; the last checkpoint is intact\n")
                    os._exit(INTERRUPTED if number == signal.SIGINT else PREEMPTED)
        os.close(read)


def stopped(message: str, number: int) -> BaseException:
    """The exception for a signal: Python's own for Ctrl-C, ours for the others."""
    return KeyboardInterrupt(message) if number == signal.SIGINT else Preempted(message, number)

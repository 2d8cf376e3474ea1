"""The last evaluations of a run that is trained, done in a thread while the next run trains."""

import threading
from collections.abc import Callable
from contextlib import ExitStack

from dualgoal.runs.interruption import Interruption


class Background:
    """The evaluations that one run has left to be done; none, if it was complete before or failed. From `begin` on it
    owns what they need (the run's lock, its files, workers) and closes it in its thread.

    It is also the request to stop at which that thread looks (`session.Request`).
    """

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._problem: BaseException | None = None
        self._by: Interruption | None = None  # whose signal ends it
        self.requested = False

    def error(self, message: str) -> BaseException:
        return KeyboardInterrupt(message) if self._by is None else self._by.error(message)

    def begin(self, opened: ExitStack, evaluate: Callable[["Background"], None]) -> None:
        """Call `evaluate` in a thread, and then close what is `opened`."""

        def finish() -> None:
            try:
                with opened:
                    evaluate(self)
            except BaseException as problem:
                self._problem = problem

        self._thread = threading.Thread(target=finish, name="evaluations that are left", daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Until everything is evaluated; raises what went wrong, or that a signal has ended it."""
        if self._thread is None:
            return
        with Interruption() as interruption:
            while self._thread.is_alive():
                if interruption.requested:
                    self._by, self.requested = interruption, True
                self._thread.join(0.1)
        if self._problem is not None:
            raise self._problem

    def stop(self) -> None:
        """Leave what is not evaluated yet to whoever gives the same command again."""
        self.requested = True
        if self._thread is not None:
            self._thread.join()

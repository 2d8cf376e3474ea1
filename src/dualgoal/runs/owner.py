"""Who writes to a run directory: a token that one process has, and a sign of life from it every few seconds.

The lock file keeps two processes of one machine apart. It cannot tell a process that is gone from one that a network
has cut off, and on some shared file systems it keeps nobody out. So the owner also writes a token, and asks before
every write whether it is still there. Another process may replace the token once the owner has shown no sign of life
for a while; the old owner, should it wake up, finds the new token, writes nothing more and ends.

Signs of life are in a file of their own, so that an owner that was replaced cannot overwrite the token with them.
"""

import contextlib
import json
import os
import platform
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TypeVar

from dualgoal import jsons
from dualgoal.errors import Busy, UserError
from dualgoal.files import InUse, Lock, is_held, locked, remove_leftovers, write_atomic

OWNER = "owner.json"
STATUS = "status.json"
LOCK = "lock"
TAKEOVER = "takeover.lock"
EVERY = 5.0  # seconds between signs of life; $DUALGOAL_HEARTBEAT changes it
LONGEST = 3600.0
MISSED = 12  # signs of life that may be missing before an owner counts as gone
WATCHED = 3  # how many are waited for then, because the clocks of two machines may differ


T = TypeVar("T")


class Disowned(UserError):
    """This process does not own the run any more; whoever gets this must not write."""


class Replaced(Disowned, Busy):
    """Another process has taken the run over."""


@dataclass(frozen=True)
class Owner:
    """owner.json: the process that may write."""

    token: str
    host: str
    pid: int

    @property
    def name(self) -> str:
        return f"process {self.pid} on {self.host}"


@dataclass(frozen=True)
class Status:
    """status.json: the last sign of life, and how far the run is."""

    token: str
    host: str
    pid: int
    time: float  # of this sign of life, in seconds since 1970
    every: float
    state: str = "running"  # or finished, interrupted, failed
    step: int = 0
    rate: float | None = None  # steps per second
    busy: str = ""  # what it does besides taking steps
    why: str = ""  # it failed or stopped


def read_owner(path: Path) -> Owner | None:
    return _read(path / OWNER, Owner)


def read_status(path: Path) -> Status | None:
    found = _read(path / STATUS, Status)
    usual = found is not None and 0 < found.every < LONGEST and abs(found.time) < 1e11  # others would be waited for
    return found if usual else None


def _read(path: Path, kind: type[T]) -> T | None:
    try:
        return jsons.read_as(kind, path)
    except (OSError, ValueError):  # absent, or from another version: nobody can be asked
        return None


def seems_alive(status: Status | None) -> bool:
    """Whether a run that says it is running has given a sign of life recently. One from the future, by a clock that is
    ahead, is no more recent than one from the past."""
    if status is None or status.state != "running":
        return False
    return abs(time.time() - status.time) <= MISSED * status.every


def at_work(path: Path) -> Status | None:
    """The last sign of life of a process that seems to be at this run. Of a process of this machine the lock tells
    more: it is free as soon as the process is dead."""
    status = read_status(path)
    if status is None or not seems_alive(status):
        return None
    gone = status.host == platform.node() and not is_held(path / LOCK)
    return None if gone else status


def heartbeat_seconds() -> float:
    given = os.environ.get("DUALGOAL_HEARTBEAT")
    try:
        seconds = EVERY if given is None else float(given)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < LONGEST:
        raise UserError(f"DUALGOAL_HEARTBEAT is '{given}'; expected a number of seconds, for instance 5")
    return seconds


class Ownership:
    """The right to write to a run directory, from `acquire` until `release`, unless another process takes it."""

    def __init__(self, path: Path, lock: Lock, every: float, took_over: bool):
        self.path, self.took_over, self._lock = path, took_over, lock
        self._owner = Owner(uuid.uuid4().hex, platform.node(), os.getpid())
        self._status = Status(self._owner.token, self._owner.host, self._owner.pid, time.time(), every)
        self._changing = threading.Lock()
        self._ended = threading.Event()
        write_atomic(path / OWNER, (json.dumps(asdict(self._owner)) + "\n").encode())
        self._beat()
        self._thread = threading.Thread(target=self._keep_beating, args=(every,), daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raise if another process has taken over; to be called before every write."""
        try:
            (self.path / OWNER).stat()
        except FileNotFoundError:
            pass
        except OSError:
            return  # the storage does not answer; the write that follows says so
        found = read_owner(self.path)
        if found is None or found.token != self._owner.token:
            self._ended.set()
            silent, stopped = "while this process gave no sign of life", "it has stopped writing"
            if found is None:
                raise Disowned(f"{self.path}: its owner file was removed {silent}; {stopped}")
            raise Replaced(f"{self.path}: taken over by {found.name} {silent}", stopped)

    def report(self, step: int, rate: float | None, busy: str = "") -> None:
        """How far the run is, for the next sign of life, which also finds out whether another process took over."""
        if self._ended.is_set():
            self.check()
        with self._changing:
            self._status = replace(self._status, step=step, rate=rate, busy=busy)

    def release(self, state: str, why: str = "") -> None:
        """Say how it ended and let others write; without effect on a directory that is no longer ours."""
        self._ended.set()
        self._thread.join()
        with contextlib.suppress(Disowned):
            self.check()
            with self._changing:
                self._status = replace(self._status, state=state, busy="", why=why)
            self._beat()
            (self.path / OWNER).unlink(missing_ok=True)
        self._lock.close()

    def _keep_beating(self, every: float) -> None:
        while not self._ended.wait(every):
            with contextlib.suppress(UserError):  # a full disk stops the run at its next write, not here
                self.check()
                self._beat()

    def _beat(self) -> None:
        with self._changing:
            self._status = replace(self._status, time=time.time())
            content = json.dumps(asdict(self._status)) + "\n"
        # Not made durable: after a power failure nobody lives.
        temporary = self.path / f".{STATUS}.{self._owner.token}.{self._owner.pid}.tmp"
        with contextlib.suppress(OSError):
            try:
                temporary.write_text(content)
                os.replace(temporary, self.path / STATUS)
            finally:  # also on a full disk
                temporary.unlink(missing_ok=True)


def acquire(path: Path, *, wait: bool = False, say: Callable[[str], None] = print) -> Ownership:
    """The right to write to `path`. A living owner is an error, or is waited for; one that seems gone is replaced."""
    every, announced = heartbeat_seconds(), False
    while True:
        try:
            return _try_acquire(path, every)
        except InUse as problem:
            if not wait:
                raise
            if not announced:
                say(f"{problem.brief}; waiting for it to finish")
                announced = True
            time.sleep(min(1.0, every))


def _try_acquire(path: Path, every: float) -> Ownership:
    lock = None
    try:
        lock = locked(path / LOCK)
    except InUse as problem:
        in_use = problem
    owner, status = read_owner(path), read_status(path)
    try:
        if lock is not None and (owner is None or owner.host == platform.node()):
            return Ownership(path, lock, every, took_over=False)  # nobody, or a dead process of this machine
        if owner is not None:
            in_use = InUse(path, owner.name)
        if owner is None or seems_alive(status) or not _stays_silent(path, status, every):
            raise in_use
        with locked(path / TAKEOVER, wait=True):
            if read_owner(path) != owner:
                raise in_use  # somebody was faster
            if lock is None:
                (path / LOCK).unlink(missing_ok=True)  # the old owner keeps a lock on a file without a name
                lock = locked(path / LOCK)
            return Ownership(path, lock, every, took_over=True)
    except BaseException:
        if lock is not None:
            lock.close()
        raise


def _stays_silent(path: Path, before: Status | None, every: float) -> bool:
    """Watch for a sign of life by this machine's own clock; `before` is None if the last one cannot be read."""
    for _ in range(WATCHED * 4):
        time.sleep((before.every if before else every) / 4)
        if read_status(path) != before:
            return False
    return True


def tidy(path: Path) -> None:
    """Remove what a process of this machine has left which was killed when it was done: its lock, its token, and the
    sign of life that it was writing."""
    found = read_owner(path)
    left = (path / OWNER).exists() or (path / LOCK).exists()
    if left and (found is None or found.host == platform.node()):
        with contextlib.suppress(UserError):  # a living one keeps them
            held = acquire(path)
            remove_leftovers(path)
            held.release("finished")


def note_failure(path: Path, why: str) -> None:
    """Leave word of a run that could not even be begun, unless another process is at it."""
    if read_owner(path) is not None:
        return
    before = read_status(path)
    with contextlib.suppress(OSError):
        path.mkdir(parents=True, exist_ok=True)
        step = before.step if before else 0
        status = Status("", platform.node(), os.getpid(), time.time(), EVERY, state="failed", step=step, why=why)
        write_atomic(path / STATUS, (json.dumps(asdict(status)) + "\n").encode())

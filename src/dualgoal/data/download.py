"""Downloading official datasets: several mirrors, resumed where a connection broke, checked before they count.

A download grows in `NAME.npz.partial` and continues from there with an HTTP range request, in this run or a later one.
It gets its final name only if it has the announced length, opens as an archive, and has the known SHA-256 where one is
known. The official host has been down for days at a time, so every mirror is tried before giving up.
"""

import contextlib
import http.client
import math
import os
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterable
from http.client import HTTPException
from pathlib import Path
from typing import Any

from dualgoal.data import checks, npz, origin
from dualgoal.data.origin import FileFacts, Origin
from dualgoal.data.paths import DatasetFiles
from dualgoal.envs.tasks import TASKS, is_ogbench, plain
from dualgoal.errors import UserError, brief, unknown
from dualgoal.files import (
    cache_folder,
    locked,
    make_folder,
    move_into_place,
    os_errors_in_one_line,
    remove_free_lock,
    require_disk,
    sha256,
    write_all,
)
from dualgoal.progress import Update, bar, downloaded

OFFICIAL = "https://rail.eecs.berkeley.edu/datasets/ogbench"
BLOCK = 1 << 18
TIMEOUT = 30.0
ATTEMPTS = 5  # in a row without a new byte, per mirror
LEAST = 64 << 10  # bytes that must arrive within STALL seconds, or the connection is ended
STALL = 60.0
LARGEST = 64 << 30  # bytes of a file whose task says nothing about its size
PAUSE = 1.0  # seconds before the second attempt, doubled for each one after


class Unavailable(UserError):
    """No mirror could give a file. Other problems (a full disk, an unknown task) are plain `UserError`s."""


class _Failed(Exception):
    """One mirror cannot give the file; another may."""


def usual_mirrors() -> list[str]:
    """Base addresses to try in order: those in `$DUALGOAL_MIRRORS` (separated by spaces), else the official host."""
    return os.environ.get("DUALGOAL_MIRRORS", "").split() or [OFFICIAL]


@os_errors_in_one_line
def fetch_dataset(
    task: str, out: str | Path | None = None, *, mirrors: Iterable[str] | None = None, quiet: bool = False
) -> Path:
    """Download both files of a task into `out` (default: the cache folder); returns the training file.

    `mirrors` are base addresses to try in order, before the usual ones. A second process that wants the same files
    waits for the first one.
    """
    _check_name(task)
    task = plain(task)
    files = DatasetFiles(Path(out).expanduser() if out is not None else cache_folder() / "datasets", task)
    bases = list(dict.fromkeys([*(mirrors or ()), *usual_mirrors()]))
    if files.train.exists() and files.val.exists():
        remove_free_lock(files.lock)
        return files.train
    make_folder(files.folder)
    with locked(files.lock, wait=True):
        for file in (files.val, files.train):
            if not file.exists():
                # Recorded first: a file that has its name is whole, with everything that is known about it.
                _record(files, file, _download(file, bases, quiet))
                move_into_place(_partial(file), file)
    return files.train


def _check_name(task: str) -> None:
    """Raise if there is no such task; those of the paper are known without the simulator."""
    if plain(task) in TASKS:
        return
    if not is_ogbench(task):
        raise unknown("task", task, TASKS)
    from dualgoal.envs import ogbench

    ogbench.check_name(task)


def _download(file: Path, bases: list[str], quiet: bool) -> str:
    """Get one file from the first mirror that has it whole; returns its address."""
    partial, failures = _partial(file), []
    for base in bases:
        url = f"{base.rstrip('/')}/{file.name}"
        try:
            with bar(file.name, *downloaded(), total=None, quiet=quiet) as report:
                _complete(url, partial, report)
            _check(file)
        except _Failed as problem:
            failures.append(f"{url}: {problem}")
            continue
        return url
    raise Unavailable(
        f"{file.name}: no mirror could give it ({'; '.join(failures)}); try again later (the download resumes), "
        "set DUALGOAL_MIRRORS, or make the dataset with 'dualgoal data generate'"
    )


def _partial(file: Path) -> Path:
    return file.with_name(f"{file.name}.partial")


def _complete(url: str, partial: Path, report: Update) -> None:
    """Ask for the rest of a file until it is whole; give up after several attempts that brought nothing."""
    idle = 0.0
    while True:
        before = partial.stat().st_size if partial.exists() else 0
        try:
            if _continue(url, partial, before, report):
                return
            problem = "the connection ended early"
        except urllib.error.HTTPError as error:
            if error.code == 416:  # nothing beyond what we have: whole, or longer than what is there
                _restart_if_longer(error, partial, before)
                return
            if error.code < 500 and error.code not in (408, 429):
                raise _Failed(f"HTTP {error.code}") from error
            problem = f"HTTP {error.code}"
        except (HTTPException, OSError) as error:  # URLError is an OSError
            problem = brief(getattr(error, "reason", None) or error)
        except UserError:  # of this machine: a full disk
            raise
        except ValueError as error:  # what is no address, and headers that are none
            raise _Failed(brief(error)) from error
        grown = (partial.stat().st_size if partial.exists() else 0) - before
        idle = 0 if grown >= LEAST else idle + (0.25 if grown > 0 else 1)
        if idle >= ATTEMPTS:
            raise _Failed(f"{problem} ({ATTEMPTS} attempts)")
        time.sleep(PAUSE * 2 ** (idle - 1) if idle else 0)


def _restart_if_longer(error: urllib.error.HTTPError, partial: Path, have: int) -> None:
    total = _total(error.headers)
    if not have:
        raise _Failed("HTTP 416") from error
    if total is not None and total != have:
        partial.unlink()
        raise _Failed(f"it holds {total} bytes, but {have} were here already; starting over next time") from error


def _continue(url: str, partial: Path, have: int, report: Update) -> bool:
    """One request for what is missing; True if the file is whole after it."""
    request = urllib.request.Request(url, headers={"User-Agent": "dualgoal", "Accept-Encoding": "identity"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    most = _largest(partial)
    with _Watch() as watch, watch.open(request) as answer:
        resumed = answer.status == 206
        total = _total(answer.headers) if resumed else _number(answer.headers.get("Content-Length"))
        at = have if resumed else 0  # a server without ranges sends everything again
        if (total or 0) > most:
            raise _Failed(f"it announces {total} bytes, more than the {most} that the file can have")
        require_disk(partial.parent, (total or at) - at, f"{url}: the rest of it", "choose another folder")
        with partial.open("ab" if resumed else "wb", buffering=0) as out:
            report(at, total)
            while block := answer.read1(BLOCK):
                watch.received += len(block)
                at += len(block)
                if at > (most if total is None else total):
                    out.truncate(0)
                    raise _Failed("it sends more than it announces, or than the file can have; discarded")
                write_all(out, partial, block)
                report(at, total)
    return total is None or at >= total


def _total(headers: Any) -> int | None:
    """The size of the whole file out of `Content-Range: bytes 10-99/100`."""
    return _number((headers.get("Content-Range") or "").rpartition("/")[2])


def _number(text: str | None) -> int | None:
    """A size out of a header; None where it says nothing that could be one."""
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) < 19 else None


def _largest(partial: Path) -> int:
    """The most bytes that a file can have: four times its arrays of numbers, or its images and as much as a tenth."""
    task = TASKS.get(DatasetFiles.holding(Path(partial.name.removesuffix(".partial"))).name)
    if task is None:
        return LARGEST
    numbers = 4 * 8 * (math.prod(task.observation_shape) * (not task.pixels) + task.action_dim + 128)
    images = 1.1 * math.prod(task.observation_shape) * task.pixels
    return (64 << 20) + int(task.episodes * task.rows_per_episode * (numbers + images))


class _Watch:
    """Ends a connection that brings less than LEAST bytes in STALL seconds: a server may send a byte now and then for
    ever, of the header as well, and no single wait is ever too long. Used as a context manager."""

    def __init__(self) -> None:
        self.received = 0
        self._sockets: list[socket.socket] = []
        self._done = threading.Event()

    def __enter__(self) -> "_Watch":
        threading.Thread(target=self._look, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()

    def open(self, request: urllib.request.Request) -> Any:
        """The answer to a request over a connection that is watched."""
        sockets = self._sockets

        class Plain(http.client.HTTPConnection):
            def connect(self) -> None:
                super().connect()
                sockets.append(self.sock)

        class Encrypted(http.client.HTTPSConnection):
            def connect(self) -> None:
                super().connect()
                sockets.append(self.sock)

        class Http(urllib.request.HTTPHandler):
            def http_open(self, req: urllib.request.Request) -> Any:
                return self.do_open(Plain, req)

        class Https(urllib.request.HTTPSHandler):
            def https_open(self, req: urllib.request.Request) -> Any:
                return self.do_open(Encrypted, req)

        return urllib.request.build_opener(Http(), Https()).open(request, timeout=TIMEOUT)

    def _look(self) -> None:
        before = 0
        while not self._done.wait(STALL):
            if self.received - before < LEAST:
                for each in self._sockets:
                    with contextlib.suppress(OSError):
                        each.shutdown(socket.SHUT_RDWR)
            before = self.received


def _check(file: Path) -> None:
    """A whole download must be an archive with the right arrays, and have the known digest where one is known."""
    partial, files = _partial(file), DatasetFiles.holding(file)
    known = _recorded(files).files.get(file.name, FileFacts()).sha256
    if known is not None and sha256(partial) != known:
        partial.unlink()
        raise _Failed(f"its SHA-256 is not the known {known[:12]}...; discarded")
    try:
        with npz.Archive(partial) as archive:
            checks.members(archive)
            observations, actions = (archive.members[key].shape[1:] for key in ("observations", "actions"))
            checks.fits_task(file.name, files.name, observations, actions)  # else another task's file gets this name
            archive.verify()  # a resumed file may be stitched from two mirrors
    except UserError as problem:
        partial.unlink(missing_ok=True)
        raise _Failed(f"it is not a dataset ({problem}); discarded") from problem


def _recorded(files: DatasetFiles) -> Origin:
    """What is known about files to download; the record of a dataset that was made here says nothing about them."""
    found = origin.read(files)
    return found if found.source in ("downloaded", "file") else Origin()


def _record(files: DatasetFiles, file: Path, url: str) -> None:
    """Note what is known about a whole download that has not got its name yet."""
    partial = _partial(file)
    facts = FileFacts(url=url, bytes=partial.stat().st_size, sha256=sha256(partial))
    known = {**_recorded(files).files, file.name: facts}
    origin.write(files, Origin(task=files.name, source="downloaded", files=known))

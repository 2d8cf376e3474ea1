"""Downloading official datasets: several mirrors, resumed where a connection broke, checked before they count.

A download grows in `NAME.npz.partial` and continues from there with an HTTP range request, in this run or a later one.
It gets its final name only if it has the announced length, opens as an archive, and has the known SHA-256 where one is
known. The official host has been down for days at a time, so every mirror is tried before giving up.
"""

import os
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
from dualgoal.errors import UserError
from dualgoal.files import (
    cache_folder,
    locked,
    make_folder,
    move_into_place,
    os_errors_in_one_line,
    require_disk,
    sha256,
    write_all,
)
from dualgoal.progress import Update, bar, downloaded

OFFICIAL = "https://rail.eecs.berkeley.edu/datasets/ogbench"
BLOCK = 1 << 18
TIMEOUT = 30.0
ATTEMPTS = 5  # in a row without a new byte, per mirror
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
    task: str, out: str | Path | None = None, *, mirrors: Iterable[str] | None = None, progress: bool = True
) -> Path:
    """Download both files of a task into `out` (default: the cache folder); returns the training file.

    `mirrors` are base addresses to try in order, before the usual ones. A second process that wants the same files
    waits for the first one.
    """
    from dualgoal.envs import ogbench

    ogbench.check_name(task)
    files = DatasetFiles(Path(out).expanduser() if out is not None else cache_folder() / "datasets", task)
    bases = list(dict.fromkeys([*(mirrors or ()), *usual_mirrors()]))
    if files.train.exists() and files.val.exists():
        return files.train
    make_folder(files.folder)
    with locked(files.lock, wait=True):
        for file in (files.val, files.train):
            if not file.exists():
                _record(files, file, _download(file, bases, progress))
    return files.train


def _download(file: Path, bases: list[str], progress: bool) -> str:
    """Get one file from the first mirror that has it whole; returns its address."""
    partial, failures = _partial(file), []
    for base in bases:
        url = f"{base.rstrip('/')}/{file.name}"
        try:
            with bar(file.name, *downloaded(), total=None, show=progress) as report:
                _complete(url, partial, report)
            _check(file)
        except _Failed as problem:
            failures.append(f"{url}: {problem}")
            continue
        move_into_place(partial, file)
        return url
    raise Unavailable(
        f"{file.name}: no mirror could give it ({'; '.join(failures)}); try again later (the download resumes), "
        "set DUALGOAL_MIRRORS, or make the dataset with 'dualgoal data generate'"
    )


def _partial(file: Path) -> Path:
    return file.with_name(f"{file.name}.partial")


def _complete(url: str, partial: Path, report: Update) -> None:
    """Ask for the rest of a file until it is whole; give up after several attempts that brought nothing."""
    idle = 0
    while True:
        before = partial.stat().st_size if partial.exists() else 0
        try:
            if _continue(url, partial, before, report):
                return
            problem: Exception | str = "the connection ended early"
        except urllib.error.HTTPError as error:
            if error.code == 416:  # nothing beyond what we have: whole, or longer than what is there
                _restart_if_longer(error, partial, before)
                return
            if error.code < 500 and error.code not in (408, 429):
                raise _Failed(f"HTTP {error.code}") from error
            problem = f"HTTP {error.code}"
        except (HTTPException, OSError) as error:  # URLError is an OSError
            problem = getattr(error, "reason", None) or error
        grown = (partial.stat().st_size if partial.exists() else 0) > before
        idle = 0 if grown else idle + 1
        if idle >= ATTEMPTS:
            raise _Failed(f"{problem} ({ATTEMPTS} attempts)")
        time.sleep(0 if grown else PAUSE * 2 ** (idle - 1))


def _restart_if_longer(error: urllib.error.HTTPError, partial: Path, have: int) -> None:
    total = _total(error.headers.get("Content-Range"))
    if total is not None and total != have:
        partial.unlink()
        raise _Failed(f"it holds {total} bytes, but {have} were here already; starting over next time") from error


def _continue(url: str, partial: Path, have: int, report: Update) -> bool:
    """One request for what is missing; True if the file is whole after it."""
    request = urllib.request.Request(url, headers={"User-Agent": "dualgoal", "Accept-Encoding": "identity"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
        resumed = answer.status == 206
        total = _total(answer.headers.get("Content-Range")) if resumed else _length(answer)
        at = have if resumed else 0  # a server without ranges sends everything again
        require_disk(partial.parent, (total or at) - at, f"{url}: the rest of it", "choose another folder")
        with partial.open("ab" if resumed else "wb", buffering=0) as out:
            report(at, total)
            while block := answer.read(BLOCK):
                write_all(out, partial, block)
                at += len(block)
                report(at, total)
    return total is None or at >= total


def _length(answer: Any) -> int | None:
    length = answer.headers.get("Content-Length")
    return int(length) if length and length.isdigit() else None


def _total(content_range: str | None) -> int | None:
    """The size of the whole file out of `bytes 10-99/100`."""
    size = (content_range or "").rpartition("/")[2]
    return int(size) if size.isdigit() else None


def _check(file: Path) -> None:
    """A whole download must be an archive with the right arrays, and have the known digest where one is known."""
    partial, known = _partial(file), known_digest(file)
    if known is not None and sha256(partial) != known:
        partial.unlink()
        raise _Failed(f"its SHA-256 is not the known {known[:12]}...; discarded")
    try:
        with npz.Archive(partial) as archive:
            checks.members(archive)
            archive.verify()  # a resumed file may be stitched from two mirrors
    except UserError as problem:
        partial.unlink()
        raise _Failed(f"it is not a dataset ({problem}); discarded") from problem


def known_digest(file: Path) -> str | None:
    """The SHA-256 a file must have, if it is recorded by an earlier download or by the user."""
    facts = _recorded(DatasetFiles.holding(file)).files.get(file.name)
    return facts.sha256 if facts is not None else None


def _recorded(files: DatasetFiles) -> Origin:
    """What is known about files to download; the record of a dataset that was made here says nothing about them."""
    found = origin.read(files)
    return found if found.source in ("downloaded", "file") else Origin()


def _record(files: DatasetFiles, file: Path, url: str) -> None:
    facts = FileFacts(url=url, bytes=file.stat().st_size, sha256=sha256(file))
    known = {**_recorded(files).files, file.name: facts}
    origin.write(files, Origin(task=files.name, source="downloaded", files=known))

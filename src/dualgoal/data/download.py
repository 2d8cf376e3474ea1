"""Downloading official datasets: several mirrors, resumed where a connection broke, checked before they count.

A download grows in `NAME.partial` and continues from there with an HTTP range request, in this run or a later one; only
a file of the announced length that opens as an archive, and whose SHA-256 is the known one where one is known, gets its
name. The official host has been down for days at a time, so every mirror is tried before giving up.
"""

import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from http.client import HTTPException
from pathlib import Path
from typing import Any

from dualgoal.data import checks, npz
from dualgoal.data.dataset import cache_folder, read_record, record_path
from dualgoal.errors import UserError

OFFICIAL = "https://rail.eecs.berkeley.edu/datasets/ogbench"
BLOCK = 1 << 18
TIMEOUT = 30.0
ATTEMPTS = 5  # in a row without a new byte, per mirror
PAUSE = 1.0  # seconds before the second attempt, doubled for each one after

Report = Callable[[int, int | None], None]


class Gone(Exception):
    """This mirror cannot give the file; another may."""


def usual_mirrors() -> list[str]:
    """Base addresses to try in order: those in `$DUALGOAL_MIRRORS` (separated by spaces), else the official host."""
    return os.environ.get("DUALGOAL_MIRRORS", "").split() or [OFFICIAL]


def fetch(
    task: str, out: str | Path | None = None, *, mirrors: Iterable[str] | None = None, progress: bool = True
) -> Path:
    """Download both files of a task into `out` (default: the cache folder); returns the training file.

    `mirrors` are base addresses to try in order, before the usual ones.
    """
    from dualgoal.envs import ogbench

    ogbench.check_name(task)
    folder = Path(out).expanduser() if out is not None else cache_folder() / "datasets"
    bases = list(dict.fromkeys([*(mirrors or ()), *usual_mirrors()]))
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{task}.npz"
    for file in (target.with_name(f"{task}-val.npz"), target):
        if not file.exists():
            source = _download(file, bases, progress)
            _record(task, file, source)
    return target


def _download(file: Path, bases: list[str], progress: bool) -> str:
    """Get one file from the first mirror that has it whole; returns its address."""
    failures = []
    for base in bases:
        url = f"{base.rstrip('/')}/{file.name}"
        try:
            with _bar(file.name, progress) as report:
                _complete(url, file.with_name(f"{file.name}.partial"), report)
            _check(file)
        except Gone as problem:
            failures.append(f"{url}: {problem}")
            continue
        os.replace(file.with_name(f"{file.name}.partial"), file)
        return url
    raise UserError(
        f"{file.name}: no mirror could give it ({'; '.join(failures)}); try again later (it resumes), "
        f"set DUALGOAL_MIRRORS, or make it with 'dualgoal data generate'"
    )


def _complete(url: str, partial: Path, report: Report) -> None:
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
                raise Gone(f"HTTP {error.code}") from error
            problem = f"HTTP {error.code}"
        except (urllib.error.URLError, HTTPException, OSError) as error:
            problem = getattr(error, "reason", None) or error
        grown = (partial.stat().st_size if partial.exists() else 0) > before
        idle = 0 if grown else idle + 1
        if idle >= ATTEMPTS:
            raise Gone(f"{problem} ({ATTEMPTS} attempts)")
        time.sleep(0 if grown else PAUSE * 2 ** (idle - 1))


def _restart_if_longer(error: urllib.error.HTTPError, partial: Path, have: int) -> None:
    total = _total(error.headers.get("Content-Range"))
    if total is not None and total != have:
        partial.unlink()
        raise Gone(f"it holds {total} bytes, but {have} were here already; starting over next time") from error


def _continue(url: str, partial: Path, have: int, report: Report) -> bool:
    """One request for what is missing; True if the file is whole after it."""
    request = urllib.request.Request(url, headers={"User-Agent": "dualgoal", "Accept-Encoding": "identity"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
        resumed = answer.status == 206
        total = _total(answer.headers.get("Content-Range")) if resumed else _length(answer)
        at = have if resumed else 0  # a server without ranges sends everything again
        _room(partial, total, at)
        with partial.open("ab" if resumed else "wb") as out:
            report(at, total)
            while block := answer.read(BLOCK):
                out.write(block)
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


def _room(partial: Path, total: int | None, have: int) -> None:
    free = checks.free_disk(partial.parent)
    if total is not None and total - have > free:
        raise UserError(
            f"{partial.parent}: {(total - have) / 2**30:.1f} GiB to download but {free / 2**30:.1f} GiB free; "
            "choose another folder"
        )


def _check(file: Path) -> None:
    """A whole download must be an archive with the right arrays, and have the known digest where one is known."""
    partial = file.with_name(f"{file.name}.partial")
    known = known_digest(file)
    if known is not None and npz.sha256(partial) != known:
        partial.unlink()
        raise Gone(f"its SHA-256 is not the known {known[:12]}...; discarded")
    try:
        with npz.Archive(partial) as archive:
            checks.members(archive)
            archive.verify()  # a resumed file may be stitched from two mirrors
    except UserError as problem:
        partial.unlink()
        raise Gone(f"it is not a dataset ({problem}); discarded") from problem


def known_digest(file: Path) -> str | None:
    """The SHA-256 a file must have: from its record, left by an earlier download or put there by the user."""
    files = _earlier_record(file).get("files")
    entry = files.get(file.name) if isinstance(files, dict) else None
    return entry.get("sha256") if isinstance(entry, dict) else None


def _earlier_record(file: Path) -> dict[str, Any]:
    """What is known about a file to download; the record of a dataset made here says nothing about it."""
    record = read_record(file)
    return record if record.get("source", "downloaded") == "downloaded" else {}


def _record(task: str, file: Path, url: str) -> None:
    path, record = record_path(file), _earlier_record(file)
    entry = {"url": url, "bytes": file.stat().st_size, "sha256": npz.sha256(file)}
    record |= {"task": task, "source": "downloaded", "files": {**record.get("files", {}), file.name: entry}}
    partial = path.with_name(path.name + ".partial")
    partial.write_text(json.dumps(record, indent=1) + "\n")
    os.replace(partial, path)


class _bar:
    """A progress bar of bytes with rate and time left; entered, it is a function of (bytes so far, bytes in all)."""

    def __init__(self, name: str, show: bool):
        self.name, self.show = name, show

    def __enter__(self) -> Report:
        if not self.show:
            return lambda at, total: None
        from rich import progress as p

        self.progress: Any = p.Progress(
            p.TextColumn("{task.description}"), p.BarColumn(), p.DownloadColumn(), p.TransferSpeedColumn(),
            p.TimeRemainingColumn(),
        )  # fmt: skip
        self.progress.start()
        bar = self.progress.add_task(self.name, total=None)
        return lambda at, total: self.progress.update(bar, completed=at, total=total)

    def __exit__(self, *_: object) -> None:
        if self.show:
            self.progress.stop()

"""Rows of JSON, one per line, that survive a process killed in the middle of a write.

A torn last line is dropped when the file is opened again, and a resumed run cuts its journals back to the checkpoint it
continues from, so that a file never holds a row twice and ends as if nothing had happened.
"""

import json
import math
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from dualgoal.errors import UserError

Row = dict[str, Any]


def write_atomic(path: Path, content: bytes) -> None:
    """Write a whole file or nothing: a temporary name beside it, fsync, rename, fsync of the folder."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise _full(path, error) from error
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make renames durable where the system can do that for a folder (not on Windows)."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read_rows(path: Path) -> list[Row]:
    """All complete rows; a torn last line is not one. A missing file has none."""
    if not path.exists():
        return []
    rows = []
    *lines, _torn = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
        except ValueError as error:
            raise UserError(f"{path}: line {number} is not JSON; remove that line or restore the file") from error
        if not isinstance(row, dict):
            raise UserError(f"{path}: line {number} is not a JSON object; remove that line or restore the file")
        rows.append(row)
    return rows


class Journal:
    """An append-only file of rows."""

    def __init__(self, path: Path):
        self.path = path
        if path.exists() and (content := path.read_bytes()) and not content.endswith(b"\n"):
            os.truncate(path, content.rfind(b"\n") + 1)
        self._file = path.open("ab", buffering=0)

    def append(self, rows: Iterable[Row]) -> None:
        """Add rows with one write, so that a kill leaves at most one torn line."""
        content = memoryview(b"".join(_line(row) for row in rows))
        try:
            while content:
                content = content[self._file.write(content) :]
        except OSError as error:
            raise _full(self.path, error) from error

    def rows(self) -> list[Row]:
        return read_rows(self.path)

    def keep(self, wanted: Callable[[Row], bool]) -> None:
        """Drop every row that is not wanted; the others keep their bytes. Cutting off an end needs no room."""
        self._file.close()
        lines = self.path.read_bytes().splitlines(keepends=True)
        kept = [line for line, row in zip(lines, read_rows(self.path), strict=True) if wanted(row)]
        if kept == lines[: len(kept)]:
            os.truncate(self.path, sum(map(len, kept)))
        else:
            write_atomic(self.path, b"".join(kept))
        self._file = self.path.open("ab", buffering=0)

    def sync(self) -> None:
        """Put everything appended so far on the disk; called before a checkpoint that counts on it."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


def _line(row: Row) -> bytes:
    return (json.dumps({k: _finite(v) for k, v in row.items()}, allow_nan=False) + "\n").encode()


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _full(path: Path, error: OSError) -> UserError:
    reason = (error.strerror or str(error)).lower()
    cure = "nothing earlier is lost: make room and run the same command again"
    return UserError(f"{path}: not written ({reason}); {cure}")

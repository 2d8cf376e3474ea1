"""Files that survive a process killed in the middle of a write: whole files, and rows of JSON, one per line.

An incomplete last line is dropped when the file is opened again, and a resumed run cuts its journals back to the
checkpoint it continues from, so a file never holds a row twice and ends as if nothing had happened.
"""

import contextlib
import dataclasses
import functools
import hashlib
import json
import math
import os
import shutil
import sys
import time
import typing
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import NoneType, UnionType
from typing import IO, Any, Generic, ParamSpec, TypeVar

from dualgoal.errors import UserError

Row = dict[str, Any]
T = TypeVar("T")
Given = ParamSpec("Given")
Result = TypeVar("Result")


def write_atomic(path: Path, content: bytes) -> None:
    """Write a whole file or nothing, and make it durable."""
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def sync_folder(folder: Path) -> None:
    """Make renames durable where the system can do that for a folder (not on Windows)."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read_rows(path: Path, parse: Callable[[Any, str], T]) -> list[T]:
    """All rows of a file, each made by `parse(value, where)`; a damaged line is an error that names it.

    A missing file has no rows, and a last line without its line break is not one: its write was interrupted.
    """
    rows, problem = usable_rows(path, parse)
    if problem is not None:
        raise UserError(f"{problem}; remove what is damaged or restore the file")
    return rows


def usable_rows(path: Path, parse: Callable[[Any, str], T]) -> tuple[list[T], str | None]:
    """The rows that can be read, and one line about those that cannot; None if there is nothing to say."""
    try:
        *lines, _interrupted = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return [], None
    except OSError as error:
        return [], f"{path}: cannot be read ({error.strerror or error})"
    rows: list[T] = []
    problems: list[str] = []
    for number, line in enumerate(lines, 1):
        where = f"{path}: line {number}"
        try:
            rows.append(parse(json.loads(line), where))
        except UserError as problem:
            problems.append(str(problem))
        except (ValueError, RecursionError):
            problems.append(f"{where} is not JSON")
    others = len(problems) - 1
    more = f" (and {others} more damaged line{'s' * (others > 1)})" if others > 0 else ""
    return rows, problems[0] + more if problems else None


def json_object(value: Any, where: str) -> Row:
    """The `parse` of rows that may hold anything, as long as they are JSON objects."""
    if not isinstance(value, dict):
        raise UserError(f"{where} is not a JSON object")
    return value


class Journal(Generic[T]):
    """An append-only file of rows. `parse` makes a row from JSON, `plain` turns it into JSON again."""

    def __init__(self, path: Path, parse: Callable[[Any, str], T], plain: Callable[[T], Row]):
        self.path, self._parse, self._plain = path, parse, plain
        if path.exists() and (content := path.read_bytes()) and not content.endswith(b"\n"):
            os.truncate(path, content.rfind(b"\n") + 1)
        self._file = path.open("ab", buffering=0)

    def append(self, rows: Iterable[T]) -> None:
        """Add rows with one write, so that a kill leaves at most one incomplete line."""
        write_all(self._file, self.path, b"".join(_line(self._plain(row)) for row in rows))

    def rows(self) -> list[T]:
        return read_rows(self.path, self._parse)

    def keep(self, wanted: Callable[[T], bool]) -> None:
        """Drop every row that is not wanted; the others keep their bytes. Cutting off an end needs no room."""
        self._file.close()
        lines = self.path.read_bytes().splitlines(keepends=True)
        kept = [line for line, row in zip(lines, self.rows(), strict=True) if wanted(row)]
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


# Whole files ----------------------------------------------------------------------------------------------------------


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path next to `path` to write to; it becomes `path` at the end, or vanishes on an error."""
    # The process id keeps two writers of the same file apart.
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        move_into_place(temporary, path)
    except OSError as error:
        raise _full(path, error) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def move_into_place(temporary: Path, path: Path) -> None:
    """Rename a complete file so that, even after a power failure, `path` is the old file or the new one."""
    try:
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise _full(path, error) from error
    sync_folder(path.parent)


def write_all(file: IO[bytes], path: Path, content: bytes) -> None:
    """Write to an unbuffered file, which may take several writes; a full disk is one line that names `path`."""
    left = memoryview(content)
    try:
        while left:
            left = left[file.write(left) :]
    except OSError as error:
        raise _full(path, error) from error


def make_folder(folder: Path) -> Path:
    """Make a folder with its parents, or say in one line why that is impossible."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder}: cannot be made a folder ({_reason(error)}); choose another one") from error
    return folder


def read_text(path: Path) -> str:
    """The text of a small file, or one line that says why it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read ({_reason(error)})") from error


def sha256(path: Path) -> str:
    """The digest of a file's bytes."""
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({_reason(error)})") from error


def free_disk(folder: Path) -> int:
    return shutil.disk_usage(folder).free


def require_disk(folder: Path, needed: int, what: str, cure: str) -> None:
    """Raise if `what`, of `needed` bytes, does not fit on the disk of `folder`."""
    free = free_disk(folder)
    if needed > free:
        raise UserError(
            f"{what} needs {needed / 2**30:.1f} GiB in {folder}, where {free / 2**30:.1f} GiB are free; {cure}"
        )


def cache_folder() -> Path:
    """Where downloads, memory maps and compiled programs go: `$DUALGOAL_CACHE`, or the platform's cache folder."""
    chosen = os.environ.get("DUALGOAL_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")) / "dualgoal"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "dualgoal"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dualgoal"


def os_errors_in_one_line(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """Make a function raise `UserError` where the system refuses: permissions, a full disk, a file for a folder."""

    @functools.wraps(function)
    def call(*args: Given.args, **options: Given.kwargs) -> Result:
        try:
            return function(*args, **options)
        except BrokenPipeError:  # whoever reads our output has left; that is no problem with a file
            raise
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            raise UserError(f"{where}{_reason(error)}; check the path, its permissions and the disk's space") from error

    return call


def _reason(error: Exception) -> str:
    return (getattr(error, "strerror", None) or str(error)).lower()


# Locks ----------------------------------------------------------------------------------------------------------------


class Lock:
    """A held lock file. Closing it, or the end of the process however it ends, frees it."""

    def __init__(self, path: Path, file: IO[str]):
        self._path, self._file = path, file

    def __enter__(self) -> "Lock":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._file.closed:
            return
        if sys.platform != "win32":  # which does not remove open files
            with contextlib.suppress(OSError):
                self._path.unlink()
        self._file.close()


def locked(path: Path, *, wait: bool = False) -> Lock:
    """Hold the lock file `path` for this process. If another one holds it, raise, or wait for it and say so."""
    announced = False
    while isinstance(held := _try_lock(path), str):
        if not wait:
            raise UserError(f"{path.parent}: in use by {held}; wait for it or choose another --out")
        if not announced:
            print(f"{path.parent}: in use by {held}; waiting for it to finish", file=sys.stderr)
            announced = True
        time.sleep(0.1)
    return held


def _try_lock(path: Path) -> "Lock | str":
    """The lock, or the name of the process that has it."""
    while True:
        try:
            file = path.open("a+")
        except OSError as error:
            raise UserError(f"{path}: cannot be written ({_reason(error)}); choose another folder") from error
        try:
            _lock_file(file)
        except OSError:
            file.seek(0)
            owner = file.read().strip() or "another process"
            file.close()
            return owner
        if _has_name(path, file):
            break
        file.close()
    with contextlib.suppress(OSError):  # the owner's name is a courtesy; a full disk must not turn it into an error
        file.truncate(0)
        file.write(f"process {os.getpid()}")
        file.flush()
    return Lock(path, file)


def _has_name(path: Path, file: IO[str]) -> bool:
    """Whether the locked file still is the one at `path`: the previous owner removes it before freeing it."""
    if sys.platform == "win32":
        return True
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def _lock_file(file: IO[str]) -> None:
    if sys.platform == "win32":
        import msvcrt

        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


# Typed JSON -----------------------------------------------------------------------------------------------------------


def typed(value: Any, kind: Any, where: str) -> Any:
    """A JSON value as the annotated type `kind` (dataclasses included), or a `UserError` that begins with `where`.

    Keys that a dataclass does not have are ignored; lists become tuples.
    """
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return value
    if dataclasses.is_dataclass(kind) and isinstance(value, dict):
        return _typed_fields(value, kind, where)
    if origin in (typing.Union, UnionType):
        options = [option for option in args if option is not NoneType]
        return None if value is None and NoneType in args else typed(value, options[0], where)
    if origin is dict and isinstance(value, dict):
        return {key: typed(entry, args[1], f"{where}.{key}") for key, entry in value.items()}
    if origin is tuple and isinstance(value, list):
        return tuple(typed(entry, args[0], where) for entry in value)
    if kind is float and type(value) in (int, float):
        return float(value)
    if isinstance(kind, type) and type(value) is kind:
        return value
    raise UserError(f"{where} is {json.dumps(value)[:60]}; expected {_in_words(kind)}")


def _typed_fields(value: dict[str, Any], kind: Any, where: str) -> Any:
    types, fields = typing.get_type_hints(kind), dataclasses.fields(kind)
    for field in fields:
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if required and field.name not in value:
            raise UserError(f"{where}.{field.name} is missing")
    present = [field.name for field in fields if field.name in value]
    return kind(**{name: typed(value[name], types[name], f"{where}.{name}") for name in present})


def _in_words(kind: Any) -> str:
    if dataclasses.is_dataclass(kind) or typing.get_origin(kind) is dict:
        return "an object"
    if typing.get_origin(kind) is tuple:
        return "a list"
    return {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}.get(kind, str(kind))

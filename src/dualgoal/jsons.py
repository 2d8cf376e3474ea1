"""JSON that may be damaged or hostile: whole files and files of rows, as typed values or one line about them.

The one reader of the package bounds what a file can cost: its size, the length of a line, the nesting, the size of a
number. It refuses what other readers let through: NaN and Infinity, NUL characters, a key given twice.

Rows are appended, one per line. An incomplete last line is dropped when the file is opened again, and a resumed run
cuts its journals back to the checkpoint it continues from, so a file never holds a row twice and ends as if nothing had
happened.
"""

import contextlib
import dataclasses
import functools
import json
import math
import os
import typing
from collections.abc import Callable, Iterable
from pathlib import Path
from types import NoneType, UnionType
from typing import IO, Any, Generic, Literal, NoReturn, TypeVar

from dualgoal import files
from dualgoal.errors import UserError, unknown

MIB = 1 << 20
FILE_LIMIT = 16 * MIB  # of a whole JSON file, unless its reader says otherwise
ROWS_LIMIT = 128 * MIB  # of a file of rows: 80,000 rows of metrics are 37 MB
LINE_LIMIT = MIB
DEEPEST = 64
LARGEST = 2**64  # no whole number here is larger
DIGITS = 400  # nor needs more, as a text

Row = dict[str, Any]
T = TypeVar("T")


class _Refused(ValueError):
    """Why a text that is nearly JSON is not read."""


def decode(content: bytes, where: str) -> Any:
    """The value of a JSON text, or a `UserError` that begins with `where`."""
    if b"\0" in content or b"\\u0000" in content:
        raise UserError(f"{where} holds a NUL character")
    try:
        value = json.loads(
            content.decode("utf-8"),
            parse_float=_float,
            parse_int=_int,
            parse_constant=_constant,
            object_pairs_hook=_object,
        )
    except UnicodeDecodeError as error:
        raise UserError(f"{where} is not UTF-8 text (byte {error.start})") from error
    except RecursionError as error:
        raise UserError(f"{where} is nested too deeply") from error
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, " if error.lineno > 1 else ""
        raise UserError(f"{where} is not JSON ({error.msg.lower()} at {place}column {error.colno})") from error
    except _Refused as error:
        raise UserError(f"{where} {error}") from error
    _check(value, where, content)
    return value


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise _Refused(f"holds the number {text[:20]}, which is too large")
    return value


def _int(text: str) -> int:
    if len(text) > DIGITS or not -LARGEST < (value := int(text)) < LARGEST:
        raise _Refused(f"holds a whole number of {len(text)} digits, which is too large")
    return value


def _constant(text: str) -> NoReturn:
    raise _Refused(f"holds {text}, which is not JSON")


def _object(pairs: list[tuple[str, Any]]) -> Row:
    out = dict(pairs)
    if len(out) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise _Refused(f"has the key '{twice[:40]}' twice")
    return out


def _check(value: Any, where: str, content: bytes) -> None:
    """Depth, and text that cannot be written again (half of a surrogate pair); only where there may be any."""
    deep = content.count(b"[") + content.count(b"{") > DEEPEST
    half = b"\\ud" in content or b"\\uD" in content
    level, depth = [value] if deep or half else [], 0
    while level:
        if depth > DEEPEST:
            raise UserError(f"{where} is nested too deeply")
        if half and any(isinstance(v, str) and not _writable(v) for v in level):
            raise UserError(f"{where} holds half of a surrogate pair")
        inner = [entry for v in level if isinstance(v, dict) for entry in (*v.values(), *(v if half else ()))]
        level, depth = inner + [entry for v in level if isinstance(v, list) for entry in v], depth + 1


def _writable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def read(path: Path, *, limit: int = FILE_LIMIT, follow: bool = False) -> Any:
    """The value of a JSON file. A missing one is a FileNotFoundError, anything else one line that names it.

    `follow` allows the file to be a link: for files that users name themselves, not for those of a run directory.
    """
    return decode(files.read_bytes(path, limit, follow=follow), f"{path}:")


def write(path: Path, value: Any, *, sort_keys: bool = False) -> None:
    """Write a value as a JSON file for people and programs, whole or not at all."""
    text = json.dumps(value, indent=1, sort_keys=sort_keys, allow_nan=False)
    files.write_atomic(path, f"{text}\n".encode())


def readable(paths: Iterable[Path], load: Callable[[Path], T], say: Callable[[str], None]) -> list[T]:
    """What `load` makes of the files that it can read; the others are named and left out."""
    found = []
    for path in paths:
        try:
            found.append(load(path))
        except UserError as error:
            say(f"left out: {error}")
    return found


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
        *lines, _interrupted = files.read_bytes(path, ROWS_LIMIT).split(b"\n")
    except FileNotFoundError:
        return [], None
    except UserError as problem:
        return [], str(problem)
    rows: list[T] = []
    problems: list[str] = []
    for number, line in enumerate(lines, 1):
        where = f"{path}: line {number}"
        try:
            if len(line) > LINE_LIMIT:
                raise UserError(f"{where} is longer than {LINE_LIMIT // MIB} MiB")
            rows.append(parse(decode(line, where), where))
        except UserError as problem:
            problems.append(str(problem))
    others = len(problems) - 1
    more = f" (and {others} more damaged line{'s' * (others > 1)})" if others > 0 else ""
    return rows, problems[0] + more if problems else None


def json_object(value: Any, where: str) -> Row:
    """The `parse` of rows that may hold anything, as long as they are JSON objects."""
    if not isinstance(value, dict):
        raise UserError(f"{where} is not a JSON object")
    return value


class Journal(Generic[T]):
    """An append-only file of rows. `parse` makes a row from JSON, `plain` turns it into JSON again.

    `guard` is called before every change and raises if this process may not write any more.
    """

    def __init__(
        self,
        path: Path,
        parse: Callable[[Any, str], T],
        plain: Callable[[T], Row],
        guard: Callable[[], None] = lambda: None,
    ):
        self.path, self._parse, self._plain, self._guard = path, parse, plain, guard
        self._file = self._open()
        content = files.read_bytes(path, ROWS_LIMIT)
        if not content.endswith(b"\n"):
            self._file.truncate(content.rfind(b"\n") + 1)

    def _open(self) -> IO[bytes]:
        try:
            return files.open_plain(self.path, "a+b", buffering=0)
        except OSError as error:
            raise UserError(f"{self.path}: cannot be written ({files.reason(error)})") from error

    def append(self, rows: Iterable[T]) -> None:
        """Add rows with one write, so that a kill leaves at most one incomplete line."""
        self._guard()
        files.write_all(self._file, self.path, b"".join(_line(self._plain(row)) for row in rows))

    def rows(self) -> list[T]:
        return read_rows(self.path, self._parse)

    def keep(self, wanted: Callable[[T], bool]) -> None:
        """Drop every row that is not wanted; the others keep their bytes. Cutting off an end needs no room."""
        self._guard()
        *found, _interrupted = files.read_bytes(self.path, ROWS_LIMIT).split(b"\n")
        lines = [line + b"\n" for line in found]
        kept = [line for line, row in zip(lines, self.rows(), strict=True) if wanted(row)]
        if kept == lines[: len(kept)]:
            self._file.truncate(sum(map(len, kept)))
            return
        self._file.close()
        files.write_atomic(self.path, b"".join(kept))
        self._file = self._open()

    def sync(self) -> None:
        """Put everything appended so far on the disk; called before a checkpoint that counts on it."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


def _line(row: Row) -> bytes:
    """A number that is not finite becomes null, for which JSON has no word."""
    strange = [name for name, value in row.items() if isinstance(value, float) and not math.isfinite(value)]
    return (json.dumps(row | dict.fromkeys(strange), allow_nan=False) + "\n").encode()


# Typed values ---------------------------------------------------------------------------------------------------------


Make = Callable[[dict[str, Any], Any, str], Any]  # an instance of a dataclass from a JSON object


def typed(value: Any, kind: Any, where: str, make: Make | None = None) -> Any:
    """A JSON value as the annotated type `kind`, or a `UserError` that begins with `where`; lists become tuples.

    Objects become dataclasses by `make`, by default `typed_fields`.
    """
    if type(value) is kind:  # as most are, in tables of many numbers
        return value
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    whole = isinstance(value, int) and not isinstance(value, bool)
    if kind is Any or (value is None and NoneType in args):
        return value
    if dataclasses.is_dataclass(kind) and isinstance(value, dict):
        return (make or typed_fields)(value, kind, where)
    if origin in (typing.Union, UnionType):
        return _first_that_fits(value, [option for option in args if option is not NoneType], where, make)
    if origin is Literal:
        if value not in args:
            file, colon, name = where.rpartition(": ")
            raise UserError(f"{file}{colon}{unknown(name, str(value), map(str, args))}")
        return value
    if origin is dict and isinstance(value, dict):
        return {key: typed(entry, args[1], inside(where, key), make) for key, entry in value.items()}
    if origin is tuple and isinstance(value, list | tuple):
        kinds = (args[0],) * len(value) if args[1:] == (...,) else args
        if len(value) == len(kinds):
            return tuple(typed(entry, one, where, make) for entry, one in zip(value, kinds, strict=True))
    if kind is float and (whole or isinstance(value, float)):
        return float(value)
    if kind is int and (whole or (isinstance(value, float) and value.is_integer())):  # 1e6 in a TOML file
        return int(value)
    if isinstance(kind, type) and kind is not int and isinstance(value, kind):
        return value
    raise UserError(f"{where} is {json.dumps(value, default=str)[:60]}; expected {_in_words(kind)}")


def _first_that_fits(value: Any, kinds: list[Any], where: str, make: Make | None) -> Any:
    for kind in kinds[:-1]:
        with contextlib.suppress(UserError):
            return typed(value, kind, where, make)
    return typed(value, kinds[-1], where, make)


def typed_file(value: Any, kind: type[T], where: str, cure: str = "", make: Make | None = None) -> T:
    """`typed` for the content of the file (or of the line of one) `where`: an error names it and the field, and says
    what to do."""
    try:
        found: T = typed(value, kind, "", make)
        return found
    except UserError as problem:
        about = str(problem)  # " is []; expected ..." of the whole content, else what its field is
        colon, end = "" if about[0] == " " else ": ", f"; {cure}" if cure else ""
        raise UserError(f"{where}{colon}{about}{end}") from problem


def read_as(kind: type[T], path: Path, cure: str = "", *, follow: bool = False, make: Make | None = None) -> T:
    """`read` and `typed_file` together."""
    try:
        value = read(path, follow=follow)
    except UserError as problem:
        raise UserError(f"{problem}; {cure}" if cure else str(problem)) from problem
    return typed_file(value, kind, str(path), cure, make)


def strictly(value: dict[str, Any], kind: Any, where: str) -> Any:
    """The `make` that refuses keys which a dataclass does not have."""
    known = [field.name for field in dataclasses.fields(kind)]
    if strange := [name for name in value if name not in known]:
        raise UserError(f"{where}: {unknown('field', strange[0], known)}".removeprefix(": "))
    return typed_fields(value, kind, where, strictly)


def typed_fields(value: dict[str, Any], kind: Any, where: str, make: Make | None = None) -> Any:
    """The usual `make`: keys that the dataclass does not have are ignored."""
    types, fields = _types(kind), [field for field in dataclasses.fields(kind) if field.init]
    if missing := [field.name for field in fields if required(field) and field.name not in value]:
        raise UserError(f"{inside(where, missing[0])} is missing")
    present = [field.name for field in fields if field.name in value]
    return kind(**{name: typed(value[name], types[name], inside(where, name), make) for name in present})


def inside(where: str, name: str) -> str:
    """The dotted name of an entry; that of the whole is empty."""
    return f"{where}.{name}" if where else name


_types = functools.cache(typing.get_type_hints)


def required(field: "dataclasses.Field[Any]") -> bool:
    """Whether a field of a dataclass has no default."""
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _in_words(kind: Any) -> str:
    if dataclasses.is_dataclass(kind) or typing.get_origin(kind) is dict:
        return "an object"
    if typing.get_origin(kind) is tuple:
        return "a list"
    words = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}
    return words.get(kind, getattr(kind, "__name__", str(kind)))

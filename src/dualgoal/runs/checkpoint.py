"""Arrays on disk: a safetensors file, and next to it a JSON file with its size and SHA-256.

The JSON of a checkpoint is written last, so it exists only when it is complete. Reading executes nothing: size and hash
are checked in constant memory, then names, shapes and types are compared with what is expected, then arrays are made.
"""

import hashlib
import os
from collections.abc import Mapping
from io import BufferedReader
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import safetensors
import safetensors.numpy

from dualgoal import files, jsons
from dualgoal.errors import UserError
from dualgoal.files import write_atomic
from dualgoal.runs.config import canonical

Arrays = dict[str, np.ndarray]

NOT_ARRAYS = "not a safetensors file; restore it or train again"
OTHER_CODE = "made by another version, or with other code of a part?"
FACTS_LIMIT = 1 << 16  # bytes of a checkpoint's JSON


class Shape(NamedTuple):
    """What an array must look like to be accepted."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


class Damaged(Exception):
    """A checkpoint that cannot be used; the message says why."""


_NAMES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32"}
_NAMES |= {"I16": "int16", "I8": "int8", "U64": "uint64", "U32": "uint32", "U16": "uint16", "U8": "uint8"}
_NAMES |= {"BOOL": "bool"}


def write(
    path: Path, arrays: Mapping[str, np.ndarray], *, sealed: bool = True, meta: dict[str, str] | None = None,
    **facts: Any,
) -> None:  # fmt: skip
    """Write `path` (…safetensors, with `meta` in its header) and its JSON. `facts` are values that go into the JSON.

    A checkpoint is `sealed`: a hash of the facts is added, which `facts` below asks for, and the JSON is written last.
    An export is not, and its JSON is written first: a killed export is then known as one, and may be replaced.
    """
    # C order first: safetensors silently writes wrong data for strided arrays.
    content = safetensors.numpy.save({k: np.asarray(v, order="C") for k, v in arrays.items()}, metadata=meta)
    facts |= {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    if sealed:
        facts["check"] = _check(facts)
        write_atomic(path, content)
    jsons.write(path.with_suffix(".json"), facts, sort_keys=True)
    if not sealed:
        write_atomic(path, content)


def facts(path: Path) -> dict[str, Any]:
    """The JSON file of a checkpoint, itself protected by a hash."""
    file = path.with_suffix(".json")
    try:
        found = jsons.read(file, limit=FACTS_LIMIT)
    except (OSError, UserError) as error:
        raise Damaged(f"{file.name} cannot be read") from error
    intact = isinstance(found, dict) and found.get("check") == _check(found)
    if not intact:
        raise Damaged(f"{file.name} is damaged")
    return found


def read(path: Path, expected: Mapping[str, Shape] | None = None) -> Arrays:
    """All arrays of a checkpoint. A damaged one raises `Damaged`, an intact one of another shape a `UserError`."""
    verify(path)
    if expected is not None:
        fits(path, expected)
    return arrays_in(files.read_bytes(path, path.stat().st_size), path)


def arrays_in(content: bytes, path: Path) -> Arrays:
    """The arrays in the bytes of a safetensors file; `path` is for messages."""
    try:
        return safetensors.numpy.load(content)
    except Exception as error:  # the reader's own error types differ between its versions
        raise UserError(f"{path}: {NOT_ARRAYS}") from error


def verify(path: Path) -> None:
    """See that the file is the one its JSON describes, every bit of it, in constant memory."""
    known = facts(path)
    try:
        with files.open_plain(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size != known.get("bytes"):
                raise Damaged(f"{path.name} has {size} bytes instead of {known.get('bytes')}")
            digest = hashlib.file_digest(cast(BufferedReader, file), "sha256").hexdigest()
    except (OSError, UserError) as error:
        raise Damaged(f"{path.name} cannot be read") from error
    if digest != known.get("sha256"):
        raise Damaged(f"{path.name} does not match its SHA-256")


def fits(path: Path, expected: Mapping[str, Shape]) -> None:
    """Compare names, shapes and types with the file's header before any array is made."""
    try:
        files.open_plain(path, "rb").close()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); restore it or train again") from error
    try:
        with safetensors.safe_open(str(path), framework="numpy") as file:
            found = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            held = {n: (tuple(s.get_shape()), _NAMES.get(str(s.get_dtype()), "?")) for n, s in found.items()}
    except Exception as error:  # the reader's own error types differ between its versions
        raise UserError(f"{path}: {NOT_ARRAYS}") from error
    for name in {*held, *expected}:
        wanted = (expected[name].shape, expected[name].dtype.name) if name in expected else None
        if held.get(name) != wanted:
            found_as, wanted_as = held.get(name, "absent"), wanted or "absent"
            raise UserError(f"{path}: array '{name}' is {found_as}, expected {wanted_as}; {OTHER_CODE}")


def _check(facts: Mapping[str, Any]) -> str:
    return hashlib.sha256(canonical({k: v for k, v in facts.items() if k != "check"}).encode()).hexdigest()

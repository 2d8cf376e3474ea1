"""Ways to damage a file, most of which keep its grammar."""

import copy
import io
import json
import random
import struct
import warnings
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

DEEP = "DEEP"  # replaced by text that no Python value can stand for
RAW = {
    DEEP: "[" * 3000 + "]" * 3000,
    "DEEPER": "[" * 100_000,
    "NAN": "NaN",
    "MINUS": "-Infinity",
    "LARGE": "1e999",
    "DIGITS": "9" * 5000,
    "NUL": '"\\u0000"',
    "HALF": '"\\ud800"',
    "TWICE": '{"a": 1, "a": 2}',
    "BYTE": '"\udcff"',
}
VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 2**31, 2**53 + 1, 2**63, -(2**63), 0.5, -0.0, 1e308, 5e-324, "", "x", "²", "\r",
    "\u2028", "[/red]", "\x1b[2J", "<script>", "../../etc/passwd", "/dev/zero", "a" * 100_000, [], {}, [[]],
    [1, "a", None], {"name": "dual"}, {"name": "os:system"}, [0] * 1000, *RAW,
]  # fmt: skip


def damaged_json(content: bytes, rng: random.Random) -> tuple[bytes, str]:
    value = json.loads(content)
    paths = list(walk(value))
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        path = rng.choice(paths)
        value, how = edit(value, path, rng)
    return spelled(value), f"{how} at {'.'.join(map(str, path)) or 'top'}"


def walk(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    pairs = value.items() if isinstance(value, dict) else enumerate(value[:4]) if isinstance(value, list) else ()
    for key, inner in pairs:
        yield from walk(inner, (*path, key))


def edit(value: Any, path: tuple[Any, ...], rng: random.Random) -> tuple[Any, str]:
    value, how = copy.deepcopy(value), rng.choice(["replace", "replace", "replace", "remove", "rename", "wrap"])
    new = copy.deepcopy(rng.choice(VALUES))
    if not path:
        return (new, f"replace by {str(new)[:20]}") if how != "wrap" else ([value], how)
    at = value
    try:
        for key in path[:-1]:
            at = at[key]
        if how == "remove":
            del at[path[-1]]
        elif how == "rename" and isinstance(at, dict):
            at[str(new)[:50]] = at.pop(path[-1])
        elif how == "wrap":
            at[path[-1]] = [at[path[-1]]]
        else:
            at[path[-1]], how = new, f"replace by {str(new)[:20]}"
    except (KeyError, IndexError, TypeError):
        how = "nothing"
    return value, how


def spelled(value: Any) -> bytes:
    text = json.dumps(value)
    for name, raw in RAW.items():
        text = text.replace(f'"{name}"', raw)
    return text.encode(errors="surrogateescape")


def damaged_bytes(content: bytes, rng: random.Random) -> tuple[bytes, str]:
    out, how = bytearray(content), rng.choice(["flip", "flip", "cut", "zero", "insert", "repeat", "empty", "text"])
    at = rng.randrange(len(out)) if out else 0
    if how == "flip":
        for _ in range(rng.choice([1, 1, 4, 32])):
            out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)
    elif how == "cut":
        del out[at:]
    elif how == "zero":
        out[at : at + 64] = bytes(len(out[at : at + 64]))
    elif how == "insert":
        out[at:at] = rng.choice(
            [b"\0", b"\r", b"\n", b"\xff\xfe", b"{", b"]", b'"', b"\xef\xbb\xbf", rng.randbytes(50)]
        )
    elif how == "repeat":
        out[at:at] = out[at : at + rng.randrange(1, 400)]
    elif how == "empty":
        out.clear()
    else:
        out[:] = rng.choice([b"null", b"[]", b"{}", b"1", b'"x"', "{}".encode("utf-16"), b"[" * 100_000, bytes(10_000)])
    return bytes(out), f"{how} at byte {at}"


def damaged_rows(content: bytes, rng: random.Random) -> tuple[bytes, str]:
    lines = content.split(b"\n")
    number = rng.randrange(len(lines) - 1)
    how = rng.choice(["edit", "edit", "edit", "swap", "twice", "join"])
    if how == "edit":
        lines[number], how = damaged_json(lines[number], rng)
    elif how == "swap":
        rng.shuffle(lines)
    elif how == "twice":
        lines.insert(number, lines[number])
    else:
        lines[number : number + 2] = [b"\r".join(lines[number : number + 2])]
    return b"\n".join(lines), f"line {number}: {how}"


def damaged_npz(content: bytes, rng: random.Random) -> tuple[bytes, str]:
    """One array of another type, shape, length or value, or one member more, named strangely."""
    with np.load(io.BytesIO(content)) as found:
        arrays = {key: found[key] for key in found}
    key = rng.choice(sorted(arrays))
    array = arrays[key]
    hows: dict[str, Callable[[], Any]] = {
        "type": lambda: array.astype(rng.choice(["f2", "f8", "i1", "u8", "c8", "S3", "U2", "M8[s]", "?", ">f4"])),
        "shape": lambda: array.reshape(rng.choice([(-1,), (1, -1), (-1, 1), (1, 1, -1)])),
        "short": lambda: array[: rng.randrange(len(array))],
        "scalar": lambda: array.reshape(-1)[0],
        "value": lambda: put(array.astype("f8"), rng.choice([np.nan, np.inf, -1, 0.5, 2, 1e39, 255, -5]), rng),
        "columns": lambda: np.asfortranarray(array),
        "objects": lambda: np.array([{}, 1], object),
    }
    how = rng.choice([*hows, "remove", "rename", "escape", "twice"])
    if how in hows:
        arrays[key] = hows[how]()
    elif how == "remove":
        del arrays[key]
    else:
        name = {"rename": "obs", "escape": "../../x", "twice": key}[how]
        arrays = {**arrays, name: arrays.pop(key)} if how == "rename" else arrays | {name: array}
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, one in [*arrays.items(), *([(key, array)] if how == "twice" else [])]:
            with archive.open(f"{name}.npy", "w") as stream:
                np.lib.format.write_array(stream, np.asanyarray(one), allow_pickle=True)
    return out.getvalue(), f"{how} of {key}"


def put(array: np.ndarray, value: float, rng: random.Random) -> np.ndarray:
    array.reshape(-1)[rng.randrange(array.size)] = value
    return array


def damaged_toml(content: bytes, rng: random.Random) -> tuple[bytes, str]:
    """Another value, name or table in one line."""
    lines = content.decode().splitlines()
    number = rng.randrange(len(lines))
    name, equals, value = lines[number].partition("=")
    new = spelled(rng.choice(VALUES)).decode(errors="replace")
    pieces = [f"{name}={new}", f"{new}{equals}{value}", f"{lines[number]}\n{lines[number]}", "[grid]", f"[{new}]", ""]
    lines[number] = rng.choice(pieces)
    return "\n".join(lines).encode(), f"line {number}: {lines[number][:30]!r}"


def damaged_safetensors(content: bytes, rng: random.Random) -> tuple[bytes, str]:
    """Another type, shape, name or place of an array, in a header of the right length."""
    size = struct.unpack("<Q", content[:8])[0]
    header, arrays = json.loads(content[8 : 8 + size]), content[8 + size :]
    name = rng.choice([name for name in header if name != "__metadata__"])
    if rng.random() < 0.5:
        header[name]["dtype"] = rng.choice(
            ["BF16", "F16", "F64", "F8_E4M3", "F8_E5M2", "F4", "I8", "U64", "BOOL", "C64"]
        )
        wide = header[name]["data_offsets"][1] - header[name]["data_offsets"][0]
        count = rng.choice([wide // 8, wide // 4, wide // 2, wide, 2 * wide])
        header[name]["shape"] = rng.choice([header[name]["shape"], [count], [count, 1], []])
        text, how = json.dumps(header).encode(), f"type of {name}"
    else:
        text, how = damaged_json(json.dumps(header).encode(), rng)
    return struct.pack("<Q", len(text)) + text + arrays, how


BY_KIND = {
    "safetensors": damaged_safetensors,
    "json": damaged_json,
    "rows": damaged_rows,
    "npz": damaged_npz,
    "toml": damaged_toml,
}

"""Files written whole or not at all, locks between processes, and JSON read as declared types."""

import errno
import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field

import pytest

from dualgoal import files, jsons
from dualgoal.errors import UserError


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path):
    target = tmp_path / "a"
    target.write_bytes(b"old")
    with pytest.raises(RuntimeError), files.replacing(target) as temporary:
        temporary.write_bytes(b"half of the n")
        raise RuntimeError
    assert target.read_bytes() == b"old" and os.listdir(tmp_path) == ["a"]
    with files.replacing(target) as temporary:
        temporary.write_bytes(b"new")
    assert target.read_bytes() == b"new" and os.listdir(tmp_path) == ["a"]


def test_a_full_disk_is_one_line_and_keeps_the_old_file(tmp_path, monkeypatch):
    target = tmp_path / "a"
    target.write_bytes(b"old")

    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match="a: not written .no space left on device.; .*make room"):
        files.write_atomic(target, b"new")
    assert target.read_bytes() == b"old" and os.listdir(tmp_path) == ["a"]


def test_a_file_where_a_folder_belongs_is_one_line(tmp_path):
    (tmp_path / "a").write_bytes(b"")
    for folder in (tmp_path / "a", tmp_path / "a" / "b"):
        with pytest.raises(UserError, match="cannot be made a folder"):
            files.make_folder(folder)


def test_what_the_system_refuses_is_one_line_that_names_the_file(tmp_path):
    with pytest.raises(UserError, match=f"{tmp_path}: is a directory; a folder is where a file is needed"):
        files.os_errors_in_one_line(open)(tmp_path)


def test_a_lock_is_held_by_one_and_awaited_by_others(tmp_path, capsys):
    path, order = tmp_path / "lock", []

    def wait():
        with files.locked(path, wait=True):
            order.append("second")

    assert not files.is_held(path) and os.listdir(tmp_path) == []
    with files.locked(path):
        assert files.is_held(path)
        with pytest.raises(UserError, match=f"in use by process {os.getpid()}"):
            files.locked(path)
        waiting = threading.Thread(target=wait)
        waiting.start()
        time.sleep(0.3)
        order.append("first")
    waiting.join()
    assert order == ["first", "second"] and os.listdir(tmp_path) == []
    assert capsys.readouterr().err.count("waiting for it to finish") == 1


COUNT = """
import pathlib, sys
from dualgoal import files
folder = pathlib.Path(sys.argv[1])
for _ in range(40):
    with files.locked(folder / "lock", wait=True):
        count = folder / "count"
        count.write_text(str(int(count.read_text()) + 1))
"""


def test_no_two_processes_are_ever_inside(tmp_path):
    (tmp_path / "count").write_text("0")
    command = [sys.executable, "-c", COUNT, str(tmp_path)]
    processes = [subprocess.Popen(command, stderr=subprocess.DEVNULL) for _ in range(4)]
    assert [process.wait() for process in processes] == [0] * 4
    assert (tmp_path / "count").read_text() == "160"


@dataclass(frozen=True)
class Part:
    size: float
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Whole:
    name: str
    count: int | None = None
    parts: dict[str, Part] = field(default_factory=dict)


def test_json_becomes_the_declared_types():
    value = {"name": "a", "count": None, "parts": {"x": {"size": 2, "names": ["b"]}}, "unknown": 1}
    assert jsons.typed(value, Whole, "w") == Whole("a", None, {"x": Part(2.0, ("b",))})


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], r"w is \[\]; expected an object"),
        ({}, "w.name is missing"),
        ({"name": 3}, "w.name is 3; expected a text"),
        ({"name": "a", "count": True}, "w.count is true; expected a whole number"),
        ({"name": "a", "count": 1.5}, "w.count is 1.5; expected a whole number"),
        ({"name": "a", "parts": [1]}, r"w.parts is \[1\]; expected an object"),
        ({"name": "a", "parts": {"x": None}}, "w.parts.x is null; expected an object"),
        ({"name": "a", "parts": {"x": {"size": "1"}}}, 'w.parts.x.size is "1"; expected a number'),
        ({"name": "a", "parts": {"x": {"size": 1, "names": "b"}}}, "w.parts.x.names is .*; expected a list"),
    ],
)
def test_a_wrong_type_is_one_line_that_names_the_field(value, message):
    with pytest.raises(UserError, match=message):
        jsons.typed(value, Whole, "w")

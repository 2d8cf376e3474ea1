"""Commands killed at every write, rename, sync and removal, and at random times, then given again.

A command runs in a child of this process, forked before JAX is used, so that nothing has to be imported again. The
child counts what it does to files; one child per count is killed there, before the deed, after it, or, for a write,
with half of it done. The record it leaves after the same command has been given again must equal that of a child that
was never killed.
"""

import os
import pathlib
import random
import signal
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import commands
from campaign import Outcome
from commands import Target, run_child

from dualgoal import files

MODES = ("before", "after", "half")
RANDOM = 20  # kills at random times
UNTOUCHED = ("compare", "runs", "bench")  # commands that write nothing


class Counter:
    """Counts what happens to files from now on, and kills this process at one of them."""

    def __init__(self, at: int | None = None, mode: str = "before"):
        self.done, self.at, self.mode = 0, at, mode

    def install(self) -> "Counter":
        for owner, name in ((os, "replace"), (os, "fsync"), (os, "unlink"), (os, "mkdir")):
            setattr(owner, name, self._counted(getattr(owner, name)))
        write_all, write_bytes = files.write_all, pathlib.Path.write_bytes

        def all_(file: Any, path: Path, content: bytes) -> None:
            self._deed(lambda: write_all(file, path, content), lambda: file.write(content[: len(content) // 2]))

        def bytes_(path: Path, content: bytes) -> int:
            half = lambda: write_bytes(path, content[: len(content) // 2])
            return self._deed(lambda: write_bytes(path, content), half)

        files.write_all = all_
        pathlib.Path.write_bytes = bytes_  # type: ignore[method-assign]
        return self

    def _counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **options: self._deed(lambda: function(*args, **options), lambda: None)

    def _deed(self, whole: Callable[[], Any], half: Callable[[], Any]) -> Any:
        mine, self.done = self.done == self.at, self.done + 1
        if mine and self.mode != "after":
            if self.mode == "half":
                half()
            os.kill(os.getpid(), signal.SIGKILL)
        result = whole()
        if mine:
            os.kill(os.getpid(), signal.SIGKILL)
        return result


def attack(folder: Path, seed: int, wanted: range, names: list[str]) -> Iterator[Outcome]:
    """All exact points of all commands, in turn, then random times of training; ends by itself."""
    warnings.simplefilter("ignore")
    os.environ["DUALGOAL_CACHE"] = str(folder / "cache")
    targets = [target for target in commands.make_targets(folder) if target.name not in UNTOUCHED]
    targets = [target for target in targets if not names or target.name in names]
    goals: dict[str, dict[str, bytes]] = {}
    plan: list[tuple[Target, int, str]] = []
    for target in targets:
        said, goals[target.name] = commands.undisturbed(target, folder / "whole" / target.name, Counter().install)
        plan += [(target, at, mode) for at in range(int(said.rpartition("counted ")[2])) for mode in MODES]
    rng = random.Random(seed)
    rng.shuffle(plan)
    for target in (target for target in targets if target.name == "train"):
        plan += [(target, -1, f"{rng.uniform(0.05, 2.5):.2f}") for _ in range(RANDOM)]
    for number, (target, at, mode) in enumerate(plan):
        if number in wanted:
            yield one(folder, target, at, mode, goals[target.name], number)


def one(folder: Path, target: Target, at: int, mode: str, goal: dict[str, bytes], number: int) -> Outcome:
    with commands.in_place(folder, target) as whole:

        def action() -> int:
            if at >= 0:
                Counter(at, mode).install()
            return target.run(whole)

        status, said = run_child(action, kill_after=float(mode) if at < 0 else None)
        how = f"killed {mode} deed {at}" if at >= 0 else f"killed after {mode} s"
        result = "equal after the kill" if status == -signal.SIGKILL else "ended before the kill"
        failure = None if status in (0, -signal.SIGKILL) else f"status {status}: {said[-300:]}"
        again, said = run_child(lambda: target.run(whole))
        if again or "Traceback" in said:
            failure = failure or f"the same command again: status {again}: {said[-300:]}"
        return Outcome(target.name, number, result, failure or commands.compare(commands.record(whole), goal), how)

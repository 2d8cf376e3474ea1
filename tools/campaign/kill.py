"""Commands killed at every write, rename, sync and removal, and at random times, then given again.

A command runs in a child of this process, forked before JAX is used, so that nothing has to be imported again. The
child counts what it does to files; one child per count is killed there, before the deed, after it, or, for a write,
with half of it done. The record it leaves after the same command has been given again must equal that of a child that
was never killed.
"""

import contextlib
import io
import json
import os
import pathlib
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from campaign import Outcome

import run_files
import tiny
from dualgoal import files
from dualgoal.cli import main
from dualgoal.collect import generate
from dualgoal.data import importing
from dualgoal.paper import settings
from dualgoal.report import page
from dualgoal.runs import directory, evaluation, export, policy, training

MODES = ("before", "after", "half")
ENOUGH = 120  # seconds for one command
RANDOM = 20  # kills at random times


@dataclass(frozen=True)
class Target:
    """A command that writes into the folder it is given."""

    name: str
    command: Callable[[Path], Any]
    prepare: Callable[[Path], Any] = lambda folder: None  # what has to be there before


class Counter:
    """Counts what happens to files from now on, and kills this process at one of them."""

    def __init__(self, at: int | None = None, mode: str = "before"):
        self.done, self.at, self.mode = 0, at, mode

    def install(self) -> None:
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


def run_child(action: Callable[[], Any], seconds: float = ENOUGH, kill_after: float | None = None) -> tuple[int, str]:
    """The status of a child that does `action` (minus the signal that ended it), and what it printed at the end."""
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(reader)
        code = 1
        try:
            os.dup2(writer, 1)
            os.dup2(writer, 2)
            sys.stdout, sys.stderr = (io.TextIOWrapper(os.fdopen(fd, "wb", 0), write_through=True) for fd in (1, 2))
            signal.alarm(int(seconds))
            returned = action()
            code = returned if isinstance(returned, int) else 0
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(writer)
    if kill_after is not None:
        time.sleep(kill_after)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    with os.fdopen(reader, "rb") as stream:
        said = stream.read().decode(errors="replace")
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), said


def record(folder: Path) -> dict[str, bytes]:
    """What must not depend on how often a command was killed: everything but the clock's file, the time that making a
    dataset took, and the commit that config.json names, which changes when somebody edits the source meanwhile."""
    found = {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}
    for name in [name for name in found if name.endswith(".json")]:
        with contextlib.suppress(ValueError, AttributeError):
            content = {k: v for k, v in json.loads(found[name]).items() if k not in ("git", "cpu_seconds")}
            found[name] = json.dumps(content).encode()
    return {name: content for name, content in found.items() if not name.endswith("timing.jsonl")}


# Commands -------------------------------------------------------------------------------------------------------------


class Quick:
    """An evaluator without environments: its rows are a function of the seed and the step."""

    goals = 2

    def __init__(self) -> None:
        self._waiting: list[int] = []

    @property
    def pending(self) -> list[int]:
        return list(self._waiting)

    def submit(self, path: Path, step: int) -> None:
        self._waiting.append(step)

    def collect(self) -> list[tuple[int, list[Any]]]:
        done, self._waiting = self._waiting, []
        rows = lambda step: [evaluation.EvalRow(s, step, g, 4, (s + g + step) % 5, 7.0) for s in (0,) for g in (1, 2)]
        return [(step, rows(step)) for step in done]

    def __enter__(self) -> "Quick":
        return self

    def __exit__(self, *_: object) -> None:
        pass


def make_targets(root: Path) -> list[Target]:
    data = tiny.make_data(root / "data")
    own = root / "own.npz"
    ends = np.arange(80) % 20 == 19
    np.savez(own, obs=np.ones((80, 3)), acts=np.linspace(-2, 2, 160).reshape(80, 2), dones=ends)
    run = tiny.tiny_run(seeds=(0,), steps=20, eval_every=10, save_every=5, log_every=5, episodes=2)
    made = settings.preset("cube-single-play-v0", "dual", "gcivl", seeds=[0], steps=20)

    def train(folder: Path) -> None:
        training.train(run, folder / "run", data_path=data, quiet=True, evaluator=Quick())

    def whole(folder: Path) -> None:
        run_files.write_run(folder / "run", made, run_files.rows(made, 5), metrics=[{"step": 1, "seed": 0, "a": 1.0}])

    def trained(folder: Path) -> None:
        if not (root / "trained").exists():
            status, said = run_child(lambda: tiny.untrained(root / "trained", data) and None)
            assert not status, said
        shutil.copytree(root / "trained", folder / "run")

    def results(folder: Path) -> int:
        words = [
            "results",
            "--runs",
            str(folder / "run"),
            "--folder",
            str(folder / "rows"),
            "--out",
            str(folder / "r.md"),
        ]
        return main.main(words)

    bring = lambda folder: importing.import_dataset(own, folder, scale_actions=True)
    collect = lambda folder: generate.generate_dataset(tiny.TASK, 2, folder, workers=1, progress=False, rows=11)
    send = lambda folder: export.export_policy(folder / "run", folder / "policy.safetensors")
    write = lambda folder: page.write_report([folder / "run"], folder / "report.html", explore=False)
    return [
        Target("import", bring),
        Target("generate", collect),
        Target("train", train),
        Target("export", send, trained),
        Target("report", write, whole),
        Target("results", results, whole),
    ]


# The attack -----------------------------------------------------------------------------------------------------------


def attack(folder: Path, seed: int, only: int | None, names: list[str]) -> Iterator[Outcome]:
    """All exact points of all commands, in turn, then random times of training; ends by itself."""
    import warnings

    warnings.simplefilter("ignore")
    os.environ["DUALGOAL_CACHE"] = str(folder / "cache")
    assert policy, directory  # imported for the children
    targets = [target for target in make_targets(folder) if not names or target.name in names]
    goals: dict[str, dict[str, bytes]] = {}
    plan: list[tuple[Target, int, str]] = []
    for target in targets:
        whole = folder / "whole" / target.name
        count, goals[target.name] = undisturbed(target, whole)
        plan += [(target, at, mode) for at in range(count) for mode in MODES]
    rng = random.Random(seed)
    rng.shuffle(plan)
    for target in (target for target in targets if target.name == "train"):
        plan += [(target, -1, f"{rng.uniform(0.05, 2.5):.2f}") for _ in range(RANDOM)]
    for number, (target, at, mode) in enumerate(plan):
        if only is None or only == number:
            yield one(folder, target, at, mode, goals[target.name], number)


def undisturbed(target: Target, folder: Path) -> tuple[int, dict[str, bytes]]:
    folder.mkdir(parents=True)
    target.prepare(folder)

    def action() -> None:
        counter = Counter()
        counter.install()
        target.command(folder)
        os.write(1, f"\ncounted {counter.done}".encode())

    status, said = run_child(action)
    assert status == 0, f"{target.name}: {said}"
    return int(said.rpartition("counted ")[2]), record(folder)


def one(folder: Path, target: Target, at: int, mode: str, goal: dict[str, bytes], number: int) -> Outcome:
    here = folder / "here" / target.name
    shutil.rmtree(here, ignore_errors=True)
    here.mkdir(parents=True)
    target.prepare(here)
    # The same place as that of the undisturbed command: pages name the folders they were made from.
    whole, aside = folder / "whole" / target.name, folder / "aside"
    os.rename(whole, aside)
    os.rename(here, whole)

    def action() -> Any:
        if at >= 0:
            Counter(at, mode).install()
        return target.command(whole)

    try:
        status, said = run_child(action, kill_after=float(mode) if at < 0 else None)
        how = f"killed {mode} deed {at}" if at >= 0 else f"killed after {mode} s"
        result = "equal after the kill" if status == -signal.SIGKILL else "ended before the kill"
        failure = None
        if status not in (0, -signal.SIGKILL):
            failure = f"status {status}: {said[-300:]}"
        again, said = run_child(lambda: target.command(whole))
        if again:
            failure = failure or f"the same command again: status {again}: {said[-300:]}"
        found = record(whole)
        if not failure and found != goal:
            names = [name for name in sorted({*found, *goal}) if found.get(name) != goal.get(name)]
            failure = f"other files: {', '.join(names)[:300]}"
        return Outcome(target.name, number, result, failure, how)
    finally:
        os.rename(whole, here)
        os.rename(aside, whole)

"""Full disks, missing permissions, signals, dead and stopped workers, a clock that jumps; then the same command again.

A full disk is a limit on the size of a file (`RLIMIT_FSIZE`), which needs no rights and fails in the same calls. Where
this process is root, commands without permissions run as nobody.
"""

import os
import random
import resource
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kill
from campaign import Outcome
from kill import Target, record, run_child

from dualgoal.cli import main
from dualgoal.workers import Pool

NOBODY = 65534
SIZES = (0, 1, 100, 1000, 3000, 10_000)


def attack(folder: Path, seed: int, only: int | None, names: list[str]) -> Iterator[Outcome]:
    """All faults of all commands, in an order that follows from the seed."""
    import warnings

    warnings.simplefilter("ignore")
    os.environ["DUALGOAL_CACHE"] = str(folder / "cache")
    targets = [target for target in kill.make_targets(folder) if not names or target.name in names]
    goals = {target.name: kill.undisturbed(target, folder / "whole" / target.name)[1] for target in targets}
    plan: list[tuple[str, Target, Callable[[Path, Target], Any], tuple[int, ...]]] = []
    for target in targets:
        plan += [(f"disk full after {size} bytes", target, full(size), (0, 2)) for size in SIZES]
        plan.append(("no permission", target, as_nobody, (2,)))
        plan.append(("a clock a year back", target, with_clock, (0,)))
    rng = random.Random(seed)
    for target in (target for target in targets if target.name == "train"):
        for sent in (signal.SIGTERM, signal.SIGINT):
            times = [rng.uniform(0.1, 3) for _ in range(5)]
            plan += [(f"{sent.name} after {at:.2f} s", target, signalled(sent, at), (0, 130)) for at in times]
    rng.shuffle(plan)
    for number, (how, target, fault, allowed) in enumerate(plan):
        if only is None or only == number:
            yield one(folder, number, how, target, fault, allowed, goals[target.name])
    for number, outcome in enumerate(workers() if not names or "workers" in names else (), len(plan)):
        if only is None or only == number:
            yield Outcome("workers", number, *outcome)


def one(
    folder: Path, number: int, how: str, target: Target, fault: Any, allowed: tuple[int, ...], goal: dict[str, bytes]
) -> Outcome:
    whole, aside = folder / "whole" / target.name, folder / "aside"
    os.rename(whole, aside)
    try:
        whole.mkdir()
        target.prepare(whole)
        status, said = fault(whole, target)
        failure = None
        if status not in allowed or "Traceback" in said:
            failure = f"status {status}: {said[-400:]}"
        again, said = run_child(lambda: command(whole, target))
        if again and not failure:
            failure = f"the same command again: status {again}: {said[-300:]}"
        found = record(whole)
        if not failure and found != goal:
            names = [name for name in sorted({*found, *goal}) if found.get(name) != goal.get(name)]
            failure = f"other files: {', '.join(names)[:300]}"
        return Outcome(target.name, number, "one line, then equal" if status else "equal", failure, how)
    finally:
        shutil.rmtree(whole)
        os.rename(aside, whole)


def command(folder: Path, target: Target) -> int:
    """As the command line runs it: what a user can repair is one line and status 2."""
    return main.status_of(lambda: target.command(folder))


def full(size: int) -> Callable[[Path, Target], tuple[int, str]]:
    def fault(folder: Path, target: Target) -> tuple[int, str]:
        def action() -> int:
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
            return command(folder, target)

        return run_child(action)

    return fault


def as_nobody(folder: Path, target: Target) -> tuple[int, str]:
    def action() -> int:
        if os.getuid() == 0:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
        return command(folder, target)

    for path in [folder, *folder.rglob("*")]:
        os.chmod(path, 0o555 if path.is_dir() else 0o444)
    try:
        return run_child(action)
    finally:
        for path in [folder, *folder.rglob("*")]:
            os.chmod(path, 0o755 if path.is_dir() else 0o644)


def with_clock(folder: Path, target: Target) -> tuple[int, str]:
    def action() -> int:
        now, calls = time.time, iter(range(10**9))
        time.time = lambda: now() - 365 * 86_400 + 3600 * (next(calls) % 3 - 1)
        return command(folder, target)

    return run_child(action)


def signalled(number: signal.Signals, after: float) -> Callable[[Path, Target], tuple[int, str]]:
    def fault(folder: Path, target: Target) -> tuple[int, str]:
        def action() -> int:
            parent = os.getpid()
            if not os.fork():
                time.sleep(after)
                try:
                    os.kill(parent, number)
                finally:
                    os._exit(0)
            signal.signal(signal.SIGTERM, signal.default_int_handler)  # before training listens itself
            return command(folder, target)

        return run_child(action)

    return fault


def workers() -> Iterator[tuple[str, str | None, str]]:
    """Worker processes that are killed or stopped while they work."""
    for name, number in (("killed", signal.SIGKILL), ("stopped", signal.SIGSTOP)):
        for after in (0.3, 1.0, 1.5):
            with Pool(slowly, 2, job_seconds=4) as pool:
                answers = [pool.submit(n) for n in range(4)]
                time.sleep(after)
                for pid in pool.pids[:1]:
                    os.kill(pid, number)
                try:
                    wrong = [answer.result(60) for answer in answers] != [0, 1, 4, 9]
                except Exception as problem:
                    wrong = repr(problem)
            yield "answered all the same", f"wrong answers {wrong}" if wrong else None, f"{name} after {after} s"


def slowly(number: int) -> int:
    time.sleep(0.7)
    return number * number

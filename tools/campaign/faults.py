"""Full disks, missing permissions, signals, dead and stopped workers, a clock that jumps; then the same command again.

A full disk is a limit on the size of a file (`RLIMIT_FSIZE`), which needs no rights and fails in the same calls. Where
this process is root, commands without permissions run as nobody.
"""

import os
import random
import resource
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import commands
from campaign import Outcome
from commands import Target, run_child
from slow import slowly

from dualgoal.workers import Pool

NOBODY = 65534
SIZES = (0, 1, 100, 1000, 3000, 10_000)
SIGNALLED = ("train", "lightsout", "sweep")  # the commands that save at a signal
BY_SIGNAL = {signal.SIGTERM: 75, signal.SIGINT: 130}

Fault = Callable[[Path, Target], tuple[int, str]]


def attack(folder: Path, seed: int, wanted: range, names: list[str]) -> Iterator[Outcome]:
    """All faults of all commands, in an order that follows from the seed."""
    warnings.simplefilter("ignore")
    os.environ["DUALGOAL_CACHE"] = str(folder / "cache")
    targets = [target for target in commands.make_targets(folder) if not names or target.name in names]
    goals = {target.name: commands.undisturbed(target, folder / "whole" / target.name)[1] for target in targets}
    rng = random.Random(seed)
    plan: list[tuple[str, Target, Fault, tuple[int, ...]]] = []
    for target in targets:
        sizes = SIZES[::5] if target.slow else SIZES
        plan += [(f"disk full after {size} bytes", target, full(size), (0, 2)) for size in sizes]
        plan.append(("no permission", target, as_nobody, (0, 2)))
        plan.append(("a clock a year back", target, with_clock, (0,)))
        for sent, status in BY_SIGNAL.items() if target.name in SIGNALLED else ():
            times = [rng.uniform(0.1, 3) for _ in range(5)]
            plan += [(f"{sent.name} after {at:.2f} s", target, signalled(sent, at), (0, status)) for at in times]
    rng.shuffle(plan)
    for number, (how, target, fault, allowed) in enumerate(plan):
        if number in wanted:
            yield one(folder, number, how, target, fault, allowed, goals[target.name])
    for number, outcome in enumerate(workers() if not names or "workers" in names else (), len(plan)):
        if number in wanted:
            yield Outcome("workers", number, *outcome)


def one(
    folder: Path, number: int, how: str, target: Target, fault: Fault, allowed: tuple[int, ...], goal: dict[str, bytes]
) -> Outcome:
    with commands.in_place(folder, target) as whole:
        status, said = fault(whole, target)
        failure = None
        if status not in allowed or "Traceback" in said:
            failure = f"status {status}: {said[-400:]}"
        elif status == 2 and not said.splitlines()[-1].startswith("dualgoal: "):
            failure = f"status 2 without its line: {said[-400:]}"
        again, said = run_child(lambda: target.run(whole))
        if again and not failure:
            failure = f"the same command again: status {again}: {said[-300:]}"
        failure = failure or commands.compare(commands.record(whole), goal)
        return Outcome(target.name, number, "one line, then equal" if status else "equal", failure, how)


def full(size: int) -> Fault:
    def fault(folder: Path, target: Target) -> tuple[int, str]:
        def action() -> int:
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
            return target.run(folder)

        return run_child(action)

    return fault


def as_nobody(folder: Path, target: Target) -> tuple[int, str]:
    def action() -> int:
        if os.getuid() == 0:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
        return target.run(folder)

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
        return target.run(folder)

    return run_child(action)


def signalled(number: signal.Signals, after: float) -> Fault:
    def fault(folder: Path, target: Target) -> tuple[int, str]:
        def action() -> int:
            parent = os.getpid()
            if not os.fork():
                time.sleep(after)
                try:
                    os.kill(parent, number)
                finally:
                    os._exit(0)
            return target.run(folder)

        return run_child(action)

    return fault


def workers() -> Iterator[tuple[str, str | None, str]]:
    """Worker processes that are killed or stopped while they work."""
    for name, number in (("killed", signal.SIGKILL), ("stopped", signal.SIGSTOP)):
        for after in (0.3, 1.0, 1.5):
            with Pool(slowly, 2, job_seconds=10) as pool:
                answers = [pool.submit(n) for n in range(4)]
                time.sleep(after)
                for pid in pool.pids[:1]:
                    os.kill(pid, number)
                try:
                    wrong = [answer.result(60) for answer in answers] != [0, 1, 4, 9]
                except Exception as problem:
                    wrong = repr(problem)
            yield "answered all the same", f"wrong answers {wrong}" if wrong else None, f"{name} after {after} s"

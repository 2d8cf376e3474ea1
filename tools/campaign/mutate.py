"""Damaged files of every kind that the program reads, and everything that reads them."""

import os
import random
import resource
import signal
import warnings
from collections.abc import Iterator
from pathlib import Path

import damage
from campaign import Outcome
from places import Place, make_places

from dualgoal.errors import UserError

LONGEST = 20  # seconds
MEMORY = 1 << 30  # bytes that reading a damaged file may take more than ever before


class TooLong(BaseException):
    """Not an Exception: nothing may catch it."""


def attack(folder: Path, seed: int, wanted: range, names: list[str]) -> Iterator[Outcome]:
    """Damage one file after the other, for ever."""
    warnings.simplefilter("ignore")
    os.fsync = lambda handle: None  # no power failure is tried here
    places = [place for place in make_places(folder) if not names or place.name in names]
    good = {place.name: place.file.read_bytes() for place in places}
    for place in places:
        for use in place.uses:
            use()  # what is not damaged must be readable, or nothing is tested
    for number in wanted:
        rng = random.Random(seed * 1_000_003 + number)
        random.seed(number)
        place = places[number % len(places)]
        spoil = damage.BY_KIND.get(place.kind, damage.damaged_bytes) if rng.random() < 0.75 else damage.damaged_bytes
        snapshot = keep(place.file.parent)
        content, how = spoil(good[place.name], rng)
        place.file.write_bytes(content)
        place.seal()
        yield judge(place, number, how)
        restore(place.file.parent, snapshot)


def keep(folder: Path) -> dict[Path, tuple[bytes, tuple[int, int]]]:
    """All small files below a folder, and their times: readers may repair, cut or remove."""
    stats = {path: path.stat() for path in folder.rglob("*") if path.is_file()}
    return {path: (path.read_bytes(), (stat.st_atime_ns, stat.st_mtime_ns)) for path, stat in stats.items()}


def restore(folder: Path, snapshot: dict[Path, tuple[bytes, tuple[int, int]]]) -> None:
    for path in [p for p in folder.rglob("*") if p.is_file() and p not in snapshot]:
        path.unlink()
    for path, (content, times) in snapshot.items():
        if not path.exists() or path.stat().st_mtime_ns != times[1] or path.stat().st_size != len(content):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            os.utime(path, ns=times)


def judge(place: Place, number: int, how: str) -> Outcome:
    def rang(*_: object) -> None:
        raise TooLong

    before, results = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, []
    old = signal.signal(signal.SIGALRM, rang)
    failure = None
    for index, use in enumerate(place.uses):
        signal.alarm(LONGEST)
        try:
            found = use()
            results.append("accepted")
            if index == 0 and place.same is not None and not place.same(found):
                failure = "accepted, and what was read is not what was written"
        except UserError as problem:
            results.append("refused")
            failure = failure or ("more than one line" if "\n" in str(problem) else None)
        except TooLong:
            failure = f"no answer in {LONGEST} seconds"
        except BaseException as problem:
            failure = f"use {index}: {type(problem).__name__}: {str(problem)[:200]}"
        finally:
            signal.alarm(0)
    signal.signal(signal.SIGALRM, old)
    if (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 > MEMORY:
        failure = failure or "more than 1 GiB of memory"
    return Outcome(place.name, number, "refused" if "refused" in results else "accepted", failure, how)

"""Attack the program in three ways and print a table: `python tools/campaign kill|mutate|faults --minutes 5`.

    kill    a process is killed at every write, rename, sync and removal of a command, and at random times; the same
            command is given again and must leave the same bytes as one that was never killed, and no leftovers
    mutate  every kind of file that the program reads is damaged, mostly in ways that keep its grammar, and read again
            by everything that reads it: the only answers are a result and one line
    faults  full disk, missing permissions, signals, dead and stopped workers, a clock that jumps

Everything follows from `--seed`. A failure is printed with the line that repeats it alone. The exit status is 1 if
there was one.
"""

import argparse
import os
import resource
import shlex
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from dualgoal import texts

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent / "tests"), str(HERE)]  # the small runs that the tests use too
# Every child compiles the same few small programs: keep all of them, from the first on.
KEEP = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0", "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1"}


@dataclass(frozen=True)
class Outcome:
    """One attack: on what, how, and what came of it ("refused", "equal", ...); a failure says why."""

    target: str
    number: int
    result: str
    failure: str | None = None
    how: str = ""


Attack = Callable[[Path, int, range, list[str]], Iterator[Outcome]]


def attacks() -> dict[str, Attack]:
    import faults
    import kill
    import mutate

    return {"kill": kill.attack, "mutate": mutate.attack, "faults": faults.attack}


def campaign(
    kind: str, seed: int, minutes: float, most: int | None, wanted: range, names: list[str]
) -> tuple[Counter[tuple[str, str]], list[Outcome]]:
    """Run one kind of attack until the time or the number is used up; counts by target and result, and failures."""
    counts: Counter[tuple[str, str]] = Counter()
    failures: list[Outcome] = []
    until = time.monotonic() + 60 * minutes
    with tempfile.TemporaryDirectory(prefix="campaign-") as folder:
        os.environ.update({"JAX_COMPILATION_CACHE_DIR": f"{folder}/compiled", **KEEP} if kind != "mutate" else {})
        for outcome in attacks()[kind](Path(folder), seed, wanted, names):
            counts[outcome.target, "FAILED" if outcome.failure else outcome.result] += 1
            if outcome.failure:
                failures.append(outcome)
                print(f"FAILED {outcome.target}: {outcome.how}: {outcome.failure}")
                chosen = f" --targets {shlex.join(names)}" if names else ""
                repeat = f"python tools/campaign {kind} --seed {seed} --only {outcome.number}{chosen}"
                print(f"  repeat: {repeat}", flush=True)
            if time.monotonic() > until or (most is not None and counts.total() >= most):
                break
    return counts, failures


def table(counts: Counter[tuple[str, str]]) -> str:
    results = sorted({result for _, result in counts})
    lines = [["target", *results, "all"]]
    for target in sorted({target for target, _ in counts}):
        row = [counts[target, result] for result in results]
        lines.append([target, *map(str, row), str(sum(row))])
    sums = [sum(n for (_, r), n in counts.items() if r == result) for result in results]
    lines.append(["all", *map(str, sums), str(counts.total())])
    return "\n".join(texts.aligned(lines, right=range(1, len(lines[0]))))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=("kill", "mutate", "faults"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--most", type=int, default=None, help="stop after this many attacks")
    parser.add_argument("--first", type=int, default=0, help="begin with the attack of this number")
    parser.add_argument("--only", type=int, default=None, help="repeat the attack of this number alone")
    parser.add_argument("--targets", nargs="*", default=[], help="only these rows of the table")
    given = parser.parse_args()
    began = time.monotonic()
    wanted = range(given.first, 1 << 40) if given.only is None else range(given.only, given.only + 1)
    counts, failures = campaign(given.kind, given.seed, given.minutes, given.most, wanted, given.targets)
    print(table(counts))
    used = sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    time_taken = f"{time.monotonic() - began:.0f} s, {used:.0f} CPU seconds"
    print(f"{counts.total()} attacks, {len(failures)} failures, {time_taken}, seed {given.seed}, first {given.first}")
    return 1 if failures else 0


if __name__ == "__main__":
    # Under its own name, so that the other files of this folder find the same classes.
    sys.modules["campaign"] = sys.modules["__main__"]
    sys.exit(main())

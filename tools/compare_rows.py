#!/usr/bin/env python3
"""Two row files at every step that both evaluated: means ± standard deviations over seeds, and the difference.

    python tools/compare_rows.py results/TABLE/A.json results/TABLE/B.json

The difference is A's mean minus B's with its 95 % bootstrap interval over seeds. Steps that only one of the two has, or
seeds whose evaluation was cut off, are left out.
"""

import argparse
from pathlib import Path

import numpy as np

from dualgoal import texts
from dualgoal.errors import UserError
from dualgoal.paper import row_files, stats


def by_step(path: Path) -> dict[int, np.ndarray]:
    """Scores of a row file's seeds, in percent, by step."""
    found = row_files.load(path).scores()
    return {step: column[~np.isnan(column)] for step, column in zip(found.steps, found.curve().T, strict=True)}


def lines(a: Path, b: Path) -> list[str]:
    """A Markdown table."""
    left, right = by_step(a), by_step(b)
    steps = [step for step in left if step in right and left[step].size and right[step].size]
    if not steps:
        raise UserError(f"{a} and {b} have no evaluation at the same step; they have {list(left)} and {list(right)}")
    rows = [["step", "A", "B", "A - B"]]
    for step in steps:
        gap = stats.difference(left[step], right[step], np.random.default_rng(0))
        interval = "" if gap.bootstrap is None else " [{:.1f}, {:.1f}]".format(*gap.bootstrap)
        cells = ("{:.1f} ± {:.1f}".format(*stats.mean_std(side[step])) for side in (left, right))
        rows.append([f"{step:,}", *cells, f"{gap.mean:+.1f}{interval}"])
    return texts.markdown(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("a", type=Path)
    parser.add_argument("b", type=Path)
    given = parser.parse_args()
    try:
        print("\n".join(lines(given.a, given.b)))
    except UserError as problem:
        parser.exit(2, f"{problem}\n")


if __name__ == "__main__":
    main()

"""What the paper says in words, as questions that a table can answer (sections 7.1, 8 and 10 of the method).

Each claim looks at means only and says holds, does not hold or not run, with the numbers it looked at. The same
functions judge the paper's own numbers and ours; ours usually cover a part of the tasks, and the answer says which.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dualgoal.paper import filled as compare
from dualgoal.paper import tables
from dualgoal.paper.filled import NOISY, Filled
from dualgoal.paper.row_files import Record

REPS = ("orig", "vib", "vip", "tra", "byol", "dual")
VISUAL_PUZZLES = ("visual-puzzle-3x3-play-v0", "visual-puzzle-4x4-play-v0")


@dataclass(frozen=True)
class Verdict:
    """An answer: `holds` is None when there are no numbers to judge by; `whole` is False when some are missing."""

    holds: bool | None
    detail: str
    whole: bool = True

    def __str__(self) -> str:
        word = "so far " * (not self.whole) + {True: "holds", False: "does not hold", None: "not run"}[self.holds]
        return f"{word}: {self.detail}" if self.detail else word


class Means:
    """Mean scores by table, task and column, from the paper or from us, and learning curves where there are any."""

    def __init__(self, means: dict[str, dict[str, dict[str, float]]], curves: dict[tuple[str, str], Any] | None = None):
        self.means = means
        self.curves = curves or {}

    def get(self, table: str, task: str, column: str) -> float | None:
        return self.means.get(table, {}).get(task, {}).get(column)

    def row(self, table: str, task: str) -> dict[str, float]:
        return self.means.get(table, {}).get(task, {})

    def averages(self, table: str) -> tuple[dict[str, float], int]:
        """Column averages over the tasks that every present column has, rounded as printed, and how many tasks."""
        rows = {t: r for t, r in self.means.get(table, {}).items() if t != "average"}
        columns = {c for row in rows.values() for c in row}
        common = [row for row in rows.values() if set(row) == columns]
        if "average" in self.means.get(table, {}):
            return dict(self.means[table]["average"]), len(common)
        if not common:
            return {}, 0
        return {c: float(np.mean([row[c] for row in common])) for c in common[0]}, len(common)


def of_paper() -> Means:
    """The published means."""
    return Means(
        {
            t: {task: {c: m for c, (m, _) in row.items()} for task, row in rows.items()}
            for t, rows in tables.paper().items()
        }
    )


def of_records(records: Iterable[Record]) -> Means:
    """Our means: cells of a row that were trained equally long."""
    records = list(records)
    filled = {name: compare.fill(name, records) for name in tables.TABLES}
    puzzles = sorted((r for r in records if r.table == "lightsout"), key=lambda r: r.steps)
    curves = {(r.task, r.column): r.scores() for r in puzzles}  # of several lengths the longest
    return Means({name: _means(f) for name, f in filled.items()}, curves)


def _means(filled: Filled) -> dict[str, dict[str, float]]:
    comparable = [line for line in filled.lines if not line.mixed]
    rows = {line.name: {h: s.ours.mean for h, s in line.slots.items() if s.ours} for line in comparable}
    return {task: row for task, row in rows.items() if row}


def _best_average(table: str) -> Callable[[Means], Verdict]:
    def judge(means: Means) -> Verdict:
        averages, count = means.averages(table)
        if "dual" not in averages or len(averages) < 2:
            return Verdict(None, "")
        shown = {c: round(v) for c, v in averages.items()}
        holds = shown["dual"] == max(shown.values())
        whole = count == len(tables.get(table).tasks) and set(shown) == set(REPS)
        return Verdict(holds, f"average of {count} task{'s' * (count != 1)}: {_pairs(shown)}", whole)

    return judge


def _three_times(means: Means) -> Verdict:
    orig, dual = (means.get("state_crl", "cube-single-play-v0", c) for c in ("orig", "dual"))
    if orig is None or dual is None:
        return Verdict(None, "")
    factor = f"{dual / orig:.1f} times" if orig else "from nothing"
    return Verdict(dual >= 3 * orig - 0.5, f"Orig {orig:.0f}, Dual {dual:.0f}: {factor}")


def _pixel_best(means: Means) -> Verdict:
    rows = {t: r for t in tables.get("pixel_gcivl").tasks if {"dual", "orig"} <= set(r := means.row("pixel_gcivl", t))}
    if not rows:
        return Verdict(None, "")
    best = [t for t, r in rows.items() if round(r["dual"]) == max(map(round, r.values()))]
    need = len(rows) if len(rows) < 5 else 5
    words = f"best or equal on {len(best)} of {len(rows)}" + f" (not on {', '.join(sorted(set(rows) - set(best)))})" * (
        len(best) < len(rows)
    )
    return Verdict(len(best) >= need, words, len(rows) == len(tables.get("pixel_gcivl").tasks))


def _zero_on_visual_puzzles(means: Means) -> Verdict:
    seen = {f"{t}/{c}": v for t in VISUAL_PUZZLES for c, v in means.row("pixel_gcivl", t).items() if c != "orig"}
    if not seen:
        return Verdict(None, "")
    worst = max(seen.values())
    return Verdict(round(worst) == 0, f"largest of {len(seen)} entries: {worst:.0f}")


def _early_above_late(means: Means) -> Verdict:
    rows = [r for t in VISUAL_PUZZLES if {"early", "late"} <= set(r := means.row("fusion", t))]
    if not rows:
        return Verdict(None, "")
    words = ", ".join(f"{r['early']:.0f} against {r['late']:.0f}" for r in rows)
    return Verdict(all(r["early"] > r["late"] for r in rows), f"early against late: {words}")


def _inner_above_symmetric(means: Means) -> Verdict:
    averages, count = means.averages("parameterization")
    if len(averages) < 2:
        return Verdict(None, "")
    inner, symmetric = averages["dual_inner_product"], averages["dual_symmetric"]
    whole = count == len(tables.get("parameterization").tasks)
    return Verdict(inner > symmetric, f"average of {count}: inner {inner:.0f}, symmetric {symmetric:.0f}", whole)


def _direct_worse(means: Means) -> Verdict:
    rows = {t: r for t in tables.get("direct").tasks if len(r := means.row("direct", t)) == 2}
    if not rows:
        return Verdict(None, "")
    better = {t for t, r in rows.items() if r["dual_direct"] > r["dual"]}
    expected = {"antmaze-large-navigate-v0"} & set(rows)
    words = f"Direct is better on {', '.join(sorted(better)) or 'none'} of {len(rows)} tasks"
    return Verdict(better == expected, words)


def _robust_to_noise(means: Means) -> Verdict:
    names = ("orig", "orig" + NOISY, "dual", "dual" + NOISY)
    rows = {t: r for t in tables.get("noise").tasks if set(names) <= set(r := means.row("noise", t))}
    if not rows:
        return Verdict(None, "")
    loss = {t: (r["orig"] - r["orig" + NOISY], r["dual"] - r["dual" + NOISY]) for t, r in rows.items()}
    words = "; ".join(
        "{}: Orig {:.0f} to {:.0f}, Dual {:.0f} to {:.0f}".format(t, *(r[n] for n in names)) for t, r in rows.items()
    )
    return Verdict(all(dual < orig for orig, dual in loss.values()), words)


def _lights_out(means: Means) -> Verdict:
    """Higher at the end, and faster: a larger area under the learning curve."""
    out, holds = [], True
    for task in tables.LIGHTSOUT_TASKS:
        orig, dual = (means.curves.get((task, c)) for c in ("orig", "dual"))
        if orig is None or dual is None or not orig.per_seed().size or not dual.per_seed().size:
            continue
        if orig.steps[-1] != dual.steps[-1]:  # not equally long
            continue
        ends = orig.per_seed().mean(), dual.per_seed().mean()
        areas = np.nanmean(orig.curve()), np.nanmean(dual.curve())
        holds = bool(holds and ends[1] > ends[0] and areas[1] > areas[0])
        out.append(
            f"{task}, Orig and Dual: end {ends[0]:.0f} and {ends[1]:.0f}, "
            f"mean of the curve {areas[0]:.0f} and {areas[1]:.0f}"
        )
    return Verdict(holds, "; ".join(out), len(out) == len(tables.LIGHTSOUT_TASKS)) if out else Verdict(None, "")


def _least_sensitive(means: Means) -> Verdict:
    """By rank of the average under each algorithm; the spread of the averages is printed beside it."""
    found = {a: means.averages(f"state_{a}")[0] for a in ("gcivl", "crl", "gcfbc")}
    reps = [r for r in REPS if all(r in averages for averages in found.values())]
    if "dual" not in reps or len(reps) < 2:
        return Verdict(None, "")
    ranks = {r: [1 + sum(round(a[o]) > round(a[r]) for o in reps) for a in found.values()] for r in reps}
    spread = {r: round(max(a[r] for a in found.values()) - min(a[r] for a in found.values())) for r in reps}
    holds = sum(ranks["dual"]) == min(map(sum, ranks.values()))
    places = ", ".join(map(str, ranks["dual"]))
    steady = min(spread, key=lambda r: spread[r])
    other = f", by which {steady} is the steadiest" if steady != "dual" else ""
    return Verdict(holds, f"rank of Dual's average {places}; spread of averages {_pairs(spread)}{other}")


def _pairs(values: dict[str, Any]) -> str:
    return ", ".join(f"{k} {v}" for k, v in values.items())


CLAIMS: dict[str, tuple[str, Callable[[Means], Verdict]]] = {
    "best_average_gcivl": ("Dual has the best average with GCIVL", _best_average("state_gcivl")),
    "best_average_crl": ("Dual has the best average with CRL", _best_average("state_crl")),
    "best_average_gcfbc": ("Dual has the best average (or an equal one) with GCFBC", _best_average("state_gcfbc")),
    "three_times": ("With CRL on cube-single, Dual scores three times what Orig does", _three_times),
    "pixels": ("On images, Dual is best or equal on 5 of 7 tasks", _pixel_best),
    "visual_puzzles": ("On the visual puzzles every representation scores 0", _zero_on_visual_puzzles),
    "fusion": ("On the visual puzzles early fusion beats late fusion", _early_above_late),
    "inner": ("The inner product beats the symmetric form on average (42 against 38)", _inner_above_symmetric),
    "direct": ("Extracting the policy directly is worse, except on antmaze-large", _direct_worse),
    "noise": ("Dual loses less than Orig when goals are noisy", _robust_to_noise),
    "lightsout": ("On Lights Out, Dual learns faster and ends higher", _lights_out),
    "sensitivity": ("Dual is the least sensitive to the choice of algorithm", _least_sensitive),
}


def judge(means: Means) -> dict[str, Verdict]:
    """The verdict on every claim."""
    return {name: function(means) for name, (_, function) in CLAIMS.items()}


def lines(records: Iterable[Record] = ()) -> list[tuple[str, str, str]]:
    """(claim, on the paper's numbers, on ours), as printed under the tables. Figures have no published numbers."""
    paper, ours = judge(of_paper()), judge(of_records(records))
    theirs = {name: str(v) if v.holds is not None else "a figure, no published numbers" for name, v in paper.items()}
    return [(words, theirs[name], str(ours[name])) for name, (words, _) in CLAIMS.items()]

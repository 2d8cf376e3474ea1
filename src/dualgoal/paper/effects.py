"""Dual minus Orig on every task that we ran, ours and the paper's side by side: as data, and as one figure.

Both intervals are Welch's at 95 %: with two seeds they are accordingly wide. The paper prints means and standard
deviations over seeds, which is all that Welch's interval needs.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from dualgoal.paper import comparison, figures, stats, tables
from dualgoal.paper.filled import Difference
from dualgoal.paper.row_files import Record
from dualgoal.paper.stats import Interval

LIMITS = (-100, 100)  # of the axis, in points; a longer interval ends in an arrow


@dataclass(frozen=True)
class Effect:
    """Dual minus Orig with one algorithm, on one task."""

    task: str
    algo: str
    mean: float
    interval: Interval | None
    steps: int
    seeds: tuple[int, int]
    paper_mean: float | None = None
    paper_interval: Interval | None = None

    @property
    def label(self) -> str:
        """Task and algorithm, as along the axis."""
        return f"{self.task.removesuffix('-v0')}, {self.algo.upper()}"


def find(records: Iterable[Record]) -> list[Effect]:
    """The effects of all tables that contrast Dual with Orig and judge clean goals."""
    records, out = list(records), []
    for table in (table for table in tables.TABLES.values() if not table.noise):
        for found in comparison.fill_table(table.name, records).differences:
            above, below = (table.column(name) for name in found.columns)
            if (above.rep, below.rep) == ("dual", "orig"):
                mean, interval = _published(table, found)
                shown = (found.mean, found.welch, found.steps, found.seeds, mean, interval)
                out.append(Effect(found.task, above.algo, *shown))
    return out


def _published(table: tables.Table, found: Difference) -> tuple[float | None, Interval | None]:
    row = tables.paper().get(table.name, {}).get(found.task, {})
    above, below = (row.get(name) for name in found.columns)
    if above is None or below is None:
        return None, None
    gap = above[0] - below[0]
    if above[1] is None or below[1] is None:
        return gap, None
    return gap, stats.welch_of_summaries((above[0], above[1], table.seeds), (below[0], below[1], table.seeds))


def draw(effects: list[Effect], path: Path) -> Path:
    """A line per task: our difference and the paper's with their intervals, and zero."""
    figure = figures.canvas(7.4, 0.42 * len(effects) + 1.2)
    axes = figure.subplots()
    named = {}
    kinds = (("here", figures.COLOURS["dual"], "o", -0.13), ("paper", figures.COLOURS["orig"], "s", 0.13))
    for row, effect in enumerate(effects):
        values = ((effect.mean, effect.interval), (effect.paper_mean, effect.paper_interval))
        for (name, colour, marker, shift), (mean, interval) in zip(kinds, values, strict=True):
            if mean is None:
                continue
            (named[name],) = axes.plot(mean, row + shift, color=colour, marker=marker, markersize=5, linestyle="")
            low, high = interval or (mean, mean)
            axes.plot([max(low, LIMITS[0]), min(high, LIMITS[1])], [row + shift] * 2, color=colour, linewidth=1.4)
            for end, beyond, arrow in ((LIMITS[0], low < LIMITS[0], "<"), (LIMITS[1], high > LIMITS[1], ">")):
                if beyond:
                    axes.plot(end, row + shift, color=colour, marker=arrow, markersize=6, clip_on=False)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_yticks(range(len(effects)), [f"{e.label}\n{_size(e)}" for e in effects], fontsize=8)
    axes.set_ylim(len(effects) - 0.5, -0.5)
    axes.set_xlim(*LIMITS)
    axes.grid(axis="x", color=figures.GRID)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel("Dual minus Orig, points of success", fontsize=9)
    axes.tick_params(axis="x", labelsize=8)
    figure.legend(list(named.values()), list(named), loc="outside upper center", ncols=2, frameon=False, fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    return figures.save(figure, path)


def _size(effect: Effect) -> str:
    fewest, most = min(effect.seeds), max(effect.seeds)
    seeds = str(fewest) if fewest == most else f"{fewest} and {most}"
    return f"{figures.short(effect.steps)} steps, {seeds} seeds"

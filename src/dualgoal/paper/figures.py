"""A table as a picture with 95 % intervals: bars for noisy goals, learning curves for everything else.

Drawn with Matplotlib's object interface, so no display and no global state; the same numbers give the same SVG.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dualgoal.paper import filled as compare
from dualgoal.paper import stats, tables
from dualgoal.paper.filled import NOISY, Filled
from dualgoal.paper.formats import short
from dualgoal.paper.row_files import Record

COLOURS = {
    "orig": "#7a7f87",
    "vib": "#c4622d",
    "vip": "#a0813a",
    "tra": "#3f7d4e",
    "byol": "#8a4f9e",
    "dual": "#1f6fb4",
}
OTHERS = ("#1f6fb4", "#c4622d", "#3f7d4e")
PER_ROW = 3


def draw(
    filled: Filled, records: Iterable[Record], stem: Path, suffixes: Sequence[str] = (".svg", ".png")
) -> list[Path]:
    """Write the figure of a table from the records that fill it; nothing when there are none."""
    if not filled.has_ours():
        return []
    figure = _bars(filled) if any(h.endswith(NOISY) for h in filled.headings) else _curves(filled, records)
    stem.parent.mkdir(parents=True, exist_ok=True)
    return [_save(figure, stem.with_suffix(suffix)) for suffix in suffixes]


def _bars(filled: Filled) -> Any:
    """Orig and Dual with clean and with noisy goals, one group per task."""
    lines = [line for line in filled.lines if any(slot.ours for slot in line.slots.values())]
    figure = _canvas(max(4.0, 2.2 * len(lines) + 1.5), 3.4)
    axes = figure.subplots()
    named: dict[str, Any] = {}
    for i, line in enumerate(lines):
        for j, (heading, slot) in enumerate(line.slots.items()):
            if slot.ours is None:
                continue
            low, high = slot.ours.interval or (slot.ours.mean, slot.ours.mean)
            style: dict[str, Any] = {"color": COLOURS[heading.removesuffix(NOISY)]}
            if heading.endswith(NOISY):
                style |= {"alpha": 0.6, "hatch": "///", "edgecolor": "white", "ecolor": "black"}
            spread = [[max(slot.ours.mean - low, 0)], [max(high - slot.ours.mean, 0)]]
            named[filled.headings[heading]] = axes.bar(
                i + 0.2 * (j - 1.5), slot.ours.mean, 0.19, yerr=spread, capsize=2, **style
            )
    axes.set_xticks(range(len(lines)), [line.name.removesuffix("-v0") for line in lines])
    return _finish(figure, [axes], named)


def _curves(filled: Filled, records: Iterable[Record]) -> Any:
    """Success against steps, a panel per task."""
    found = compare.assign(tables.get(filled.name), records)
    tasks = [line.name for line in filled.lines if any(slot.ours for slot in line.slots.values())]
    across = min(PER_ROW, len(tasks))
    down = -(-len(tasks) // across)
    figure = _canvas(3.7 * across + 0.3, 2.9 * down + 0.4)
    panels = figure.subplots(down, across, sharey=True, squeeze=False).ravel()
    named: dict[str, Any] = {}
    for axes, task in zip(panels, tasks, strict=False):
        for i, (column, title) in enumerate(filled.headings.items()):
            if (task, column) not in found:
                continue
            scores = found[task, column].scores()
            steps, mean, low, high = band(scores.steps, scores.curve())
            colour = COLOURS.get(column, OTHERS[i % len(OTHERS)])
            (named[title],) = axes.plot(steps, mean, color=colour, marker=".")
            axes.fill_between(steps, low, high, color=colour, alpha=0.18, linewidth=0)
        axes.set_title(task, fontsize=9)
        axes.xaxis.set_major_formatter(lambda value, _: short(round(value)))
    for unused in panels[len(tasks) :]:
        unused.set_visible(False)
    figure.supxlabel("gradient steps", fontsize=9)
    return _finish(figure, list(panels[: len(tasks)]), named)


def band(steps: Sequence[int], curve: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Steps at which some seed was evaluated, the mean over seeds, and a 95 % bootstrap interval over seeds."""
    there = ~np.isnan(curve).all(axis=0)
    columns = [column[~np.isnan(column)] for column in curve.T[there]]
    means = np.array([column.mean() for column in columns])
    found = [stats.bootstrap([c], stats.mean_of_tasks, np.random.default_rng(0), resamples=1000) for c in columns]
    bounds = np.array([interval or (m, m) for interval, m in zip(found, means, strict=True)]).reshape(-1, 2)
    return np.array(steps)[there], means, bounds[:, 0], bounds[:, 1]


def _canvas(width: float, height: float) -> Any:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def _finish(figure: Any, panels: Sequence[Any], named: dict[str, Any]) -> Any:
    for axes in panels:
        axes.set_ylim(0, 100)
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=8)
    panels[0].set_ylabel("success in percent", fontsize=9)
    figure.legend(list(named.values()), list(named), loc="outside upper center", ncols=6, frameon=False, fontsize=8)
    return figure


def _save(figure: Any, path: Path) -> Path:
    import matplotlib

    with matplotlib.rc_context({"svg.hashsalt": "dualgoal"}):  # otherwise names inside an SVG differ from run to run
        figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)
    return path

"""The paper's two figures: success under noisy goals, and learning curves on Lights Out, with 95 % intervals.

Drawn with Matplotlib's object interface, so no display, no global state; each figure is written as SVG and PNG.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dualgoal import stats
from dualgoal.compare import NOISY, Filled
from dualgoal.records import Record
from dualgoal.typeset import short

COLOURS = {"orig": "#7a7f87", "dual": "#1f6fb4"}


def noise(filled: Filled, _: Sequence[Record], stem: Path) -> list[Path]:
    """Bars of Orig and Dual with clean and with noisy goals, one group per task."""
    lines = [line for line in filled.lines if any(slot.ours for slot in line.slots.values())]
    figure, axes = _canvas(max(4.0, 2.2 * len(lines) + 1.5), 3.4)
    named: set[str] = set()
    for i, line in enumerate(lines):
        for j, (heading, slot) in enumerate(line.slots.items()):
            if slot.ours is None:
                continue
            low, high = slot.ours.interval or (slot.ours.mean, slot.ours.mean)
            style: dict[str, Any] = {"color": COLOURS[heading.removesuffix(NOISY)]}
            if heading.endswith(NOISY):
                style |= {"alpha": 0.6, "hatch": "///", "edgecolor": "white", "ecolor": "black"}
            label = None if heading in named else filled.headings[heading]
            named.add(heading)
            spread = [[max(slot.ours.mean - low, 0)], [max(high - slot.ours.mean, 0)]]
            axes.bar(i + 0.2 * (j - 1.5), slot.ours.mean, 0.19, yerr=spread, capsize=2, label=label, **style)
    axes.set_xticks(range(len(lines)), [line.name.removesuffix("-v0") for line in lines])
    return _finish(figure, axes, stem, "success in percent", "")


def lightsout(filled: Filled, found: Sequence[Record], stem: Path) -> list[Path]:
    """Learning curves on both boards."""
    tasks = sorted({record.task for record in found})
    figure, _ = _canvas(4.2 * len(tasks), 3.4)
    figure.clf()
    many = figure.subplots(1, len(tasks), sharey=True, squeeze=False)[0]
    for axes, task in zip(many, tasks, strict=True):
        for record in (r for r in found if r.task == task):
            scores = record.scores()
            steps, mean, low, high = band(scores.steps, scores.curve())
            axes.plot(steps, mean, color=COLOURS[record.column], label=filled.headings[record.column], marker=".")
            axes.fill_between(steps, low, high, color=COLOURS[record.column], alpha=0.2, linewidth=0)
        axes.set_title(task, fontsize=10)
        axes.set_xlabel("gradient steps")
        axes.xaxis.set_major_formatter(lambda value, _: short(round(value)))
    return _finish(figure, many[0], stem, "success in percent", "", all_axes=many)


def band(steps: Sequence[int], curve: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Steps at which some seed was evaluated, the mean over seeds, and a 95 % bootstrap interval over seeds."""
    there = ~np.isnan(curve).all(axis=0)
    columns = [column[~np.isnan(column)] for column in curve.T[there]]
    means = np.array([column.mean() for column in columns])
    found = [stats.bootstrap([c], stats.mean_of_tasks, np.random.default_rng(0), resamples=1000) for c in columns]
    bounds = np.array([interval or (m, m) for interval, m in zip(found, means, strict=True)]).reshape(-1, 2)
    return np.array(steps)[there], means, bounds[:, 0], bounds[:, 1]


def _canvas(width: float, height: float) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots()


def _finish(figure: Any, axes: Any, stem: Path, y: str, x: str, all_axes: Sequence[Any] | None = None) -> list[Path]:
    axes.set_ylabel(y)
    axes.set_xlabel(x or axes.get_xlabel())
    for each in all_axes if all_axes is not None else [axes]:
        each.set_ylim(0, 100)
        each.spines[["top", "right"]].set_visible(False)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=4, frameon=False, fontsize=8)
    stem.parent.mkdir(parents=True, exist_ok=True)
    files = [stem.with_suffix(".svg"), stem.with_suffix(".png")]
    figure.savefig(files[0], metadata={"Date": None})
    figure.savefig(files[1], dpi=150)
    return files


FIGURES: dict[str, Callable[[Filled, Sequence[Record], Path], list[Path]]] = {"noise": noise, "lightsout": lightsout}

"""All curves and bars of tables and reports, with 95 % intervals over seeds, drawn with Matplotlib.

A table becomes bars if it compares clean with noisy goals and learning curves otherwise; a report draws one chart per
task or loss. Only Matplotlib's object interface is used, so there is no display and no global state, and the same
numbers give the same SVG.
"""

import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dualgoal.errors import UserError
from dualgoal.files import replacing, write_atomic
from dualgoal.paper import comparison, stats, tables
from dualgoal.paper.filled import NOISY, FilledTable
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
PER_ROW = 3


@dataclass(frozen=True)
class Curve:
    """A line with an optional band around it."""

    x: np.ndarray
    y: np.ndarray
    low: np.ndarray | None = None
    high: np.ndarray | None = None


def learning_curve(steps: Sequence[int], scores: np.ndarray) -> Curve:
    """The mean over seeds of (seeds, steps) scores, with a 95 % bootstrap interval over seeds, which shows how far the
    seeds are apart. Student's interval of a few seeds would fill the whole figure.

    NaN marks evaluations that a seed lacks; steps that no seed has are left out.
    """
    there = ~np.isnan(scores).all(axis=0)
    columns = [column[~np.isnan(column)] for column in scores.T[there]]
    means = np.array([column.mean() for column in columns])
    found = [_band(column) for column in columns]
    bounds = np.array([interval or (m, m) for interval, m in zip(found, means, strict=True)]).reshape(-1, 2)
    return Curve(np.array(steps)[there], means, bounds[:, 0], bounds[:, 1])


def _band(scores: np.ndarray) -> stats.Interval | None:
    return stats.bootstrap([scores], stats.mean_of_tasks, np.random.default_rng(0), resamples=1000)


def _plot(axes: Any, curve: Curve, colour: str, **style: Any) -> Any:
    """Draw a curve and its band; returns the line, for a legend."""
    (line,) = axes.plot(curve.x, curve.y, color=colour, marker=".", **style)
    if curve.low is not None and curve.high is not None:
        axes.fill_between(curve.x, curve.low, curve.high, color=colour, alpha=0.18, linewidth=0)
    axes.xaxis.set_major_formatter(lambda value, _: short(round(value)))
    return line


# Tables ---------------------------------------------------------------------------------------------------------------


def draw(
    filled: FilledTable, records: Iterable[Record], stem: Path, suffixes: Sequence[str] = (".svg", ".png")
) -> list[Path]:
    """Write the figure of a table from the records that fill it; nothing when there are none."""
    if not filled.has_measurements():
        return []
    figure = _bars(filled) if any(h.endswith(NOISY) for h in filled.headings) else _curves(filled, records)
    stem.parent.mkdir(parents=True, exist_ok=True)
    return [save(figure, stem.with_suffix(suffix)) for suffix in suffixes]


def _bars(filled: FilledTable) -> Any:
    """Orig and Dual with clean and with noisy goals, one group per task."""
    lines = [line for line in filled.lines if line.measured()]
    figure = canvas(max(4.0, 2.2 * len(lines) + 1.5), 3.4)
    axes = figure.subplots()
    named: dict[str, Any] = {}
    for i, line in enumerate(lines):
        for j, (heading, cell) in enumerate(line.cells.items()):
            if cell.measured is None:
                continue
            low, high = cell.measured.interval or (cell.measured.mean, cell.measured.mean)
            style: dict[str, Any] = {"color": COLOURS[heading.removesuffix(NOISY)]}
            if heading.endswith(NOISY):
                style |= {"alpha": 0.6, "hatch": "///", "edgecolor": "white", "ecolor": "black"}
            spread = [[max(cell.measured.mean - low, 0)], [max(high - cell.measured.mean, 0)]]
            named[filled.headings[heading]] = axes.bar(
                i + 0.2 * (j - 1.5), cell.measured.mean, 0.19, yerr=spread, capsize=2, **style
            )
    axes.set_xticks(range(len(lines)), [line.name.removesuffix("-v0") for line in lines])
    return _finish(figure, [axes], named)


def _curves(filled: FilledTable, records: Iterable[Record]) -> Any:
    """Success against steps, a panel per task."""
    found = comparison.assign(tables.get(filled.name), records)
    tasks = [line.name for line in filled.lines if line.measured()]
    across = min(PER_ROW, len(tasks))
    down = -(-len(tasks) // across)
    figure = canvas(3.7 * across + 0.3, 2.9 * down + 0.4)
    panels = figure.subplots(down, across, sharey=True, squeeze=False).ravel()
    named: dict[str, Any] = {}
    colours = COLOURS if set(filled.headings) <= set(COLOURS) else dict(zip(filled.headings, PALETTE, strict=False))
    for axes, task in zip(panels, tasks, strict=False):
        for column, title in filled.headings.items():
            if (task, column) in found:
                scores = found[task, column].scores()
                named[title] = _plot(axes, learning_curve(scores.steps, scores.curve()), colours[column])
        axes.set_title(task, fontsize=9)
    for unused in panels[len(tasks) :]:
        unused.set_visible(False)
    figure.supxlabel("gradient steps", fontsize=9)
    in_order = {title: named[title] for title in filled.headings.values() if title in named}
    return _finish(figure, list(panels[: len(tasks)]), in_order)


def canvas(width: float, height: float) -> Any:
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


def save(figure: Any, path: Path) -> Path:
    import matplotlib

    with matplotlib.rc_context({"svg.hashsalt": "dualgoal"}):  # otherwise names inside an SVG differ from run to run
        kind = path.suffix.removeprefix(".")
        with replacing(path) as temporary:
            figure.savefig(temporary, dpi=150, format=kind, metadata={"Date": None} if kind == "svg" else None)
    return path


# Charts of a report, and pictures for a notebook ----------------------------------------------------------------------

INK, GRID = "#20242a", "#e3e0da"
PALETTE = ("#1f5f8b", "#c4622d", "#3f7d4e", "#8a4f9e", "#a0813a", "#2f8c8c", "#b0436b", "#5b626b")
DASHES: tuple[tuple[float, ...], ...] = ((), (4, 2), (1, 1.5), (5, 1.5, 1, 1.5))  # in line widths; () is a solid line


def line_style(number: int) -> tuple[str, tuple[float, ...]]:
    """Colour and dashes of the n-th run of a page; those that share a colour differ in dashes."""
    return PALETTE[number % len(PALETTE)], DASHES[(number + number // len(PALETTE)) % len(DASHES)]


def chart_svg(
    curves: Sequence[tuple[int, Curve]],
    *,
    name: str,
    y_label: str,
    y_range: tuple[float, float] | None = None,
    title: str = "",
    labels: Sequence[str] = (),
) -> str:
    """An SVG of curves over gradient steps, each with the number of its style; with `labels` there is a legend.

    `name` makes the names inside the SVG unique in a page. Text stays text, so that it takes the font of the page. The
    size suits a phone, where a figure drawn larger would have illegible labels.
    """
    import matplotlib

    look: dict[Any, Any] = {"svg.hashsalt": name, "svg.fonttype": "none", "font.size": 8}
    look |= {"axes.edgecolor": GRID, "axes.labelcolor": INK, "xtick.color": INK, "ytick.color": INK, "grid.color": GRID}
    with matplotlib.rc_context(look):
        figure = canvas(4.6, 2.7)
        axes = figure.subplots()
        drawn = []
        for number, curve in curves:
            colour, dashes = line_style(number)
            style = {"linestyle": (0, dashes) if dashes else "-", "linewidth": 1.4, "markersize": 4}
            drawn.append(_plot(axes, curve, colour, **style))
        if labels:
            axes.legend(drawn, labels, frameon=False)
        axes.set_title(title)
        axes.set_xlim(left=0)
        axes.set_ylim(*(y_range or (None, None)))
        axes.grid(axis="y")
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_xlabel("gradient steps")
        axes.set_ylabel(y_label)
        file = io.StringIO()
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    return file.getvalue()


@dataclass(frozen=True)
class Picture:
    """A drawing: a notebook shows it, and `save` writes it as an SVG file."""

    svg: str = field(repr=False)  # many pages in a terminal

    def _repr_svg_(self) -> str:
        return self.svg

    _repr_html_ = _repr_svg_

    def save(self, path: str | Path) -> Path:
        """Write the SVG file."""
        if Path(path).suffix.lower() != ".svg":
            raise UserError(f"{path}: a picture is an SVG file; give a name that ends in .svg")
        write_atomic(Path(path), self.svg.encode())
        return Path(path)


def picture(
    curves: Mapping[str, Curve], *, title: str, y_label: str, y_range: tuple[float, float] | None = None
) -> Picture:
    """Curves over gradient steps, with a legend, for a notebook."""
    drawn = chart_svg(
        list(enumerate(curves.values())), name=title, y_label=y_label, y_range=y_range, title=title, labels=list(curves)
    )
    return Picture(drawn[drawn.index("<svg") :])  # without the header of a separate file

"""The parts of a report as HTML: summary, learning curves, success per task, the paper's tables, configurations, films.

Each takes runs that could be read and returns markup; the page around them is `report.py`. Numbers carry their sort
value in `data-value`, and nothing depends on a script to be read.
"""

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dualgoal.paper import formats, stats, tables
from dualgoal.paper.figures import band
from dualgoal.paper.filled import Filled, Slot
from dualgoal.paper.tables import Number
from dualgoal.report.charts import Line, chart
from dualgoal.report.html import Markup, join, tag
from dualgoal.report.reader import RunView, flat

FILM_LIMIT = 24 << 20  # bytes of video in one page


@dataclass(frozen=True)
class Shown:
    """A run on the page: what was read, its label, the style of its lines, and the paper's number for it."""

    view: RunView
    label: str
    style: int
    paper: Number | None = None


def summary(runs: Sequence[Shown]) -> Markup:
    """One row per run."""
    any_paper = any(run.paper for run in runs)
    heads = ["task", "run", "steps", "seeds", "success", "95 % interval"] + ["paper"] * any_paper
    return table(
        heads, [_summary_row(run, any_paper) for run in runs], caption="Success in percent at the end of each run"
    )


def _summary_row(run: Shown, any_paper: bool) -> list[Markup]:
    values = run.view.scores().per_seed()
    trained = max((int(row["step"]) for row in run.view.metrics), default=0)
    steps = max(run.view.scores().counted(), default=trained)
    cells = [cell(run.view.task), cell(run.label), cell(f"{steps:,}", steps), cell(len(values), len(values))]
    if values.size:
        mean, std = stats.mean_std(values)
        interval = stats.bootstrap([values], stats.mean_of_tasks, np.random.default_rng(0))
        cells += [cell(tag("strong", f"{mean:.0f} ± {std:.0f}"), mean)]
        cells += [
            cell(f"{interval[0]:.0f} to {interval[1]:.0f}" if interval else "one seed", interval[0] if interval else -1)
        ]
    else:
        cells += [cell("not evaluated", -1), cell("", -1)]
    if any_paper:
        cells.append(cell(formats.number(run.paper, "–").replace("±", " ± "), run.paper[0] if run.paper else -1))
    return cells


def cell(content: Any, value: Any = None, **attributes: Any) -> Markup:
    """A table cell; a number to sort by makes it a numeric one."""
    if value is not None:
        attributes |= {"data_value": f"{value:g}" if isinstance(value, int | float) else value}
        attributes["class_"] = f"number {attributes.get('class_', '')}".strip()
    return tag("td", content, **attributes)


def table(heads: Sequence[str], rows: Sequence[Sequence[Markup]], *, caption: str, class_: str = "sortable") -> Markup:
    """A table in a frame that scrolls on its own; sortable ones get buttons from the page's script."""
    numeric = [bool(rows) and "data-value" in rows[0][i] for i in range(len(heads))]
    names = [
        tag("th", name, scope="col", class_="number" if n else None) for name, n in zip(heads, numeric, strict=True)
    ]
    head = tag("thead", tag("tr", names))
    body = tag("tbody", [tag("tr", list(row)) for row in rows])
    frame = {"class_": "frame", "tabindex": 0, "role": "region", "aria_label": caption}
    return tag("div", tag("table", tag("caption", caption), head, body, class_=class_), **frame)


def curves(runs: Sequence[Shown]) -> Markup:
    """Success against steps, a chart per task."""
    charts = []
    for task in dict.fromkeys(run.view.task for run in runs):
        lines = []
        for run in (r for r in runs if r.view.task == task):
            scores = run.view.scores()
            if scores.steps:
                lines.append(Line(run.label, run.style, *band(scores.steps, scores.curve())))
        if lines:
            words = {"x_label": "gradient steps", "y_label": "success, percent", "y_range": (0.0, 100.0)}
            charts.append(chart(lines, title=f"Success on {task}", **words))  # type: ignore[arg-type]
    return tag("div", charts, class_="charts") if charts else tag("p", "No run has been evaluated yet.", class_="quiet")


def per_task(runs: Sequence[Shown]) -> Markup:
    """Mean success on each of a run's goals, as numbers over bars."""
    tasks = sorted({task for run in runs for task in run.view.scores().goals})
    rows = []
    for run in runs:
        scores = run.view.scores()
        means = dict(zip(scores.goals, _mean(scores.per_goal()), strict=True))
        rows.append([cell(run.view.task), cell(run.label), *(_bar(means.get(task)) for task in tasks)])
    heads = ["task", "run", *(f"goal {task}" for task in tasks)]
    return table(heads, rows, caption="Success on each evaluation goal, percent, mean over seeds")


def _mean(values: np.ndarray) -> np.ndarray:
    there = ~np.isnan(values).any(axis=1) if values.size else np.zeros(0, bool)
    return values[there].mean(axis=0) if there.any() else np.full(values.shape[1], np.nan)


def _bar(value: float | None) -> Markup:
    if value is None or np.isnan(value):
        return cell("–", -1)
    bar = tag("span", class_="bar", style=f"--share:{value:.0f}%", aria_hidden="true")
    return cell([bar, f"{value:.0f}"], float(value), class_="barred")


def losses(runs: Sequence[Shown]) -> Markup:
    """Training losses, a small chart per task and loss; lines are means over seeds."""
    charts = []
    for task in dict.fromkeys(run.view.task for run in runs):
        mine = [run for run in runs if run.view.task == task]
        names = sorted({n for run in mine for row in run.view.metrics for n in row if n.endswith("loss")})
        for name in names:
            lines = [line for run in mine if (line := _loss(run, name))]
            if lines:
                charts.append(chart(lines, title=f"{name} on {task}", x_label="gradient steps", y_label=name))
    if not charts:
        return tag("p", "No losses were recorded.", class_="quiet")
    return tag(
        "details", tag("summary", f"{len(charts)} charts of training losses"), tag("div", charts, class_="charts")
    )


def _loss(run: Shown, name: str) -> Line | None:
    found: dict[int, list[float]] = {}
    for row in run.view.metrics:
        if row.get("split", "train") == "train" and isinstance(row.get(name), int | float):
            found.setdefault(int(row["step"]), []).append(float(row[name]))
    steps = sorted(found)[:: max(1, len(found) // 200)]
    return Line(run.label, run.style, np.array(steps), np.array([np.mean(found[s]) for s in steps])) if steps else None


def paper_table(filled: Filled) -> Markup:
    """A table of the paper with ours in it: rows that were run, the average, and the settings under it."""
    lines = [line for line in filled.lines if any(slot.ours for slot in line.slots.values())]
    lines += [filled.average] if filled.average else []
    rows = [[cell(line.name), *(_slot(slot) for slot in line.slots.values())] for line in lines]
    caption = f"{filled.title} ({filled.name}, {filled.label})"
    notes = [tag("li", note) for note in formats.notes(filled) if note not in filled.settings]
    settings = tag("li", "; ".join(filled.settings))
    body = table(["task", *filled.headings.values()], rows, caption=caption)
    return join([body, tag("ul", notes, settings, class_="notes")])


def _slot(slot: Slot) -> Markup:
    paper = tag("small", f"paper {formats.number(slot.paper)}", class_="paper") if slot.paper else None
    if slot.ours is None:
        return cell([tag("span", formats.NOT_RUN, class_="quiet"), tag("br"), paper], -1)
    word = tag("strong" if slot.highlight else "span", formats.number(slot.ours))
    return cell([word, tag("br"), paper], slot.ours.mean)


def claims(lines: Sequence[tuple[str, str, str]]) -> Markup:
    rows = [[cell(claim), cell(paper), cell(ours)] for claim, paper, ours in lines]
    heads = ["claim of the paper", "on the paper's numbers", "on these runs"]
    return table(heads, rows, caption="What the paper says in words", class_="plain")


def configurations(runs: Sequence[Shown]) -> Markup:
    """Everything that was set or recorded, one column per run; rows that differ are marked."""
    columns = [flat({"run": run.view.values or {}} | run.view.facts) for run in runs]
    names = list(dict.fromkeys(name for column in columns for name in column))
    rows, differing = [], 0
    for name in sorted(names, key=lambda n: (not n.startswith("run."), n)):
        words = [_value(column, name) for column in columns]
        differs = len(set(words)) > 1
        differing += differs
        mark = tag("span", "≠", title="differs between runs", class_="mark") if differs else None
        cells = [tag("th", name.removeprefix("run."), " ", mark, scope="row"), *(tag("td", word) for word in words)]
        rows.append(tag("tr", cells, class_="differs" if differs else "same"))
    head = tag("thead", tag("tr", tag("th", "setting", scope="col"), [tag("th", _both(r), scope="col") for r in runs]))
    caption = f"Configuration and provenance; {differing} of {len(rows)} settings differ"
    body = tag("table", tag("caption", caption), head, tag("tbody", rows), class_="settings", id="settings")
    box = tag(
        "label", tag("input", type="checkbox", id="only-differences"), " only what differs", class_="control script"
    )
    return join([box, tag("div", body, class_="frame", tabindex=0, role="region", aria_label=caption)])


def _both(run: Shown) -> Markup:
    return join([run.label, tag("br"), tag("small", run.view.task)])


def _value(column: dict[str, Any], name: str) -> str:
    if name not in column:
        return "–"
    value = column[name]
    return value if isinstance(value, str) else json.dumps(value)


def films(runs: Sequence[Shown], problems: list[str]) -> Markup | None:
    """The last films of each run inside the page; those that would make it too large are named in `problems`."""
    figures, left = [], FILM_LIMIT
    for run in runs:
        newest = max((path.name.split("-seed")[0] for path in run.view.videos), default="")
        for path in (p for p in run.view.videos if p.name.startswith(newest)):
            try:
                content = path.read_bytes()
            except OSError as error:
                problems.append(f"{run.view.path}: {path.name} cannot be read ({error.strerror})")
                continue
            if len(content) > left:
                problems.append(
                    f"{run.view.path}: {path.name} left out, films over {FILM_LIMIT >> 20} MB do not fit a page"
                )
                continue
            left -= len(content)
            figures.append(_film(f"{run.view.task}, {run.label}: {path.stem}", content))
    return tag("div", figures, class_="films") if figures else None


def _film(name: str, content: bytes) -> Markup:
    source = "data:video/mp4;base64," + base64.b64encode(content).decode()
    options: dict[str, Any] = {
        "controls": True,
        "muted": True,
        "loop": True,
        "playsinline": True,
        "preload": "metadata",
    }
    return tag("figure", tag("video", src=source, aria_label=name, **options), tag("figcaption", name))


def paper_number(cells: Sequence[tables.Cell]) -> Number | None:
    """The published number of the first cell that has one."""
    for c in cells:
        if found := tables.paper().get(c.table, {}).get(c.task, {}).get(c.column):
            return found
    return None

"""The sections of a report as HTML: results, learning curves, success per goal, tables, configurations, films.

Each function takes the runs that could be read and returns markup; `page.py` puts them on a page. Numbers carry the
value to sort by in `data-value`. Everything here can be read without JavaScript.
"""

import base64
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dualgoal.errors import UserError, number_of
from dualgoal.files import read_bytes
from dualgoal.paper import formats, pairwise, stats, tables
from dualgoal.paper.figures import Curve, learning_curve
from dualgoal.paper.filled import Cell, FilledTable
from dualgoal.paper.tables import Number, PlannedRun
from dualgoal.report.curves import Named, chart
from dualgoal.report.distances import is_number
from dualgoal.report.html import Markup, join, tag
from dualgoal.report.reader import RunView
from dualgoal.runs import config, directory, measured
from dualgoal.runs.episodes import POSTER
from dualgoal.runs.rows import Scores, success_by_seed

FILM_LIMIT = 24 << 20  # bytes of video in one page
POSTER_LIMIT = 1 << 20  # bytes of a film's first frame
FILM = re.compile(r"(?P<step>step-\d+)-seed-\d+-(goal|task)-\d+(?P<under>.*)")  # what `dualgoal eval` calls one
MAX_POINTS = 200  # of a loss curve


@dataclass(frozen=True)
class Shown:
    """A run on the page: what was read, its label, the number of its line style, and the paper's number for it."""

    view: RunView
    label: str
    style: int
    paper: Number | None = None


def results(runs: Sequence[Shown]) -> Markup:
    """One row per run."""
    any_paper = any(run.paper for run in runs)
    heads = ["run", "success", "95 % interval"] + ["paper"] * any_paper + ["steps", "seeds"]
    rows = [_result_row(run, any_paper) for run in runs]
    words = "Success in percent: mean over goals and up to three last evaluations, ± standard deviation over seeds; "
    shown = table(heads, rows, caption=words + "intervals are Student's, over seeds")
    notes = [tag("li", note) for note in _not_alike(runs)]
    return join([shown, tag("ul", notes, class_="notes")]) if notes else shown


def _not_alike(runs: Sequence[Shown]) -> list[str]:
    """Which runs of a task cannot simply be compared with the first one, and why."""
    out = []
    for first, *others in _by_task(runs).values():
        for run in others:
            before, facts = first.view.facts, run.view.facts
            if before is None or facts is None or first.view.run.task != run.view.run.task:
                continue  # on Lights Out one board is several tasks, each with its own view of the same data
            recorded = directory.Recorded(first.view.run, before), directory.Recorded(run.view.run, facts)
            if otherwise := pairwise.during_training(*recorded):
                out.append(f"{run.label} was evaluated otherwise than {first.label} ({'; '.join(otherwise)}).")
            if pairwise.other_data(before, facts):
                out.append(f"{run.label} was trained on other data than {first.label}.")
    return out


def _result_row(run: Shown, any_paper: bool) -> list[Markup]:
    values = run.view.scores().per_seed()
    trained = max((row["step"] for row in run.view.metrics if is_number(row["step"])), default=0)
    steps = max(run.view.scores().counted(), default=trained)
    cells = [cell(_both(run))]
    if values.size:
        mean, std = stats.mean_std(values)
        interval = stats.success_interval(values)
        without = "needs two seeds" if len(values) == 1 else "all seeds agree"
        spread = f" ± {std:.0f}" if len(values) > 1 else ""
        words = f"{interval[0]:.0f} to {interval[1]:.0f}" if interval else without
        cells.append(cell(tag("strong", f"{mean:.0f}{spread}"), mean))
        cells.append(cell(words, interval[0] if interval else -1))
    else:
        cells += [cell("not evaluated", -1), cell("", -1)]
    if any_paper:
        cells.append(cell(formats.number(run.paper, "–").replace("±", " ± "), run.paper[0] if run.paper else -1))
    seeds = len(values) or len(run.view.run.seeds)
    return [*cells, cell(f"{steps:,}", steps), cell(seeds, seeds)]


def result_sentences(runs: Sequence[Shown]) -> list[str]:
    """For each task, what the runs reach, the best first, and what these numbers are means of."""
    out = []
    for task, mine in _by_task(runs).items():
        found = {run.label: run.view.scores() for run in mine}
        found = {label: scores for label, scores in found.items() if scores.counted()}
        ordered = sorted([(s.per_seed().mean(), label) for label, s in found.items()], key=lambda pair: -pair[0])
        if ordered:
            reached = [f"{label} reaches {mean:.0f} % success" for mean, label in ordered[:1]]
            reached += [f"{label} {mean:.0f} %" for mean, label in ordered[1:]]
            out.append(f"On {task}, {', '.join(reached)} ({_means_of(list(found.values()))}).")
    return out


def _means_of(found: Sequence[Scores]) -> str:
    """Over what the scores of these runs are averaged."""

    def some(what: str, counts: Sequence[int]) -> str:
        return number_of(counts[0], what) if len(set(counts)) == 1 else f"{what}s"

    goals = some("goal", [len(s.goals) for s in found])
    seeds = some("seed", [len(s.per_seed()) for s in found])
    return f"mean over {goals}, {seeds} and the last {some('evaluation', [len(s.counted()) for s in found])}"


def cell(content: Any, value: Any = None, **attributes: Any) -> Markup:
    """A table cell; a number to sort by makes it a numeric one."""
    if value is not None:
        attributes |= {"data_value": f"{value:g}" if isinstance(value, int | float) else value}
        attributes["class_"] = f"number {attributes.get('class_', '')}".strip()
    return tag("td", content, **attributes)


def table(heads: Sequence[str], rows: Sequence[Sequence[Markup]], *, caption: str, class_: str = "sortable") -> Markup:
    """A table in a frame that scrolls sideways; the page's script adds buttons to the headings of sortable ones."""
    numeric = [bool(rows) and "data-value" in rows[0][i] for i in range(len(heads))]
    names = [
        tag("th", name, scope="col", class_="number" if n else None) for name, n in zip(heads, numeric, strict=True)
    ]
    return _framed(caption, names, [tag("tr", list(row)) for row in rows], class_=class_)


def _framed(caption: str, names: Sequence[Markup], rows: Sequence[Markup], **attributes: Any) -> Markup:
    inside = [tag("caption", tag("span", caption)), tag("thead", tag("tr", names)), tag("tbody", rows)]
    inner = tag("table", inside, **attributes)
    return tag("div", inner, class_="frame", tabindex=0, role="region", aria_label=caption)


def _by_task(runs: Sequence[Shown]) -> dict[str, list[Shown]]:
    found: dict[str, list[Shown]] = {}
    for run in runs:
        found.setdefault(run.view.task, []).append(run)
    return found


def curves(runs: Sequence[Shown]) -> Markup:
    """Success against steps, a chart per task."""
    charts: list[Markup] = []
    for task, mine in _by_task(runs).items():
        lines = []
        for run in mine:
            scores = run.view.scores()
            if scores.steps:
                lines.append(Named(run.label, run.style, learning_curve(scores.steps, scores.curve())))
        if lines:
            id, title = f"success-{len(charts)}", f"Success on {task}"
            charts.append(chart(lines, id=id, title=title, y_label="success in percent", y_range=(-2.0, 102.0)))
    if not charts:
        return tag("p", "No run has been evaluated yet.", class_="quiet")
    words = "Mean over seeds; the bands are 95 % bootstrap intervals over seeds."
    return join([tag("p", words, class_="quiet"), tag("div", charts, class_="charts")])


def per_goal(runs: Sequence[Shown]) -> Markup:
    """Mean success on each evaluation goal, as numbers over bars."""
    goals = sorted({goal for run in runs for goal in run.view.scores().goals})
    rows = []
    for run in (r for r in runs if r.view.evaluations):
        scores = run.view.scores()
        means = dict(zip(scores.goals, _mean(scores.per_goal()), strict=True))
        rows.append([cell(_both(run)), *(_bar(means.get(goal)) for goal in goals)])
    heads = ["run", *(f"goal {goal}" for goal in goals)]
    words = "Success on each evaluation goal in percent: mean over seeds and the last evaluations (up to three)"
    return table(heads, rows, caption=words)


def measured_later(runs: Sequence[Shown]) -> Markup:
    """What `dualgoal eval` found, one row per evaluation."""
    rows = []
    for run in runs:
        for (step, conditions), found in measured.evaluations(run.view.measured).items():
            values = np.array(list(success_by_seed(found).values()))
            spread = f" ± {values.std():.0f}" if len(values) > 1 else ""
            episodes = sum(row.episodes for row in found)
            rows.append([
                cell(_both(run)), cell(tag("strong", f"{values.mean():.0f}{spread}"), float(values.mean())),
                cell(f"{episodes:,}", episodes), cell(conditions.words or "as in training"),
                cell(f"{step:,}", step), cell(len(values), len(values)),
            ])  # fmt: skip
    heads = ["run", "success", "episodes", "options of eval", "step", "seeds"]
    return table(heads, rows, caption="Success in percent, as dualgoal eval found it after training")


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
    charts: list[Markup] = []
    for task, mine in _by_task(runs).items():
        names = sorted({n for run in mine for row in run.view.metrics for n in row if n.endswith("loss")})
        for name in names:
            lines = [Named(run.label, run.style, curve) for run in mine if (curve := _loss(run, name))]
            if lines:
                charts.append(chart(lines, id=f"loss-{len(charts)}", title=f"{name} on {task}", y_label="loss"))
    if not charts:
        return tag("p", "No losses were recorded.", class_="quiet")
    words = f"{len(charts)} charts of training losses, means over seeds"
    return tag("details", tag("summary", words), tag("div", charts, class_="charts"))


def _loss(run: Shown, name: str) -> Curve | None:
    found: dict[int, list[float]] = {}
    for row in run.view.metrics:
        if row.get("split", "train") == "train" and is_number(row.get(name)) and is_number(row["step"]):
            found.setdefault(row["step"], []).append(float(row[name]))
    steps = sorted(found)[:: max(1, len(found) // MAX_POINTS)]
    return Curve(np.array(steps), np.array([np.mean(found[s]) for s in steps])) if steps else None


def paper_table(filled: FilledTable) -> Markup:
    """A table of the paper with our numbers: rows that were run, the average, and the settings below."""
    lines = [line for line in filled.lines if line.measured()]
    lines += [filled.average] if filled.average else []
    rows = [[cell(line.name), *(_entry(entry) for entry in line.cells.values())] for line in lines]
    notes = [tag("li", note) for note in formats.notes(filled) if note not in filled.settings]
    settings = tag("li", "; ".join(filled.settings))
    body = table(["task", *filled.headings.values()], rows, caption=f"{filled.title} ({filled.name})")
    return join([body, tag("ul", notes, settings, class_="notes")])


def _entry(entry: Cell) -> Markup:
    paper = tag("small", f"paper {formats.number(entry.paper)}", class_="paper") if entry.paper else None
    if entry.measured is None:
        return cell([tag("span", formats.NOT_RUN, class_="quiet"), tag("br"), paper], -1)
    word = tag("strong" if entry.highlight else "span", formats.number(entry.measured))
    return cell([word, tag("br"), paper], entry.measured.mean)


def claims(lines: Sequence[tuple[str, str, str]]) -> Markup:
    """The paper's claims with the verdicts on its numbers and on ours."""
    rows = [[cell(claim), cell(paper), cell(ours)] for claim, paper, ours in lines]
    heads = ["claim of the paper", "on the paper's numbers", "on these runs"]
    return table(heads, rows, caption="What the paper says in words", class_="plain")


def configurations(runs: Sequence[Shown]) -> Markup:
    """Everything that was set or recorded, one column per run; rows that differ are marked."""
    columns = [config.flat(run.view.config) for run in runs]
    names = list(dict.fromkeys(name for column in columns for name in column))
    rows, differing = [], 0
    for name in sorted(names, key=lambda n: (not n.startswith("run."), n)):
        words = [_value(column, name) for column in columns]
        differs = len(set(words)) > 1
        differing += differs
        mark = tag("span", "≠", title="differs between runs", class_="mark") if differs else None
        cells = [tag("th", name.removeprefix("run."), " ", mark, scope="row"), *(tag("td", word) for word in words)]
        rows.append(tag("tr", cells, class_="differs" if differs else "same"))
    heads = [tag("th", name, scope="col") for name in ("setting", *map(_both, runs))]
    caption = f"Configuration and provenance; {differing} of {len(rows)} settings differ"
    box = tag(
        "label", tag("input", type="checkbox", id="only-differences"), " show only differences", class_="control script"
    )
    return join([box, _framed(caption, heads, rows, class_="settings", id="settings")])


def _both(run: Shown) -> Markup:
    return join([run.label, tag("br"), tag("small", run.view.task)])


def _value(column: dict[str, Any], name: str) -> str:
    if name not in column:
        return "–"
    value = column[name]
    return value if isinstance(value, str) else json.dumps(value)


def films(runs: Sequence[Shown], problems: list[str]) -> Markup | None:
    """The last films of each run under each set of conditions, with which their names end, as part of the page; those
    that would make it too large are named in `problems`."""
    figures, left = [], FILM_LIMIT
    for run in runs:
        parts = {path: FILM.fullmatch(path.stem) for path in run.view.videos()}
        newest = {found["under"]: found["step"] for found in parts.values() if found}  # they are sorted by step
        for path in (p for p, found in parts.items() if found and newest[found["under"]] == found["step"]):
            try:
                if path.lstat().st_size > left:
                    raise UserError(f"a page holds {FILM_LIMIT >> 20} MB of films")
                content = read_bytes(path, left)
            except (OSError, UserError) as error:
                problems.append(f"{run.view.path}: {path.name} left out: {error}")
                continue
            left -= len(content)
            figures.append(_film(f"{run.view.task}, {run.label}: {path.stem}", content, _poster(path)))
    return tag("div", figures, class_="films") if figures else None


def _poster(film: Path) -> str | None:
    """The first frame, which is written next to a film."""
    try:
        return _inside("image/jpeg", read_bytes(film.with_suffix(POSTER), POSTER_LIMIT))
    except (OSError, UserError):
        return None


def _inside(kind: str, content: bytes) -> str:
    """A file as part of the page."""
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def _film(name: str, content: bytes, poster: str | None) -> Markup:
    looks = {"controls": True, "muted": True, "loop": True, "playsinline": True, "preload": "metadata"}
    film = tag("video", src=_inside("video/mp4", content), poster=poster, aria_label=name, **looks)
    return tag("figure", film, tag("figcaption", name))


def paper_number(cells: Sequence[PlannedRun]) -> Number | None:
    """The published number of the first cell that has one."""
    for planned in cells:
        if found := tables.paper().get(planned.table, {}).get(planned.task, {}).get(planned.column):
            return found
    return None

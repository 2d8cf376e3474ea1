"""One self-contained HTML file about any number of runs: tables, curves, distances, films, configurations.

The file needs no network and no library: styles, script, pictures and data are inside, and its content security policy
forbids it to load anything else. Whatever is missing or damaged in a run directory is listed at the top of the page;
the rest is shown.
"""

import shlex
from collections.abc import Sequence
from importlib import metadata, resources
from pathlib import Path
from typing import Any

from dualgoal.errors import UserError
from dualgoal.files import write_atomic
from dualgoal.paper import claims, comparison, jobs, results_page, row_files, tables
from dualgoal.report import distances, reader, sections
from dualgoal.report.html import Markup, data, join, tag
from dualgoal.report.reader import RunView
from dualgoal.report.sections import Shown

MAX_EXPLORERS = 6
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; media-src data:"


def write_report(
    runs: Sequence[str | Path],
    out: str | Path = "report.html",
    *,
    data_path: str | Path | None = None,
    title: str = "dualgoal report",
    explore: bool = True,
) -> Path:
    """Write the page for these run directories (or folders of them) to `out`.

    The distance explorer takes its states from `data_path` where the dataset that a run names is not there any more.
    """
    if not runs:
        raise UserError("no run to report on; give one or more run directories")
    command = ["dualgoal", "report", *map(str, runs), "--out", str(out)]
    command += [] if data_path is None else ["--data", str(data_path)]
    paths = _expand(runs)
    if not any((path / "config.json").exists() for path in paths):
        raise UserError(f"{paths[0]}: not a run directory (no config.json), nor a folder with one; give a run's --out")
    page = build(paths, title=title, command=shlex.join(command), data_path=data_path, explore=explore)
    target = Path(out)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{target.parent}: cannot hold the report ({error.strerror}); choose another --out") from error
    write_atomic(target, page.encode())
    return target


def _expand(runs: Sequence[str | Path]) -> list[Path]:
    """Every run directory, where folders that hold run directories stand for all of them."""
    out: list[Path] = []
    for run in map(Path, runs):
        inside = sorted(p.parent for p in run.rglob("config.json")) if run.is_dir() else []
        out += [run] if (run / "config.json").exists() or not inside else inside
    return list(dict.fromkeys(out))


def build(
    paths: Sequence[Path],
    *,
    title: str,
    command: str | None = None,
    data_path: str | Path | None = None,
    explore: bool = True,
) -> str:
    """The page about these run directories as text."""
    looked_at = {path: reader.read(path) for path in paths}
    problems = [f"{path}: {problem}" for path, (_, found) in looked_at.items() for problem in found]
    views = [view for view, _ in looked_at.values() if view]
    records: list[row_files.Record] = []
    runs = []
    styles: dict[str, int] = {}
    for view, label in zip(views, reader.labels(views), strict=True):
        cells = _cells(view, problems)
        records += [record for _, record in cells]
        style = styles.setdefault(label, len(styles))
        runs.append(Shown(view, label, style, sections.paper_number([planned for planned, _ in cells])))
    explorers = _explorers(runs, data_path, problems) if explore else []
    parts = _parts(runs, records, explorers, sections.films(runs, problems))
    return _page(title, _lead(runs, command), parts, problems, [table for _, table in explorers])


def _cells(view: RunView, problems: list[str]) -> list[tuple[tables.PlannedRun, row_files.Record]]:
    """The paper's cells that a run fills, with its rows; none for runs of one's own."""
    try:
        planned = results_page.cells_of(view.path)
        found = [(cell, jobs.read_record(view.path, cell)) for cell in planned]
    except UserError as error:
        problems.append(f"{view.path}: not compared with the paper: {error}")
        return []
    return [(cell, record) for cell, record in found if record]


Explorer = tuple[Shown, dict[str, Any]]


def _explorers(runs: Sequence[Shown], data_path: str | Path | None, problems: list[str]) -> list[Explorer]:
    """Distance tables, of dual representations first. Only for these a missing table is a problem worth a line."""
    out: list[Explorer] = []
    for dual in (True, False):
        for run in (r for r in runs if (r.view.part("rep") == "dual") == dual):
            found = _distances(run, data_path) if len(out) < MAX_EXPLORERS else f"a page holds at most {MAX_EXPLORERS}"
            if isinstance(found, dict):
                out.append((run, found))
            elif dual:
                problems.append(f"{run.view.path}: no distance explorer: {found}")
    return out


def _distances(run: Shown, data_path: str | Path | None) -> dict[str, Any] | str:
    """The run's table of distances, or the reason why there is none."""
    path = run.view.path
    if (table := distances.kept(path)) is not None:
        return table
    try:
        return distances.explore(path, data=data_path)
    except UserError as error:
        return str(error).removeprefix(f"{path}: ")


def _parts(
    runs: Sequence[Shown], found: Sequence[row_files.Record], explorers: Sequence[Explorer], films: Markup | None
) -> list[tuple[str, str, Markup]]:
    """(anchor, heading, content) of every section that has something to show."""
    if not runs:
        return []
    parts = [("results", "Results", sections.results(runs)), ("curves", "Learning curves", sections.curves(runs))]
    if explorers:
        shown = [_explorer(i, run, table) for i, (run, table) in enumerate(explorers)]
        parts.append(("distances", "Learned distances", join([_how(), shown])))
    if any(run.view.evaluations for run in runs):
        parts.append(("goals", "Success per goal", sections.per_goal(runs)))
    if any(run.view.measured for run in runs):
        parts.append(("measured", "Evaluated again", sections.measured_later(runs)))
    filled = [comparison.fill_table(name, found) for name in tables.TABLES if name in {r.table for r in found}]
    filled = [table for table in filled if table.has_measurements()]
    if filled:
        judged = [line for line in claims.lines(found) if line[2] != "not run"]
        inside = [[sections.paper_table(f) for f in filled], sections.claims(judged) if judged else None]
        parts.append(("paper", "Compared with the paper", join(inside)))
    if films:
        parts.append(("films", "Films", films))
    parts.append(("losses", "Losses", sections.losses(runs)))
    parts.append(("settings-part", "Configuration and provenance", sections.configurations(runs)))
    return parts


def _how() -> Markup:
    return tag(
        "p",
        "Choose a goal by pointing at a place, with the slider or with the arrow keys. The colour of every sampled "
        "state is its learned temporal distance to that goal: the number of steps that the run estimates it takes. All "
        "these distances together are the goal's dual representation.",
    )


def _explorer(index: int, run: Shown, table: dict[str, Any]) -> Markup:
    """An empty section that the script fills from the data at the end of the page."""
    placed = (
        "" if table["kind"] == "maze" else " States are placed by their distances to the goals (principal components)."
    )
    words = f"seed {table['seed']}, step {table['step']:,}, {len(table['points'])} states, {len(table['goals'])} goals."
    fallback = tag(
        "p", "The distance explorer needs JavaScript; everything else on this page does not.", class_="noscript"
    )
    inside = [tag("h3", f"{run.view.task}: {run.label}"), tag("p", words + placed, class_="quiet"), fallback]
    return tag("section", inside, class_="explorer", id=f"explorer-{index}", data_index=index)


def _lead(runs: Sequence[Shown], command: str | None) -> Markup:
    """What was run, what came out, when, and how this page was made."""
    made = tag("p", "Made by ", tag("code", command), class_="quiet") if command else None
    if not runs:
        return join([tag("p", "No run could be read.", class_="lead"), made])
    tasks = len({run.view.task for run in runs})
    last = max(run.view.last_change() for run in runs)
    counts = f"{len(runs)} run{'s' * (len(runs) != 1)} on {tasks} task{'s' * (tasks != 1)}, last changed on {last}."
    sentences = [tag("p", words, class_="result") for words in sections.result_sentences(runs)]
    return join([tag("p", counts, class_="lead"), sentences, made])


def _page(
    title: str,
    lead: Markup,
    parts: Sequence[tuple[str, str, Markup]],
    problems: Sequence[str],
    explorers: Sequence[Any],
) -> str:
    navigation = tag("nav", [tag("a", name, href=f"#{anchor}") for anchor, name, _ in parts], aria_label="Sections")
    warnings = None
    if problems:
        listed = tag("ul", [tag("li", problem) for problem in problems])
        label = "What was left out and why"
        warnings = tag("aside", tag("h2", "Left out"), listed, class_="problems", aria_label=label)
    body = [
        tag("header", tag("h1", title), lead, navigation if parts else None),
        tag("main", warnings, [tag("section", tag("h2", name), part, id=anchor) for anchor, name, part in parts]),
        tag("footer", tag("p", f"Made by dualgoal {metadata.version('dualgoal')}. This file needs no other file.")),
        data(list(explorers), id="explorer-data"),
        tag("script", asset("report.js")),
    ]
    head = [
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name_="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name_="color-scheme", content="light dark"),
        tag("title", title),
        tag("style", asset("report.css")),
    ]
    return "<!doctype html>\n" + tag("html", tag("head", head), tag("body", body), lang="en") + "\n"


def asset(name: str) -> Markup:
    """A file of this package that is copied into the page as it is."""
    return Markup(resources.files("dualgoal.report").joinpath(name).read_text(encoding="utf-8"))

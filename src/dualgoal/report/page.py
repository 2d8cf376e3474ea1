"""One self-contained HTML file about any number of runs: tables, curves, distances, films, configurations.

No network, no library: styles, script, pictures and data are inside, and the page forbids itself to load anything
else. Whatever a run directory lacks is named at the top of the page instead of stopping it.
"""

from collections.abc import Sequence
from importlib import metadata, resources
from pathlib import Path
from typing import Any

from dualgoal.errors import UserError
from dualgoal.files import write_atomic
from dualgoal.paper import claims, reproduce, row_files, tables
from dualgoal.paper import filled as compare
from dualgoal.paper import page as results
from dualgoal.report import distances, reader, sections
from dualgoal.report.html import Markup, data, join, tag
from dualgoal.report.reader import RunView
from dualgoal.report.sections import Shown

MAX_EXPLORERS = 6
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; media-src data:"


def report(
    runs: Sequence[str | Path],
    out: str | Path = "report.html",
    *,
    data_path: str | Path | None = None,
    title: str = "dualgoal report",
    explore: bool = True,
) -> Path:
    """Write the page for these run directories (or folders of them) to `out`.

    `data_path` is where the distance explorer finds states if the dataset a run names is not there any more.
    """
    if not runs:
        raise UserError("no run to report on; give one or more run directories")
    views = [reader.read(path) for path in _expand(runs)]
    page = build(views, title=title, data_path=data_path, explore=explore)
    target = Path(out)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{target.parent}: cannot hold the report ({error.strerror}); choose another --out") from error
    write_atomic(target, page.encode())
    return target


def _expand(runs: Sequence[str | Path]) -> list[Path]:
    """Folders that hold run directories stand for all of them."""
    out: list[Path] = []
    for run in map(Path, runs):
        inside = sorted(p.parent for p in run.rglob("config.json")) if run.is_dir() else []
        out += [run] if (run / "config.json").exists() or not inside else inside
    return list(dict.fromkeys(out))


def build(views: Sequence[RunView], *, title: str, data_path: str | Path | None = None, explore: bool = True) -> str:
    """The page as text."""
    usable = [view for view in views if view.values is not None]
    problems = [f"{view.path}: {problem}" for view in views for problem in view.problems]
    labels = reader.labels(usable)
    styles = {label: i for i, label in enumerate(dict.fromkeys(labels))}
    cells = [_cells(view) for view in usable]
    runs = [
        Shown(view, label, styles[label], sections.paper_number(mine))
        for view, label, mine in zip(usable, labels, cells, strict=True)
    ]
    found = [r for view, mine in zip(usable, cells, strict=True) for cell in mine if (r := _record(cell, view.path))]
    explorers = _explorers(runs, data_path, problems) if explore else []
    films = sections.films(runs, problems)
    parts = _parts(runs, found, explorers, films)
    return _page(title, _lead(runs), parts, problems, [table for _, table in explorers])


def _cells(view: RunView) -> list[tables.Cell]:
    """The paper's cells that a run fills; none for runs of one's own."""
    try:
        return results.cells_of(view.path)
    except (UserError, KeyError, TypeError, ValueError, AttributeError):
        return []


def _record(cell: tables.Cell, path: Path) -> row_files.Record | None:
    try:
        return reproduce.record(reproduce.Job(cell, path, ""))
    except (UserError, KeyError, TypeError, ValueError):
        return None


Explorer = tuple[Shown, dict[str, Any]]


def _explorers(runs: Sequence[Shown], data_path: str | Path | None, problems: list[str]) -> list[Explorer]:
    """Distance tables, dual representations first. A dual run without one is a gap; for the others it is a bonus."""
    out: list[Explorer] = []
    for dual in (True, False):
        for run in (r for r in runs if (r.view.part("rep") == "dual") == dual):
            found = _distances(run, data_path) if len(out) < MAX_EXPLORERS else f"a page holds {MAX_EXPLORERS}"
            if isinstance(found, dict):
                out.append((run, found))
            elif dual:
                problems.append(f"{run.view.path}: no distance explorer: {found}")
    return out


def _distances(run: Shown, data_path: str | Path | None) -> dict[str, Any] | str:
    """The run's table of distances, or why there is none."""
    path = run.view.path
    if (table := distances.kept(path)) is not None:
        return table
    try:
        return distances.explore(path, data=data_path)
    except UserError as error:
        return str(error).removeprefix(f"{path}: ")
    except Exception as error:  # a foreign directory may break anything; the page is still worth having
        return f"{type(error).__name__}: {error}"


def _parts(
    runs: Sequence[Shown], found: Sequence[row_files.Record], explorers: Sequence[Explorer], films: Markup | None
) -> list[tuple[str, str, Markup]]:
    """(anchor, heading, content) of every section that has something to show."""
    if not runs:
        return []
    parts = [
        ("results", "Results", sections.summary(runs)),
        ("curves", "Learning curves", sections.curves(runs)),
    ]
    if explorers:
        shown = [_explorer(i, run, table) for i, (run, table) in enumerate(explorers)]
        parts.append(("distances", "What the runs think is far", join([_how(), shown])))
    if any(run.view.scores().goals for run in runs):
        parts.append(("goals", "Success per goal", sections.per_task(runs)))
    own = {record.table for record in found}
    filled = [compare.fill(name, found) for name in tables.TABLES if name in own]
    filled = [f for f in filled if f.has_ours()]
    if filled:
        judged = [line for line in claims.lines(found) if line[2] != "not run"]
        inside = [[sections.paper_table(f) for f in filled], sections.claims(judged) if judged else None]
        parts.append(("paper", "Beside the paper", join(inside)))
    if films:
        parts.append(("films", "Films", films))
    parts.append(("losses", "Losses", sections.losses(runs)))
    parts.append(("settings-part", "Configuration and provenance", sections.configurations(runs)))
    return parts


def _how() -> Markup:
    return tag(
        "p",
        "Point at a place, or use the slider or the arrow keys, to choose a goal: every sampled state takes the colour "
        "of its learned temporal distance to that goal, the number of steps the run thinks it takes to get there. All "
        "those distances together are the goal's dual representation.",
    )


def _explorer(index: int, run: Shown, table: dict[str, Any]) -> Markup:
    """An empty frame that the script fills from the data at the end of the page."""
    placed = (
        "" if table["kind"] == "maze" else " States are placed by their distances to the goals (principal components)."
    )
    words = f"seed {table['seed']}, step {table['step']:,}, {len(table['points'])} states, {len(table['goals'])} goals."
    fallback = tag(
        "p", "The distance explorer needs JavaScript; everything else on this page does not.", class_="noscript"
    )
    inside = [tag("h3", f"{run.view.task}: {run.label}"), tag("p", words + placed, class_="quiet"), fallback]
    return tag("section", inside, class_="explorer", id=f"explorer-{index}", data_index=index)


def _lead(runs: Sequence[Shown]) -> str:
    tasks = len({run.view.task for run in runs})
    if not runs:
        return "No run could be read."
    return f"{len(runs)} run{'s' * (len(runs) != 1)} on {tasks} task{'s' * (tasks != 1)}."


def _page(
    title: str, lead: str, parts: Sequence[tuple[str, str, Markup]], problems: Sequence[str], explorers: Sequence[Any]
) -> str:
    navigation = tag("nav", [tag("a", name, href=f"#{anchor}") for anchor, name, _ in parts], aria_label="Sections")
    warnings = None
    if problems:
        said = tag("ul", [tag("li", problem) for problem in problems])
        warnings = tag("aside", tag("h2", "Left out"), said, class_="problems", aria_label="What was left out and why")
    body = [
        tag("header", tag("h1", title), tag("p", lead, class_="lead"), navigation if parts else None),
        tag("main", warnings, [tag("section", tag("h2", name), part, id=anchor) for anchor, name, part in parts]),
        tag("footer", tag("p", f"Made by dualgoal {metadata.version('dualgoal')}. This file is complete in itself.")),
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
    """A file of this package that goes into the page as it is."""
    return Markup(resources.files("dualgoal.report").joinpath(name).read_text(encoding="utf-8"))

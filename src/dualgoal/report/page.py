"""One self-contained HTML file about any number of runs: tables, curves, distances, films, configurations.

The file needs no network and no library: styles, script, pictures and data are inside, and its content security policy
forbids it to load anything else. Whatever is missing or damaged in a run directory is listed at the top of the page;
the rest is shown.
"""

import dataclasses
import shlex
import sys
from collections.abc import Sequence
from importlib import metadata, resources
from pathlib import Path
from typing import Any

from dualgoal.errors import UserError, number_of, printable
from dualgoal.files import make_folder, write_atomic
from dualgoal.paper import claims, comparison, jobs, results_page, row_files, tables
from dualgoal.report import distances, reader, sections
from dualgoal.report.distances import ExplorerTable
from dualgoal.report.html import Markup, data, join, tag
from dualgoal.report.reader import RunView
from dualgoal.report.sections import Shown
from dualgoal.runs import directory, overview

MAX_EXPLORERS = 6
SCRIPTS = ("report.js", "explorer.js", "boards.js")
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; media-src data:"
HOW_TO_PLAY = (
    "Make the left board equal to the right one: a press flips a light and its neighbours. The distance is exact, by "
    "linear algebra. Each run is an agent that was trained on random presses; its network is in this page and says "
    "what it would press on the board as it is."
)
HOW_TO_EXPLORE = (
    "Choose a goal by pointing at a place, with the slider, or with the arrow or page keys; a ring marks it. The "
    "colour of every sampled state is its learned temporal distance to that goal: the number of steps that the run "
    "estimates it takes. All these distances together are the dual representation of the goal; a run with Dual learns "
    "a vector that stands for them, other runs learn distances beside their own representation. Colours mean the same "
    "for all goals of a map. Where states can be drawn, pictures beside the map show the goal, and which states the "
    "run takes to be nearest to it and which farthest from it. Where a path is drawn, squares are the starts: click on "
    "one and then on a goal to see where the policy walks. These starts and goals are spread over the maze, others "
    "than those of the evaluations, and the newest checkpoint alone walks; so the share of goals that it reaches is "
    "not the success of the evaluations."
)


def write_report(
    runs: Sequence[str | Path],
    out: str | Path = "report.html",
    *,
    data_path: str | Path | None = None,
    title: str = "dualgoal report",
    command: str | None = None,
    notes: Sequence[str] = (),
) -> Path:
    """Write the page for these run directories (or folders of them) to `out`.

    The distance explorer takes its states from `data_path`, by default from the dataset that a run names.
    `command` is what made the page if that was not `dualgoal report`; `notes` are further sentences for its top. What
    had to be left out is reported at the top of the page and on the standard error.
    """
    if not runs:
        raise UserError("no run to report on; give one or more run directories")
    words = ["dualgoal", "report", *map(str, runs), "--out", str(out)]
    words += [] if data_path is None else ["--data", str(data_path)]
    command = command or shlex.join(words)
    paths = _expand(runs)
    if not any(map(directory.is_run, paths)):
        raise UserError(f"{paths[0]}: not a run directory (no config.json), nor a folder with one; give a run's --out")
    problems: list[str] = []
    page = build(paths, title=title, command=command, data_path=data_path, notes=notes, problems=problems)
    target = Path(out)
    make_folder(target.parent)
    write_atomic(target, page.encode())
    for line in problems:
        print(f"left out of {target}: {printable(line)}", file=sys.stderr)
    return target


def _expand(runs: Sequence[str | Path]) -> list[Path]:
    """Every run directory, where folders that hold run directories stand for all of them."""
    out: list[Path] = []
    for run in map(Path, runs):
        inside = filter(directory.is_run, overview.find(run)) if run.is_dir() else ()
        out += [*inside] or [run]
    return list(dict.fromkeys(out))


def build(
    paths: Sequence[Path],
    *,
    title: str,
    command: str | None = None,
    data_path: str | Path | None = None,
    notes: Sequence[str] = (),
    problems: list[str] | None = None,
) -> str:
    """The page about these run directories as text; what was left out is added to `problems`."""
    problems = [] if problems is None else problems
    records: list[row_files.Record] = []
    runs = []
    for run in _shown(paths, problems):
        cells = _cells(run.view, problems)
        records += [record for _, record in cells]
        runs.append(dataclasses.replace(run, paper=sections.paper_number([planned for planned, _ in cells])))
    explorers = _explorers(runs, data_path, problems)
    games = _games(runs, problems)
    parts = _parts(runs, records, games, explorers, sections.films(runs, problems))
    shown = {"explorers": [dataclasses.asdict(table) for _, table in explorers], "games": games}
    return _page(title, _lead(runs, explorers, command, notes), parts, problems, shown)


def _shown(paths: Sequence[Path], problems: list[str]) -> list[Shown]:
    """The runs that can be read, with labels and line styles."""
    looked_at = {path: reader.read(path) for path in paths}
    problems += [f"{path}: {problem}" for path, (_, found) in looked_at.items() for problem in found]
    views = [view for view, _ in looked_at.values() if view]
    styles: dict[str, int] = {}
    names = zip(views, reader.labels(views), strict=True)
    return [Shown(view, label, styles.setdefault(label, len(styles))) for view, label in names]


def sentences(paths: Sequence[Path]) -> list[str]:
    """The results of these runs in sentences, as at the top of their report; distances only from saved tables."""
    runs = _shown(paths, [])
    return _sentences(runs, [(run, table) for run in runs if (table := distances.kept(run.view.path)) is not None])


def _sentences(runs: Sequence[Shown], explorers: "Sequence[Explorer]") -> list[str]:
    about = [distances.sentence(table, run.view.task, run.label) for run, table in explorers]
    return [*sections.result_sentences(runs), *filter(None, about)]


def _cells(view: RunView, problems: list[str]) -> list[tuple[tables.PlannedRun, row_files.Record]]:
    """The paper's cells that a run fills, with its rows; none for a user's own runs."""
    try:
        planned = results_page.cells_of(view.path)
        found = [(cell, jobs.read_record(view.path, cell)) for cell in planned]
    except UserError as error:
        problems.append(f"{view.path}: not compared with the paper: {error}")
        return []
    return [(cell, record) for cell, record in found if record]


Explorer = tuple[Shown, ExplorerTable]


def _explorers(runs: Sequence[Shown], data_path: str | Path | None, problems: list[str]) -> list[Explorer]:
    """Distance tables, dual representations first. A missing table is reported for these only, unless the requested
    data cannot be used or the page is full."""
    out: list[Explorer] = []
    for dual in (True, False):
        for run in (r for r in runs if r.view.part("rep").startswith("dual") == dual):
            full = UserError(f"a page holds at most {MAX_EXPLORERS}")
            found = _distances(run, data_path) if len(out) < MAX_EXPLORERS else full
            if isinstance(found, ExplorerTable):
                out.append((run, found))
            elif dual or (found is full and run.view.board_view() is None) or isinstance(found, distances.UnusableData):
                why = str(found).removeprefix(f"{run.view.path}: ")
                problems.append(f"{run.view.path}: no distance explorer: {why}")
    return out


def _distances(run: Shown, data_path: str | Path | None) -> ExplorerTable | UserError:
    """The run's table of distances, or the reason why there is none."""
    path = run.view.path
    if (table := distances.kept(path)) is not None:
        return table
    try:
        return distances.explore(path, data=data_path)
    except UserError as error:
        return error


def _games(runs: Sequence[Shown], problems: list[str]) -> list[dict[str, Any]]:
    views = [(run, view) for run in runs if (view := run.view.board_view()) is not None]
    if not views:
        return []
    from dualgoal.report import boards

    return boards.games(views, problems)


def _parts(
    runs: Sequence[Shown],
    found: Sequence[row_files.Record],
    games: Sequence[dict[str, Any]],
    explorers: Sequence[Explorer],
    films: Markup | None,
) -> list[tuple[str, str, Markup]]:
    """(anchor, heading, content) of every section that has something to show."""
    if not runs:
        return []
    parts = [("results", "Results", sections.results(runs)), ("curves", "Learning curves", sections.curves(runs))]
    if games:
        shown = [
            tag("section", tag("h3", game["task"]), _needs_script("The game"), class_="game", data_index=i)
            for i, game in enumerate(games)
        ]
        parts.append(("games", "Play Lights Out", join([tag("p", HOW_TO_PLAY), shown])))
    if explorers:
        shown = [_explorer(i, run, table) for i, (run, table) in enumerate(explorers)]
        parts.append(("distances", "Learned distances", join([tag("p", HOW_TO_EXPLORE), shown])))
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


def _needs_script(what: str) -> Markup:
    return tag("p", f"{what} needs JavaScript; the tables and charts of this page do not.", class_="noscript")


def _explorer(index: int, run: Shown, table: ExplorerTable) -> Markup:
    """An empty section that the script fills from the data at the end of the page."""
    words = f"seed {table.seed}, step {table.step:,}, {len(table.points)} states, {len(table.goals)} goals."
    words += distances.PLACED[table.kind]
    if table.pictures:
        words += f" {len(table.pictures.states)} of the states have pictures, the goals among them."
    inside = [tag("h3", f"{run.view.task}: {run.label}"), tag("p", words, class_="quiet")]
    inside.append(_needs_script("The distance explorer"))
    return tag("section", inside, class_="explorer", id=f"explorer-{index}", data_index=index)


def _lead(runs: Sequence[Shown], explorers: Sequence[Explorer], command: str | None, notes: Sequence[str]) -> Markup:
    """What was run, what came out, when, and how this page was made."""
    made = tag("p", with_command("Made by", command), class_="quiet") if command else None
    if not runs:
        return join([tag("p", "No run could be read.", class_="lead"), made])
    tasks = len({run.view.task for run in runs})
    last = max(run.view.last_change() for run in runs)
    counts = f"{number_of(len(runs), 'run')} on {number_of(tasks, 'task')}, last changed on {last}."
    words = [*_sentences(runs, explorers), *notes]
    kept = lambda line: line if isinstance(line, Markup) else line.replace(" %", "\N{NO-BREAK SPACE}%")
    found = [tag("p", kept(line), class_="result") for line in words]
    return join([tag("p", counts, class_="lead"), found, made])


def with_command(words: str, command: str) -> Markup:
    """Words and a command, which a browser breaks between its words only: each is a box (report.css)."""
    first, *rest = (tag("span", word) for word in command.split(" "))
    return join([words, " ", tag("code", first, [[" ", word] for word in rest])])


def _page(
    title: str,
    lead: Markup,
    parts: Sequence[tuple[str, str, Markup]],
    problems: Sequence[str],
    shown: dict[str, Any],
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
        data(shown, id="page-data"),
        tag("script", [asset(name) for name in SCRIPTS]),
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

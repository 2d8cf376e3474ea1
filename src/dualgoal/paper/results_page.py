"""docs/results.md, built from committed row files: every number can be traced to its rows, nothing is typed by hand.

`collect` turns run directories into row files under results/; `build` turns those, and the paragraphs in
results/text/TABLE.md, into the page. Building twice gives the same bytes.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from dualgoal import texts
from dualgoal.errors import UserError, number_of
from dualgoal.files import read_bytes, write_atomic
from dualgoal.paper import (
    claims,
    comparison,
    cost_table,
    costs,
    effects,
    elsewhere,
    families,
    figures,
    formats,
    jobs,
    row_files,
    tables,
)
from dualgoal.paper.costs import Cost
from dualgoal.paper.filled import FilledTable
from dualgoal.paper.row_files import Record
from dualgoal.paper.tables import PlannedRun
from dualgoal.runs import directory, overview

# Settings that a run may change and still fill a cell of a table; those that matter are printed with the number.
MAY_DIFFER = ("seeds", "steps", "episodes", "eval_every", "save_every", "log_every", "precision", "deterministic")

TEXT_LIMIT = 1 << 20  # bytes of one of its paragraphs
FIGURES = "figures"  # folder next to the page

INTRO = """# Results

Built by `dualgoal results` from the row files under `results/`; do not edit by hand. Success in percent, mean ±
standard deviation over seeds of the mean of the last three evaluations; in brackets Student's 95 % interval over
seeds, which is wide where there are two and missing where they agree; then training steps x seeds, then the paper's
number. Bold: at least 95 % of the row's best. Intervals of averages, IQM and probabilities are bootstrapped over seeds,
and so are the bands in the figures: with two seeds these are too narrow.
"""

EFFECTS = f"""![Dual minus Orig on each task, here and in the paper]({FIGURES}/effects.svg)

*Dual minus Orig in points of success, with Welch's 95 % intervals over seeds; an arrow means that the interval goes on.
The paper's intervals are computed from its means and standard deviations. Lights Out has no published numbers.*
"""

COST = """Minutes. GPU: from compiling to the last step; where runs shared one GPU, each second is divided among them.
Evaluation and data: CPU time of all their processes together; divide by the number of cores for the time by the clock.
Rows from before these times were recorded say so. The sum has a dataset that several rows share once, and once more for
every time that it was made again (the same hash, but another time). Below the table, what whole tables would take one
GPU at these rates; [how long the tables take](cluster.md#how-long-the-tables-take) estimates all from the rates of
`dualgoal bench`.
"""


def write_page(
    folder: str | Path = "results",
    out: str | Path = "docs/results.md",
    runs: Sequence[str | Path] = (),
    say: Callable[[str], None] = print,
    *,
    shared_device: bool = False,
) -> Path:
    """Collect row files from `runs` (if any), then write the page with its figures; returns its path."""
    collect(runs, folder, say, shared_device=shared_device)
    out = Path(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    found = row_files.load_all(Path(folder), say)
    write_atomic(out, build(folder, found).encode())
    for name in {record.table for record in found}:
        figures.draw(comparison.fill_table(name, found), found, out.parent / FIGURES / name, suffixes=(".svg",))
    if differences := effects.find(found):
        effects.draw(differences, out.parent / FIGURES / "effects.svg")
    return out


def collect(
    runs: str | Path | Sequence[str | Path],
    into: str | Path,
    say: Callable[[str], None] = print,
    *,
    shared_device: bool = False,
) -> list[Path]:
    """Write a row file for every run in a folder, or in several, that fills a cell of a table, finished or not, of any
    length and with any seeds; returns the row files of these cells.

    A run that fills none, or cannot be read, is reported and left out. Of several runs of one cell and length, and the
    row file that is there, the one with the largest `_extent` is kept and the others are reported. With
    `shared_device`, each run is charged its part of the time in which several of them used one device.
    """
    kept: dict[Path, Record] = {}  # by the row file
    paths = _find([runs] if isinstance(runs, str | Path) else runs)
    spent = costs.of_runs(paths, shared_device)
    for path in paths:
        for record in _read(path, spent.get(path), say):
            target = row_files.path_of(record, Path(into))
            kept[target] = _better(kept[target], record, say) if target in kept else record
    for target, record in kept.items():
        if _may_replace(target, record, say):
            row_files.save(record, Path(into))
    return list(kept)


def _find(folders: Iterable[str | Path]) -> list[Path]:
    """The run directories in these folders, each once, also if a folder holds another one of them."""
    found: dict[Path, Path] = {}
    for path in (path for folder in folders for path in overview.find(folder)):
        if directory.is_run(path):
            found.setdefault(path.resolve(), path)
    return list(found.values())


def _read(path: Path, cost: Cost | None, say: Callable[[str], None]) -> list[Record]:
    """The records of a run, one for each cell that it fills; without one, `say` gets the reason."""
    try:
        found = [record for planned in cells_of(path) if (record := jobs.read_record(path, planned))]
    except UserError as error:
        say(f"{path}: left out: {error}")
        return []
    evaluated = [record for record in found if record.done]
    if not evaluated:
        say(f"{path}: left out: " + ("no evaluation yet" if found else "not a run of the paper's tables"))
    if cost is None:
        return evaluated
    return [  # the noisy goals of the same run did not add to its cost
        record if tables.get(record.table).noise else replace(record, cost=replace(cost, data=record.cost.data))
        for record in evaluated
    ]


def _extent(record: Record) -> tuple[int, int, int]:
    """What decides which record of a cell is kept: its last evaluation, then its seeds, then its episodes per goal."""
    return record.done, len(record.seeds), record.episodes


def _better(first: Record, second: Record, say: Callable[[str], None]) -> Record:
    """The one of two collected runs with the larger extent, or the first; the other one is named."""
    kept, other = (second, first) if _extent(second) > _extent(first) else (first, second)
    say(f"{other.source}: left out: {kept.source} fills the same cell of {kept.table} and {_lead(kept, other)}")
    return kept


def _may_replace(target: Path, record: Record, say: Callable[[str], None]) -> bool:
    """Whether a collected run is to be written over the row file that is there. An unreadable row file is replaced, and
    so is one of equal extent, which is older. What is left out is reported, unless it is an earlier state of this
    run."""
    try:
        there = row_files.load(target) if target.exists() else None
    except UserError:
        there = None
    if there is None:
        return True
    if _extent(there) > _extent(record):
        say(f"{record.source}: left out: {target} {_lead(there, record)}; remove that file to take this run instead")
        return False
    if there.settings != record.settings:
        say(f"{target}: replaced, it was of another run: {record.source} {_lead(record, there)}")
    return True


def _lead(kept: Record, other: Record) -> str:
    """In which part of its extent a record is ahead of another one."""
    if kept.done != other.done:
        return f"is evaluated until step {kept.done:,}, not {other.done:,}"
    if len(kept.seeds) != len(other.seeds):
        return f"has {number_of(len(kept.seeds), 'seed')}, not {len(other.seeds):,}"
    if kept.episodes != other.episodes:
        return f"has {number_of(kept.episodes, 'episode')} per goal, not {other.episodes:,}"
    return "has as many steps, seeds and episodes"


def cells_of(path: Path) -> list[PlannedRun]:
    """The cells that a run fills: of the first table that has it, and of the noise figure if it has noisy evaluations.

    An unreadable configuration raises UserError.
    """
    run = directory.read_run(path)
    task = families.of_task(run.task).table_task(run.task)
    given = {name: getattr(run, name) for name in MAY_DIFFER}
    found = [
        planned
        for table in tables.TABLES.values()
        if task in table.known_tasks
        for planned in tables.expand(table.name, tasks=[task], **given)
        if jobs.can_fill(path, planned)
    ]
    clean = [planned for planned in found if not planned.noise][:1]
    noisy = [planned for planned in found if planned.noise and (path / directory.NOISY_EVALUATIONS).exists()]
    return clean + noisy


def build(folder: str | Path = "results", found: Sequence[Record] | None = None) -> str:
    """The page as Markdown; `found` are the records of the folder, if they have been read."""
    folder = Path(folder)
    found = row_files.load_all(folder) if found is None else found
    picture = EFFECTS if effects.find(found) else ""
    parts = [INTRO, picture, _text(folder, "intro"), "## Claims of the paper\n", _claims(found)]
    for name in tables.TABLES:
        parts.append(_section(name, found, folder))
    parts.append(_elsewhere(found, folder))
    parts += ["## What the rows cost\n", COST, cost_table.markdown(found)] if found else []
    return "\n".join(part for part in parts if part)


def _claims(found: Iterable[Record]) -> str:
    rows = [("claim", "on the paper's numbers", "on ours"), *claims.lines(found)]
    return "\n".join([*texts.markdown(rows), ""])


def _section(name: str, found: Sequence[Record], folder: Path) -> str:
    table = tables.get(name)
    filled = comparison.fill_table(name, found)
    head = f"## {table.title} (`{name}`, {table.label})\n"
    sources = sorted({measured.source for line in filled.lines for measured in line.measured().values()})
    rows = [f"- row file: `{Path(source).relative_to(folder.parent)}`" for source in sources]
    body = formats.markdown(filled) if filled.has_measurements() or name in tables.paper() else "Not run.\n"
    status = "" if filled.has_measurements() else "Not run; the paper's numbers alone:\n" * (name in tables.paper())
    files = "\n".join([*rows, ""]) if rows else ""
    drawn = any(record.table == name for record in found)
    picture = f"![Success with 95 % intervals: {table.title}]({FIGURES}/{name}.svg)\n" if drawn else ""
    return "\n".join(part for part in (head, _text(folder, name), status, body, picture, files) if part)


def _elsewhere(found: Sequence[Record], folder: Path) -> str:
    """What others report, next to the paper's Dual and our rows: those with GCIVL, and those of `beyond`."""
    methods = elsewhere.load_all(folder)
    if not methods:
        return ""
    gcivl, beyond = (comparison.fill_table(name, found) for name in ("state_gcivl", "beyond"))
    ours = {f"{name} + GCIVL, here": _shown(gcivl, name.lower()) for name in ("Orig", "Dual")}
    ours |= {f"{heading}, here": cells for name, heading in beyond.headings.items() if (cells := _shown(beyond, name))}
    paper = {task: cells["dual"] for task, cells in tables.paper()["state_gcivl"].items()}  # its average is one of them
    ours["Dual + GCIVL, paper"] = {task: formats.number(found) for task, found in paper.items()}
    head = "## Rows from elsewhere\n"
    return "\n".join(part for part in (head, _text(folder, "elsewhere"), elsewhere.markdown(methods, ours)) if part)


def _shown(filled: FilledTable, column: str) -> dict[str, str]:
    """The cells of a column that were run, by task."""
    return {line.name: formats.with_steps(m) for line in filled.lines if (m := line.measured().get(column))}


def _text(folder: Path, name: str) -> str:
    path = folder / "text" / f"{name}.md"
    return read_bytes(path, TEXT_LIMIT, follow=True).decode(errors="replace").strip() + "\n" if path.is_file() else ""

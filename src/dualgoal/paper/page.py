"""docs/results.md from committed row files: every number has its rows, every table its paragraph, nothing by hand.

`collect` turns run directories into row files under results/; `build` turns those, and the paragraphs in
results/text/TABLE.md, into the page. Building twice gives the same bytes.
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from dualgoal.errors import UserError
from dualgoal.files import write_atomic
from dualgoal.paper import claims, figures, formats, reproduce, row_files, tables
from dualgoal.paper import filled as compare
from dualgoal.paper.row_files import Record
from dualgoal.paper.tables import Cell
from dualgoal.runs import directory

# What a run may change and still be a cell of a table; all of it is printed beside the number.
REDUCIBLE = ("seeds", "steps", "episodes", "eval_every", "save_every", "log_every", "precision", "deterministic")

FIGURES = "figures"  # beside the page

INTRO = """# Results

Built by `dualgoal results` from the row files under `results/`; do not edit by hand. Success in percent, mean ±
standard deviation over seeds of the mean of the last three evaluations; in brackets a 95 % bootstrap interval over
seeds, then training steps x seeds, then the paper's number. Bold: at least 95 % of the row's best.
"""


def results(
    folder: str | Path = "results",
    out: str | Path = "docs/results.md",
    runs: Sequence[str | Path] = (),
    say: Callable[[str], None] = print,
) -> Path:
    """Collect row files from `runs` (if any), then write the page with its figures; returns its path."""
    for path in runs:
        collect(path, folder, say)
    out = Path(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(out, build(folder).encode())
    found = row_files.load_all(Path(folder))
    for name in {record.table for record in found}:
        figures.draw(compare.fill(name, found), found, out.parent / FIGURES / name, suffixes=(".svg",))
    return out


def collect(runs: str | Path, into: str | Path, say: Callable[[str], None] = print) -> list[Path]:
    """Write a row file for every run under `runs` that is a cell of a table, at any length and with any seeds."""
    written = []
    for path in sorted(p.parent for p in Path(runs).rglob("config.json")):
        try:
            found = [reproduce.record(reproduce.Job(cell, path, "")) for cell in cells_of(path)]
        except (UserError, KeyError, TypeError, ValueError, AttributeError) as error:
            say(f"{path}: left out: {error}")
            continue
        whole = [record for record in found if record and record.done]
        written += [row_files.save(record, Path(into)) for record in whole]
        if not whole:
            say(f"{path}: left out: " + ("no evaluation yet" if found else "not a run of the paper's tables"))
    return written


def cells_of(path: Path) -> list[Cell]:
    """The cells a run fills: the first table that has it, and the noise figure if it was evaluated with noise."""
    values = directory.read_config(path)["run"]
    given = {name: values[name] for name in REDUCIBLE if name in values}
    cells = [
        cell
        for table in tables.TABLES.values()
        for cell in _candidates(table, values, given)
        if reproduce.serves(path, cell)
    ]
    plain = [cell for cell in cells if not cell.noise][:1]
    noisy = [cell for cell in cells if cell.noise and (path / reproduce.NOISE_ROWS).exists()]
    return plain + noisy


def _candidates(table: tables.Table, values: dict[str, Any], given: dict[str, Any]) -> list[Cell]:
    task = values["task"]
    if task.startswith("lightsout-"):  # the view of the board is part of a run's task, not of the table's
        task = "-".join(task.split("-")[:2])
    return tables.expand(table.name, tasks=[task], **given) if task in table.tasks else []


def build(folder: str | Path = "results") -> str:
    """The page as Markdown."""
    folder = Path(folder)
    found = row_files.load_all(folder)
    parts = [INTRO, _text(folder, "intro"), "## Claims of the paper\n", _claims(found)]
    for name in tables.TABLES:
        parts.append(_section(name, found, folder))
    return "\n".join(part for part in parts if part)


def _claims(found: Iterable[Record]) -> str:
    rows = ["| claim | on the paper's numbers | on ours |", "| --- | --- | --- |"]
    rows += [f"| {claim} | {paper} | {ours} |" for claim, paper, ours in claims.lines(found)]
    return "\n".join(rows) + "\n"


def _section(name: str, found: Sequence[Record], folder: Path) -> str:
    table = tables.get(name)
    filled = compare.fill(name, found)
    head = f"## {table.title} (`{name}`, {table.label})\n"
    sources = sorted({slot.ours.source for line in filled.lines for slot in line.slots.values() if slot.ours})
    rows = [f"- row file: `{Path(source).relative_to(folder.parent)}`" for source in sources]
    body = formats.markdown(filled) if filled.has_ours() or name in tables.paper() else "Not run.\n"
    status = "" if filled.has_ours() else "Not run; the paper's numbers alone:\n" * (name in tables.paper())
    files = "\n".join([*rows, ""]) if rows else ""
    drawn = any(record.table == name for record in found)
    picture = f"![Success with 95 % intervals: {table.title}]({FIGURES}/{name}.svg)\n" if drawn else ""
    return "\n".join(part for part in (head, _text(folder, name), status, body, picture, files) if part)


def _text(folder: Path, name: str) -> str:
    path = folder / "text" / f"{name}.md"
    return path.read_text().strip() + "\n" if path.is_file() else ""

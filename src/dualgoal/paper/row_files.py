"""Row files: the evaluation rows behind a number, small enough to commit, with the settings that made them.

A record belongs to one cell of one table. It is written from a run directory and is all that tables, claims and
docs/results.md read, so a printed number can always be followed back to its rows.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dualgoal.errors import UserError
from dualgoal.files import write_atomic
from dualgoal.paper import tables
from dualgoal.runs.rows import EvalRow, Scores, scores

FORMAT = 1


@dataclass(frozen=True)
class Record:
    """The evaluations of one run, as one cell of a table. `settings` is the run's config.json."""

    table: str
    task: str
    column: str
    seeds: tuple[int, ...]
    steps: int  # configured length
    episodes: int  # evaluation episodes per task
    rows: tuple[EvalRow, ...]
    settings: dict[str, Any] = field(default_factory=dict)
    source: str = ""  # the file or run directory it was read from

    def scores(self, *, goal_noise: float = 0.0, until: int | None = None) -> Scores:
        return scores(self.rows, goal_noise=goal_noise, until=until)

    @property
    def done(self) -> int:
        """The step of the last evaluation that counts."""
        return max(self.scores().counted(), default=0)


def file_name(record: Record) -> str:
    """Where a record lies under the results folder; different lengths of the same cell stand side by side."""
    return f"{record.table}/{record.task}.{record.column}.{record.steps}.json"


def save(record: Record, folder: Path) -> Path:
    """Write a record, one evaluation row per line so that version control shows what changed."""
    target = Path(folder) / file_name(record)
    target.parent.mkdir(parents=True, exist_ok=True)
    column = tables.get(record.table).column(record.column)
    head = {
        "format": FORMAT,
        "table": record.table,
        "task": record.task,
        "column": record.column,
        "rep": column.rep,
        "algo": column.algo,
        "seeds": list(record.seeds),
        "steps": record.steps,
        "episodes": record.episodes,
        "settings": record.settings,
    }
    rows = ",\n  ".join(json.dumps(row.to_json(), allow_nan=False) for row in record.rows)
    text = json.dumps(head, indent=1, sort_keys=False, allow_nan=False)
    write_atomic(target, f'{text[:-2]},\n "rows": [\n  {rows}\n ]\n}}\n'.encode())
    return target


def load(path: Path) -> Record:
    """Read one row file; what is wrong with it is said in one line."""
    try:
        content = json.loads(Path(path).read_bytes())
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: not a row file ({error}); write it again with `dualgoal results --runs`") from error
    return parse(content, str(path))


def parse(content: Any, source: str) -> Record:
    """A record from plain values, checked."""
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise UserError(f"{source}: not a row file of format {FORMAT}; write it again with `dualgoal results --runs`")
    try:
        table = tables.get(content["table"])
        table.column(content["column"])
        if content["task"] not in table.tasks:
            raise UserError(f"{table.name} has no task {content['task']}")
        rows, seeds = (
            tuple(EvalRow.from_json(row, "a row") for row in content["rows"]),
            tuple(int(s) for s in content["seeds"]),
        )
        settings = dict(content.get("settings") or {})
        return Record(
            table.name,
            content["task"],
            content["column"],
            seeds,
            int(content["steps"]),
            int(content["episodes"]),
            rows,
            settings,
            source,
        )
    except (KeyError, TypeError, ValueError) as error:
        reason = f"no '{error.args[0]}'" if isinstance(error, KeyError) else str(error)
        raise UserError(f"{source}: {reason}; write it again with `dualgoal results --runs`") from error


def load_all(folder: Path) -> list[Record]:
    """Every row file under a folder, in the order of their names."""
    return [load(path) for path in sorted(Path(folder).glob("*/*.json"))]


def of_run(cell: tables.Cell, settings: dict[str, Any], rows: Iterable[EvalRow], source: str) -> Record:
    """The record of a run that fills `cell`, restricted to the cell's seeds."""
    kept = tuple(row for row in rows if row.seed in cell.seeds)
    dataset = settings.get("dataset")
    if isinstance(dataset, dict) and isinstance(
        dataset.get("file"), str
    ):  # a folder of this machine means nothing later
        settings = settings | {"dataset": dataset | {"file": Path(dataset["file"]).name}}
    steps, episodes = cell.config["steps"], cell.config["episodes"]
    return Record(cell.table, cell.task, cell.column, cell.seeds, steps, episodes, kept, settings, source)

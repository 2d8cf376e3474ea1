"""Row files: the evaluation rows behind a number, small enough to commit, with the settings that made them.

A record belongs to one cell of one table. It is written from a run directory and is all that tables, claims and
docs/results.md read, so a printed number can always be traced back to its rows.
"""

import dataclasses
import json
import textwrap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dualgoal import jsons
from dualgoal.errors import UserError
from dualgoal.files import write_atomic
from dualgoal.paper import costs, elsewhere, tables
from dualgoal.paper.costs import Cost
from dualgoal.paper.tables import PlannedRun
from dualgoal.runs.rows import EvalRow, Scores, scores

FORMAT = 1
REMEDY = "write it again with `dualgoal results --runs`"


@dataclass(frozen=True)
class Record:
    """The evaluations of one run, as one cell of a table. `settings` is the run's config.json."""

    table: str
    task: str
    column: str
    seeds: tuple[int, ...]
    steps: int  # configured length
    episodes: int  # evaluation episodes per goal
    rows: tuple[EvalRow, ...]
    settings: dict[str, Any] = field(default_factory=dict)
    source: str = ""  # the file or run directory it was read from
    cost: Cost = Cost()

    def scores(self, goal_noise: float = 0.0, until: int | None = None) -> Scores:
        """Scores by seed, step and goal, of evaluations with this goal noise, up to this step."""
        return scores(self.rows, goal_noise=goal_noise, until=until)

    @property
    def done(self) -> int:
        """The step of the last evaluation that counts."""
        return max(self.scores().counted(), default=0)

    def setting(self, *path: str) -> Any:
        """A value of config.json by its path, such as ("versions", "mujoco"); None where it was not recorded."""
        value: Any = self.settings
        for key in path:
            value = value.get(key) if isinstance(value, Mapping) else None
        return value

    def to_json(self) -> dict[str, Any]:
        """Plain values, as in a row file."""
        column = tables.get(self.table).column(self.column)
        return {
            "format": FORMAT,
            "table": self.table,
            "task": self.task,
            "column": self.column,
            "rep": column.rep,
            "algo": column.algo,
            "seeds": list(self.seeds),
            "steps": self.steps,
            "episodes": self.episodes,
            "cost": dataclasses.asdict(self.cost),
            "settings": self.settings,
            "rows": [row.to_json() for row in self.rows],
        }

    @classmethod
    def from_json(cls, content: Any, source: str) -> "Record":
        """The inverse of `to_json`; `source` names the file in errors."""
        known = isinstance(content, dict) and content.get("format") == FORMAT
        if not known or not isinstance(content.get("rows"), list):
            raise UserError(f"{source}: not a row file of format {FORMAT}; {REMEDY}")
        plain = content | {"rows": [], "cost": content.get("cost") or {}, "source": source}
        found = jsons.typed_file(plain, cls, source, REMEDY)
        try:
            table = tables.get(found.table)
            table.column(found.column)
        except UserError as error:
            raise UserError(f"{source}: {error}") from error
        if found.task not in table.known_tasks:
            raise UserError(f"{source}: {found.table} has no task {found.task}")
        rows = (EvalRow.from_json(row, f"{source}: row {number}") for number, row in enumerate(content["rows"], 1))
        return dataclasses.replace(found, rows=tuple(rows))


def path_of(record: Record, folder: Path) -> Path:
    """Its row file in a results folder. Runs of different lengths of one cell have different names."""
    return Path(folder) / record.table / f"{record.task}.{record.column}.{record.steps}.json"


def save(record: Record, folder: Path) -> Path:
    """Write a record, one evaluation row per line so that version control shows what changed."""
    target = path_of(record, folder)
    target.parent.mkdir(parents=True, exist_ok=True)
    content = record.to_json()
    rows = ",\n".join(json.dumps(row, allow_nan=False) for row in content.pop("rows"))
    fields = [f'"{name}": {json.dumps(value, indent=1, allow_nan=False)}' for name, value in content.items()]
    fields.append('"rows": [\n' + textwrap.indent(rows, " ") + "\n]")
    text = "{\n" + textwrap.indent(",\n".join(fields), " ") + "\n}\n"
    write_atomic(target, text.encode())
    return target


def load(path: Path) -> Record:
    """Read one row file; an unreadable one is refused in one line."""
    try:
        content = jsons.read(Path(path), follow=True)
    except (OSError, UserError) as error:
        raise UserError(f"{path}: not a row file ({str(error).removeprefix(f'{path}: ')}); {REMEDY}") from error
    return Record.from_json(content, str(path))


def load_all(folder: Path, say: Callable[[str], None] = print) -> list[Record]:
    """Every row file in a results folder, in the order of their names; an unreadable one is reported and left out."""
    paths = [path for path in sorted(Path(folder).glob("*/*.json")) if path.parent.name != elsewhere.FOLDER]
    return jsons.readable(paths, load, say)


def of_run(planned: PlannedRun, settings: dict[str, Any], rows: Iterable[EvalRow], source: str) -> Record:
    """The record of a run that fills a planned cell, restricted to the planned seeds."""
    return Record(
        planned.table,
        planned.task,
        planned.column,
        planned.seeds,
        planned.config["steps"],
        planned.config["episodes"],
        tuple(row for row in rows if row.seed in planned.seeds),
        _without_folders(settings),
        source,
        Cost(data=costs.of_data(settings)),
    )


def _without_folders(settings: dict[str, Any]) -> dict[str, Any]:
    """The dataset's file by its name alone: a folder of this machine means nothing elsewhere."""
    dataset = settings.get("dataset")
    if not isinstance(dataset, Mapping) or not isinstance(dataset.get("file"), str):
        return settings
    return {**settings, "dataset": {**dataset, "file": Path(dataset["file"]).name}}

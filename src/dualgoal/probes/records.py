"""The row file of `dualgoal joins`, which is also how it resumes, and the table of a row file."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dualgoal import jsons, texts
from dualgoal.errors import UserError
from dualgoal.files import make_folder
from dualgoal.paper.formats import span
from dualgoal.paper.stats import student_interval
from dualgoal.probes.joins import Fit, Row, agent_of
from dualgoal.probes.options import JOINS, Options


@dataclass(frozen=True)
class Record:
    """What was trained, and a row for every join and seed that is done."""

    options: dict[str, Any]
    rows: tuple[Row, ...] = ()

    def write(self, path: Path) -> None:
        content = {"options": self.options, "rows": [dataclasses.asdict(row) for row in self.rows]}
        make_folder(path.parent)
        jsons.write(path, content)


def read(path: Path) -> Record:
    return jsons.read_as(Record, path)


def settings(options: Options) -> dict[str, Any]:
    """What all rows of a file have in common, as JSON has it."""
    names = [field.name for field in dataclasses.fields(Options) if field.name not in ("joins", "seeds")]
    values = {name: getattr(options, name) for name in names}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def train(options: Options, path: Path, tell: Callable[[str], None]) -> Record:
    """Add the rows that the options ask for to the file, and write it after each of them."""
    for join in options.joins:
        agent_of(join, options)  # raises if a join cannot have these sizes, before any of them is trained
    record = Record(settings(options))
    if path.exists():
        record = read(path)
        other = [name for name, value in settings(options).items() if record.options.get(name) != value]
        if other:
            raise UserError(f"{path}: its rows have another {' and '.join(other)}; choose another --out")
    done = {(row.join, row.seed) for row in record.rows}
    order: dict[str, int] = {join: n for n, join in enumerate(JOINS)}
    for join, seed in ((join, seed) for join in options.joins for seed in options.seeds if (join, seed) not in done):
        rows = [*record.rows, Fit(join, seed, options).run(tell)]
        rows.sort(key=lambda row: (order.get(row.join, len(order)), row.seed))
        record = Record(record.options, tuple(rows))
        record.write(path)
    return record


def table(record: Record) -> list[str]:
    """Markdown: a line per join with means over seeds, and 95 % intervals of the last slope and of the area; also the
    last slope on the arm's part, where there is an arm."""
    marks = sorted({mark for row in record.rows for mark in row.steps})
    has = lambda name: any(getattr(row, name) is not None for row in record.rows)
    optional = [name for name in ("probe", "solved") if has(name)]
    titles = {"probe": "linear probe", "solved": "solved"}
    arm = any(value for row in record.rows for value in row.arm)
    head = ["join", "seeds", *(f"slope at {mark:,}" for mark in marks), *["arm"] * arm, "area under the curve"]
    lines = [[*head, *(titles[name] for name in optional)]]
    for join in dict.fromkeys(row.join for row in record.rows):
        rows = [row for row in record.rows if row.join == join]
        slopes = [[row.lights[n] for row in rows] for n in range(len(marks))]
        cells = [f"`{join}`", str(len(rows)), *(mean(values) for values in slopes[:-1]), with_interval(slopes[-1])]
        cells += [mean([row.arm[-1] for row in rows])] * arm + [with_interval([row.area for row in rows])]
        lines.append(cells + [mean([getattr(row, name) for row in rows]) for name in optional])
    return [line.replace("-0.00", "0.00") for line in texts.markdown(lines)]


def mean(values: list[Any]) -> str:
    return "" if None in values else f"{sum(values) / len(values):.2f}"


def with_interval(values: list[float]) -> str:
    return f"{mean(values)} {span(student_interval(values), 2)}"

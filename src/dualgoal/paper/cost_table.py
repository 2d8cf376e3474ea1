"""The costs of all rows as a table, their sum, and what the complete tables would cost at these rates."""

from collections.abc import Iterable, Sequence

from dualgoal.envs.tasks import is_pixels
from dualgoal.paper import tables
from dualgoal.paper.conditions import NOT_RECORDED
from dualgoal.paper.row_files import Record


def markdown(records: Iterable[Record]) -> str:
    """A line per row file, in minutes. The sum counts data that several rows share once. If another time was recorded
    for the same hash, the data were made again and count again."""
    records = sorted(records, key=lambda r: (list(tables.TABLES).index(r.table), r.task, r.column, r.steps))
    lines = ["| row | steps x seeds | GPU | evaluation, CPU | data, CPU |", "| --- | ---: | ---: | ---: | ---: |"]
    for record in records:
        name = f"{record.table}, {record.task}, {tables.get(record.table).column(record.column).title}"
        spent = (record.cost.device, record.cost.evaluation, record.cost.data)
        steps = record.cost.steps or record.done
        lines.append(f"| {name} | {steps:,} x {len(record.seeds)} | " + " | ".join(map(_minutes, spent)) + " |")
    made = {(str(r.setting("dataset", "sha256")), r.cost.data) for r in records if r.cost.data is not None}
    data = _sum(seconds for _, seconds in sorted(made))
    sums = [_sum(r.cost.device for r in records), _sum(r.cost.evaluation for r in records), data]
    lines.append("| sum of what was recorded | | " + " | ".join(map(_minutes, sums)) + " |")
    return "\n".join([*lines, "", *_complete(records), ""])


def _minutes(seconds: float | None) -> str:
    return NOT_RECORDED if seconds is None else f"{seconds / 60:.1f}"


def _sum(values: Iterable[float | None]) -> float | None:
    found = [value for value in values if value is not None]
    return sum(found) if found else None


def _complete(records: Sequence[Record]) -> list[str]:
    """GPU hours of whole tables, as far as the rate of a column was recorded on any task of its kind: with states, or
    with images."""
    kind = lambda column, task: (str(tables.without_defaults(column)), is_pixels(task))
    rates: dict[tuple[str, bool], float] = {}
    for record in records:
        if record.cost.device is not None and record.cost.steps:
            column = tables.get(record.table).column(record.column)
            rates[kind(column, record.task)] = record.cost.device / (record.cost.steps * len(record.seeds))
    out = []
    for table in tables.TABLES.values():
        known = {c.name: rates.get(kind(c, table.tasks[0])) for c in table.columns}
        found = {name: rate for name, rate in known.items() if rate is not None}
        if not found:
            continue
        run = tables.expand(table.name, tasks=table.tasks[:1], reps=[table.columns[0].name])[0]
        work = len(table.tasks) * table.seeds * run.config["steps"]
        hours = sum(found.values()) * work / 3600
        titles = ", ".join(table.column(name).title for name in found)
        out.append(
            f"- `{table.name}` in full ({len(table.tasks)} tasks, {table.seeds} seeds, {run.config['steps']:,} steps): "
            f"{hours:,.1f} GPU hours for {len(found)} of {len(table.columns)} columns ({titles})"
        )
    return out

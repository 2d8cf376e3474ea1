"""The conditions under which the numbers of a table were made, next to the paper's, as printed below it."""

from collections.abc import Iterable

from dualgoal.paper import families, tables
from dualgoal.paper.row_files import Record
from dualgoal.paper.tables import Table

NOT_RECORDED = "not recorded"


def describe(table: Table, records: Iterable[Record]) -> list[str]:
    """The settings to be printed under a table: what was reduced, regenerated or newer than the paper's.

    A table that is not the paper's has a full size, but nothing else to be compared with.
    """
    records = list(records)
    if not records:
        return []
    full = tables.expand(table.name, tasks=table.tasks[:1], reps=[table.columns[0].name])[0].config
    family = families.of_task(table.tasks[0])
    sizes = [
        ("steps", _numbers(r.done for r in records), f"{full['steps']:,}"),
        ("seeds", _numbers(len(r.seeds) for r in records), str(table.seeds)),
        ("episodes per goal", _numbers(r.episodes for r in records), str(full["episodes"])),
    ]
    circumstances = [
        ("data", sorted({_data(r) for r in records}), family.paper_data),
        # Older records have the precision in their configuration only.
        ("precision", sorted({_known(r, ("hardware", "precision"), ("run", "precision")) for r in records}), "float32"),
        ("device", sorted({_known(r, ("hardware", "device")) for r in records}), "not stated"),
    ]
    if family.simulator:
        circumstances.append(("MuJoCo", sorted({_known(r, ("versions", "mujoco")) for r in records}), "not stated"))
    ours = lambda name, values: f"{name}: {', '.join(values)}"
    if table.published:
        return [f"{ours(name, values)} (paper: {paper})" for name, values, paper in sizes + circumstances]
    of_full = [f"{ours(name, values)} (in full: {size})" for name, values, size in sizes]
    return of_full + [ours(name, values) for name, values, _ in circumstances]


def _numbers(values: Iterable[int]) -> list[str]:
    return [f"{value:,}" for value in sorted(set(values))]


def _data(record: Record) -> str:
    episodes = record.setting("dataset", "episodes")
    words = f", {episodes:,} episodes" if isinstance(episodes, int) else ""
    return _known(record, ("dataset", "source")) + words


def _known(record: Record, *settings: tuple[str, str]) -> str:
    """The first of these settings that was recorded."""
    found = filter(None, (record.setting(*path) for path in settings))
    return str(next(found, NOT_RECORDED))

"""Under which conditions the numbers of a table were made, next to the paper's: what is printed below it."""

from collections.abc import Iterable

from dualgoal.paper import families, tables
from dualgoal.paper.row_files import Record
from dualgoal.paper.tables import Table

NOT_RECORDED = "not recorded"


def describe(table: Table, records: Iterable[Record]) -> list[str]:
    """The settings to be printed under a table: what was reduced, regenerated or newer than the paper's."""
    records = list(records)
    if not records:
        return []
    paper = tables.expand(table.name, tasks=table.tasks[:1], reps=[table.columns[0].name])[0].config
    family = families.of_task(table.tasks[0])
    facts = [
        ("steps", {f"{r.done:,}" for r in records}, f"{paper['steps']:,}"),
        ("seeds", {str(len(r.seeds)) for r in records}, str(table.seeds)),
        ("episodes per task", {str(r.episodes) for r in records}, str(paper["episodes"])),
        ("data", {_data(r) for r in records}, family.paper_data),
        ("precision", {_precision(r) for r in records}, "float32"),
        ("device", {str(r.setting("hardware", "device") or NOT_RECORDED) for r in records}, "not stated"),
    ]
    if family.simulator:
        simulators = {str(r.setting("versions", "mujoco") or NOT_RECORDED) for r in records}
        facts.append(("MuJoCo", simulators, "not stated"))
    return [f"{name}: {', '.join(sorted(values))} (paper: {theirs})" for name, values, theirs in facts]


def _data(record: Record) -> str:
    episodes = record.setting("dataset", "episodes")
    words = f", {episodes:,} episodes" if isinstance(episodes, int) else ""
    return f"{record.setting('dataset', 'source') or NOT_RECORDED}{words}"


def _precision(record: Record) -> str:
    """The arithmetic that was used; older records have it in their configuration only."""
    return str(record.setting("hardware", "precision") or record.setting("run", "precision") or NOT_RECORDED)

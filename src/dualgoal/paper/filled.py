"""Our numbers beside the paper's: a table filled from records, with intervals and aggregates, still as data.

Every cell carries seeds, steps and a 95 % bootstrap interval over seeds; rows whose cells were trained for different
numbers of steps are not compared with each other. Typesetting is elsewhere (`typeset.py`).
"""

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dualgoal.paper import stats, tables
from dualgoal.paper.row_files import Record
from dualgoal.paper.stats import Interval
from dualgoal.paper.tables import Number, Table

NOISY = "_noisy"


@dataclass(frozen=True)
class Ours:
    """One measured cell."""

    mean: float
    std: float
    interval: Interval | None
    scores: tuple[float, ...]  # one per seed
    seeds: int
    steps: int
    episodes: int
    source: str
    most: tuple[int, int] | None = None  # an average of cells: their largest steps and seeds; above stand the smallest


@dataclass(frozen=True)
class Slot:
    """A place in a table: what we measured, what the paper prints, and how they compare."""

    ours: Ours | None
    paper: Number | None
    highlight: bool = False
    paper_highlight: bool = False
    inside: bool | None = None  # does the paper's mean lie in our interval?


@dataclass(frozen=True)
class Line:
    name: str
    slots: dict[str, Slot]
    mixed: bool = False  # measured cells differ in steps: no highlights


@dataclass(frozen=True)
class Aggregate:
    """A column over all tasks that every measured column has."""

    mean: float
    mean_interval: Interval | None
    iqm: float
    iqm_interval: Interval | None


@dataclass(frozen=True)
class Improvement:
    """The probability that a seed of Dual beats a seed of another column on the same task."""

    probability: float
    interval: Interval | None
    tasks: int


@dataclass(frozen=True)
class Difference:
    """How far one column is above another on one task, with two 95 % intervals over seeds."""

    columns: tuple[str, str]
    mean: float
    bootstrap: Interval | None
    welch: Interval | None
    seeds: tuple[int, int]
    steps: int


@dataclass(frozen=True)
class Filled:
    """A whole table, ready to be typeset."""

    name: str
    label: str
    title: str
    headings: dict[str, str]
    lines: list[Line]
    average: Line | None
    average_tasks: int
    aggregates: dict[str, Aggregate]
    improvement: dict[str, Improvement]  # of Dual over each other column
    differences: dict[str, Difference]  # by task, between the two columns the table is about
    settings: list[str]

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def has_ours(self) -> bool:
        return any(slot.ours for line in self.lines for slot in line.slots.values())


def fill(name: str, records: Iterable[Record] = (), tasks: Iterable[str] | None = None) -> Filled:
    """A table with whatever records there are for it; without records, the paper's own numbers.

    With `tasks`, only those rows.
    """
    table = tables.get(name)
    chosen = [t for t in table.tasks if tasks is None or t in set(tasks)]
    found = assign(table, records)
    headings = _headings(table)
    measured = {key: measured for key, record in found.items() if (measured := _measure(table, key, record))}
    lines = [_line(table, task, {h: measured.get((task, h)) for h in headings}) for task in chosen]
    common = _common(lines)
    average = _average(table, common, lines) if table.average and (len(chosen) == len(table.tasks) or common) else None
    used = [record for (task, _), record in found.items() if task in chosen]
    return Filled(
        table.name,
        table.label,
        table.title,
        headings,
        lines,
        average,
        len(common) or len(table.tasks),
        _aggregate(common),
        _improvement(lines),
        _differences(table, lines),
        describe(table, used),
    )


def _headings(table: Table) -> dict[str, str]:
    if not table.noise:
        return {c.name: c.title for c in table.columns}
    pairs = [((c.name, c.title), (c.name + NOISY, f"{c.title}, noisy goal")) for c in table.columns]
    return dict(entry for pair in pairs for entry in pair)


def assign(table: Table, records: Iterable[Record]) -> dict[tuple[str, str], Record]:
    """The record of each cell: its own before one shared with another table, the longest before shorter ones."""
    best: dict[tuple[str, str], tuple[tuple[bool, int, int], Record]] = {}
    for record in records:
        theirs = tables.effective(tables.get(record.table).column(record.column))
        for column in table.columns:
            own = (record.table, record.column) == (table.name, column.name)
            if record.task not in table.tasks or not (own or tables.effective(column) == theirs):
                continue
            rank = (own, record.done, len(record.seeds))
            key = (record.task, column.name)
            if key not in best or rank > best[key][0]:
                best[key] = (rank, record)
    chosen = {key: record for key, (_, record) in best.items()}
    if table.noise:
        chosen |= {(task, column + NOISY): record for (task, column), record in chosen.items()}
    return chosen


def _measure(table: Table, key: tuple[str, str], record: Record) -> Ours | None:
    task, heading = key
    noise = table.noise[task] if heading.endswith(NOISY) else 0.0
    found = record.scores(goal_noise=noise)
    values = found.per_seed()
    if not values.size:
        return None
    mean, std = stats.mean_std(values)
    interval = stats.bootstrap([values], stats.mean_of_tasks, np.random.default_rng(0))
    return Ours(
        mean,
        std,
        interval,
        tuple(map(float, values)),
        len(values),
        max(found.counted()),
        record.episodes,
        record.source,
    )


def _line(table: Table, task: str, ours: dict[str, Ours | None]) -> Line:
    printed = tables.paper().get(table.name, {}).get(task, {})
    mixed = len({o.steps for o in ours.values() if o}) > 1
    marks = _marks(table, [o.mean if o and not mixed else None for o in ours.values()])
    paper_marks = _marks(table, [printed[h][0] if h in printed else None for h in ours])
    slots = {h: _slot(o, printed.get(h), m, p) for (h, o), m, p in zip(ours.items(), marks, paper_marks, strict=True)}
    return Line(task, slots, mixed)


def _marks(table: Table, values: list[float | None]) -> list[bool]:
    """The highlight rule on whole percents, as printed; one lonely number is not a best."""
    rounded = [None if v is None else float(round(v)) for v in values]
    if not table.highlight or sum(v is not None for v in rounded) < 2:
        return [False] * len(values)
    return stats.highlights(rounded)


def _slot(ours: Ours | None, paper: Number | None, mark: bool, paper_mark: bool) -> Slot:
    inside = None
    if ours and ours.interval and paper:
        inside = ours.interval[0] - 0.5 <= paper[0] <= ours.interval[1] + 0.5  # the paper prints whole percents
    return Slot(ours, paper, mark, paper_mark, inside)


Common = dict[str, dict[str, Ours]]  # task, heading: only tasks that every measured heading has, at equal steps


def _common(lines: list[Line]) -> Common:
    present = {h for line in lines for h, slot in line.slots.items() if slot.ours}
    out: Common = {}
    for line in lines:
        ours = {h: slot.ours for h, slot in line.slots.items() if slot.ours}
        if present and set(ours) == present and not line.mixed:
            out[line.name] = ours
    return out


def _columns(common: Common) -> dict[str, list[np.ndarray]]:
    headings = next(iter(common.values()), {})
    return {h: [np.array(row[h].scores) for row in common.values()] for h in headings}


def _aggregate(common: Common) -> dict[str, Aggregate]:
    def interval(strata: list[np.ndarray], statistic: Any) -> Interval | None:
        return stats.bootstrap(strata, statistic, np.random.default_rng(0))

    return {
        h: Aggregate(
            float(stats.mean_of_tasks(s)),
            interval(s, stats.mean_of_tasks),
            float(stats.iqm_of_all(s)),
            interval(s, stats.iqm_of_all),
        )
        for h, s in _columns(common).items()
    }


def _improvement(lines: list[Line]) -> dict[str, Improvement]:
    """Dual against each other column, on the tasks where both were trained equally long."""
    out = {}
    for heading in lines[0].slots if lines and "dual" in lines[0].slots else ():
        pairs = [(line.slots["dual"].ours, line.slots[heading].ours) for line in lines]
        both = [(a, b) for a, b in pairs if a and b and a.steps == b.steps]
        if heading != "dual" and not heading.endswith(NOISY) and both:
            x, y = [np.array(a.scores) for a, _ in both], [np.array(b.scores) for _, b in both]
            interval = stats.improvement_interval(x, y, np.random.default_rng(0))
            out[heading] = Improvement(float(stats.improvement(x, y)), interval, len(both))
    return out


def _differences(table: Table, lines: list[Line]) -> dict[str, Difference]:
    out = {}
    for line in lines:
        above, below = (line.slots[name].ours for name in table.contrast)
        if above and below and above.steps == below.steps:
            found = stats.difference(np.array(above.scores), np.array(below.scores), np.random.default_rng(0))
            counts = (above.seeds, below.seeds)
            out[line.name] = Difference(table.contrast, found.mean, found.bootstrap, found.welch, counts, above.steps)
    return out


def _average(table: Table, common: Common, lines: list[Line]) -> Line:
    """The Average row; when only some tasks were run, both sides are averaged over those tasks."""
    columns = _columns(common)
    whole = not common or len(common) == len(table.tasks)
    printed = tables.paper().get(table.name, {})
    slots = {}
    for heading in lines[0].slots:
        values = [printed[task][heading][0] for task in common if heading in printed.get(task, {})]
        paper = printed.get("average", {}).get(heading) if whole else (float(np.mean(values)), None)
        ours = _averaged(columns[heading], common, heading) if heading in columns else None
        slots[heading] = _slot(ours, paper, False, False)
    marks = _marks(table, [s.ours.mean if s.ours else None for s in slots.values()])
    paper_marks = _marks(table, [s.paper[0] if s.paper else None for s in slots.values()])
    return Line(
        "average",
        {
            h: dataclasses.replace(slot, highlight=m, paper_highlight=p)
            for (h, slot), m, p in zip(slots.items(), marks, paper_marks, strict=True)
        },
    )


def _averaged(strata: list[np.ndarray], common: Common, heading: str) -> Ours:
    """Mean and std over seeds of the per-seed average (as the paper's is assumed to be, A8); seeds paired by order."""
    seeds = min(len(s) for s in strata)
    per_seed = np.mean([s[:seeds] for s in strata], axis=0)
    mean, std = float(stats.mean_of_tasks(strata)), float(per_seed.std())
    interval = stats.bootstrap(strata, stats.mean_of_tasks, np.random.default_rng(0))
    cells = [row[heading] for row in common.values()]
    return Ours(
        mean,
        std,
        interval,
        tuple(map(float, per_seed)),
        seeds,
        min(c.steps for c in cells),
        min(c.episodes for c in cells),
        "",
        (max(c.steps for c in cells), max(c.seeds for c in cells)),
    )


def describe(table: Table, records: Iterable[Record]) -> list[str]:
    """The settings to be printed under a table: what was reduced, regenerated or newer than the paper's."""
    records = list(records)
    if not records:
        return []
    paper = tables.expand(table.name, tasks=table.tasks[:1], reps=[table.columns[0].name])[0].config
    puzzle = table.name == "lightsout"  # no simulator and no published files
    facts = [
        ("steps", {f"{r.done:,}" for r in records}, f"{paper['steps']:,}"),
        ("seeds", {str(len(r.seeds)) for r in records}, str(table.seeds)),
        ("episodes per task", {str(r.episodes) for r in records}, str(paper["episodes"])),
        ("data", {_data(r) for r in records}, "random walks of its own" if puzzle else "official files"),
        ("precision", {_precision(r) for r in records}, "float32"),
        ("device", {str(_deep(r.settings, "hardware", "device") or "not recorded") for r in records}, "not stated"),
    ]
    if not puzzle:
        simulators = {str(_deep(r.settings, "versions", "mujoco") or "not recorded") for r in records}
        facts.append(("MuJoCo", simulators, "not stated"))
    return [f"{name}: {', '.join(sorted(values))} (paper: {theirs})" for name, values, theirs in facts]


def _data(record: Record) -> str:
    dataset = record.settings.get("dataset")
    if not isinstance(dataset, dict):
        return "not recorded"
    episodes = f", {dataset['episodes']:,} episodes" if isinstance(dataset.get("episodes"), int) else ""
    return f"{dataset.get('source', 'not recorded')}{episodes}"


def _precision(record: Record) -> str:
    """What products were computed in; a record from before 'auto' says it in its configuration alone."""
    found = (_deep(record.settings, group, "precision") for group in ("hardware", "run"))
    return str(next(filter(None, found), "not recorded"))


def _deep(values: Any, *path: str) -> Any:
    for key in path:
        values = values.get(key) if isinstance(values, dict) else None
    return values

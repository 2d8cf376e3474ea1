"""A table of the paper filled from records: our numbers next to the published ones.

Every measured cell carries seeds, steps and Student's 95 % interval over seeds. Only cells that were trained for the
same number of steps are averaged or marked side by side; the difference of two columns is taken where the shorter run
ends, if the longer one was evaluated at the same steps. `formats.py` turns a filled table into text.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from dualgoal.paper import conditions, stats, tables
from dualgoal.paper.filled import NOISY, Aggregate, Cell, Difference, FilledTable, Improvement, Line, Measured
from dualgoal.paper.row_files import Record
from dualgoal.paper.stats import Interval, Strata
from dualgoal.paper.tables import Number, Table


def fill_table(name: str, records: Iterable[Record] = (), tasks: Iterable[str] | None = None) -> FilledTable:
    """A table with whatever records there are for it; without records, the paper's own numbers.

    With `tasks`, only those rows.
    """
    table = tables.get(name)
    found = assign(table, records)
    extra = [t for t in table.extra if any(task == t for task, _ in found)]
    chosen = [t for t in (*table.tasks, *extra) if tasks is None or t in set(tasks)]
    headings = _headings(table)
    noise = lambda task, heading: table.noise[task] if heading.endswith(NOISY) else 0.0
    measured = {key: measure(record, noise(*key)) for key, record in found.items()}
    lines = [_line(table, task, {h: measured.get((task, h)) for h in headings}) for task in chosen]
    common, by = _common_lines(table, lines)
    averaged = table.average and (common or (table.published and len(chosen) == len(table.tasks)))
    return FilledTable(
        table.name,
        table.label,
        table.title,
        headings,
        lines,
        _average(table, headings, common, by) if averaged else None,
        len(common) or len(table.tasks),
        {heading: _aggregate(strata) for heading, strata in _strata(common, by).items()},
        _improvement(lines),
        _differences(table, lines, found),
        conditions.describe(table, [record for (task, _), record in found.items() if task in chosen]),
    )


def _headings(table: Table) -> dict[str, str]:
    """Column names with their headings; with noise, a clean and a noisy column for each."""
    out = {}
    for column in table.columns:
        out[column.name] = column.title
        if table.noise:
            out[column.name + NOISY] = f"{column.title}, noisy goal"
    return out


def assign(table: Table, records: Iterable[Record]) -> dict[tuple[str, str], Record]:
    """The record of each (task, column).

    A record made for this table takes precedence over one shared with another table; then the longest, then the one
    with most seeds.
    """
    best: dict[tuple[str, str], tuple[tuple[bool, int, int], Record]] = {}
    for record in records:
        made_for = tables.get(record.table).column(record.column)
        for column in table.columns:
            own = (record.table, record.column) == (table.name, column.name)
            if record.task not in table.known_tasks or not (own or tables.same_run(column, made_for)):
                continue
            rank = (own, record.done, len(record.seeds))
            key = (record.task, column.name)
            if key not in best or rank > best[key][0]:
                best[key] = (rank, record)
    chosen = {key: record for key, (_, record) in best.items()}
    if table.noise:
        chosen |= {(task, column + NOISY): record for (task, column), record in chosen.items()}
    return chosen


def measure(record: Record, goal_noise: float = 0.0, until: int | None = None) -> Measured | None:
    """The numbers of a run's evaluations with this goal noise, up to this step; None if there are none."""
    scores = record.scores(goal_noise, until)
    values = scores.per_seed()
    if not values.size:
        return None
    mean, std = stats.mean_std(values)
    return Measured(
        mean,
        std,
        stats.success_interval(values),
        tuple(map(float, values)),
        len(values),
        max(scores.counted()),
        record.episodes,
        record.source,
        float(np.nanmean(scores.curve())),
        record.steps,
    )


def _interval(strata: Strata, statistic: Callable[[Strata], np.ndarray]) -> Interval | None:
    return stats.bootstrap(strata, statistic, np.random.default_rng(0))


def _line(table: Table, task: str, measured: Mapping[str, Measured | None]) -> Line:
    printed = tables.paper().get(table.name, {}).get(task, {})
    unequal = len({m.steps for m in measured.values() if m and m.finished}) > 1
    cells = {heading: _cell(m, printed.get(heading)) for heading, m in measured.items()}
    return Line(task, _highlighted(table, cells, ours=not unequal), unequal)


def _cell(measured: Measured | None, paper: Number | None) -> Cell:
    if not paper or not measured or not measured.interval or not measured.finished:
        return Cell(measured, paper)
    low, high = measured.interval
    return Cell(measured, paper, paper_in_interval=low - 0.5 <= paper[0] <= high + 0.5)  # printed as whole percents


def _highlighted(table: Table, cells: dict[str, Cell], ours: bool = True) -> dict[str, Cell]:
    """The cells with their highlights, those of our numbers only where they may be compared."""
    compared = [c.measured if ours and c.measured and c.measured.finished else None for c in cells.values()]
    marks = _marks(table, [None if m is None else m.mean for m in compared])
    paper_marks = _marks(table, [c.paper[0] if c.paper else None for c in cells.values()])
    return {
        heading: dataclasses.replace(cell, highlight=mark, paper_highlight=paper_mark)
        for (heading, cell), mark, paper_mark in zip(cells.items(), marks, paper_marks, strict=True)
    }


def _marks(table: Table, values: list[float | None]) -> list[bool]:
    """The highlight rule on whole percents, as printed; a single number is not highlighted."""
    rounded = [None if v is None else float(round(v)) for v in values]
    if not table.highlight or sum(v is not None for v in rounded) < 2:
        return [False] * len(values)
    return stats.highlights(rounded)


def _common_lines(table: Table, lines: list[Line]) -> tuple[list[Line], str | None]:
    """What averages are taken over: the rows that the first two contrasted columns share at equal steps, and one of the
    two, whose steps the other columns need as well.

    Without such a row, those that every measured column has at equal steps.
    """
    for above, below in table.contrasts:
        if both := [line for line in lines if _equally_long(line, above, below)]:
            return both, above
    columns = {heading for line in lines for heading in line.finished()}
    equal = [line for line in lines if columns and set(line.finished()) == columns and not line.unequal_steps]
    return equal, next(iter(columns), None)


def _equally_long(line: Line, *headings: str) -> bool:
    """Whether these columns of a row were all trained to their end, for the same number of steps."""
    found = [line.finished().get(heading) for heading in headings]
    return len({cell and cell.steps for cell in found}) == 1 and None not in found


def _strata(common: list[Line], by: str | None) -> dict[str, list[np.ndarray]]:
    """The scores over seeds of each column that has all of these tasks, for as many steps as the column `by`."""
    if by is None or not common:
        return {}
    headings = [h for h in common[0].cells if all(_equally_long(line, h, by) for line in common)]
    return {heading: [np.array(line.finished()[heading].scores) for line in common] for heading in headings}


def _aggregate(strata: list[np.ndarray]) -> Aggregate:
    return Aggregate(
        float(stats.mean_of_tasks(strata)),
        _interval(strata, stats.mean_of_tasks),
        float(stats.iqm_of_all(strata)),
        _interval(strata, stats.iqm_of_all),
    )


def _improvement(lines: list[Line]) -> dict[str, Improvement]:
    """Dual against each other column, on the tasks where both were trained for the same number of steps."""
    out = {}
    for heading in lines[0].cells if lines and "dual" in lines[0].cells else ():
        pairs = [(line.cells["dual"].measured, line.cells[heading].measured) for line in lines]
        both = [(a, b) for a, b in pairs if a and b and a.finished and b.finished and a.steps == b.steps]
        if heading != "dual" and not heading.endswith(NOISY) and both:
            x, y = [np.array(a.scores) for a, _ in both], [np.array(b.scores) for _, b in both]
            interval = stats.improvement_interval(x, y, np.random.default_rng(0))
            out[heading] = Improvement(float(stats.improvement(x, y)), interval, len(both))
    return out


def _differences(table: Table, lines: list[Line], records: Mapping[tuple[str, str], Record]) -> list[Difference]:
    out = []
    for line, columns in itertools.product(lines, table.contrasts):
        if set(columns) <= set(line.finished()):
            pair = _to_the_same_step(*(records[line.name, name] for name in columns))
            if pair is not None:
                above, below = pair
                gap = stats.difference(np.array(above.scores), np.array(below.scores), np.random.default_rng(0))
                seeds = (above.seeds, below.seeds)
                out.append(Difference(line.name, columns, gap.mean, gap.bootstrap, gap.welch, seeds, above.steps))
    return out


def _to_the_same_step(*records: Record) -> tuple[Measured, ...] | None:
    """The numbers of these runs at the step where the shortest ended; None if their last evaluations until then are at
    different steps, unless all are equally long."""
    until = min(record.done for record in records)
    if len({record.done for record in records}) > 1 and len({r.scores(until=until).counted() for r in records}) > 1:
        return None
    return tuple(found for record in records if (found := measure(record, until=until)))


def _average(table: Table, headings: Iterable[str], common: list[Line], by: str | None) -> Line:
    """The Average row. When only some tasks were run, the paper's numbers are averaged over the same tasks."""
    strata = _strata(common, by)
    printed = _printed_average(table, common)
    cells = {}
    for heading in headings:
        measured = _averaged([line.finished()[heading] for line in common]) if heading in strata else None
        cells[heading] = _cell(measured, printed.get(heading))
    return Line("average", _highlighted(table, cells))


def _printed_average(table: Table, common: list[Line]) -> dict[str, Number]:
    """The paper's averages over these tasks, as printed if these are all tasks (or none was run)."""
    printed = tables.paper().get(table.name, {})
    if not common or len(common) == len(table.tasks):
        return printed.get("average", {})
    rows = [printed[line.name] for line in common if line.name in printed]
    return {column: (float(np.mean([row[column][0] for row in rows])), None) for column in (rows[0] if rows else ())}


def _averaged(cells: list[Measured]) -> Measured:
    """Mean and standard deviation over seeds of the average over tasks (assumed to be the paper's convention, A8).

    Seeds of different tasks are paired by their order.
    """
    strata = [np.array(cell.scores) for cell in cells]
    seeds = min(map(len, strata))
    per_seed = np.mean([scores[:seeds] for scores in strata], axis=0)
    return Measured(
        float(stats.mean_of_tasks(strata)),
        float(per_seed.std()),
        _interval(strata, stats.mean_of_tasks),
        tuple(map(float, per_seed)),
        seeds,
        min(cell.steps for cell in cells),
        min(cell.episodes for cell in cells),
        source="",
        largest=(max(cell.steps for cell in cells), max(cell.seeds for cell in cells)),
    )

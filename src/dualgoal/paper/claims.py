"""What the paper claims in words, as questions that a table can answer (sections 7.1, 8 and 10 of the method).

Each claim is judged by means only. The verdict is holds, does not hold or not run, with the numbers used. The same
judges are applied to the paper's own numbers and to ours; ours usually cover some of the tasks, which it names.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from dualgoal.errors import number_of
from dualgoal.paper import comparison, tables
from dualgoal.paper.filled import Measured
from dualgoal.paper.row_files import Record

REPS = ("orig", "vib", "vip", "tra", "byol", "dual")
VISUAL_PUZZLES = ("visual-puzzle-3x3-play-v0", "visual-puzzle-4x4-play-v0")
CURVE = "_curve"  # ending of the names under which a row has the mean of a column's learning curve

Row = Mapping[str, float]  # mean scores by column
Rows = Mapping[str, Row]  # by task


@dataclass(frozen=True)
class Verdict:
    """An answer: `holds` is None when there are no numbers to judge by; `whole` is False when some are missing."""

    holds: bool | None
    detail: str = ""
    whole: bool = True

    def __str__(self) -> str:
        word = "so far " * (not self.whole) + {True: "holds", False: "does not hold", None: "not run"}[self.holds]
        return f"{word}: {self.detail}" if self.detail else word


@dataclass(frozen=True)
class Means:
    """Mean scores by table, task and column, from the paper or from us."""

    rows: Mapping[str, Rows]

    def averages(self, table: str) -> Row:
        """Column averages over the tasks that every present column has."""
        rows, printed = self._of_table(table)
        if printed is not None:
            return printed
        columns = {column for row in rows.values() for column in row}
        common = [row for row in rows.values() if set(row) == columns]
        return {c: float(np.mean([row[c] for row in common])) for c in (common[0] if common else ())}

    def against(self, table: str, column: str) -> list[tuple[Row, int]]:
        """A column against all others: averages over the tasks that both have, and how many tasks that are.

        Others with the same tasks share an entry, and the entry with most tasks comes first.
        """
        rows, printed = self._of_table(table)
        if printed is not None:
            return [(printed, len(rows))]
        shared: dict[tuple[str, ...], list[str]] = {}
        for other in dict.fromkeys(c for row in rows.values() for c in row if c != column):
            tasks = tuple(task for task, row in rows.items() if column in row and other in row)
            shared.setdefault(tasks, []).append(other)
        return [
            ({c: float(np.mean([rows[task][c] for task in tasks])) for c in (*others, column)}, len(tasks))
            for tasks, others in sorted(shared.items(), key=lambda item: -len(item[0]))
            if tasks
        ]

    def _of_table(self, table: str) -> tuple[dict[str, Row], Row | None]:
        """The rows of a table, and its printed averages, if there are any."""
        rows = {task: _scores_only(row) for task, row in self.rows.get(table, {}).items()}
        return rows, rows.pop("average", None)


def _scores_only(row: Row) -> Row:
    return {column: value for column, value in row.items() if not column.endswith(CURVE)}


def of_paper() -> Means:
    """The published means."""
    return Means(
        {
            table: {task: {column: mean for column, (mean, _) in row.items()} for task, row in rows.items()}
            for table, rows in tables.paper().items()
        }
    )


def of_records(records: Iterable[Record]) -> Means:
    """Our means. Each row has only the cells that were trained for the number of steps most common in it."""
    records = list(records)
    rows: dict[str, dict[str, dict[str, float]]] = {}
    for name in tables.TABLES:
        for line in comparison.fill_table(name, records).lines:
            for column, cell in _equally_long(line.finished()).items():
                row = rows.setdefault(name, {}).setdefault(line.name, {})
                row |= {column: cell.mean} | ({} if cell.curve_mean is None else {column + CURVE: cell.curve_mean})
    return Means(rows)


def _equally_long(cells: Mapping[str, Measured]) -> dict[str, Measured]:
    """The largest set of cells that were trained for the same number of steps; of two, the one trained longer."""
    counts = Counter(cell.steps for cell in cells.values())
    steps = max(counts, key=lambda steps: (counts[steps], steps), default=0)
    return {column: cell for column, cell in cells.items() if cell.steps == steps}


# Three kinds of judges ------------------------------------------------------------------------------------------------

Judge = Callable[[Means], Verdict]


def rows_satisfy(
    table: str,
    columns: Collection[str],
    holds: Callable[[Rows], bool],
    detail: Callable[[Rows], str],
    tasks: tuple[str, ...] = (),
) -> Judge:
    """A condition on the rows (of `tasks`, or of the whole table) that have all these columns."""
    wanted = tasks or tables.get(table).tasks

    def judge(means: Means) -> Verdict:
        found = means.rows.get(table, {})
        rows = {task: found[task] for task in wanted if task in found and set(columns) <= set(found[task])}
        return Verdict(holds(rows), detail(rows), len(rows) == len(wanted)) if rows else Verdict(None)

    return judge


def best_average(
    table: str,
    column: str = "dual",
    among: tuple[str, ...] = REPS,
    detail: str = "average of {tasks}: {all}",
    strictly: bool = False,
) -> Judge:
    """A column's average, rounded as printed, is above (or equal to) every other; `among` are all columns there are."""

    def judge(means: Means) -> Verdict:
        leads, said, found = [], [], set()
        for averages, count in means.against(table, column):
            shown = {name: round(value) for name, value in averages.items()}
            words = {"count": count, "tasks": number_of(count, "task"), "all": _listed(shown)}
            leads.append(shown[column] - max(value for name, value in shown.items() if name != column))
            said.append(detail.format(**words, **shown))
            found.add((count, frozenset(shown)))
        if not leads:
            return Verdict(None)
        whole = found == {(len(tables.get(table).tasks), frozenset(among))}
        return Verdict(min(leads) > 0 if strictly else min(leads) >= 0, "; ".join(said), whole)

    return judge


def least_sensitive(means: Means) -> Verdict:
    """Dual's average has the best rank under each algorithm; the spread of the averages is shown as well."""
    found = {algo: means.averages(f"state_{algo}") for algo in ("gcivl", "crl", "gcfbc")}
    reps = [rep for rep in REPS if all(rep in averages for averages in found.values())]
    if "dual" not in reps or len(reps) < 2:
        return Verdict(None)
    ranks = {r: [1 + sum(round(a[o]) > round(a[r]) for o in reps) for a in found.values()] for r in reps}
    spread = {r: round(max(a[r] for a in found.values()) - min(a[r] for a in found.values())) for r in reps}
    steadiest = min(spread, key=lambda rep: spread[rep])
    other = f", by which {steadiest} is the steadiest" if steadiest != "dual" else ""
    places = ", ".join(map(str, ranks["dual"]))
    detail = f"rank of Dual's average {places}; spread of averages {_listed(spread)}{other}"
    return Verdict(sum(ranks["dual"]) == min(map(sum, ranks.values())), detail)


def _listed(values: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


def each(template: str, separator: str = "; ", before: str = "") -> Callable[[Rows], str]:
    """A sentence for every row, with its task and its scores by column."""
    return lambda rows: before + separator.join(template.format(task=task, **row) for task, row in rows.items())


def where(condition: Callable[[Row], bool], rows: Rows) -> list[str]:
    """The tasks whose rows satisfy a condition."""
    return sorted(task for task, row in rows.items() if condition(row))


def _dual_is_best(row: Row) -> bool:
    return round(row["dual"]) == max(map(round, _scores_only(row).values()))


def _where_best(rows: Rows) -> str:
    others = where(lambda row: not _dual_is_best(row), rows)
    exceptions = f" (not on {', '.join(others)})" if others else ""
    columns = {column for row in rows.values() for column in _scores_only(row)}
    alone = "" if columns == set(REPS) else f", of {' and '.join(sorted(columns))} alone"
    return f"best or equal on {len(rows) - len(others)} of {len(rows)}{exceptions}{alone}"


def _direct_is_better(row: Row) -> bool:
    return row["dual_direct"] > row["dual"]


def _representations(rows: Rows) -> list[float]:
    """The scores of all columns but Orig."""
    return [value for row in rows.values() for column, value in _scores_only(row).items() if column != "orig"]


# The claims -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper and how it is judged."""

    words: str
    judge: Judge


# fmt: off
CLAIMS: dict[str, Claim] = {
    "best_average_gcivl": Claim("Dual has the best average with GCIVL", best_average("state_gcivl")),
    "best_average_crl": Claim("Dual has the best average with CRL", best_average("state_crl")),
    "best_average_gcfbc": Claim("Dual has the best average (or an equal one) with GCFBC", best_average("state_gcfbc")),
    "three_times": Claim("With CRL on cube-single, Dual scores three times what Orig does", rows_satisfy(
        "state_crl", ("orig", "dual"), tasks=("cube-single-play-v0",),
        holds=lambda rows: all(row["dual"] >= 3 * row["orig"] - 0.5 for row in rows.values()),
        detail=lambda rows: "; ".join("Orig {orig:.0f}, Dual {dual:.0f}: ".format(**row) + (
            f"{row['dual'] / row['orig']:.1f} times" if row["orig"] else "from nothing") for row in rows.values()))),
    "pixels": Claim("On images, Dual is best or equal on 5 of 7 tasks", rows_satisfy(
        "pixel_gcivl", ("orig", "dual"), detail=_where_best,
        holds=lambda rows: len(where(_dual_is_best, rows)) >= min(5, len(rows)))),
    "visual_puzzles": Claim("On the visual puzzles every representation scores 0", rows_satisfy(
        "pixel_gcivl", ("orig", "dual"), tasks=VISUAL_PUZZLES,
        holds=lambda rows: round(max(_representations(rows))) == 0,
        detail=lambda rows: f"largest of {len(_representations(rows))} entries: {max(_representations(rows)):.0f}")),
    "fusion": Claim("On the visual puzzles early fusion beats late fusion", rows_satisfy(
        "fusion", ("early", "late"), lambda rows: all(row["early"] > row["late"] for row in rows.values()),
        each("{early:.0f} against {late:.0f}", ", ", before="early against late: "))),
    "inner": Claim("The inner product beats the symmetric form on average (42 against 38)", best_average(
        "parameterization", "dual_inner_product", ("dual_symmetric", "dual_inner_product"),
        "average of {count}: inner {dual_inner_product}, symmetric {dual_symmetric}", strictly=True)),
    "direct": Claim("Extracting the policy directly is worse, except on antmaze-large", rows_satisfy(
        "direct", ("dual_direct", "dual"),
        holds=lambda rows: set(where(_direct_is_better, rows)) == {"antmaze-large-navigate-v0"} & set(rows),
        detail=lambda rows: f"Direct is better on {', '.join(where(_direct_is_better, rows)) or 'none'} of "
                            f"{len(rows)} tasks")),
    "noise": Claim("Dual loses less than Orig when goals are noisy", rows_satisfy(
        "noise", ("orig", "orig_noisy", "dual", "dual_noisy"),
        lambda rows: all(row["dual"] - row["dual_noisy"] < row["orig"] - row["orig_noisy"] for row in rows.values()),
        each("{task}: Orig {orig:.0f} to {orig_noisy:.0f}, Dual {dual:.0f} to {dual_noisy:.0f}"))),
    # Faster: a larger mean of the learning curve.
    "lightsout": Claim("On Lights Out, Dual learns faster and ends higher", rows_satisfy(
        "lightsout", ("orig", "orig_curve", "dual", "dual_curve"),
        lambda rows: all(row["dual" + end] > row["orig" + end] for row in rows.values() for end in ("", CURVE)),
        each("{task}, Orig and Dual: end {orig:.0f} and {dual:.0f}, "
             "mean of the curve {orig_curve:.0f} and {dual_curve:.0f}"))),
    "sensitivity": Claim("Dual is the least sensitive to the choice of algorithm", least_sensitive),
}
# fmt: on


def judge(means: Means) -> dict[str, Verdict]:
    return {name: claim.judge(means) for name, claim in CLAIMS.items()}


def lines(records: Iterable[Record]) -> list[tuple[str, str, str]]:
    """(claim, on the paper's numbers, on ours), as printed under the tables. Figures have no published numbers."""
    paper, ours = judge(of_paper()), judge(of_records(records))
    theirs = {name: str(v) if v.holds is not None else "a figure, no published numbers" for name, v in paper.items()}
    return [(claim.words, theirs[name], str(ours[name])) for name, claim in CLAIMS.items()]

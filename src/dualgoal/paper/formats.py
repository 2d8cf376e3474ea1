"""A filled table as text, Markdown and LaTeX, always with the paper's numbers next to ours and the settings below.

Whole percents as in the paper; `*` (bold in Markdown and LaTeX) marks entries at 95 % of the row's best; `=` after a
published number says that it lies inside our 95 % interval.
"""

from collections.abc import Callable

from dualgoal import texts
from dualgoal.errors import number_of
from dualgoal.paper.filled import Cell, Difference, FilledTable, Line, Measured
from dualgoal.paper.tables import Number

NOT_RUN = "not run"


def text(filled: FilledTable) -> str:
    """Plain text for a terminal."""
    rows = [["", *filled.headings.values()]]
    for line in _lines(filled):
        rows += _text_rows(filled, line)
    head, *body = texts.aligned(rows, right=range(1, len(rows[0])))
    rule = "-" * max(map(len, [head, *body]))
    below = notes(filled)
    return "\n".join([heading(filled), "", head, rule, *body, *[""] * bool(below), *below, ""])


def heading(filled: FilledTable) -> str:
    """One line above a table."""
    return f"{filled.name} ({filled.label}): {filled.title}. Success in percent, mean ± std over seeds."


def notes(filled: FilledTable) -> list[str]:
    """What is printed under a table: aggregates, improvements, settings, and rows that cannot be compared."""
    out = []
    for name, a in filled.aggregates.items():
        out.append(
            f"{filled.headings[name]}: IQM {a.iqm:.1f} {span(a.iqm_interval)}, mean {a.mean:.1f} "
            f"{span(a.mean_interval)} over {number_of(filled.average_tasks, 'task')}"
        )
    for name, i in filled.improvement.items():
        words = f"probability that Dual improves on {filled.headings[name]}: {i.probability:.2f} {span(i.interval, 2)}"
        out.append(f"{words} over {number_of(i.tasks, 'task')}")
    for d in filled.differences:
        above, below = (filled.headings[name] for name in d.columns)
        out.append(
            f"{above} minus {below} on {d.task}: {d.mean:+.1f} points after {d.steps:,} steps, 95 % interval "
            f"{_both(d)}, {d.seeds[0]} and {d.seeds[1]} seeds"
        )
    out += filled.settings
    out += [
        f"{line.name}: columns were trained for different numbers of steps, so that none is marked as best"
        for line in filled.lines
        if line.unequal_steps
    ]
    out += [
        f"{line.name}: {', '.join(filled.headings[name] for name in cut)} not finished, and not compared"
        for line in filled.lines
        if (cut := [name for name in line.measured() if name not in line.finished()])
    ]
    return out


def _both(d: Difference) -> str:
    """The two intervals of a difference."""
    if d.bootstrap is None and min(d.seeds) > 1:
        return "(the seeds agree, no interval)"
    return f"{span(d.bootstrap)} by bootstrap, {span(d.welch)} by Welch"


def span(interval: tuple[float, float] | None, digits: int = 1) -> str:
    """A 95 % interval, or why there is none."""
    return f"[{interval[0]:.{digits}f}, {interval[1]:.{digits}f}]" if interval else "(one seed, no interval)"


def number(value: Number | Measured | None, missing: str = "") -> str:
    """Mean and standard deviation in whole percents."""
    if value is None:
        return missing
    mean, std = (value.mean, value.std) if isinstance(value, Measured) else value
    return f"{mean:.0f}" if std is None else f"{mean:.0f}±{std:.0f}"


def _lines(filled: FilledTable) -> list[Line]:
    return [*filled.lines, *([filled.average] if filled.average else [])]


def _label(filled: FilledTable, line: Line) -> str:
    partial = line is filled.average and filled.has_measurements()
    return f"average of {number_of(filled.average_tasks, 'task')}" if partial else line.name


def _text_rows(filled: FilledTable, line: Line) -> list[list[str]]:
    cells = list(line.cells.values())
    inside = lambda cell: " =" * bool(cell.paper_in_interval)
    paper = [number(cell.paper) + "*" * cell.paper_highlight + inside(cell) for cell in cells]
    if not filled.has_measurements():
        return [[_label(filled, line), *paper]]
    rows = [[_label(filled, line), *(number(cell.measured, NOT_RUN) + "*" * cell.highlight for cell in cells)]]
    if line.measured():
        rows.append(["  95 % interval", *(_bounds(cell) for cell in cells)])
        rows.append(["  steps x seeds", *(_trained(cell.measured) if cell.measured else "" for cell in cells)])
    return [*rows, ["  paper", *paper]] if any(cell.paper for cell in cells) else rows


def _bounds(cell: Cell) -> str:
    interval = cell.measured and cell.measured.interval
    return f"{interval[0]:.0f}-{interval[1]:.0f}" if interval else ""


def _trained(measured: Measured) -> str:
    """Steps x seeds: 200k x 8; not finished 60k of 200k x 8; for an average of unequal cells 200k-1M x 2-8."""
    steps, seeds = measured.largest or (measured.steps, measured.seeds)
    between = lambda low, high: low if low == high else f"{low}-{high}"
    planned = "" if measured.finished or measured.planned is None else f" of {short(measured.planned)}"
    return f"{between(short(measured.steps), short(steps))}{planned} x {between(str(measured.seeds), str(seeds))}"


def with_steps(measured: Measured) -> str:
    """Mean, standard deviation, steps and seeds."""
    return f"{number(measured)}, {_trained(measured)}"


def short(steps: int) -> str:
    """1000000 as 1M, 200000 as 200k: numbers of steps in tables and along axes."""
    for unit, letter in ((1_000_000, "M"), (1_000, "k")):
        if steps >= unit and steps % (unit // 10) == 0:
            return f"{steps / unit:g}{letter}"
    return str(steps)


def markdown(filled: FilledTable) -> str:
    """A pipe table; each cell is ours with its interval, steps and seeds, then the paper's in parentheses."""
    rows = [["task", *filled.headings.values()]]
    for line in _lines(filled):
        rows.append([_label(filled, line), *(_markdown_cell(filled, cell) for cell in line.cells.values())])
    table = texts.markdown(rows, right=range(1, len(rows[0])))
    return "\n".join([*table, "", *[f"- {note}" for note in notes(filled)]]).rstrip() + "\n"


def _markdown_cell(filled: FilledTable, cell: Cell) -> str:
    paper = _bold(number(cell.paper), cell.paper_highlight)
    if not filled.has_measurements():
        return paper
    theirs = f" (paper {paper})" if cell.paper else ""
    if not cell.measured:
        return NOT_RUN + theirs
    interval = f" [{_bounds(cell)}]" if cell.measured.interval else ""
    return f"{_bold(number(cell.measured), cell.highlight)}{interval}, {_trained(cell.measured)}{theirs}"


def _bold(word: str, on: bool) -> str:
    return f"**{word}**" if on and word else word


def latex(filled: FilledTable) -> str:
    """A tabular that compiles without packages; settings follow as comments and as a small paragraph."""
    columns = "l" + "r" * len(filled.headings)
    out = [
        f"% {heading(filled)}",
        rf"\begin{{tabular}}{{{columns}}}",
        r"\hline",
        " & ".join(["", *map(escape, filled.headings.values())]) + r" \\",
        r"\hline",
    ]
    ours = lambda cell: (number(cell.measured, "--"), cell.highlight)
    paper = lambda cell: (number(cell.paper, "--"), cell.paper_highlight)
    for line in _lines(filled):
        label = escape(_label(filled, line))
        out.append(_latex_row(label, line, ours if filled.has_measurements() else paper))
        if filled.has_measurements():
            out.append(_latex_row("~~paper", line, paper, small=True))
    out += [r"\hline", r"\end{tabular}"]
    if notes(filled):
        out += ["", r"{\footnotesize " + r" \\ ".join(escape(note) for note in notes(filled)) + "}"]
    return "\n".join(out) + "\n"


def _latex_row(label: str, line: Line, entry: Callable[[Cell], tuple[str, bool]], small: bool = False) -> str:
    def typeset(cell: Cell) -> str:
        word, bold = entry(cell)
        maths = word.replace("±", r" \pm ")
        word = word if word == "--" else rf"$\mathbf{{{maths}}}$" if bold else f"${maths}$"
        return rf"{{\scriptsize {word}}}" if small else word

    return " & ".join([label, *(typeset(cell) for cell in line.cells.values())]) + r" \\"


def escape(word: str) -> str:
    """Text for LaTeX."""
    special = {"\\": r"\textbackslash{}", "γ": r"$\gamma$", "±": r"$\pm$", "~": r"\~{}", "^": r"\^{}"}
    special |= {c: "\\" + c for c in "&%$#_{}"}
    return "".join(special.get(c, c) for c in word)

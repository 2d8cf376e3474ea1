"""A filled table as text, Markdown and LaTeX, always with the paper's numbers beside ours and the settings under it.

Whole percents as in the paper; `*` (bold in Markdown and LaTeX) marks entries at 95 % of the row's best; `=` after a
published number says that it lies inside our 95 % interval.
"""

from collections.abc import Callable

from dualgoal.paper import filled as compare
from dualgoal.paper import tables
from dualgoal.paper.filled import Filled, Line, Ours, Slot
from dualgoal.paper.tables import Number

NOT_RUN = "not run"


def text(filled: Filled) -> str:
    """Plain text for a terminal."""
    rows = [["", *filled.headings.values()]]
    for line in _lines(filled):
        rows += _text_rows(filled, line)
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    body = [
        "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))]).rstrip()
        for row in rows
    ]
    rule = "-" * (sum(widths) + 2 * (len(widths) - 1))
    return "\n".join([heading(filled), "", body[0], rule, *body[1:], *[""] * bool(notes(filled)), *notes(filled), ""])


def _aligned(row: list[str], widths: list[int]) -> str:
    cells = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
    return "  ".join([row[0].ljust(widths[0]), *cells]).rstrip()


def heading(filled: Filled) -> str:
    return f"{filled.name} ({filled.label}): {filled.title}. Success in percent, mean ± std over seeds."


def notes(filled: Filled) -> list[str]:
    """What stands under a table: aggregates, improvement, settings, and rows that cannot be compared."""
    out = []
    for name, a in filled.aggregates.items():
        out.append(
            f"{filled.headings[name]}: IQM {a.iqm:.1f} {span(a.iqm_interval)}, mean {a.mean:.1f} "
            f"{span(a.mean_interval)} over {_tasks(filled.average_tasks)}"
        )
    for name, i in filled.improvement.items():
        words = f"probability that Dual improves on {filled.headings[name]}: {i.probability:.2f} {span(i.interval, 2)}"
        out.append(f"{words} over {_tasks(i.tasks)}")
    for task, d in filled.differences.items():
        above, below = (filled.headings[name] for name in d.columns)
        out.append(
            f"{above} minus {below} on {task}: {d.mean:+.1f} points after {d.steps:,} steps, 95 % interval "
            f"{span(d.bootstrap)} by bootstrap, {span(d.welch)} by Welch, {d.seeds[0]} and {d.seeds[1]} seeds"
        )
    out += filled.settings
    out += [
        f"{line.name}: columns were trained for different numbers of steps and are not compared"
        for line in filled.lines
        if line.mixed
    ]
    return out


def span(interval: tuple[float, float] | None, digits: int = 1) -> str:
    """A 95 % interval, or why there is none."""
    return f"[{interval[0]:.{digits}f}, {interval[1]:.{digits}f}]" if interval else "(one seed, no interval)"


def number(value: Number | Ours | None, missing: str = "") -> str:
    if value is None:
        return missing
    mean, std = (value.mean, value.std) if isinstance(value, Ours) else value
    return f"{mean:.0f}" if std is None else f"{mean:.0f}±{std:.0f}"


def _tasks(count: int) -> str:
    return f"{count} task" + "s" * (count != 1)


def _lines(filled: Filled) -> list[Line]:
    return [*filled.lines, *([filled.average] if filled.average else [])]


def _label(filled: Filled, line: Line) -> str:
    partial = line is filled.average and filled.has_ours()
    return f"average of {_tasks(filled.average_tasks)}" if partial else line.name


def _text_rows(filled: Filled, line: Line) -> list[list[str]]:
    slots = list(line.slots.values())
    paper = ["paper" if filled.has_ours() else _label(filled, line), *(_paper(s) for s in slots)]
    if not filled.has_ours():
        return [paper]
    ours = [_label(filled, line), *(number(s.ours, NOT_RUN) + "*" * s.highlight for s in slots)]
    bounds = ["  95 % interval", *(_bounds(s) for s in slots)]
    trained = ["  steps x seeds", *(_trained(s.ours) if s.ours else "" for s in slots)]
    rows = [ours]
    if any(s.ours for s in slots):
        rows += [bounds, trained]
    return [*rows, ["  " + paper[0], *paper[1:]]] if any(s.paper for s in slots) else rows


def _paper(slot: Slot) -> str:
    return number(slot.paper) + "*" * slot.paper_highlight + " =" * bool(slot.inside)


def _bounds(slot: Slot) -> str:
    return f"{slot.ours.interval[0]:.0f}-{slot.ours.interval[1]:.0f}" if slot.ours and slot.ours.interval else ""


def _trained(ours: Ours) -> str:
    """Steps x seeds: 200k x 8; of an average over unequal cells 200k-1M x 2-8."""
    steps, seeds = ours.most or (ours.steps, ours.seeds)
    span = lambda low, high: low if low == high else f"{low}-{high}"
    return f"{span(short(ours.steps), short(steps))} x {span(str(ours.seeds), str(seeds))}"


def short(steps: int) -> str:
    """1000000 as 1M, 200000 as 200k."""
    for unit, letter in ((1_000_000, "M"), (1_000, "k")):
        if steps >= unit and steps % (unit // 10) == 0:
            return f"{steps / unit:g}{letter}"
    return str(steps)


def markdown(filled: Filled) -> str:
    """A pipe table; each cell is ours with its interval, steps and seeds, then the paper's in parentheses."""
    head = ["task", *filled.headings.values()]
    rows = [head, ["---"] + ["---:"] * (len(head) - 1)]
    for line in _lines(filled):
        rows.append([_label(filled, line), *(_markdown_cell(filled, slot) for slot in line.slots.values())])
    table = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([*table, "", *[f"- {note}" for note in notes(filled)]]).rstrip() + "\n"


def _markdown_cell(filled: Filled, slot: Slot) -> str:
    paper = _bold(number(slot.paper), slot.paper_highlight)
    if not filled.has_ours():
        return paper
    theirs = f" (paper {paper})" if slot.paper else ""
    if not slot.ours:
        return NOT_RUN + theirs
    interval = f" [{_bounds(slot)}]" if slot.ours.interval else ""
    ours = _bold(number(slot.ours), slot.highlight)
    return f"{ours}{interval}, {_trained(slot.ours)}{theirs}"


def _bold(word: str, on: bool) -> str:
    return f"**{word}**" if on and word else word


def latex(filled: Filled) -> str:
    """A tabular that compiles without packages; settings follow as comments and as a small paragraph."""
    columns = "l" + "r" * len(filled.headings)
    out = [
        f"% {heading(filled)}",
        rf"\begin{{tabular}}{{{columns}}}",
        r"\hline",
        " & ".join(["", *map(escape, filled.headings.values())]) + r" \\",
        r"\hline",
    ]
    for line in _lines(filled):
        if filled.has_ours():
            out.append(_latex_row(_label(filled, line), line, lambda s: (number(s.ours, "--"), s.highlight)))
            out.append(_latex_row("~~paper", line, lambda s: (number(s.paper, "--"), s.paper_highlight), small=True))
        else:
            out.append(_latex_row(_label(filled, line), line, lambda s: (number(s.paper, "--"), s.paper_highlight)))
    out += [r"\hline", r"\end{tabular}"]
    if notes(filled):
        out += ["", r"{\footnotesize " + r" \\ ".join(escape(note) for note in notes(filled)) + "}"]
    return "\n".join(out) + "\n"


def _latex_row(label: str, line: Line, cell: Callable[[Slot], tuple[str, bool]], small: bool = False) -> str:
    def typeset(slot: Slot) -> str:
        word, bold = cell(slot)
        word = "$" + word.replace("±", r" \pm ") + "$" if word != "--" else word
        word = rf"$\mathbf{{{word.strip('$')}}}$" if bold else word
        return rf"{{\scriptsize {word}}}" if small else word

    head = label if label.startswith("~") else escape(label)
    return " & ".join([head, *(typeset(slot) for slot in line.slots.values())]) + r" \\"


def escape(word: str) -> str:
    """Text for LaTeX."""
    special = {"\\": r"\textbackslash{}", "γ": r"$\gamma$", "±": r"$\pm$", "~": r"\~{}", "^": r"\^{}"}
    special |= {c: "\\" + c for c in "&%$#_{}"}
    return "".join(special.get(c, c) for c in word)


def paper_tables() -> str:
    """Every published table as text, averages recomputed: what this package takes the paper's numbers to be."""
    return "\n".join(text(compare.fill(name)) + _recomputed(name) for name in tables.paper())


def _recomputed(name: str) -> str:
    rows = tables.paper()[name]
    if "average" not in rows:
        return ""
    entries = {c: [row[c][0] for task, row in rows.items() if task != "average"] for c in rows["average"]}
    means = {c: sum(values) / len(values) for c, values in entries.items()}
    words = [
        f"{c} {mean:.1f}" + f" (printed {rows['average'][c][0]})" * (round(mean) != rows["average"][c][0])
        for c, mean in means.items()
    ]
    return f"\naverages recomputed from the entries: {', '.join(words)}\n"

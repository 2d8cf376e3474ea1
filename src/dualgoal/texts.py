"""Tables as lines of text: aligned for a terminal, or with pipes for Markdown."""

from collections.abc import Collection, Sequence


def aligned(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> list[str]:
    """Rows of cells as lines, each column as wide as its widest cell. The columns in `right` are those of numbers."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    adjust = lambda n, cell: cell.rjust(widths[n]) if n in right else cell.ljust(widths[n])
    return ["  ".join(adjust(n, cell) for n, cell in enumerate(row)).rstrip() for row in rows]


def markdown(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> list[str]:
    """The same as a pipe table, whose first row is its head."""
    head, *below = rows
    rule = ["---:" if n in right else "---" for n in range(len(head))]
    return [f"| {' | '.join(row)} |" for row in (head, rule, *below)]

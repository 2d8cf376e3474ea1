"""Line charts as inline SVG: no library, no script, colours from the page's style so that dark mode and print work.

Lines differ by dash and marker as well as by colour, each point says its value when pointed at, and a chart carries a
text alternative.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dualgoal.report.html import Markup, join, tag

WIDTH, HEIGHT = 640, 300
LEFT, RIGHT, TOP, BOTTOM = 50, 26, 14, 42
COLOURS = 8
DASHES = ("", "7 4", "2 3", "9 3 2 3")


@dataclass(frozen=True)
class Line:
    """A named line with an optional band around it; equal `style` numbers look equal in every chart of a page."""

    name: str
    style: int
    x: np.ndarray
    y: np.ndarray
    low: np.ndarray | None = None
    high: np.ndarray | None = None


def chart(
    lines: Sequence[Line], *, title: str, x_label: str, y_label: str, y_range: tuple[float, float] | None = None
) -> Markup:
    """A figure with axes, lines, bands and a legend."""
    lines = [line for line in lines if len(line.x)]
    right = max((float(line.x.max()) for line in lines), default=1.0)
    low, high = y_range or _range(lines)
    scale = _Scale(0.0, right or 1.0, low, high)
    body = [
        tag("title", title),
        tag("desc", _alternative(lines)),
        _grid(scale, x_label, y_label),
        [_band(line, scale) for line in lines],
        [_line(line, scale) for line in lines],
    ]
    view = f"0 0 {WIDTH} {HEIGHT}"
    picture = tag("svg", body, viewBox=view, role="img", aria_label=f"{title}. {_alternative(lines)}", class_="chart")
    return tag("figure", tag("figcaption", title), picture, _legend(lines))


@dataclass(frozen=True)
class _Scale:
    left: float
    right: float
    low: float
    high: float

    def x(self, value: float) -> float:
        return round(LEFT + (value - self.left) / (self.right - self.left) * (WIDTH - LEFT - RIGHT), 1)

    def y(self, value: float) -> float:
        return round(HEIGHT - BOTTOM - (value - self.low) / (self.high - self.low) * (HEIGHT - TOP - BOTTOM), 1)


def _range(lines: Sequence[Line]) -> tuple[float, float]:
    values = [v[np.isfinite(v)] for line in lines for v in (line.y, line.low, line.high) if v is not None]
    joined = np.concatenate(values) if values else np.zeros(0)
    if not joined.size:
        return 0.0, 1.0
    low, high = float(joined.min()), float(joined.max())
    space = 0.05 * (high - low) or abs(high) or 1.0
    return low - space, high + space


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers between two ends."""
    span = high - low
    if not (math.isfinite(span) and span > 0):
        return [low]
    rough = span / about
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(m * unit for m in (1, 2, 2.5, 5, 10) if m * unit >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def amount(value: float) -> str:
    """A tick label: 1200000 as 1.2M, 20000 as 20k, small numbers as they are."""
    for unit, letter in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= unit:
            return f"{value / unit:g}{letter}"
    return f"{value:.3g}"


def _grid(scale: _Scale, x_label: str, y_label: str) -> Markup:
    parts = []
    for value in ticks(scale.low, scale.high):
        y = scale.y(value)
        parts.append(tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y, class_="grid"))
        parts.append(tag("text", amount(value), x=LEFT - 6, y=y + 4, text_anchor="end"))
    for value in ticks(scale.left, scale.right):
        parts.append(tag("text", amount(value), x=scale.x(value), y=HEIGHT - BOTTOM + 16, text_anchor="middle"))
    middle = (TOP + HEIGHT - BOTTOM) / 2
    parts.append(tag("text", x_label, x=(LEFT + WIDTH - RIGHT) / 2, y=HEIGHT - 6, text_anchor="middle", class_="axis"))
    turned = f"rotate(-90 15 {middle})"
    parts.append(tag("text", y_label, x=15, y=middle, transform=turned, text_anchor="middle", class_="axis"))
    return join(parts)


def _band(line: Line, scale: _Scale) -> Markup | None:
    if line.low is None or line.high is None or len(line.x) < 2:
        return None
    there = np.isfinite(line.low) & np.isfinite(line.high)
    upper = [f"{scale.x(x)},{scale.y(y)}" for x, y in zip(line.x[there], line.high[there], strict=True)]
    lower = [f"{scale.x(x)},{scale.y(y)}" for x, y in zip(line.x[there], line.low[there], strict=True)]
    return tag("polygon", points=" ".join(upper + lower[::-1]), class_=f"band c{line.style % COLOURS}")


def _line(line: Line, scale: _Scale) -> Markup:
    there = np.isfinite(line.y)
    points = [(scale.x(x), scale.y(y)) for x, y in zip(line.x[there], line.y[there], strict=True)]
    drawn = " ".join(f"{x},{y}" for x, y in points)
    path = tag("polyline", points=drawn, **_style(line))
    if len(points) > 60:
        return path
    said = [_said(line, int(i)) for i in np.flatnonzero(there)]
    dots = [
        tag("circle", tag("title", words), cx=x, cy=y, r=3.2, class_=f"dot c{line.style % COLOURS}")
        for (x, y), words in zip(points, said, strict=True)
    ]
    return join([path, dots])


def _style(line: Line) -> dict[str, str | None]:
    """Neighbouring styles differ in colour and dash; those that share a colour differ in dash."""
    dash = DASHES[(line.style + line.style // COLOURS) % len(DASHES)]
    return {"class_": f"line c{line.style % COLOURS}", "stroke_dasharray": dash or None}


def _said(line: Line, i: int) -> str:
    words = f"{line.name}, step {int(line.x[i]):,}: {line.y[i]:.4g}"
    if line.low is not None and line.high is not None and line.low[i] < line.high[i]:
        words += f" (95 % interval {line.low[i]:.4g} to {line.high[i]:.4g})"
    return words


def _legend(lines: Sequence[Line]) -> Markup:
    items = []
    for line in lines:
        mark = tag("line", x1=0, x2=26, y1=6, y2=6, **_style(line))
        swatch = tag("svg", mark, viewBox="0 0 26 12", class_="swatch", aria_hidden="true")
        items.append(tag("li", swatch, line.name))
    return tag("ul", items, class_="legend")


def _alternative(lines: Sequence[Line]) -> str:
    ends = [(line, np.flatnonzero(np.isfinite(line.y))) for line in lines]
    words = [
        f"{line.name} ends at {line.y[i[-1]]:.3g} after {int(line.x[i[-1]]):,} steps" for line, i in ends if i.size
    ]
    return "; ".join(words) + "." if words else "No values."

"""A learning curve as SVG, drawn here: what a notebook shows without Matplotlib."""

from dataclasses import dataclass
from html import escape
from pathlib import Path

import numpy as np

from dualgoal.files import write_atomic

WIDTH, HEIGHT, LEFT, BOTTOM, EDGE = 640, 300, 64, 44, 16
COLOURS = ("#1f6fb4", "#c4622d", "#3f7d4e", "#8a4f9e", "#a0813a", "#7a7f87")
STYLE = "font: 12px sans-serif; fill: #666"
TICKS = 5


@dataclass(frozen=True)
class Line:
    """Values by step under a name."""

    name: str
    steps: np.ndarray
    values: np.ndarray


@dataclass(frozen=True)
class Picture:
    """A drawing: a notebook shows it, and `save` writes it as an SVG file."""

    svg: str

    def _repr_svg_(self) -> str:
        return self.svg

    def _repr_html_(self) -> str:
        return self.svg

    def save(self, path: str | Path) -> Path:
        """Write the SVG file."""
        write_atomic(Path(path), self.svg.encode())
        return Path(path)


def draw(lines: list[Line], *, title: str, y_label: str, y_range: tuple[float, float] | None = None) -> Picture:
    """Lines over steps, with axes, a legend and a title that is also the text alternative."""
    drawn = [(line, np.isfinite(line.values)) for line in lines]
    steps = np.concatenate([np.zeros(1), *(line.steps[ok] for line, ok in drawn)])
    values = np.concatenate([line.values[ok] for line, ok in drawn]) if drawn else np.zeros(0)
    low, high = y_range or ((float(values.min()), float(values.max())) if values.size else (0.0, 1.0))
    high = high if high > low else low + 1
    last = max(float(steps.max()), 1.0)
    x = lambda step: LEFT + (WIDTH - LEFT - EDGE) * step / last
    y = lambda value: HEIGHT - BOTTOM - (HEIGHT - BOTTOM - 2 * EDGE) * (value - low) / (high - low)
    parts = [f"<title>{escape(title)}</title>", _text(LEFT, EDGE, title, "start"), _turned(y_label)]
    for i in range(TICKS):
        at = low + (high - low) * i / (TICKS - 1)
        parts.append(f'<path d="M{LEFT} {y(at):.1f}H{WIDTH - EDGE}" stroke="#8884"/>')
        parts.append(_text(LEFT - 6, y(at) + 4, f"{at:.3g}", "end"))
        parts.append(_text(x(last * i / (TICKS - 1)), HEIGHT - BOTTOM + 18, _short(last * i / (TICKS - 1)), "middle"))
    parts.append(_text((LEFT + WIDTH) / 2, HEIGHT - 8, "steps", "middle"))
    for i, (line, ok) in enumerate(drawn):
        colour = COLOURS[i % len(COLOURS)]
        points = " ".join(f"{x(s):.1f},{y(v):.1f}" for s, v in zip(line.steps[ok], line.values[ok], strict=True))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        dots = points.split() if len(points) < 20_000 else []
        parts += [f'<circle cx="{p.split(",")[0]}" cy="{p.split(",")[1]}" r="3" fill="{colour}"/>' for p in dots]
        label = _text(WIDTH - EDGE, EDGE + 14 * i, line.name, "end")
        parts.append(label.replace(STYLE, STYLE.replace("#666", colour)))
    size = f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" style="max-width:100%;height:auto"'
    return Picture(f'<svg xmlns="http://www.w3.org/2000/svg" role="img" {size}>{"".join(parts)}</svg>')


def _text(x: float, y: float, words: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" style="{STYLE}">{escape(words)}</text>'


def _turned(words: str) -> str:
    at = (HEIGHT - BOTTOM) / 2
    return _text(14, at, words, "middle").replace("<text ", f'<text transform="rotate(-90 14 {at})" ')


def _short(steps: float) -> str:
    """1500 as 1.5k, 2000000 as 2M."""
    for size, letter in ((10**6, "M"), (1000, "k")):
        if steps >= size:
            return f"{steps / size:.3g}{letter}"
    return f"{steps:.3g}"

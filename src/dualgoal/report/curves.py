"""Curves on a page: Matplotlib's SVG as part of the HTML, so that it takes the colours and the font of the page.

Lines differ by dashes as well as by colour, the legend is HTML, and every chart has a text alternative.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree import ElementTree

import numpy as np

from dualgoal.paper import figures
from dualgoal.paper.figures import Curve
from dualgoal.report.html import Markup, tag

# Matplotlib's colours are replaced by variables of the page, which have other values in dark mode.
CSS_COLOURS = {colour: f"var(--c{i})" for i, colour in enumerate(figures.PALETTE)}
CSS_COLOURS |= {figures.INK: "var(--quiet)", figures.GRID: "var(--line)"}

SVG, HREF = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}href"


@dataclass(frozen=True)
class Named:
    """A curve of a run. Equal `style` numbers look equal in every chart of a page."""

    name: str
    style: int
    curve: Curve


def chart(
    lines: Sequence[Named], *, id: str, title: str, y_label: str, y_range: tuple[float, float] | None = None
) -> Markup:
    """A figure with a caption, the curves and a legend; `id` is unique in the page."""
    drawn = figures.chart_svg([(line.style, line.curve) for line in lines], name=id, y_label=y_label, y_range=y_range)
    picture = embed(drawn, id=id, label=f"{title}. {_alternative(lines)}")
    return tag("figure", tag("figcaption", title), picture, _legend(lines))


def embed(svg: str, *, id: str, label: str) -> Markup:
    """The SVG as an element of the page, without what belongs to a file of its own (metadata, style sheet, size)."""
    root = ElementTree.fromstring(svg)
    for child in list(root):
        if child.tag == f"{SVG}metadata" or child.find(f"{SVG}style") is not None:
            root.remove(child)
    values = [value for element in root.iter() for name, value in element.attrib.items() if name != "style"]
    used = set(re.findall(r"#([\w-]+)\b", " ".join(values)))
    for element in root.iter():
        element.tag = element.tag.removeprefix(SVG)
        element.text, element.tail = (text if text and text.strip() else None for text in (element.text, element.tail))
        element.attrib = _attributes(element.attrib, used, id)
    root.attrib = {"viewBox": root.attrib["viewBox"], "class": "chart", "role": "img", "aria-label": label}
    return Markup(ElementTree.tostring(root, encoding="unicode"))


def _attributes(given: dict[str, str], used: set[str], prefix: str) -> dict[str, str]:
    """Names that nothing refers to are dropped, the others made unique; fonts and colours are left to the page."""
    out = {"href" if name == HREF else name: value for name, value in given.items()}
    if out.get("id") not in used:
        out.pop("id", None)
    for name in ("id", "href", "clip-path"):
        if name in out:
            out[name] = re.sub(r"^(#|url\(#|)", rf"\g<1>{prefix}-", out[name])
    if "style" in out:
        style = re.sub(r"font-family: [^;]*; ?", "", out["style"])
        out["style"] = re.sub(r"#[0-9a-f]{6}", lambda found: CSS_COLOURS.get(found[0], found[0]), style)
    return out


def _legend(lines: Sequence[Named]) -> Markup:
    items = []
    for line in lines:
        colour, dashes = figures.line_style(line.style)
        stroke = {"stroke": CSS_COLOURS[colour], "stroke_width": 2.5, "stroke_dasharray": None}
        if dashes:
            stroke["stroke_dasharray"] = " ".join(f"{2.5 * dash:g}" for dash in dashes)
        mark = tag("line", x1=0, x2=30, y1=6, y2=6, **stroke)
        items.append(tag("li", tag("svg", mark, viewBox="0 0 30 12", class_="swatch", aria_hidden="true"), line.name))
    return tag("ul", items, class_="legend")


def _alternative(lines: Sequence[Named]) -> str:
    """Where each curve ends."""
    words = []
    for line in lines:
        x, y = (values[np.isfinite(line.curve.y)] for values in (line.curve.x, line.curve.y))
        if len(y):
            words.append(f"{line.name} ends at {y[-1]:.3g} after {int(x[-1]):,} steps")
    return "; ".join(words) + "." if words else "No values."

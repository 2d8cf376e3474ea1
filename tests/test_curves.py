"""Charts of a report: what is drawn is what was given, nothing leaks out of the SVG, gaps draw nothing odd."""

import re
from xml.etree import ElementTree

import numpy as np

from dualgoal.paper import figures
from dualgoal.paper.figures import Curve
from dualgoal.report.curves import Named, chart


def draw(*lines, id="c", **options):
    return chart(lines, id=id, title="T", y_label="success in percent", **({"y_range": (0, 100)} | options))


def line(name="dual", style=0, y=(0.0, 100.0), band=5):
    y = np.array(y)
    return Named(name, style, Curve(100 * np.arange(1, len(y) + 1), y, y - band, y + band))


def points(page, colour):
    path = re.search(rf'<path d="([^"]*)" clip-path="[^"]*" style="fill: none; stroke: {re.escape(colour)}', page)
    return [tuple(map(float, p.split())) for p in re.split("[ML]", path[1]) if p.strip()]


def test_a_line_goes_through_its_points_and_axes_are_labelled():
    page = draw(line())
    (x0, y0), (x1, y1) = points(page, "var(--c0)")
    assert x0 < x1 and y0 > y1  # to the right, and up
    assert "dual ends at 100 after 200 steps" in page and 'role="img"' in page
    assert ">gradient steps<" in page and ">success in percent<" in page


def test_colours_and_fonts_are_those_of_the_page():
    page = draw(line(), line("orig", 1))
    assert not re.findall("#[0-9a-f]{6}|font-family|<style|<metadata|xmlns|DejaVu", page)
    assert {"var(--c0)", "var(--c1)", "var(--quiet)", "var(--line)"} <= set(re.findall(r"var\(--\w+\)", page))


def test_names_inside_are_unique_and_all_references_resolve():
    pages = [draw(line(), id=id) for id in ("a", "b")]
    names = [re.findall(r'\bid="([^"]*)"', page) for page in pages]
    assert not set(names[0]) & set(names[1]) and len(set(names[0])) == len(names[0])
    for page, known in zip(pages, names, strict=True):
        assert set(re.findall(r'(?:href="|url\()#([^")]*)', page)) == set(known)


def test_gaps_and_single_points_are_drawn_as_such():
    page = draw(line("a", y=(1.0, np.nan, 3.0)), line("b", 1, y=(50.0,)), line("c", 2, y=(np.nan,)), y_range=None)
    assert "nan" not in page.lower() and "a ends at 3 after 300 steps" in page and "c ends" not in page


def test_a_name_is_escaped_and_the_svg_is_well_formed():
    page = draw(line("<i> & $x^{"))
    assert "<i>" not in page
    ElementTree.fromstring(page)


def test_lines_that_share_a_colour_differ_in_dashes():
    assert len({figures.line_style(number) for number in range(16)}) == 16
    assert len({figures.line_style(number)[1] for number in range(4)}) == 4


def test_the_same_curves_give_the_same_chart():
    assert draw(line()) == draw(line())


def test_a_band_covers_the_mean_and_is_flat_for_one_seed():
    scores = np.array([[10.0, 20.0, np.nan], [30.0, 40.0, np.nan]])
    curve = figures.learning_curve((1, 2, 3), scores)
    assert curve.x.tolist() == [1, 2] and curve.y.tolist() == [20, 30]
    assert (curve.low < curve.y).all() and (curve.y < curve.high).all()
    one = figures.learning_curve((1, 2, 3), scores[:1])
    assert (one.low == one.y).all() and (one.high == one.y).all()

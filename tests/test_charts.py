"""Charts: ticks are round numbers, what is drawn is what was given, gaps and single points draw nothing odd."""

import re

import numpy as np
import pytest

from dualgoal.paper import figures
from dualgoal.report.charts import Line, amount, chart, ticks


@pytest.mark.parametrize(("ends", "expected"), [
    ((0, 100), [0, 20, 40, 60, 80, 100]),
    ((0, 1), [0, 0.2, 0.4, 0.6, 0.8, 1]),
    ((-1, 1), [-1, -0.5, 0, 0.5, 1]),
    ((0, 1_000_000), [0, 200_000, 400_000, 600_000, 800_000, 1_000_000]),
    ((3, 3), [3]),
])  # fmt: skip
def test_ticks_are_round(ends, expected):
    assert ticks(*ends) == pytest.approx(expected)


def test_amounts_are_short():
    assert [amount(v) for v in (0, 250, 1500, 1e6, 0.05)] == ["0", "250", "1.5k", "1M", "0.05"]


def draw(*lines):
    return chart(lines, title="T", x_label="steps", y_label="success", y_range=(0, 100))


def test_a_line_goes_through_its_points_and_says_them():
    steps, y = np.array([100, 200]), np.array([0.0, 100.0])
    page = draw(Line("dual", 0, steps, y, y - 5, y + 5))
    points = [tuple(map(float, p.split(","))) for p in re.search(r'<polyline points="([^"]*)"', page)[1].split()]
    (x0, y0), (x1, y1) = points
    assert x0 < x1 and y0 > y1  # to the right, and up
    assert "dual, step 200: 100 (95 % interval 95 to 105)" in page and "dual ends at 100 after 200 steps" in page
    assert page.count("<polygon") == 1 and 'role="img"' in page


def test_gaps_and_nothing_are_drawn_as_such():
    page = draw(
        Line("a", 0, np.array([1, 2, 3]), np.array([1.0, np.nan, 3.0])), Line("b", 1, np.array([]), np.array([]))
    )
    assert "nan" not in page and page.count("<circle") == 2 and ">b<" not in page
    assert "No values." in chart([], title="T", x_label="x", y_label="y")


def test_a_name_is_escaped():
    assert "<i>" not in draw(Line("<i>", 0, np.array([1]), np.array([1.0])))


def test_lines_that_share_a_colour_differ_in_dash():
    lines = [Line(str(i), i, np.array([1, 2]), np.array([1.0, 2.0])) for i in range(16)]
    drawn = re.findall(r'<polyline points="[^"]*" class="(line c\d)"(?: stroke-dasharray="([^"]*)")?', draw(*lines))
    assert len(set(drawn)) == 16


def test_a_band_covers_the_mean_and_is_flat_for_one_seed():
    curve = np.array([[10.0, 20.0, np.nan], [30.0, 40.0, np.nan]])
    steps, mean, low, high = figures.band((1, 2, 3), curve)
    assert steps.tolist() == [1, 2] and mean.tolist() == [20, 30] and (low < mean).all() and (mean < high).all()
    _, mean, low, high = figures.band((1, 2, 3), curve[:1])
    assert (low == mean).all() and (high == mean).all()

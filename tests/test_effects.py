"""Dual minus Orig as one figure: our differences and the paper's, with their intervals."""

import numpy as np
import pytest

from dualgoal.paper import comparison, effects, formats, stats
from test_compare import record


def test_ours_and_the_papers_stand_side_by_side(tmp_path):
    cell = ("state_gcivl", "cube-single-play-v0")
    found = effects.find([record(*cell, "dual", (80, 90)), record(*cell, "orig", (50, 60))])
    (effect,) = found
    assert (effect.task, effect.mean, effect.seeds) == ("cube-single-play-v0", 30.0, (2, 2))
    assert effect.interval[0] < 0 < 60 < effect.interval[1]  # two seeds
    assert effect.paper_mean == 37 and effect.paper_interval == pytest.approx((33.56, 40.44), abs=0.01)
    text = effects.draw(found, tmp_path / "effects.svg").read_text()
    assert text.startswith("<?xml") and effects.draw(found, tmp_path / "again.svg").read_text() == text


def test_without_a_pair_there_is_no_effect():
    assert effects.find([record("state_gcivl", "cube-single-play-v0", "dual", (80,))]) == []


def test_welch_from_printed_numbers():
    x, y = np.array([1.0, 2, 4]), np.array([2.0, 7, 9, 11])
    summaries = [(v.mean(), v.std(), len(v)) for v in (x, y)]
    assert stats.welch_of_summaries(*summaries) == pytest.approx(stats.welch_interval(x, y))


def test_a_table_with_several_algorithms_has_an_effect_for_each():
    cells = [("dual_gciql", (40, 44)), ("orig_gciql", (93, 94)), ("dual_hiql", (70, 72)), ("hiql_phi_hiql", (60, 62))]
    found = [record("beyond", "puzzle-3x3-play-v0", column, scores) for column, scores in cells]
    (effect,) = effects.find(found)
    assert effect.label == "puzzle-3x3-play, GCIQL" and effect.mean == -51.5 and effect.paper_mean is None
    shown = formats.text(comparison.fill_table("beyond", found))
    assert "Dual + GCIQL minus Orig + GCIQL on puzzle-3x3-play-v0: -51.5 points" in shown
    assert "Dual + HIQL minus HIQL's φ + HIQL on puzzle-3x3-play-v0: +10.0 points" in shown
    assert "steps: 1,000 (in full: 1,000,000)" in shown and "precision: " in shown and "(paper:" not in shown

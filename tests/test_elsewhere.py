"""Rows from elsewhere: read, checked, and shown next to ours with the differences of their protocols."""

import json
from pathlib import Path

import numpy as np
import pytest

import pages
from dualgoal.errors import UserError
from dualgoal.paper import elsewhere, results_page, tables

GOOD = {
    "format": 1,
    "method": "Other",
    "source": {"citation": "Somebody, 2026", "url": "https://example.org"},
    "protocol": {"goals": "state", "steps": 1_000_000, "seeds": 4},
    "rows": [{"task": "cube-single-play-v0", "mean": 70, "std": 2.5, "goals": [60, 65, 70, 75, 80]}],
}


def write(folder: Path, name: str = "other.json", **changes) -> Path:
    path = folder / elsewhere.FOLDER / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({key: value for key, value in (GOOD | changes).items() if value is not None}))
    return path


def test_a_row_is_shown_next_to_ours(tmp_path):
    write(tmp_path)
    page = results_page.build(tmp_path)
    assert "| cube-single-play-v0 |  |  | 89±3 | 70±2.5 |" in page
    assert "- Other: Somebody, 2026 ([source](https://example.org)), `results/elsewhere/other.json`" in page


def test_methods_with_all_state_tasks_have_an_average(tmp_path):
    rows = [{"task": task, "mean": 10 * n} for n, task in enumerate(tables.STATE_TASKS[:11])]
    write(tmp_path, "a.json", method="A", rows=[*rows, *({"task": t, "mean": 0} for t in tables.STATE_TASKS[11:])])
    write(tmp_path, "b.json", method="B")
    page = results_page.build(tmp_path)
    assert "| average of 13 state tasks |  |  | 41±2 | 42 |  |" in page
    (tmp_path / "elsewhere" / "a.json").unlink()
    assert "average of 13" not in results_page.build(tmp_path).split("Rows from elsewhere")[1]


def test_the_rule_on_the_page_has_the_average_that_the_page_says():
    found = {m.method: {row.task: row.mean for row in m.rows} for m in elsewhere.load_all(pages.ROOT / "results")}
    by_rule = [found["HIQL" if "-navigate-" in task else "GCIQL"][task] for task in tables.STATE_TASKS]
    text = " ".join((pages.ROOT / "results" / "text" / "elsewhere.md").read_text().split())
    assert f"averages {np.mean(by_rule):.0f} " in text


def test_differences_of_the_protocol_are_marked(tmp_path):
    rows = [{"task": "scene-play-v0", "mean": 50, "quoted": True}, {"task": "cube-single-play-v0", "mean": 60}]
    protocol = {
        "goals": "oracle",
        "tasks": "single-task",
        "tuned": "per task",
        "steps": 2_000_000,
        "note": "my data",
    }
    write(tmp_path, "a.json", method="A", protocol=protocol, rows=rows)
    write(tmp_path, "b.json", method="B", rows=[{"task": "scene-play-v0", "mean": 50, "steps": 500_000}])
    page = results_page.build(tmp_path)
    assert "50 (a, b, c, d, e, f) | 50 (g) |" in page and "60 (a, b, c, d, e) |" in page
    for words in ("told a part of the goal state", "a policy for each goal", "tuned for each", "my data",
                  "2,000,000 steps", "not read in the authors' own", "(g) trained for 500,000 steps"):  # fmt: skip
        assert words in page
    images = [
        {"task": "visual-scene-play-v0", "mean": 50, "steps": 500_000},
        {"task": "visual-cube-single-play-v0", "mean": 50, "steps": 1_000_000},
    ]
    found = elsewhere.load(write(tmp_path, "c.json", method="C", rows=images))
    assert [elsewhere.differences(found, row) for row in found.rows] == [[], ["trained for 1,000,000 steps"]]
    many = [elsewhere.load(write(tmp_path, f"{n}.json", protocol=protocol | {"note": f"note {n}"})) for n in range(30)]
    assert "(hh) note 29" in elsewhere.markdown(many, {}), "as many as there are"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": 2}, "format is 2"),
        ({"method": None}, "method is missing"),
        ({"protocol": {"goals": "pixels"}}, "unknown protocol.goals 'pixels'"),
        ({"protocol": {"goal": "state"}}, "unknown field 'goal'; did you mean 'goals'?"),
        ({"protocol": {"goals": "state", "seeds": "8"}}, 'protocol.seeds is "8"; expected a whole number'),
        ({"rows": [{"task": "cube-simple-play-v0", "mean": 3}]}, "did you mean 'cube-single-play-v0'"),
        ({"rows": [{"task": "scene-play-v0", "mean": 0.5, "goals": [90.0, 80.0]}]}, "its goals average 85.0"),
        ({"rows": [{"task": "scene-play-v0", "mean": 101}]}, "row 1: mean is not in percent"),
        ({"rows": [{"task": "scene-play-v0", "mean": 1}] * 2}, "two rows for one task"),
    ],
)
def test_what_is_wrong_is_one_line(tmp_path, changes, message):
    path = write(tmp_path, **changes)
    with pytest.raises(UserError) as error:
        elsewhere.load(path)
    assert message in str(error.value) and str(path) in str(error.value) and "\n" not in str(error.value)


def test_the_committed_rows_are_those_of_the_sources():
    folder = Path(__file__).parent.parent / "results"
    found = {method.method: {row.task: row.mean for row in method.rows} for method in elsewhere.load_all(folder)}
    assert len(found) == 13 and sum(map(len, found.values())) == 104
    assert found["HIQL"]["antmaze-large-navigate-v0"] == 91 and found["GCIQL"]["puzzle-3x3-play-v0"] == 95

"""Tables filled from made-up rows whose statistics are known, and the paper's own tables as a golden file."""

import dataclasses
import json
import re
from pathlib import Path

import numpy as np
import pytest

from dualgoal import errors
from dualgoal.paper import claims, comparison, conditions, figures, formats, row_files, tables
from dualgoal.runs.rows import EvalRow

GOLDEN = Path(__file__).parent / "golden" / "paper_tables.txt"


def record(table, task, column, means, steps=1000, noisy=None, **settings):
    """A record whose per-seed scores are `means` (percent); `noisy` gives those under goal noise."""
    rows = [
        EvalRow(s, step, goal, 100, mean, 50.0)
        for s, mean in enumerate(means)
        for step in (1, steps // 2, steps)
        for goal in (1, 2, 3, 4, 5)
    ]
    noise = tables.get(table).noise.get(task, 0.2)
    rows += [
        EvalRow(s, steps, goal, 100, mean, 50.0, goal_noise=noise)
        for s, mean in enumerate(noisy or ())
        for goal in (1, 2, 3, 4, 5)
    ]
    facts = {
        "versions": {"mujoco": "3.4.0"},
        "dataset": {"source": "generated", "episodes": 1000},
        "run": {"precision": "float32"},
        "hardware": {"device": "cpu"},
    } | settings
    return row_files.Record(
        table, task, column, tuple(range(len(means))), steps, 25, tuple(rows), facts, f"{task}.json"
    )


def paper_tables() -> str:
    """Every published table as text, with averages recomputed from its entries, as a check of the numbers we ship."""
    return "\n".join(formats.text(comparison.fill_table(name)) + recomputed(name) for name in tables.paper())


def recomputed(name: str) -> str:
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


def test_the_papers_own_tables_are_the_golden_file():
    assert paper_tables() == GOLDEN.read_text()


def test_highlights_of_the_golden_tables_count_as_published():
    counts = {}
    for name in tables.paper():
        filled = comparison.fill_table(name)
        lines = [*filled.lines, *([filled.average] if filled.average else [])]
        counts[name] = sum(cell.paper_highlight for line in lines for cell in line.cells.values())
    assert counts == {
        "state_gcivl": 24,
        "state_crl": 19,
        "state_gcfbc": 26,
        "pixel_gcivl": 9,
        "fusion": 0,
        "parameterization": 20,
        "direct": 6,
    }


def test_a_filled_cell_has_mean_std_interval_and_the_papers_number():
    found = comparison.fill_table(
        "state_gcivl",
        [
            record("state_gcivl", "cube-single-play-v0", "dual", (86, 88, 90, 92)),
            record("state_gcivl", "cube-single-play-v0", "orig", (60, 62, 64, 66)),
        ],
    )
    line = next(line for line in found.lines if line.name == "cube-single-play-v0")
    dual, orig = line.cells["dual"], line.cells["orig"]
    assert (dual.measured.mean, dual.measured.seeds, dual.measured.steps) == (89, 4, 1000)
    assert dual.measured.std == pytest.approx(np.std([86, 88, 90, 92]))
    assert dual.measured.interval[0] < 89 < dual.measured.interval[1]
    assert dual.paper_in_interval is True and orig.paper_in_interval is False and line.cells["vib"].measured is None
    assert dual.highlight and not orig.highlight
    (gap,) = found.differences
    assert (gap.task, gap.mean, gap.seeds, gap.steps) == ("cube-single-play-v0", 26, (4, 4), 1000)
    assert gap.welch[0] < gap.bootstrap[0] < 26
    assert "Dual minus Orig on cube-single-play-v0: +26.0 points after 1,000 steps" in formats.text(found)
    assert found.improvement["orig"].probability == 1.0 and found.average_tasks == 1
    assert found.average.cells["dual"].measured.mean == 89 and found.average.cells["dual"].paper == (89, None)


def test_an_average_of_unequal_cells_says_from_what_to_what():
    cube = record("state_gcivl", "cube-single-play-v0", "dual", (86, 88, 90, 92), steps=200_000)
    scene = record("state_gcivl", "scene-play-v0", "dual", (80, 82), steps=1_000_000)
    filled = comparison.fill_table("state_gcivl", [cube, scene])
    shown = formats.markdown(filled)
    assert "200k-1M x 2-4" in shown.split("average of 2 tasks")[1].splitlines()[0]
    assert ", 200k x 4" in shown and ", 1M x 2" in shown and "200k-1M x 2-4" in formats.text(filled)


def test_settings_stand_under_every_form():
    filled = comparison.fill_table(
        "state_gcivl", [record("state_gcivl", "cube-single-play-v0", "dual", (86, 88, 90, 92))]
    )
    for form in (formats.text, formats.markdown, formats.latex):
        shown = form(filled).replace("\\", "").replace("{,}", ",")
        for fact in (
            "steps: 1,000 (paper: 1,000,000)",
            "seeds: 4 (paper: 8)",
            "episodes per goal: 25 (paper: 50)",
            "data: generated, 1,000 episodes (paper: official files)",
            "MuJoCo: 3.4.0",
        ):
            assert fact in shown, (form.__name__, fact)
    json.dumps(dataclasses.asdict(filled), allow_nan=False)


def test_rows_of_different_length_are_not_compared():
    filled = comparison.fill_table(
        "state_gcivl",
        [
            record("state_gcivl", "scene-play-v0", "dual", (70, 71), steps=1000),
            record("state_gcivl", "scene-play-v0", "orig", (40, 41), steps=500),
        ],
    )
    line = next(line for line in filled.lines if line.name == "scene-play-v0")
    assert line.unequal_steps and not any(cell.highlight for cell in line.cells.values())
    assert not filled.improvement and "different numbers of steps" in formats.text(filled)


def test_a_difference_is_taken_where_the_shorter_run_ends():
    run = lambda column, scores, steps: record("state_gcivl", "scene-play-v0", column, scores, steps=steps)
    dual = run("dual", (50, 52), 500)
    longer = dataclasses.replace(dual, rows=(*dual.rows, *run("dual", (80, 80), 2000).rows), steps=2000)
    for long in (dual, longer):  # evaluated at 250, 500 and, the longer one, at 1000 and 2000
        (gap,) = comparison.fill_table("state_gcivl", [long, run("orig", (40, 42), 500)]).differences
        assert (gap.mean, gap.steps, gap.seeds) == (10, 500, (2, 2))
    assert not comparison.fill_table("state_gcivl", [longer, run("orig", (40, 42), 400)]).differences


def test_a_column_of_another_length_takes_no_row_from_the_others():
    run = lambda task, column, steps: record("state_gcivl", task, column, (50, 60), steps=steps)
    tasks = ("cube-single-play-v0", "scene-play-v0")
    pair = [run(task, column, 1000) for task in tasks for column in ("orig", "dual")]
    filled = comparison.fill_table("state_gcivl", [*pair, *(run(task, "tra", 3000) for task in tasks)])
    assert filled.average_tasks == 2 and {*filled.aggregates} == {"orig", "dual"}
    assert filled.average.cells["tra"].measured is None
    averages = claims.of_records([*pair, run("scene-play-v0", "tra", 3000)]).averages("state_gcivl")
    assert averages == {"orig": 55, "dual": 55}


def test_seeds_that_agree_have_no_interval_and_say_so():
    pair = [record("state_gcivl", "scene-play-v0", column, (0, 0)) for column in ("orig", "dual")]
    assert (
        ": +0.0 points after 1,000 steps, 95 % interval (the seeds agree, no interval), 2 and 2 seeds"
        in formats.text(comparison.fill_table("state_gcivl", pair))
    )


def test_every_column_of_a_table_has_a_colour_of_its_own(tmp_path):
    for name in ("state_aware", "beyond", "beyond_images"):
        table = tables.get(name)
        found = [record(name, table.tasks[0], column.name, (50, 60)) for column in table.columns]
        (path,) = figures.draw(comparison.fill_table(name, found), found, tmp_path / name, suffixes=(".svg",))
        colours = set(re.findall(r"stroke: (#\w+); stroke-width: 1.5", path.read_text()))
        assert len(colours) == len(table.columns), name


def test_a_run_that_is_not_finished_is_shown_but_not_compared():
    cell = ("state_gcivl", "scene-play-v0")
    cut = dataclasses.replace(record(*cell, "tra", (95, 96), steps=400), steps=1000)
    filled = comparison.fill_table(
        "state_gcivl", [record(*cell, "dual", (70, 71)), record(*cell, "orig", (40, 41)), cut]
    )
    line = next(line for line in filled.lines if line.name == "scene-play-v0")
    assert [name for name, found in line.cells.items() if found.highlight] == ["dual"] and not line.unequal_steps
    assert {*filled.improvement} == {"orig"} and {*filled.aggregates} == {"orig", "dual"}
    assert [name for name, found in line.cells.items() if found.paper_in_interval is not None] == ["orig", "dual"]
    shown = formats.markdown(filled)
    assert ", 400 of 1k x 2" in shown and "- scene-play-v0: TRA not finished, and not compared" in shown


def test_averages_are_of_the_tasks_that_the_contrast_has():
    pair = [
        record("state_gcivl", task, column, (50, 60))
        for task in ("cube-single-play-v0", "scene-play-v0")
        for column in ("orig", "dual")
    ]
    filled = comparison.fill_table("state_gcivl", [*pair, record("state_gcivl", "scene-play-v0", "vib", (50, 60))])
    assert filled.average_tasks == 2 and {*filled.aggregates} == {"orig", "dual"}


def test_a_shared_run_fills_both_tables_and_an_own_one_goes_first():
    shared = record("state_gcivl", "scene-play-v0", "dual", (70, 72))
    own = record("parameterization", "scene-play-v0", "dual_inner_product", (50, 52))

    def inner(given):
        line = next(
            line for line in comparison.fill_table("parameterization", given).lines if line.name == "scene-play-v0"
        )
        return line.cells["dual_inner_product"].measured.mean

    assert inner([shared]) == 71 and inner([shared, own]) == 51
    direct = next(line for line in comparison.fill_table("direct", [shared]).lines if line.name == "scene-play-v0")
    assert direct.cells["dual"].measured is None  # learned with GCIVL there: another run


def test_a_task_without_published_numbers_is_a_row_once_it_was_run():
    task = "cube-single-play-v0"
    assert task not in {cell.task for cell in tables.expand("direct")}
    assert [cell.column for cell in tables.expand("direct", tasks=[task])] == ["dual_direct", "dual"]
    names = lambda given: [line.name for line in comparison.fill_table("direct", given).lines]
    made = record("direct", task, "dual_direct", (70, 72))
    assert names([made]) == [*names([]), task] and task not in names([])
    cell = comparison.fill_table("direct", [made]).lines[-1].cells["dual_direct"]
    assert (cell.measured.mean, cell.paper) == (71, None)


def test_noise_has_a_clean_and_a_noisy_column():
    filled = comparison.fill_table("noise", [record("noise", "cube-single-play-v0", "dual", (80, 82), noisy=(60, 62))])
    line = next(line for line in filled.lines if line.name == "cube-single-play-v0")
    assert (line.cells["dual"].measured.mean, line.cells["dual_noisy"].measured.mean) == (81, 61)
    assert line.cells["orig"].measured is None


def test_one_seed_has_no_interval_and_says_so():
    filled = comparison.fill_table("state_gcivl", [record("state_gcivl", "scene-play-v0", "dual", (70,))])
    cell = next(line for line in filled.lines if line.name == "scene-play-v0").cells["dual"]
    assert cell.measured.interval is None and cell.paper_in_interval is None
    assert "one seed, no interval" in formats.text(filled)


def test_a_record_survives_its_file(tmp_path):
    given = record("state_gcivl", "scene-play-v0", "dual", (70, 72))
    path = row_files.save(given, tmp_path)
    assert path.name == "scene-play-v0.dual.1000.json"
    back = row_files.load_all(tmp_path)[0]
    assert (back.rows, back.seeds, back.settings, back.done) == (given.rows, given.seeds, given.settings, 1000)


ROW = {"seed": 0, "step": 5, "task": 1, "episodes": 2, "successes": 1, "length": 1}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", "not a row file"),
        ("{", "not a row file"),
        ({"table": "nope"}, "unknown table"),
        ({"column": "nope"}, "unknown column of direct"),
        ({"task": "puzzle-3x3-play-v0"}, "has no task"),
        ({"rows": {}}, "not a row file"),
        ({"rows": [ROW | {"successes": 3}]}, "row 1: 3 successes in 2 episodes"),
        ({"seeds": 0}, "seeds is 0; expected a list"),
        ({"seeds": ["0"]}, 'seeds is "0"; expected a whole number'),
        ({"column": None}, "column is null; expected a text"),
        ({"cost": {"device": "long"}}, 'cost.device is "long"; expected a number'),
    ],
)
def test_a_bad_row_file_is_named_in_one_line(tmp_path, content, message):
    path = tmp_path / "x.json"
    whole = {"format": 1, "table": "direct", "column": "dual", "task": "scene-play-v0", "seeds": [0], "steps": 5}
    whole |= {"episodes": 2, "rows": [ROW]}
    path.write_text(content if isinstance(content, str) else json.dumps(whole | content))
    with pytest.raises(errors.UserError, match=message) as caught:
        row_files.load(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_latex_escapes_what_it_prints():
    assert formats.escape("a_b & 5 % {x} \\ γ") == r"a\_b \& 5 \% \{x\} \textbackslash{} $\gamma$"
    assert [formats.short(n) for n in (1_000_000, 200_000, 1_500_000, 1234)] == ["1M", "200k", "1.5M", "1234"]


def test_a_puzzle_has_no_simulator_and_no_official_files():
    puzzle, cube = (
        " ".join(conditions.describe(tables.get(name), [record(name, task, "orig", [50])]))
        for name, task in (("lightsout", "lightsout-4x5"), ("state_gcivl", "cube-single-play-v0"))
    )
    assert "MuJoCo" in cube and "official files" in cube
    assert "MuJoCo" not in puzzle and "official" not in puzzle and "precision" in puzzle


def test_the_precision_under_a_table_is_what_auto_meant_where_it_was_run():
    auto = {"run": {"precision": "auto"}, "hardware": {"device": "gpu", "precision": "bf16"}}
    for settings, said in ((auto, "bf16"), ({}, "float32"), ({"run": {}}, "not recorded")):
        lines = conditions.describe(
            tables.get("state_gcivl"), [record("state_gcivl", "scene-play-v0", "orig", [5], **settings)]
        )
        assert f"precision: {said} (paper: float32)" in lines

"""The Python of docs/theory.md runs and says what the page says."""

import json
import re
from pathlib import Path

import numpy as np

import pages
from dualgoal.collect.lightsout import chances
from dualgoal.envs.lightsout import View
from dualgoal.envs.lightsout_puzzle import Puzzle

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "theory.md"
LIGHTS = {"a corner": [0, 2, 6, 8], "an edge": [1, 3, 5, 7], "the centre": [4]}


def test_the_page_runs():
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    finite, puzzle = ({}, {})
    exec(blocks[0], finite)
    assert np.abs(finite["achieved"] - finite["values"]).max() < 1e-10
    exec(blocks[1], puzzle)
    assert (puzzle["table"] == puzzle["same"]).all()
    distances = puzzle["lightsout_puzzle"].distance(puzzle["puzzle"], puzzle["starts"], puzzle["goals"])
    assert distances.tolist() == [4, 10, 14, 16, 20]
    assert len(blocks) == 2


def rows_of_the_small_board() -> dict[tuple[str, int], list[dict]]:
    """The rows of results/lightsout_3x3.json by what `--rep` was and by the number of layers."""
    found: dict[tuple[str, int], list[dict]] = {}
    for row in json.loads((ROOT / "results" / "lightsout_3x3.json").read_text()):
        view = View.parse(row["task"])
        name = ("ideal_goals" if view.goals_only else "ideal") if view.ideal else row["rep"]["name"]
        name += " --trained-by all" if row["rep"].get("trained_by") == "all" else ""
        found.setdefault((name, len(row["hidden"])), []).append(row)
    return found


def test_what_the_page_says_of_goals_alone_is_in_the_file():
    page, rows = PAGE.read_text(encoding="utf-8"), rows_of_the_small_board()
    shown = pages.table(page, "The share of all pairs that each of four seeds solves")
    for name, _, _, *cells in shown:
        for layers, cell in zip((4, 2), cells, strict=True):
            solved = [f"{100 * row['solved']:.0f}" for row in rows.pop((name.strip("`"), layers), ())]
            assert cell == (", ".join(solved) or "not run")
    assert not rows, "the page leaves rows out"


def test_which_lights_the_page_says_are_ignored():
    page, rows = PAGE.read_text(encoding="utf-8"), rows_of_the_small_board()
    (_, *exact), *shown = pages.table(page, "Means over boards and seeds")
    assert [float(cell) for cell in exact] == [rows["dual", 4][0]["exact"][lights[0]] for lights in LIGHTS.values()]
    for name, *cells in shown:
        learned = np.mean([row["learned"] for row in rows[name.strip("`"), 4]], axis=0)
        assert cells == [f"{learned[lights].mean():.1f}" for lights in LIGHTS.values()]
    blind = [row for name in ("dual", "dual_siamese") for row in rows[name, 4]]
    assert max(row["learned"][4] for row in blind) < 1 and {row["ignored"] for row in blind} == {4}, "with any seed"
    assert min(row["solved_without"] for row in blind) >= 0.989 and "at least 98.9 %" in " ".join(page.split())


def test_which_light_is_ignored_under_which_presses():
    page, rows = PAGE.read_text(encoding="utf-8"), json.loads((ROOT / "results" / "lightsout_presses.json").read_text())
    puzzle, kinds = Puzzle(3, 3), {light: name.split()[-1] for name, lights in LIGHTS.items() for light in lights}
    shown = pages.table(page, "Learned distances are those of")
    for weight, *cells in shown:
        mine = [row for row in rows if row["corner_presses"] == float(weight)]
        mine = mine or rows_of_the_small_board()["dual", 4]
        flipped = chances(puzzle, float(weight)) @ puzzle.toggles
        learned = np.mean([row["learned"] for row in mine], axis=0)
        assert [row["seed"] for row in mine] == [0, 1, 2, 3] and {row["step"] for row in mine} == {20_000}
        assert cells == [
            ", ".join(f"{100 * flipped[lights[0]]:.0f}" for lights in LIGHTS.values()),
            ", ".join(f"{learned[lights].mean():.1f}" for lights in LIGHTS.values()),
            ", ".join(kinds[row["ignored"]] for row in mine),
            ", ".join(f"{100 * row['solved']:.0f}" for row in mine),
        ]
    assert {float(weight) for weight, *_ in shown} == {1.0, *(row["corner_presses"] for row in rows)}
    one_of = lambda a, b: chances(puzzle, 2.0) @ (puzzle.toggles[:, a] ^ puzzle.toggles[:, b])
    assert (
        f"{one_of(0, 1):.0%}" == "31%" and f"{min(one_of(4, light) for light in range(9) if light != 4):.0%}" == "38%"
    )


def test_what_hard_goals_do_is_in_the_files():
    page, results = PAGE.read_text(encoding="utf-8"), ROOT / "results"
    read = lambda name: json.loads((results / name).read_text())
    groups: dict[tuple, list[dict]] = {}
    for row in read("lightsout_hard_goals.json"):
        share = f"{row['rep']['hard_goals']:g}" + ", more random ones" * (row["rep"]["goals"]["random"] == 0.65)
        groups.setdefault((row["rep"]["name"], share, row["step"]), []).append(row)
    listed = lambda rows, form: ", ".join(form(row) for row in rows)
    made = []
    for (name, share, step), rows in groups.items():
        learned = np.mean([row["learned"] for row in rows], axis=0)
        apart = ", ".join(f"{learned[lights].mean():.1f}" for lights in LIGHTS.values())
        made.append([f"`{name}`", share, f"{step:,}", apart, listed(rows, lambda r: f"{r['correlation']:.2f}")])
        made[-1] += [listed(rows, lambda r, what=what: f"{100 * r[what]:.0f}") for what in ("followed", "solved")]
    assert pages.table(page, "By seed (`results/lightsout_hard_goals.json`)") == made
    centre = {
        hard: [row["learned"][4] for key, rows in groups.items() if (key[1] == "0.5") == hard for row in rows]
        for hard in (True, False)
    }
    assert min(centre[True]) > 3 and max(centre[False]) < 1, "every seed sees the centre, or none"
    assert (
        min(row["solved"] for row in groups["dual_siamese", "0.5", 20_000]) > 0.995 and "solves 99.6 % or more" in page
    )
    small = [
        [row["task"], row["algo"], f"{row['hard_goals']:g}", f"{row['steps']:,} x {row['seeds']}"]
        + [f"{row['mean']:.0f} ± {row['std']:.0f}", "[{:.0f}, {:.0f}]".format(*row["interval"])]
        for row in read("small_hard_goals.json")
    ]
    assert pages.table(page, "and perhaps slows learning down") == small
    words = " ".join(page.split())
    for name in ("probe_hard_goals.json", "probe_small_puzzle.json"):
        rows = [row for row in read(name) if row["rep"] == "dual"]
        for what, unit in (("slope", 1), ("area", 100)):
            assert " and ".join(f"{unit * row[what]:.1f}" for row in rows) in words
    siamese = [row for row in read("probe_hard_goals.json") if row["rep"] == "dual_siamese"]
    for share in (0.0, 0.5):
        rows = [row for row in siamese if row["hard_goals"] == share]
        assert {f"{100 * row['area']:.1f}" for row in rows} == {"99.7"}
        for what, digits in (("slope", 1), ("press", 2)):
            assert " and ".join(f"{row[what]:.{digits}f}" for row in rows) in words

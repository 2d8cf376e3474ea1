"""The demo at a tiny size: its parts fit together, terminal and report say the same, its boards can be played in a
browser, and what the README says of it is what was measured."""

import json
import math
import operator
import re
from pathlib import Path

import numpy as np
import pytest

import chromium
import tiny
from dualgoal.cli import demo
from dualgoal.collect import generate
from dualgoal.envs.lightsout import View
from dualgoal.envs.lightsout_puzzle import Puzzle, distance, task_boards
from dualgoal.report import paths
from dualgoal.runs import policy

ROOT = Path(__file__).parents[1]
GAME = demo.GAME | {"seeds": (0,), "steps": 4, "batch_size": 8, "hidden": (8, 8), "eval_every": 2}
MAZE = demo.MAZE | {"steps": 4, "batch_size": 8, "save_every": 4, "log_every": 2, "rep.dim": 4}
MAZE |= {"algo.hidden": [8, 8], "rep.hidden": [8, 8]}
needs_browser = pytest.mark.skipif(chromium.program() is None, reason="no Chromium on this machine (apt: chromium)")


def here(todo, say):
    for part in todo:
        part()


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The folder of a tiny demo and what it printed."""
    out = tmp_path_factory.mktemp("demo")
    whole = demo.parts(out, print)
    assert [part.settings for part in whole] == [demo.GAME, demo.GAME, demo.MAZE]
    small = [(GAME, 20), (GAME, 20), (MAZE, 2)]
    todo = [
        demo.Part(part.name, part.path, part.rep, settings, part.data, episodes)
        for part, (settings, episodes) in zip(whole, small, strict=True)
    ]
    said: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generate, "generate_dataset", lambda task, count, out, workers: tiny.make_data(out, count))
        patch.setattr(paths, "STEPS", 3)
        patch.setattr(paths, "STARTS", 2)
        patch.setattr("builtins.print", lambda *words, **_: said.extend(words))
        demo.run_demo(out, todo, carry_out=here)
    return out, "\n".join(said)


def test_terminal_and_report_say_the_same(made):
    out, said = made
    page = (out / "report.html").read_text()
    head = re.search("<header.*?</header>", page, re.S)[0]
    top = " ".join(re.sub(r"<[^>]+>", " ", head).split())
    words = json.loads((out / "summary.json").read_text())
    assert len(words["sentences"]) == 2 and len(words["notes"]) == 2
    for sentence in words["sentences"] + words["notes"]:
        assert sentence in " ".join(said.split()) and sentence in top.replace("&#x27;", "'")
    assert re.search(r"On lightsout-4x5, (exact distances|bits) \+ dqn reaches \d+ % success", said)
    assert "mean over 5 goals, 1 seed and the last 2 evaluations" in said.replace("\n", " ")
    assert "118 pairs of a start and a goal within 3 steps" in said.replace("\n", " ")  # 2 x 60 without start = goal
    commands = re.findall("<code>(.*?)</code>", head)
    assert [re.sub("<.*?>", "", found) for found in commands] == [demo.TRY, f"dualgoal demo --out {out}"]
    assert all("<span>--out</span> <span>" in found for found in commands), "lines are broken between words only"
    names = "Lights Out, exact distances; Lights Out, bits; pointmaze-medium-navigate-v0, Dual + GCIVL"
    assert f"training 3 runs at the same time: {names}" in said
    assert f"dualgoal demo --out {out}" in top and "<aside" not in page  # nothing was left out


def test_without_the_simulator_lights_out_remains(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    said: list[str] = []
    assert [part.rep for part in demo.parts(tmp_path, said.append)] == ["ideal", "orig"]
    assert "needs OGBench: pip install" in said[0]


def test_both_ways_to_see_a_board_share_a_chart(made):
    page = (made[0] / "report.html").read_text()
    charts = re.findall(r"<figcaption>(Success on .*?)</figcaption>", page)
    assert charts == ["Success on lightsout-4x5"] and "other data than" not in page, "two views of the same data"
    assert all(f"{name} + dqn ends at" in page for name in ("exact distances", "bits"))


def test_where_learned_distances_win_is_read_from_the_row_files(tmp_path):
    found = demo.where_learned_distances_win(demo.RESULTS)
    for task in demo.LEARNED:
        dual, orig, steps = re.search(rf"{task} (\d+) % against (\d+) % \(([\d,]+) steps, \d+ seeds", found).groups()
        for column, number in (("dual", dual), ("orig", orig)):
            file = demo.RESULTS / demo.TABLE / f"{task}.{column}.{steps.replace(',', '')}.json"
            rows = json.loads(file.read_text())["rows"]
            last = sorted({row["step"] for row in rows})[-3:]
            assert math.isclose(
                float(number), 100 * np.mean([r["success"] for r in rows if r["step"] in last]), abs_tol=0.5
            )
    assert "see docs/results.md" in demo.where_learned_distances_win(tmp_path)  # an installation without a checkout


def test_parts_are_trained_side_by_side_and_evaluations_are_told(tmp_path):
    """In processes that only look at a name, which takes no JAX; their evaluations lie there already."""
    todo = [demo.Part(name, tmp_path / name) for name in ("first", "second")]
    for part in todo:
        part.path.mkdir()
        row = '{"seed": 0, "step": 10, "goal": 1, "episodes": 2, "successes": 1, "length": 3}\n'
        (part.path / "eval.jsonl").write_text(row + row[:20])  # a line that is being written
    said: list[str] = []
    demo.side_by_side(todo, said.append, operator.attrgetter("name"))
    assert sorted(said) == ["first, step 10: 50 %", "first: done", "second, step 10: 50 %", "second: done"]


def test_readme_and_tutorial_say_what_was_measured():
    """results/demo.json is what the demo left (its summary.json) on the machine that the README names."""
    measured = json.loads((ROOT / "results" / "demo.json").read_text())
    now = json.loads(json.dumps({"game": demo.GAME, "maze": demo.MAZE}))
    assert {name: measured[name] for name in now} == now, "measured with other settings: run the demo again"
    readme = " ".join((ROOT / "README.md").read_text().replace("\n>", " ").split())
    for sentence in measured["sentences"]:
        assert sentence in readme
    assert f"took {measured['seconds']} seconds on {measured['machine'].replace('2', 'two')}" in readme
    tutorial = (ROOT / "docs" / "tutorial.md").read_text()
    assert not re.search(r"\d+ %", tutorial), "the tutorial leaves the demo's numbers to the README"


@pytest.fixture(scope="module")
def page(made, tmp_path_factory):
    with chromium.Page(tmp_path_factory.mktemp("profile")) as browser:
        browser.open(made[0] / "report.html")
        yield browser


@needs_browser
def test_the_page_presses_what_the_policy_presses(made, page):
    """The network in the page against the run's policy, from random boards to every goal, for both ways to see them."""
    assert page.complaints == []
    board = Puzzle(4, 5)
    numbers = np.random.default_rng(0).integers(0, 2**20, 60)
    starts, goals = board.boards(numbers), task_boards(board)[1]
    for i, (name, ideal) in enumerate((("exact", True), ("bits", False))):
        view, loaded = View(board, ideal, "standardised" if ideal else "raw"), policy.load(made[0] / name)
        tasks = np.arange(60) % 5
        expected = loaded.act(np.asarray(view.state(starts)), np.asarray(view.goal(goals[tasks])))
        pairs = json.dumps(list(zip(numbers.tolist(), tasks.tolist(), strict=True)))
        found = page.run(f"{pairs}.map(([board, task]) => games[0].players[{i}].press(board, task))")
        assert found == expected.tolist() and len(set(found)) > 1


@needs_browser
def test_boards_can_be_played(page):
    said = "document.querySelector('.game .said').textContent"
    lights = "document.querySelectorAll('.game .board')[0].children"
    page.run("document.querySelectorAll('.game .choices button')[0].click()")
    assert page.run(said) == "Exact distance to the goal: 4 presses."
    board, goal = page.run("[games[0].board, games[0].goal]")
    page.run(f"{lights}[7].click()")
    pressed = board ^ page.run("games[0].toggles[7]")
    left = int(distance(Puzzle(4, 5), Puzzle(4, 5).boards(pressed), Puzzle(4, 5).boards(goal)))
    assert page.run(said) == f"You pressed row 2, column 3. Exact distance to the goal: {left} presses."
    lit = page.run(f"[...{lights}].map((light) => Number(light.classList.contains('lit')))")
    assert lit == Puzzle(4, 5).boards(pressed).tolist()
    advice = page.run("[...document.querySelectorAll('.advice')].map((row) => row.textContent)")
    assert len(advice) == 2 and all("would press row" in row for row in advice)
    # What solves it by linear algebra solves it here.
    page.run("{ const g = games[0]; const p = g.presses(g.board ^ g.goal); for (let i = 0; i < g.count; i += 1)"
             " if ((p >> i) & 1) document.querySelectorAll('.game .board')[0].children[i].click(); }")  # fmt: skip
    assert "Solved: both boards are equal." in page.run(said)


@needs_browser
def test_no_option_of_a_command_is_broken_into_lines(page):
    options = "[...document.querySelectorAll('header code span')].filter((word) => word.textContent.startsWith('--'))"
    heights = f"{options}.map((word) => word.getBoundingClientRect().height)"
    for width in range(320, 520, 10):
        page.size(width, 800, mobile=True)
        found = page.run(heights)
        assert len(found) == 4 and max(found) < 1.5 * min(found), width
        assert page.run("document.documentElement.scrollWidth") <= width
    page.size(1200, 900)


@needs_browser
def test_success_is_in_view_on_a_phone(page):
    page.size(375, 800, mobile=True)
    right = "document.querySelector('#results tbody td:nth-child(2)').getBoundingClientRect().right"
    head = "document.querySelector('#results th:nth-child(2)').textContent"
    assert page.run(head).startswith("success") and page.run(right) <= 375
    assert page.run("document.documentElement.scrollWidth") <= 375
    page.size(1200, 900)

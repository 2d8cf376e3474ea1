"""The report of made-up run directories: what is in the page, what hostile strings cannot do, and the page at work in a
real browser: it loads without a word, tables sort, pointing at a goal changes the colours, keys do too."""

import base64
import datetime
import json
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import chromium
from dualgoal.errors import UserError
from dualgoal.paper import settings as presets
from dualgoal.report import distances as explorer
from dualgoal.report import page as report
from dualgoal.report.pictures import side_by_side
from dualgoal.runs.rows import EvalRow
from dualgoal.theory import pictures
from run_files import write_run

TASK = "pointmaze-medium-navigate-v0"
PICTURED = [*range(0, 36, 4), 1, 2, 3, 5, 39, 21, 22]  # the goals, and some other states of forty
HOSTILE = "<script>alert('x')</script>\"&amp;"


def distances(states=40, goals=9):
    """A table as `distances.explore` makes it: states on a circle, distances along it."""
    angle = np.linspace(0, 2 * np.pi, states, endpoint=False)
    chosen = np.arange(goals) * (states // goals)
    along = np.abs((angle[chosen][:, None] - angle + np.pi) % (2 * np.pi) - np.pi)
    exact = np.round(along * 3)
    points = 10 * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    table = {
        "format": 1,
        "sample": "0f",
        "run": "abc",
        "task": TASK,
        "seed": 0,
        "step": 100,
        "kind": "maze",
        "cell": 4.0,
    }
    table |= {"points": points.round(3).tolist(), "goals": chosen.tolist(), "learned": (20 * along).round(1).tolist()}
    table |= {"exact": exact.astype(int).tolist(), "walls": [[-2.0, -2.0, 4.0]]}
    return table | explorer.agreement(20 * along, exact)


def with_paths(table):
    """The same table with straight paths from its first three goals; the second start reaches nothing."""
    starts = table["goals"][:3]
    walk = lambda i, j, goal: [-300 if j == 1 else 10 + i, *table["points"][starts[j]], *table["points"][goal]]
    paths = [[walk(i, j, goal) for j in range(3)] for i, goal in enumerate(table["goals"])]
    return table | {"starts": starts, "paths": paths}


def with_pictures(table, shown):
    """The same table with grey pictures of these states, the later the lighter."""
    grey = (6 * np.asarray(shown, np.uint8))[:, None, None, None] * np.ones((1, 16, 24, 3), np.uint8)
    return table | {"pictures": vars(side_by_side(grey, np.asarray(shown)))}


def make_run(path, rep="dual", success=(0.5, 0.9), table=True, steps=1000, seeds=(0, 1), **options):
    """A run directory without checkpoints, of two seeds."""
    run = presets.preset(TASK, rep, "gcivl", seeds=seeds, steps=steps, episodes=10, **options)
    (path / "videos").mkdir(parents=True)
    share = lambda step: min(1, success[0] + (success[1] - success[0]) * step / steps)
    evaluations = [
        EvalRow(seed, step, goal, 1000, round(1000 * share(step)), 50.0)
        for step in run.eval_steps
        for seed in seeds
        for goal in range(1, 6)
    ]
    losses = [{"step": s, "seed": 0, "split": "train", "rep/loss": 1 / s} for s in range(100, steps + 1, 100)]
    write_run(path, run, evaluations, metrics=losses)
    if table:
        (path / "distances.json").write_text(json.dumps(distances()))
    return path


@pytest.fixture(scope="module")
def page_file(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    runs = [make_run(folder / "a"), make_run(folder / "b", "orig", (0.1, 0.3))]
    (runs[0] / "videos" / "step-000001000-seed-0-task-1.mp4").write_bytes(b"not really a film")
    (runs[0] / "videos" / "step-000001000-seed-0-task-1.jpg").write_bytes(b"its first frame")
    (runs[0] / "distances.json").write_text(json.dumps(with_pictures(distances(), PICTURED)))
    (runs[1] / "distances.json").write_text(json.dumps(with_paths(distances())))
    make_run(folder / "d", table=False, steps=500)
    (folder / "c").mkdir()
    (folder / "c" / "notes.txt").write_text("x")
    return report.write_report(
        [*runs, folder / "d", folder / "c"], folder / "out" / "report.html", title=f"A {HOSTILE} title"
    )


def test_the_page_holds_what_was_run(page_file):
    page = page_file.read_text()
    for words in ("dual + gcivl", "orig + gcivl", TASK, "86 ± 0", "Learned", "0123abc", "goal 5", "rep/loss", "76 ± 7"):
        assert words in page, words
    assert 'class="differs"' in page and 'class="same"' in page
    assert base64.b64encode(b"not really a film").decode() in page
    assert f'poster="data:image/jpeg;base64,{base64.b64encode(b"its first frame").decode()}"' in page
    assert "Dual minus Orig" in page  # both runs are cells of state_gcivl


def test_one_seed_has_no_spread(tmp_path):
    page = report.write_report([make_run(tmp_path / "a", seeds=(3,))], tmp_path / "one.html").read_text()
    assert "<strong>86</strong>" in page and "needs two seeds" in page and "86 ±" not in page


def test_what_was_left_out_is_said(page_file):
    aside = re.search("<aside.*?</aside>", page_file.read_text(), re.S)[0]
    assert "c: not a run directory (no config.json)" in aside
    assert "d: no distance explorer: no checkpoint yet" in aside and "b: no distance" not in aside


def test_the_top_of_the_page_says_what_came_out_when_and_how_it_was_made(page_file):
    header = re.search("<header.*?</header>", page_file.read_text(), re.S)[0]
    today = datetime.datetime.now(datetime.UTC).date()
    assert f"3 runs on 1 task, last changed on {today}" in header
    header = header.replace("\N{NO-BREAK SPACE}", " ")
    assert f"On {TASK}, dual + gcivl (steps 1000) reaches 86 % success" in header and "orig + gcivl 28 %" in header
    assert "(mean over 5 goals, 2 seeds and the last 3 evaluations)" in header
    assert "orig + gcivl learned have a rank correlation of 1.00 with shortest paths (9 goals x 40 states" in header
    assert "its policy reaches the goal in 67 % of 24 pairs of a start and a goal" in header  # 16 of 3 x 9 - 3
    assert "<code><span>dualgoal</span> <span>report</span> " in header
    assert f"<span>--out</span> <span>{page_file}</span></code>" in header


def test_the_page_needs_nothing_from_outside(page_file):
    page = page_file.read_text()
    without_data = re.sub(r'(src|poster)="data:[^"]*"', "", page)
    assert not re.search(r"""(?:src|href)=["'](?!#)""", without_data)
    assert "http://" not in without_data.replace("http://www.w3.org/2000/svg", "") and "https://" not in page
    assert (
        not re.search(r"url\((?!#|data:image/jpeg;)", page)
        and "@import" not in page
        and "default-src 'none'" in page.replace("&#x27;", "'")
    )


def test_user_strings_are_escaped(tmp_path):
    path = make_run(tmp_path / "<img src=x onerror=alert(1)>")
    content = json.loads((path / "config.json").read_text())
    content["run"]["task"] = HOSTILE
    content["run"]["rep"][HOSTILE] = HOSTILE
    content["git"] = HOSTILE
    (path / "config.json").write_text(json.dumps(content))
    (path / HOSTILE.replace("/", "_")).write_text("foreign")
    page = report.write_report([path], tmp_path / "r.html", title=HOSTILE).read_text()
    assert "<script>alert" not in page and "<img" not in page
    assert page.count("</script>") == page.count("<script") == 2


def test_broken_directories_give_a_page_and_no_traceback(tmp_path):
    whole = make_run(tmp_path / "whole")
    for name, spoil in {
        "empty": lambda p: [f.unlink() for f in p.iterdir() if f.is_file()],
        "half": lambda p: (p / "eval.jsonl").write_bytes((p / "eval.jsonl").read_bytes()[:333]),
        "foreign": lambda p: (p / "config.json").write_text('{"run": {"task": 7, "rep": [], "algo": null}}'),
        "distances": lambda p: (p / "distances.json").write_text('{"format": 1, "points": "many"}'),
        "config": lambda p: (p / "config.json").write_bytes(b"\xff\xfe"),
        "linked": lambda p: (p / "checkpoints").symlink_to(whole),
    }.items():
        spoil(make_run(tmp_path / name))
    page = report.write_report([tmp_path], tmp_path / "r.html").read_text()
    more = report.write_report(
        [whole, tmp_path / "empty", tmp_path / "nowhere", tmp_path / "r.html"], tmp_path / "q.html"
    )
    assert "half" in page and "config.json: is not UTF-8 text" in page and "run.rep is []" in page
    assert "no such directory" in more.read_text() and "not a directory" in more.read_text()
    with pytest.raises(UserError, match="nowhere: not a run directory"):
        report.write_report([tmp_path / "nowhere"], tmp_path / "n.html")
    (tmp_path / "empty" / "config.json").write_text("nonsense")
    nothing = report.write_report([tmp_path / "empty"], tmp_path / "n.html").read_text()
    assert "No run could be read." in nothing
    with pytest.raises(UserError, match="no run to report on"):
        report.write_report([], tmp_path / "x.html")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
NAMES = st.sampled_from(
    ["task", "rep", "algo", "seeds", "steps", "episodes", "discount", "name", "dataset", "versions"]
)
ROW = st.dictionaries(
    st.sampled_from(["seed", "step", "goal", "episodes", "successes", "length", "goal_noise", "x/loss"]), JSON
)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.dictionaries(NAMES, JSON), st.dictionaries(NAMES, JSON), st.lists(ROW), JSON)
def test_no_content_of_a_run_directory_breaks_the_page(tmp_path_factory, run, facts, rows, table):
    path = make_run(tmp_path_factory.mktemp("fuzz") / "run")
    whole = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(whole | facts | {"run": whole["run"] | run}))
    with (path / "eval.jsonl").open("a") as evaluations, (path / "metrics.jsonl").open("a") as metrics:
        for file in (evaluations, metrics):
            file.writelines(json.dumps(row) + "\n" for row in rows)
    kept = json.loads((path / "distances.json").read_text())
    (path / "distances.json").write_text(json.dumps(kept | {"profile": table, "correlation": table, "walls": table}))
    page = report.build([path], title="t")
    assert page.count("<script") == 2


def test_films_that_do_not_fit_are_named(tmp_path, monkeypatch):
    run = make_run(tmp_path / "run")
    for task in (1, 2):
        (run / "videos" / f"step-000001000-seed-0-task-{task}.mp4").write_bytes(bytes(600))
    (run / "videos" / "step-000000500-seed-0-task-1.mp4").write_bytes(b"older")
    (run / "videos" / "step-000000500-seed-0-task-1-random.mp4").write_bytes(b"at random")
    (run / "videos" / "step-000002000-seed-0-task-1-goal-noise-0.5.mp4").write_bytes(b"noisy")
    monkeypatch.setattr("dualgoal.report.sections.FILM_LIMIT", 1000)
    page = report.write_report([run], tmp_path / "r.html").read_text()
    assert page.count("<video") == 3 and "task-2.mp4 left out" in page
    assert base64.b64encode(b"older").decode() not in page
    for under, content in (("random", b"at random"), ("goal-noise-0.5", b"noisy")):
        assert base64.b64encode(content).decode() in page and f"-task-1-{under}</figcaption>" in page


def test_building_twice_gives_the_same_page(tmp_path):
    run = make_run(tmp_path / "run")
    first, second = (report.write_report([run], tmp_path / "report.html").read_bytes() for _ in range(2))
    assert first == second


# In a browser ---------------------------------------------------------------------------------------------------------

needs_browser = pytest.mark.skipif(chromium.program() is None, reason="no Chromium on this machine (apt: chromium)")
COLOURS = """[...document.querySelectorAll('#explorer-0 svg.pick')].map(
    (svg) => [...svg.querySelectorAll('.state')].map((state) => state.getAttribute('fill')))"""


@pytest.fixture(scope="module")
def page(page_file, tmp_path_factory):
    with chromium.Page(tmp_path_factory.mktemp("profile")) as browser:
        browser.open(page_file)
        yield browser


@needs_browser
def test_the_page_loads_without_a_complaint_or_a_request(page, page_file):
    assert page.complaints == []
    assert {url for url in page.requests if not url.startswith("data:")} == {page_file.resolve().as_uri()}


@needs_browser
def test_a_table_sorts_up_and_down(page):
    column = "[...document.querySelectorAll('#results tbody tr')].map(r => r.cells[0].firstChild.textContent)"
    click = "document.querySelectorAll('#results th button')[1].click()"
    page.run(click)
    up = ["orig + gcivl", "dual + gcivl (steps 1000)", "dual + gcivl (steps 500)"]
    assert page.run(column) == up
    assert page.run("document.querySelectorAll('#results th')[1].getAttribute('aria-sort')") == "ascending"
    page.run(click)
    assert page.run(column)[-1] == "orig + gcivl"


@needs_browser
def test_pointing_at_a_goal_changes_the_colours(page):
    before = page.run(COLOURS)
    assert len(before) == 2 and len(set(before[0])) > 10  # learned beside exact, each with many colours
    page.run("document.querySelector('#explorer-0').scrollIntoView()")
    box = page.run("(() => { const b = document.querySelector('#explorer-0 svg.pick').getBoundingClientRect();"
                   " return [b.left, b.top, b.width, b.height] })()")  # fmt: skip
    page.mouse(box[0] + 0.1 * box[2], box[1] + 0.5 * box[3])
    after = page.run(COLOURS)
    assert after[0] != before[0] and after[1] != before[1]
    words = page.run("document.querySelector('#explorer-0 .said').textContent")
    goal = int(re.match(r"Goal (\d+) of 9", words)[1]) - 1
    chosen = distances()["goals"][goal]
    assert after[0][chosen] == "rgb(68, 1, 84)"  # the goal itself is the nearest colour
    assert "Rank correlation with the shortest path: 1.00" in words


@needs_browser
def test_a_click_on_a_start_and_one_on_a_goal_show_the_path(page):
    svg = "document.querySelector('#explorer-1 svg.pick')"
    page.run("document.querySelector('#explorer-1').scrollIntoView()")
    left, top, width, height = page.run(
        f"(() => {{ const b = {svg}.getBoundingClientRect(); return [b.left, b.top, b.width, b.height] }})()"
    )
    places = page.run("(() => { const e = explorers[1]; return e.table.goals.map((_, i) => e.at(i))"
                      ".map(([x, y]) => [x / e.size, y / e.tall]) })()")  # fmt: skip
    said = lambda: page.run("document.querySelector('#explorer-1 .said').textContent")

    def click(goal):
        x, y = places[goal]
        page.click(left + x * width, top + y * height)

    click(2)  # a start
    click(7)  # a goal
    assert "Goal 8 of 9" in said() and "From start 3 of 3 the policy reaches it in 17 steps." in said()
    line = page.run(f"{svg}.querySelector('.path').getAttribute('points')")
    ends = [[float(n) for n in corner.split(",")] for corner in line.split(" ")]
    size = page.run("[explorers[1].size, explorers[1].tall]")
    expected = [[x * size[0], y * size[1]] for x, y in (places[2], places[7])]
    assert np.allclose(ends, expected, atol=0.5)
    click(1)
    click(5)
    assert "From start 2 of 3 the policy does not reach it within 300 steps." in said()
    page.run("(() => { const s = document.querySelector('#explorer-1-start'); s.value = 0;"
             " s.dispatchEvent(new Event('input')) })()")  # fmt: skip
    assert "From start 1 of 3 the policy reaches it in 15 steps." in said()


def test_near_and_far_have_the_same_colours_everywhere():
    """The explorer's stops are those of the colour map of all pictures, and every state has an outline in the dark."""
    from matplotlib import colormaps

    stops = json.loads(re.search(r"const STOPS = (.*?);", str(report.asset("report.js")))[1])
    drawn = colormaps[pictures.NEAR_TO_FAR](np.linspace(0, 1, len(stops)))[:, :3]
    assert np.abs(np.array(stops) / 255 - drawn).max() < 0.01
    picture = (Path(__file__).parents[1] / "tools" / "readme_picture.py").read_text()
    assert "cmap=NEAR_TO_FAR" in picture and "viridis" not in picture


@needs_browser
def test_near_states_are_visible_in_the_dark(page):
    page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    style = "getComputedStyle(document.querySelector('#explorer-0 .state')).stroke"
    edge = [float(n) for n in re.findall(r"[\d.]+", page.run(style))]
    assert min(edge[:3]) > 200 and edge[3] >= 0.5  # light, on a dark floor
    page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "light"}])


@needs_browser
def test_runs_sampled_at_the_same_states_move_together(page):
    page.run("document.querySelector('#explorer-0 svg.pick').focus()")
    page.key("Home")
    page.key("End")
    assert page.run("document.querySelectorAll('.explorer').length") == 2
    assert "Goal 9 of 9" in page.run("document.querySelector('#explorer-1 .said').textContent")


@needs_browser
def test_the_explorer_works_by_keyboard(page):
    page.run("document.querySelector('#explorer-0 svg.pick').focus()")
    before = page.run(COLOURS)
    page.key("ArrowRight")
    middle = page.run(COLOURS)
    page.key("End")
    after = page.run(COLOURS)
    assert before != middle and middle != after
    page.key("PageDown")
    said = "document.querySelector('#explorer-0 .said').textContent"
    assert "Goal 1 of 9" in page.run(said)
    page.key("PageUp")
    slider = "document.querySelector('#explorer-0 input')"
    assert page.run(f"{slider}.value") == "8" and "Goal 9 of 9" in page.run(f"{slider}.getAttribute('aria-valuetext')")
    page.run(f"{slider}.focus(); {slider}.value = 2; {slider}.dispatchEvent(new Event('input'))")
    assert "Goal 3 of 9" in page.run("document.querySelector('#explorer-0 .said').textContent")


@needs_browser
def test_the_states_nearest_to_a_goal_are_shown(page):
    """Which part of the one file each place shows, and what is written under it."""
    page.run("document.querySelector('#explorer-0 svg.pick').focus()")
    page.key("Home")
    shown = page.run("""[...document.querySelectorAll('#explorer-0 .picture')].map((one) => {
        const { backgroundPosition, backgroundSize, visibility } = getComputedStyle(one.querySelector('i'));
        return [backgroundPosition, backgroundSize, visibility, one.querySelector('span').textContent] })""")
    slots = []
    for position, size, visible, _ in shown:
        assert size == "400% 400%" and visible == "visible"  # sixteen pictures
        x, y = (float(part.removesuffix("%")) / 100 * 3 for part in position.split())
        slots.append(round(y) * 4 + round(x))
    learned, table = distances()["learned"][0], distances()
    states = [PICTURED[slot] for slot in slots]
    assert states[0] == table["goals"][0] == 0 and shown[0][3] == ""
    others = sorted((s for s in PICTURED if s != 0), key=lambda s: (learned[s], PICTURED.index(s)))
    assert states[1:7] == others[:6] == [1, 39, 2, 3, 4, 5] and states[7:] == others[-6:]
    assert [words for *_, words in shown[1:3]] == ["3.1 steps", "3.1 steps"]
    assert page.run("document.querySelectorAll('#explorer-0 .picture i:not([aria-label])').length") == 0
    assert page.run("document.querySelectorAll('#explorer-1 .picture').length") == 0


@needs_browser
def test_every_picture_has_a_text_alternative(page):
    pictures = "[...document.querySelectorAll('svg:not([aria-hidden]), video')]"
    assert page.run(f"{pictures}.length") > 5
    assert page.run(f"{pictures}.filter((e) => !e.getAttribute('aria-label')).length") == 0
    assert page.run("document.documentElement.lang") == "en"


@needs_browser
def test_only_what_differs_can_be_shown(page):
    count = "[...document.querySelectorAll('#settings tbody tr')].filter(r => r.offsetParent).length"
    everything = page.run(count)
    page.run("document.getElementById('only-differences').click()")
    fewer = page.run(count)
    page.run("document.getElementById('only-differences').click()")
    assert 0 < fewer < everything and page.run(count) == everything


@needs_browser
def test_it_fits_a_phone_prints_and_respects_the_dark(page):
    light = page.run("getComputedStyle(document.body).backgroundColor")
    page.size(375, 800, mobile=True)
    assert page.run("document.documentElement.scrollWidth") <= 375
    page.size(1200, 900)
    assert page.pdf().startswith(b"%PDF")
    page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    dark = page.run("getComputedStyle(document.body).backgroundColor")
    assert light != dark and page.complaints == []


@needs_browser
def test_charts_are_legible_on_a_phone_and_in_the_dark(page):
    page.size(375, 800, mobile=True)
    sizes = page.run("[...document.querySelectorAll('.chart text')].map((t) => t.getBoundingClientRect().height)")
    assert sizes and min(size for size in sizes if size) >= 8
    colours = """(scheme => ['text', '.chart path[style*="--c0"]'].map((s) => {
        const style = getComputedStyle(document.querySelector('#curves .chart ' + s.replace('.chart ', '')));
        return s === 'text' ? style.fill : style.stroke }))()"""
    seen = {}
    for scheme in ("light", "dark"):
        page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        seen[scheme] = page.run(colours)
    assert all(light != dark for light, dark in zip(seen["light"], seen["dark"], strict=True))
    page.size(1200, 900)


@needs_browser
def test_the_first_column_of_a_wide_table_stays_in_view_on_a_phone(page):
    page.size(375, 800, mobile=True)
    left = """(() => { const frame = document.querySelector('#results .frame'); frame.scrollLeft = 200;
        const at = frame.querySelector('tbody td').getBoundingClientRect().left - frame.getBoundingClientRect().left;
        const moved = frame.scrollLeft; frame.scrollLeft = 0; return [at, moved] })()"""
    at, moved = page.run(left)
    assert moved > 50 and 0 <= at < 5
    page.size(1200, 900)


@needs_browser
def test_hostile_strings_stay_strings(page):
    assert page.run("document.querySelector('h1').textContent") == f"A {HOSTILE} title"
    assert page.run("document.querySelectorAll('h1 script').length") == 0

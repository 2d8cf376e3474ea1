"""The page of results from run directories: numbers with their rows, paragraphs in place, the same bytes every time."""

import json
from pathlib import Path

import numpy as np
import pytest

import pages
from dualgoal.cli.main import main
from dualgoal.errors import UserError
from dualgoal.paper import comparison, results_page, row_files, settings, tables
from dualgoal.runs import config
from run_files import rows, write_run

RUN = {"seeds": (0, 1), "steps": 1000, "episodes": 4}


def make(path, run, successes, noisy=None):
    """A run with `successes` of ten at every evaluation, and `noisy` of ten at the last three with noise."""
    repeated = None if noisy is None else rows(run, noisy, steps=run.eval_steps[-3:], noise=0.2)
    return write_run(path, run, rows(run, successes), noisy=repeated)


def test_from_runs_to_the_page(tmp_path):
    runs, folder, said = tmp_path / "runs", tmp_path / "results", []
    make(runs / "a", settings.preset("cube-single-play-v0", "dual", "gcivl", **RUN), 9, noisy=7)
    make(runs / "b", settings.preset("cube-single-play-v0", "orig", "gcivl", **RUN), 5, noisy=1)
    make(runs / "c", settings.preset("cube-single-play-v0", "dual", "gcivl", **RUN, **{"rep.dim": 8}), 1)
    (runs / "d").mkdir()
    (runs / "d" / "config.json").write_text("{broken")
    (folder / "text").mkdir(parents=True)
    (folder / "text" / "state_gcivl.md").write_text("Dual is far ahead, as in the paper.\n")
    built = results_page.write_page(folder, tmp_path / "docs" / "results.md", [runs], said.append).read_text()
    names = sorted(p.relative_to(folder).as_posix() for p in folder.glob("*/*.json"))
    assert names == [
        "noise/cube-single-play-v0.dual.1000.json",
        "noise/cube-single-play-v0.orig.1000.json",
        "state_gcivl/cube-single-play-v0.dual.1000.json",
        "state_gcivl/cube-single-play-v0.orig.1000.json",
    ]
    assert "**90±0**, 1k x 2 (paper **89±3**)" in built
    assert "50±0, 1k x 2 (paper 52±3)" in built
    assert "Dual is far ahead, as in the paper." in built
    assert "not run (paper **72±6**)" in built
    assert "`results/state_gcivl/cube-single-play-v0.dual.1000.json`" in built
    assert "Dual minus Orig on cube-single-play-v0: +40.0 points after 1,000 steps" in built
    assert "| Dual loses less than Orig when goals are noisy | a figure, no published numbers | so far holds:" in built
    assert any("not a run of the paper's tables" in line for line in said) and any("not JSON" in line for line in said)
    assert built == results_page.build(folder)
    pictures = sorted(p.name for p in (tmp_path / "docs" / "figures").iterdir())
    assert pictures == ["effects.svg", "noise.svg", "state_gcivl.svg"] and all(
        f"(figures/{name})" in built for name in pictures
    )
    first = (tmp_path / "docs" / "figures" / "noise.svg").read_bytes()
    results_page.write_page(folder, tmp_path / "docs" / "results.md")
    assert (tmp_path / "docs" / "figures" / "noise.svg").read_bytes() == first


def test_row_files_keep_no_folder_of_this_machine(tmp_path):
    make(tmp_path / "runs" / "a", settings.preset("scene-play-v0", "dual", "crl", **RUN), 9)
    path = results_page.collect(tmp_path / "runs", tmp_path / "results")[0]
    assert "private" not in path.read_text() and row_files.load(path).settings["dataset"]["file"] == "x.npz"


def test_of_two_runs_of_one_cell_that_with_more_seeds_is_kept(tmp_path):
    said = []
    for name, seeds in (("a", (0,)), ("b", (1, 2)), ("c", (3,))):
        run = settings.preset("scene-play-v0", "dual", "crl", **RUN | {"seeds": seeds})
        make(tmp_path / "runs" / name, run, 9)
    (path,) = results_page.collect(tmp_path / "runs", tmp_path / "results", said.append)
    assert row_files.load(path).seeds == (1, 2)
    b = tmp_path / "runs" / "b"
    assert said == [
        f"{b.with_name(name)}: left out: {b} fills the same cell of state_crl and has 2 seeds, not 1"
        for name in ("a", "c")
    ]


def cut(run, until):
    """The rows of a run that got so far."""
    return rows(run, 5, steps=[step for step in run.eval_steps if step <= until])


def test_the_run_that_was_evaluated_further_is_kept_whatever_its_name_and_folder(tmp_path):
    short, long = (
        settings.preset("scene-play-v0", "dual", "crl", **RUN | {"seeds": seeds}) for seeds in ((0, 1), (2,))
    )
    write_run(tmp_path / "x" / "a", short, cut(short, 300))
    write_run(tmp_path / "y" / "b", long, cut(long, 1000))
    write_run(tmp_path / "z" / "c", short, cut(short, 200))
    found = {}
    for order in ("xyz", "zyx"):
        said = []
        folders = [tmp_path / name for name in order] + [tmp_path / "y"]  # the last one is given twice
        results_page.write_page(tmp_path / order, tmp_path / "page.md", folders, said.append)
        (file,) = (tmp_path / order).glob("*/*.json")
        found[order] = row_files.load(file)
        why = f"{tmp_path / 'y' / 'b'} fills the same cell of state_crl and is evaluated until step 1,000, not "
        assert sorted(said) == [
            f"{tmp_path / 'x' / 'a'}: left out: {why}300",
            f"{tmp_path / 'z' / 'c'}: left out: {why}200",
        ], order
    assert found["xyz"].seeds == found["zyx"].seeds == (2,) and found["xyz"].done == 1000


def test_a_row_file_is_not_replaced_by_less(tmp_path):
    said, folder = [], tmp_path / "results"
    full, part = (settings.preset("scene-play-v0", "dual", "crl", **RUN | {"seeds": seeds}) for seeds in ((0, 1), (2,)))
    write_run(tmp_path / "full" / "a", full, cut(full, 1000))
    (file,) = results_page.collect(tmp_path / "full", folder, said.append)
    before = file.read_bytes()
    write_run(tmp_path / "part" / "b", part, cut(part, 1000))
    write_run(tmp_path / "half" / "c", full, cut(full, 500))
    for name, why in (("part/b", "has 2 seeds, not 1"), ("half/c", "is evaluated until step 1,000, not 500")):
        assert results_page.collect((tmp_path / name).parent, folder, said.append) == [file]
        advice = "remove that file to take this run instead"
        assert said.pop() == f"{tmp_path / name}: left out: {file} {why}; {advice}" and not said
    assert file.read_bytes() == before


def test_a_row_file_follows_its_run_and_a_newer_run_of_the_same_extent(tmp_path):
    said, folder, run = [], tmp_path / "results", settings.preset("scene-play-v0", "dual", "crl", **RUN)
    for until in (300, 1000):
        write_run(tmp_path / "runs" / "a", run, cut(run, until))
        (file,) = results_page.collect(tmp_path / "runs", folder, said.append)
        assert row_files.load(file).done == until and not said
    newer = write_run(tmp_path / "new" / "a", run, rows(run, 9), git="fedcba9")
    results_page.collect(tmp_path / "new", folder, said.append)
    assert row_files.load(file).setting("git") == "fedcba9"
    why = "has as many steps, seeds and episodes"
    assert said == [f"{file}: replaced, it was of another run: {newer} {why}"]
    file.write_text("{damaged")
    results_page.collect(tmp_path / "new", folder, said.append)
    assert row_files.load(file).done == 1000 and len(said) == 1


def test_a_bad_run_costs_only_itself(tmp_path):
    said = []
    for name, rep in (("good", "dual"), ("rows", "orig"), ("config", "vib")):
        make(tmp_path / "runs" / name, settings.preset("scene-play-v0", rep, "crl", **RUN), 9)
    with (tmp_path / "runs" / "rows" / "eval.jsonl").open("a") as file:
        file.write('{"seed": "none"}\n')
    content = json.loads((tmp_path / "runs" / "config" / "config.json").read_text())
    (tmp_path / "runs" / "config" / "config.json").write_text(json.dumps(content | {"run": {"task": 7, "rep": []}}))
    names = [path.name for path in results_page.collect(tmp_path / "runs", tmp_path / "results", said.append)]
    with pytest.raises(UserError, match="nowhere: no such folder; give the one that holds the runs"):
        results_page.collect(tmp_path / "nowhere", tmp_path / "results")
    assert names == ["scene-play-v0.dual.1000.json"] and len(said) == 2
    assert "config: left out: " in said[0] and "rows: left out: " in said[1] and "line 101: " in said[1]


def test_a_bad_row_file_costs_only_itself(tmp_path, capsys):
    folder, page = tmp_path / "results", tmp_path / "page.md"
    for name, rep in (("a", "dual"), ("b", "orig")):
        make(tmp_path / "runs" / name, settings.preset("scene-play-v0", rep, "crl", **RUN), 9)
    bad, good = results_page.collect(tmp_path / "runs", folder)
    bad.write_text("[" * 100_000)
    assert main(["results", "--folder", str(folder), "--out", str(page)]) == 0
    out = capsys.readouterr().out
    assert f"left out: {bad}: not a row file (is nested too deeply)" in out and out.count("left out") == 1
    assert good.name in page.read_text() and bad.name not in page.read_text()


def test_lights_out_runs_are_found_under_both_views(tmp_path):
    for cell in tables.expand("lightsout", tasks=["lightsout-4x5"], seeds=(0, 1), steps=1000):
        make(tmp_path / "runs" / cell.column, config.from_dict(cell.config), 4)
    names = [path.name for path in results_page.collect(tmp_path / "runs", tmp_path / "results")]
    assert names == ["lightsout-4x5.dual.1000.json", "lightsout-4x5.orig.1000.json"]


def test_the_committed_page_is_built_from_the_committed_rows():
    root = Path(__file__).parent.parent
    assert (root / "docs" / "results.md").read_text() == results_page.build(root / "results")


def test_without_any_row_file_everything_is_not_run(tmp_path):
    built = results_page.build(tmp_path)
    assert built.count("Not run") == len(tables.TABLES) and "average" in built


def test_the_small_experiment_on_hiql_is_that_of_its_file():
    text = (pages.ROOT / "results" / "text" / "beyond.md").read_text()
    found = json.loads((pages.ROOT / "results" / "small_hierarchy.json").read_text())
    assert pages.table(text, "A small experiment on two cores") == list(map(small_row, found))
    assert all((row["seeds"], row["steps"]) == (3, 10_000) for row in found)


def test_the_small_experiment_on_duals_that_look_at_the_state_is_that_of_its_files():
    page = (pages.ROOT / "results" / "text" / "state_aware.md").read_text()
    before, found = (
        json.loads((pages.ROOT / "results" / f"small_{name}.json").read_text()) for name in ("hierarchy", "state_aware")
    )
    assert pages.table(page, "at a small size") == list(map(small_row, found))
    plain = {(row["rep"], row["algo"]): small_row(row)[3] for row in before if not row["options"]}
    there = f"`results/small_hierarchy.json`; there Orig has {plain['orig', 'gcivl']} with GCIVL and "
    there += f"{plain['orig', 'hiql']} with HIQL, HIQL's own {plain['hiql_phi', 'hiql']}, "
    there += f"and Dual {plain['dual', 'hiql']} with HIQL"
    assert there in " ".join(page.split())
    assert small_row(found[0])[3] == plain["dual", "gcivl"], "the same run, once more"


def test_the_small_runs_of_gciql_are_those_of_their_file():
    text = (pages.ROOT / "results" / "text" / "beyond.md").read_text()
    found = json.loads((pages.ROOT / "results" / "small_puzzle_gciql.json").read_text())
    names = {"the goal": "orig", "φ(g)": "dual", "φ(g), trained by all losses": "dual, trained_by all"}
    names["φ(g), trained alone for 20,000 steps, then frozen"] = "dual, frozen after 20,000 steps"
    shown = [[names[name], *rest] for name, *rest in pages.table(text, "Two cores can ask")]
    success = lambda row: f"{100 * sum(row['successes']) / row['episodes'] / len(row['successes']):.0f}"
    assert shown == [
        [row["what"], str(row["seed"]), f"{row['slope']:.1f}", f"{row['press']:.1f}", success(row)] for row in found
    ]
    assert {(row["step"], row["episodes"]) for row in found} == {(100_000, 10)}


def test_the_small_experiment_on_daf_is_that_of_its_file():
    text = (pages.ROOT / "results" / "text" / "beyond.md").read_text()
    found = json.loads((pages.ROOT / "results" / "small_daf.json").read_text())
    size = lambda row: f"{row['steps']:,} x {row['seeds']}"
    shown = [[row[1], row[2], size(given), *row[3:]] for given in found for row in [small_row(given)]]
    assert pages.table(text, "**DAF, in small.**") == shown
    assert {row["rep"] for row in found} == {"dual"}


def small_row(row):
    """A row of a small experiment as its table shows it."""
    interval = "none, seeds agree" if row["interval"] is None else "[{:.0f}, {:.0f}]".format(*row["interval"])
    return [row["rep"], row["algo"], row["options"] or "none", f"{row['mean']:.0f} ± {row['std']:.0f}", interval]


def test_averages_in_words_are_those_of_the_rows():
    found = row_files.load_all(pages.ROOT / "results")
    shown = {
        (name, line.name, column): cell
        for name in ("beyond", "state_gcivl")
        for line in comparison.fill_table(name, found).lines
        for column, cell in line.finished().items()
    }
    three = ("pointmaze-medium-navigate-v0", "antmaze-medium-navigate-v0", "cube-single-play-v0")
    average = lambda column: round(np.mean([shown["beyond", task, column].mean for task in three]))
    dual, own, orig = (average(column) for column in ("dual_hiql", "hiql_phi_hiql", "orig_hiql"))
    text, guide = (
        " ".join((pages.ROOT / page).read_text().split()) for page in ("results/text/beyond.md", "docs/your_world.md")
    )
    assert f"over the three tasks it averages {dual}, HIQL's own {own} and Orig {orig}" in text
    assert (
        f"averages {dual} over pointmaze-medium, antmaze-medium and cube-single; `hiql_phi` {own}, `orig` {orig}"
        in guide
    )
    by_kind = {task: ("beyond", task, "dual_hiql") for task in tables.STATE_TASKS if "-navigate-" in task}
    by_kind |= {task: ("state_gcivl", task, "dual") for task in tables.STATE_TASKS if "-play-" in task}
    rule = {task: shown[key].mean for task, key in by_kind.items() if key in shown}
    paper = np.mean([tables.paper()["state_gcivl"][task]["dual"][0] for task in rule])
    each = [f"{value:.0f}" for value in rule.values()]
    words = f"({', '.join(each[:-1])} and {each[-1]}, of different lengths) it averages {np.mean([*rule.values()]):.0f}"
    assert f"{words}, where the paper's Dual + GCIVL has {paper:.0f} on the same five" in text and len(rule) == 5

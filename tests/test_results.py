"""The page of results from run directories: numbers with their rows, paragraphs in place, the same bytes every time."""

import json
from pathlib import Path

from dualgoal.paper import page as results
from dualgoal.paper import row_files, settings, tables
from dualgoal.runs import config

RUN = {"seeds": (0, 1), "steps": 1000, "episodes": 4}


def write_run(path, run, success, noisy=None):
    path.mkdir(parents=True)
    facts = {
        "run": config.to_dict(run),
        "id": run.id,
        "versions": {"mujoco": "3.4.0"},
        "hardware": {"device": "cpu"},
        "dataset": {"source": "generated", "file": "/somewhere/private/x.npz", "episodes": 100},
    }
    (path / "config.json").write_text(json.dumps(facts))

    def rows(value, noise, steps):
        return "".join(
            json.dumps({"seed": s, "step": step, "task": t, "episodes": 4, "success": value, "goal_noise": noise})
            + "\n"
            for step in steps
            for s in run.seeds
            for t in range(1, 6)
        )

    (path / "eval.jsonl").write_text(rows(success, 0.0, run.eval_steps))
    if noisy is not None:
        (path / "noise.jsonl").write_text(rows(noisy, 0.2, run.eval_steps[-3:]))


def test_from_runs_to_the_page(tmp_path):
    runs, folder, said = tmp_path / "runs", tmp_path / "results", []
    write_run(runs / "a", settings.preset("cube-single-play-v0", "dual", "gcivl", **RUN), 0.9, noisy=0.7)
    write_run(runs / "b", settings.preset("cube-single-play-v0", "orig", "gcivl", **RUN), 0.5, noisy=0.1)
    write_run(runs / "c", settings.preset("cube-single-play-v0", "dual", "gcivl", **RUN, **{"rep.dim": 8}), 0.1)
    (runs / "d").mkdir()
    (runs / "d" / "config.json").write_text("{broken")
    (folder / "text").mkdir(parents=True)
    (folder / "text" / "state_gcivl.md").write_text("Dual is far ahead, as in the paper.\n")
    page = results.results(folder, tmp_path / "docs" / "results.md", [runs], said.append).read_text()
    names = sorted(p.relative_to(folder).as_posix() for p in folder.glob("*/*.json"))
    assert names == [
        "noise/cube-single-play-v0.dual.1000.json",
        "noise/cube-single-play-v0.orig.1000.json",
        "state_gcivl/cube-single-play-v0.dual.1000.json",
        "state_gcivl/cube-single-play-v0.orig.1000.json",
    ]
    assert "**90±0** [90-90], 1k x 2 (paper **89±3**)" in page
    assert "50±0 [50-50], 1k x 2 (paper 52±3)" in page
    assert "Dual is far ahead, as in the paper." in page
    assert "not run (paper **72±6**)" in page
    assert "`results/state_gcivl/cube-single-play-v0.dual.1000.json`" in page
    assert "Dual minus Orig on cube-single-play-v0: +40.0 points after 1,000 steps" in page
    assert "| Dual loses less than Orig when goals are noisy | a figure, no published numbers | holds:" in page
    assert any("not a run of the paper's tables" in line for line in said) and any("not JSON" in line for line in said)
    assert page == results.build(folder)
    pictures = sorted(p.name for p in (tmp_path / "docs" / "figures").iterdir())
    assert pictures == ["noise.svg", "state_gcivl.svg"] and all(f"(figures/{name})" in page for name in pictures)
    first = (tmp_path / "docs" / "figures" / "noise.svg").read_bytes()
    results.results(folder, tmp_path / "docs" / "results.md")
    assert (tmp_path / "docs" / "figures" / "noise.svg").read_bytes() == first


def test_row_files_keep_no_folder_of_this_machine(tmp_path):
    write_run(tmp_path / "runs" / "a", settings.preset("scene-play-v0", "dual", "crl", **RUN), 0.9)
    path = results.collect(tmp_path / "runs", tmp_path / "results")[0]
    assert "private" not in path.read_text() and row_files.load(path).settings["dataset"]["file"] == "x.npz"


def test_lights_out_runs_are_found_under_both_views(tmp_path):
    for cell in tables.expand("lightsout", tasks=["lightsout-4x5"], seeds=(0, 1), steps=1000):
        write_run(tmp_path / "runs" / cell.column, config.from_dict(cell.config), 0.4)
    names = [path.name for path in results.collect(tmp_path / "runs", tmp_path / "results")]
    assert names == ["lightsout-4x5.dual.1000.json", "lightsout-4x5.orig.1000.json"]


def test_the_committed_page_is_built_from_the_committed_rows():
    root = Path(__file__).parent.parent
    assert (root / "docs" / "results.md").read_text() == results.build(root / "results")


def test_without_any_row_file_everything_is_not_run(tmp_path):
    page = results.build(tmp_path)
    assert page.count("Not run") == 9 and "average" in page

"""The README is executed, command by command, at a size that takes seconds, and its numbers are those of row files."""

import json
import re

import numpy as np
import pytest

import pages
from dualgoal.cli import main
from dualgoal.paper import tables

ROOT = pages.ROOT
README = (ROOT / "README.md").read_text()
FOLDERS = {"GCIVL": "state_gcivl", "GCFBC": "state_gcfbc", "DQN": "lightsout"}  # row files on states, by algorithm


@pytest.fixture
def workplace(tmp_path, monkeypatch, evaluated_here):
    return pages.workplace(tmp_path, monkeypatch)


def test_every_command_of_the_readme_runs(workplace, capsys, monkeypatch):
    from dualgoal.paper import jobs

    done = []
    monkeypatch.setattr(jobs, "_do", lambda job, *rest, **more: done.append(job.planned.name))  # trained elsewhere
    ran = []
    for kind, block in pages.blocks(README):
        if kind == "python":
            exec(block, names := {})
            assert names["action"].shape == (5,) and np.isfinite(names["steps_to_go"]) and names["z"].shape == (8,)
        else:
            ran += pages.run(block, capsys)
    assert {"train", "eval", "report", "export", "data", "list", "reproduce"} <= set(ran)
    assert len(done) == 2 and (workplace / "cube.html").exists() and (workplace / "cube.safetensors").exists()


def test_every_page_the_readme_points_to_exists():
    links = [link for link in re.findall(r"\]\(([^)]+)\)", README) if not link.startswith("http")]
    assert len(links) >= 12 and not [link for link in links if not (ROOT / link).exists()]


def test_commands_outside_blocks_exist():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M))
    assert set(re.findall(r"(?:`| {4})make ([a-z]+)", README)) <= targets
    for verb in re.findall(r"`dualgoal ([a-z]+)", README):
        assert any(known.split()[0] == verb for known in main.VERBS)
    for tool in re.findall(r"tools/\w+", README):
        assert (ROOT / tool).exists()


def score(folder, task, column, steps):
    """Mean and standard deviation over seeds of the last three evaluations, from the rows alone; and the seeds."""
    content = json.loads((ROOT / "results" / folder / f"{task}.{column}.{steps}.json").read_text())
    seeds = sorted({row["seed"] for row in content["rows"]})
    last = sorted({row["step"] for row in content["rows"]})[-3:]
    of = lambda seed: [100 * row["success"] for row in content["rows"] if row["seed"] == seed and row["step"] in last]
    means = [np.mean(of(seed)) for seed in seeds]
    return f"{np.mean(means):.0f} ± {np.std(means):.0f}", len(seeds)


def tasks_with_both():
    """Every (task, algorithm) that has row files of Orig and of Dual."""
    names = {(path.parent.name, *path.name.split(".")[:2]) for path in (ROOT / "results").glob("*/*.*.*.json")}
    algos = {folder: algo for algo, folder in FOLDERS.items()} | {"pixel_gcivl": "GCIVL"}
    return {
        (task, algos[folder]) for folder, task, column in names if column == "orig" and (folder, task, "dual") in names
    }


def test_the_result_table_says_what_the_row_files_say():
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in README.splitlines() if " ± " in line]
    rows = [row for row in rows if len(row) == 8]
    assert {(row[0], row[1]) for row in rows} == tasks_with_both() and len(rows) == len(tasks_with_both())
    for task, algo, orig, dual, paper_orig, paper_dual, steps, seeds in rows:
        folder = "pixel_gcivl" if task.startswith("visual-") else FOLDERS[algo]
        where = folder, task
        assert (orig, int(seeds)) == score(*where, "orig", steps.replace(",", ""))
        assert (dual, int(seeds)) == score(*where, "dual", steps.replace(",", ""))
        published = tables.paper().get(folder, {}).get(task)
        said = {"orig": paper_orig, "dual": paper_dual}
        expected = {c: "{} ± {}".format(*published[c]) if published else "figure only" for c in said}
        assert said == expected

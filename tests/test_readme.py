"""The README is executed, command by command, at a size that takes seconds, and its numbers are those of row files."""

import itertools
import json
import re

import numpy as np
import pytest

import pages
from dualgoal.cli import main
from dualgoal.paper import tables

ROOT = pages.ROOT
README = (ROOT / "README.md").read_text()


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
    assert len(links) >= 12
    for page, _, place in (link.partition("#") for link in links):
        assert (ROOT / page).exists()
        assert not place or place in {anchor(line) for line in (ROOT / page).read_text().splitlines()}


def anchor(line: str) -> str:
    """The name under which a heading can be linked to."""
    return re.sub(r"[^\w -]", "", line.lstrip("# ").lower()).strip().replace(" ", "-") if line.startswith("#") else ""


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


def cells_with_both():
    """Of every (task, algorithm) with row files of Orig and of Dual, the folder and the names of the two columns."""
    files = {(path.parent.name, *path.name.split(".")[:2]) for path in (ROOT / "results").glob("*/*.*.*.json")}
    return {
        (task, orig.algo.upper()): (table.name, orig.name, dual.name)
        for table in tables.TABLES.values()
        for orig, dual in itertools.product(table.columns, repeat=2)
        if (orig.rep, dual.rep) == ("orig", "dual") and orig.algo == dual.algo
        for task in table.tasks
        if {(table.name, task, orig.name), (table.name, task, dual.name)} <= files
    }


def test_the_result_table_says_what_the_row_files_say():
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in README.splitlines() if " ± " in line]
    rows = [row for row in rows if len(row) == 8]
    cells = cells_with_both()
    assert {(row[0], row[1]) for row in rows} == {*cells} and len(rows) == len(cells)
    for task, algo, orig, dual, paper_orig, paper_dual, steps, seeds in rows:
        folder, *columns = cells[task, algo]
        for column, said in zip(columns, (orig, dual), strict=True):
            assert (said, int(seeds)) == score(folder, task, column, steps.replace(",", ""))
        published = tables.paper().get(folder, {}).get(task)
        missing = "figure only" if tables.get(folder).published else "not run"
        expected = ["{} ± {}".format(*published[c]) if published else missing for c in columns]
        assert [paper_orig, paper_dual] == expected

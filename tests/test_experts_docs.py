"""The numbers of docs/experts.md about the humanoid are those of the files that it names."""

import json
from pathlib import Path

import pages

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "experts.md").read_text()
EVALUATED = json.loads((ROOT / "results" / "expert_humanoid_eval.json").read_text())


def table(start):
    return pages.table(PAGE, start)


def test_rows_of_its_training():
    lines = (ROOT / "results" / "expert_humanoid_trials.jsonl").read_text().splitlines()
    found = {(row["run"], f"{row['step']:,}"): row for row in map(json.loads, lines)}
    rows = table("Rows of `results/expert_humanoid_trials.jsonl`")
    assert len(rows) == 13
    for run, step, *shown in rows:
        row = found[run, step]
        falls = f"{row['falls_per_1000_steps']:.1f}" if run == "f" else "not counted"
        minutes, pace = f"{row['seconds'] / 60:.0f}", f"{row['metres_per_second']:.2f}"
        assert shown == [f"{row['updates']:,}", minutes, f"{row['return']:.0f}", pace, falls]


def test_its_evaluations():
    rows = table("`dualgoal expert eval humanoid --json`")
    assert len(rows) == 6
    for name, *shown in rows:
        values = [EVALUATED[run][noise][name] for run in ("d", "f at 247,168") for noise in ("0", "0.2")]
        digits = 3 if name.startswith("metres") else 1
        assert shown == [f"{value:.{digits}f}" for value in values]
    text, stood = " ".join(PAGE.split()), "stood up within 300 steps (%)"
    others = EVALUATED["d, 200 other episodes (--seed 7)"]
    assert "{:g} % stand up with d, {:g} % with noise".format(*(others[noise][stood] for noise in ("0", "0.2"))) in text
    later = [EVALUATED[f"f at {steps}"] for steps in ("142,208", "224,128", "247,168")]
    for noise, said in (
        ("0", "{:.0f}, {:.0f} and {:.0f} % after"),
        ("0.2", "({:.0f}, {:.0f} and {:.0f} % with noise)"),
    ):
        assert said.format(*(found[noise][stood] for found in later)) in text
    reached = [found["successful"] for found in EVALUATED["humanoidmaze-medium, 55 episodes"].values()]
    assert "{} reach at least one goal with d, {} with f at 224,128 gradient steps and {} at".format(*reached) in text

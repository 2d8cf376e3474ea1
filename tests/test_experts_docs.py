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
    assert len(rows) == 19
    for run, step, *shown in rows:
        row = found[run, step]
        falls = "not counted" if run == "d" else f"{row['falls_per_1000_steps']:.1f}"
        minutes, pace = f"{row['seconds'] / 60:.0f}", f"{row['metres_per_second']:.2f}"
        assert shown == [f"{row['updates']:,}", minutes, f"{row['return']:.0f}", pace, falls]


def test_shorter_trials_were_trained_to_their_last_row():
    rows = map(json.loads, (ROOT / "results" / "expert_humanoid_trials.jsonl").read_text().splitlines())
    last = {row["run"]: row for row in rows}
    trials = table("Four shorter trials of the first stage")
    assert [run for run, *_ in trials] == ["a", "b", "c", "e"]
    assert [steps for _, _, steps, _ in trials] == [f"{last[run]['updates']:,}" for run in "abce"]


def test_its_evaluations():
    rows = table("`dualgoal expert eval humanoid --json`")
    assert len(rows) == 6
    for name, *shown in rows:
        values = [EVALUATED[run][noise][name] for run in ("d", "g at 187,520", "h") for noise in ("0", "0.2")]
        digits = 3 if name.startswith("metres") else 1
        assert shown == [f"{value:.{digits}f}" for value in values]
    others = [EVALUATED["h, 200 other episodes (--seed 7)"][noise] for noise in ("0", "0.2")]
    stood, speed = (
        [found[name] for found in others] for name in ("stood up within 300 steps (%)", "metres per second")
    )
    said = "{:g} % stand up with h and {:g} % with noise, at {:.2f} and {:.2f} m/s".format(*stood, *speed)
    assert said in " ".join(PAGE.split())


def test_its_episodes_in_the_maze():
    found = EVALUATED["humanoidmaze-medium, 55 episodes"]
    rows = dict((name, shown) for name, *shown in table("The arena of the evaluation"))
    names = {"reach at least one goal": "successful", "goals reached, in all": "goals"}
    for row, key in {**names, "lie at the end, of 50": "lie at the end, of 50"}.items():
        assert rows[row] == [f"{found[run][key]}" for run in ("d", "g at 169,984", "g at 187,520", "h")]
    text = " ".join(PAGE.split())
    assert f"own falls, {100 * found['h']['successful'] / 55:.0f} % of the episodes reach a goal" in text
    earlier = [found[f"f at {steps}"]["successful"] for steps in ("224,128", "247,168")]
    assert "reached a goal in {} and {} of 55 episodes".format(*earlier) in text


def test_the_policy_of_the_package_is_the_one_that_was_evaluated():
    record = json.loads((ROOT / "src" / "dualgoal" / "experts" / "humanoid.json").read_text())
    assert f"h is the policy of the package, after {record['updates']:,} gradient steps" in " ".join(PAGE.split())

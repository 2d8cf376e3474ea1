"""The numbers of docs/speed.md are those of the row files beside them."""

import importlib.util
import json
import re
from pathlib import Path

import numpy as np
import pytest

import pages
from dualgoal.errors import UserError

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "speed.md").read_text()
README = " ".join((ROOT / "README.md").read_text().split())
AGAIN = ("6 graph", "without pairs", "pairs of 16 channels only", "larger tiles")  # kernels that were timed once more
FILES = dict(re.findall(r"^    ([A-Z])  dualgoal bench .* > (results/\S+)$", PAGE, re.M))


def table(start):
    return pages.table(PAGE, start)


def described(name, seeds, precision, file):
    """The row of a file that a line of the table speaks of."""
    rep, algo, *rest = re.split(r" \+ |, ", name)
    asked = {"rep": rep, "algo": algo, "seeds": int(seeds), "precision": precision, "batch": 1024, "width": 512}
    for word in rest:
        if word != "library convolutions":
            asked |= {"batch": 256} if word == "pixels" else {word.split()[0]: int(word.split()[1])}
    (found,) = [row for row in json.loads((ROOT / file).read_text()) if asked.items() <= row.items()]
    return found


def to(digits, value):
    return f"{float(f'{value:.{digits}g}'):g}"


def test_the_table_says_what_the_row_files_say():
    lines = table("## One H200")
    assert {letter for *_, letter in lines} == set(FILES)
    for name, seeds, precision, step, each, rate, share, letter in lines:
        row = described(name, seeds, precision, FILES[letter])
        said = [to(3, row[key]) for key in ("ms_per_step", "ms_per_step_per_seed", "steps_per_second")]
        assert [step, each, rate, share] == [*said, f"{to(2, 100 * row['share'])} %"], name


def test_the_text_says_what_the_row_files_say():
    busy = [line for line in table("## One H200")[:5] if line[1] != "1"]
    first, *grown = (described(*line[:3], FILES[line[-1]]) for line in busy)
    text, kernels = " ".join(PAGE.split()), first["kernels"]
    growth = re.search(r"twice the seeds ([\d.]+)x, twice the batch ([\d.]+)x, twice the width ([\d.]+)x", text)
    assert growth and list(growth.groups()) == [f"{row['ms_per_step'] / first['ms_per_step']:.2f}" for row in grown]
    assert f"takes {first['baseline_ms']:.2f} ms: eight seeds together are {first['ratio']:.1f} times as fast" in text
    assert "; ".join(f"{kind} {cost['us'] / 1e3:.2f}" for kind, cost in kernels.items()) in text
    assert f"the sum of {sum(cost['us'] for cost in kernels.values()) / 1e3:.2f} ms" in text
    assert f"{first['share'] * first['ms_per_step']:.2f} ms at the rate of a large product" in text
    pace, minutes = first["ms_per_step"], first["ms_per_step"] * 1e3 / 60
    assert f"takes {pace:.2f} ms, so a million steps of all eight take {minutes:.0f} minutes" in README


def test_precisions_compare_as_the_tool_says(tmp_path):
    spec = importlib.util.spec_from_file_location("compare_rows", ROOT / "tools" / "compare_rows.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    a, b = (ROOT / name for name in re.search(r"compare_rows.py (\S+) (\S+)", PAGE).groups())
    assert [pages.cells(line) for line in tool.lines(a, b)[2:]] == table("## What bf16 costs")
    moved = json.loads(a.read_text())
    moved["rows"] = [row | {"step": row["step"] + 1} for row in moved["rows"]]
    (tmp_path / "moved.json").write_text(json.dumps(moved))
    with pytest.raises(UserError, match="no evaluation at the same step"):
        tool.lines(a, tmp_path / "moved.json")


def test_the_run_on_a_loaded_machine_is_quoted_as_its_file_has_it():
    rows = {row["seeds"]: row for row in json.loads((ROOT / "results" / "bench_dual_bf16_loaded.json").read_text())}
    eight, one = (f"{rows[n]['ms_per_step_per_seed']:.3f}" for n in (8, 1))
    assert f"{eight} ms per step and seed for eight seeds and {one} ms for one" in " ".join(PAGE.split())


def test_the_text_about_images_says_what_the_row_files_say():
    text = " ".join(PAGE.split())
    ours, library = (json.loads((ROOT / FILES[letter]).read_text()) for letter in "HI")
    one, four = (slow["ms_per_step"] / fast["ms_per_step"] for fast, slow in zip(ours, library, strict=True))
    said = f"one seed is {one:.1f} times as fast as with the library's convolutions, four seeds {four:.1f} times"
    assert said in text
    traced = library[0], tried()["last: 7 rows, traced outside of the graph", 1], tried()["5 sums", 4]
    *kinds, sums, steps = table("Where the time goes, in milliseconds per step")
    assert {kind for kind, *_ in kinds} == {kind for row in traced for kind in row["kernels"]}
    shown = lambda row, kind: f"{row['kernels'][kind]['us'] / 1e3:.2f}" if kind in row["kernels"] else "none"
    for kind, *numbers in kinds:
        assert numbers == [shown(row, kind) for row in traced]
    assert sums[1:] == [f"{sum(cost['us'] for cost in row['kernels'].values()) / 1e3:.2f}" for row in traced]
    assert steps[1:] == [f"{row['ms_per_step']:.2f}" for row in traced]


def tried():
    rows = json.loads((ROOT / "results" / "bench_pixels_tried_bf16.json").read_text())
    return {(row["variant"], row["seeds"]): row for row in rows}


def test_versions_of_the_kernels_are_quoted_as_their_file_has_them():
    rows, text = tried(), " ".join(PAGE.split())
    names = [name for name, seeds in rows if seeds == 4 and not name.startswith(("again", "later", "last"))]
    shown = lambda name, seeds: f"{rows[name, seeds]['ms_per_step']:.2f}" if (name, seeds) in rows else "not measured"
    assert [line[1:] for line in table("How the kernels got there")] == [
        [shown(name, 1), shown(name, 4)] for name in names
    ]
    again = [tuple(rows[f"again: {name}", seeds]["ms_per_step"] for seeds in (1, 4)) for name in AGAIN]
    assert "the last line gave {:.3f} and {:.3f}".format(*again[0]) in text
    for pair in again[1:]:
        assert "{:.2f} and {:.2f}".format(*pair) in text
    later = [
        rows[f"later: {name}", seeds]["ms_per_step"] for name, seeds in (("6 graph", 1), ("6 graph", 4), ("7 rows", 4))
    ]
    assert (
        "the code before it took {:.3f} and {:.3f} ms, and four seeds of the new one {:.3f} ms".format(*later) in text
    )
    last = [rows[f"last: {name}", seeds]["ms_per_step"] for name in ("6 graph", "7 rows") for seeds in (1, 4)]
    assert "the code before it took {:.3f} and {:.3f} ms, and the last version {:.3f} and {:.3f}".format(*last) in text
    before, graph = (rows[f"vectors: {name}", 1]["ms_per_step"] for name in ("before", "graph"))
    assert f"from {before:.3f} to {graph:.3f} ms" in text


def test_rates_of_training_on_images_are_those_of_their_file():
    lines = (ROOT / "results" / "timing_images_gpu.jsonl").read_text().splitlines()
    rates = {"dual": [], "orig": []}
    for row in map(json.loads, lines):
        if "steps_per_second" in row:
            rates[row["rep"]].append(row["steps_per_second"])
    dual, orig = (f"{np.median(rates[rep]):.0f}" for rep in ("dual", "orig"))
    assert f"Dual takes {dual} steps per second and Orig {orig} when alone" in " ".join(PAGE.split())


def test_rates_on_visual_scene_are_those_of_their_file():
    rows = map(json.loads, (ROOT / "results" / "timing_scene_gpu.jsonl").read_text().splitlines())
    rows = [row for row in rows if "steps_per_second" in row]
    rate = lambda rep, first, last: np.median(
        [row["steps_per_second"] for row in rows if row["rep"] == rep and first <= row["step"] <= last]
    )
    text = " ".join(PAGE.split())
    assert f"Orig takes {rate('orig, later', 90_000, 140_000):.0f} steps per second (median" in text
    alone, rendering = rate("dual", 45_000, 70_000), rate("dual", 80_000, 95_000)  # evaluated at step 70,000
    assert f"Dual fell from {alone:.0f} to {rendering:.0f} steps per second" in text


def test_rates_of_trainings_that_share_a_gpu_are_those_of_their_file():
    rows = map(json.loads, (ROOT / "results" / "timing_antmaze_gpu.jsonl").read_text().splitlines())
    rows = [row for row in rows if "steps_per_second" in row]
    rate = lambda run, first=0: np.median(
        [row["steps_per_second"] for row in rows if row["run"] == run and row["step"] >= first]
    )
    dual, orig = rate("dual, alone"), rate("orig, alone")
    dual_shared, orig_shared = rate("dual, shared"), rate("orig, shared", 65_000)  # before, Dual was being compiled
    shares = 100 * dual_shared / dual, 100 * orig_shared / orig
    text = " ".join(PAGE.split())
    assert f"Dual takes {dual:.0f} steps per second alone and Orig {orig:.0f}." in text
    assert f"they took {dual_shared:.0f} and {orig_shared:.0f} ({shares[0]:.0f} and {shares[1]:.0f} % of that" in text
    assert f"together {sum(shares):.0f} %" in text


def test_precisions_on_images_are_quoted_as_their_file_has_them():
    rows = [json.loads(line) for line in (ROOT / "results" / "precision_images.jsonl").read_text().splitlines()]
    names, steps = ("value/v", "actor/log_prob"), range(2_000, 10_001, 2_000)
    metrics = [row for row in rows if row["file"] == "metrics" and row["split"] == "val"]
    found = np.array([
        [[[row[name] for row in metrics if (row["step"], row["precision"]) == (step, precision)]
          for precision in ("bf16", "float32")] for name in names] for step in steps
    ])  # fmt: skip
    shown = [
        [f"{step:,}", *(", ".join(f"{x:.{digits}f}" for x in pair) for two, digits in ((v, 2), (a, 3)) for pair in two)]
        for step, (v, a) in zip(steps, found, strict=True)
    ]
    assert table("On images, two seeds of Orig") == shown
    text = " ".join(PAGE.split())
    precisions, seeds = (np.abs(np.diff(found, axis=axis)).mean((0, 2, 3)) for axis in (2, 3))
    assert "differ by {:.2f} on average in the value and {:.3f} in the log-probability".format(*precisions) in text
    assert "two seeds of a precision by {:.2f} and {:.3f}".format(*seeds) in text
    won = lambda precision, step: [
        100 * np.mean([row["success"] for row in rows if row["file"] == "eval"
                       and (row["precision"], row["step"], row["seed"]) == (precision, step, seed)]) for seed in (0, 1)
    ]  # fmt: skip
    assert won("bf16", 5_000) == won("float32", 5_000) == [0, 0]
    ends = [*won("bf16", 10_000), *won("float32", 10_000)]
    assert "after 10,000 steps {:.0f} and {:.0f} % do in bf16, {:.0f} and {:.0f} % in float32".format(*ends) in text
    rates = [row["steps_per_second"] for row in rows if "steps_per_second" in row and row["step"] == 4_000]
    assert f"float32 takes {rates[1]:.0f} steps per second where bf16 takes {rates[0]:.0f}" in text


def test_the_evaluation_table_is_that_of_its_rows():
    rows = [json.loads(line) for line in (ROOT / "results" / "evaluation_parts.jsonl").read_text().splitlines()]
    cpu = {(row["task"].removesuffix("-play-v0"), row["threads"]): row["cpu_ms"] for row in rows}
    assert all(row["actions equal"] for row in rows)
    names = {"policy, everything anew at every step": "policy, computed anew", "policy in two stages": "policy"}
    for name, *found in table("## Evaluation"):
        for task, cell in zip(("visual-scene", "scene"), found, strict=True):
            numbers = [float(number) for number in re.findall(r"[\d.]+", cell)]
            measured = [cpu[task, threads].get(names.get(name, name)) for threads in ("1", "16")][: len(numbers)]
            assert np.allclose(numbers, measured, atol=0.006, rtol=0.005), (name, task)
    spent = map(json.loads, (ROOT / "results" / "timing_evaluation.jsonl").read_text().splitlines())
    before, after = (f"{row['evaluation_cpu_seconds']:.1f}" for row in spent)
    assert f"{before} CPU seconds at commit 996efe5 and takes {after} (" in " ".join(PAGE.split())


def test_the_table_of_two_cores_is_that_of_its_rows():
    files = [json.loads((ROOT / "results" / f"bench_{name}.json").read_text()) for name in ("cpu", "cpu_before")]
    case = lambda row: (f"{row['rep']} + {row['algo']}", str(row["batch"]), str(row["width"]))
    now, before = ({(*case(row), row["precision"]): row for row in rows} for rows in files)
    assert {row["device"] for rows in files for row in rows} == {"cpu"}
    lines = table("**bf16 on a CPU.**")
    assert len(lines) == len({key[:3] for key in now})
    for *key, a, b, c, d in lines:
        for rows, shown in ((now, {"float32": a, "bf16": b}), (before, {"float32": c, "bf16": d})):
            found = {precision: rows.get((*key, precision), {}).get("ms_per_step") for precision in shown}
            assert shown == {p: to(3, ms) if ms else "not measured" for p, ms in found.items()}, key

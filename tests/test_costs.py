"""What rows cost: seconds from timing.jsonl, shared devices, and the table on the page of results."""

import dataclasses
import json

import pytest

from dualgoal.paper import cost_table, costs, results_page, row_files, settings
from dualgoal.paper.costs import Cost
from run_files import rows, write_run

RUN = {"seeds": (0, 1), "steps": 1000, "episodes": 4}


def write_timing(path, spans, played=()):
    """Rows of timing.jsonl: (step, from, until) of training, then CPU seconds of evaluations."""
    lines = [{"step": step, "steps_per_second": 1.0, "seconds": b - a, "time": float(b)} for step, a, b in spans]
    lines += [{"step": 1000, "evaluation_cpu_seconds": value, "time": 0.0} for value in played]
    (path / "timing.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.fixture
def pair(tmp_path):
    paths = []
    for rep in ("dual", "orig"):
        run = settings.preset("cube-single-play-v0", rep, "gcivl", **RUN)
        paths.append(write_run(tmp_path / "runs" / rep, run, rows(run, 9)))
    return paths


def test_each_second_of_a_shared_device_is_divided(pair):
    write_timing(pair[0], [(500, 0, 10), (1000, 10, 30)], played=(3.0, 4.5))
    write_timing(pair[1], [(1000, 20, 60)])
    alone = costs.of_runs(pair)
    assert alone == {pair[0]: Cost(1000, 30.0, 7.5), pair[1]: Cost(1000, 40.0, None)}
    shared = costs.of_runs(pair, shared=True)  # ten seconds were used by both
    assert (shared[pair[0]].device, shared[pair[1]].device) == (25.0, 35.0)


def test_old_and_damaged_timing_cost_nothing_but_the_cost(pair, tmp_path):
    (pair[0] / "timing.jsonl").write_text('{"step": 1000, "steps_per_second": 5.0, "time": 7.0}\n')
    (pair[1] / "timing.jsonl").write_text("nonsense\n")
    assert costs.of_runs(pair) == {pair[0]: Cost(1000)}
    written = results_page.collect(tmp_path / "runs", tmp_path / "results")
    assert len(written) == 2 and row_files.load(written[1]).cost == Cost()


def test_costs_are_kept_in_row_files_and_summed(pair, tmp_path):
    for path, spans in zip(pair, ([(1000, 0, 600)], [(1000, 300, 900)]), strict=True):
        write_timing(path, spans, played=(120.0,))
        content = json.loads((path / "config.json").read_text())
        content["dataset"]["details"] = {"cpu_seconds": 240.0}
        (path / "config.json").write_text(json.dumps(content))
    results_page.collect(tmp_path / "runs", tmp_path / "results", shared_device=True)
    found = row_files.load_all(tmp_path / "results")
    assert found[0].cost == Cost(1000, 450.0, 120.0, 240.0)
    text = cost_table.markdown(found)
    assert "| state_gcivl, cube-single-play-v0, Dual | 1,000 x 2 | 7.5 | 2.0 | 4.0 |" in text
    assert "| sum of what was recorded | | 15.0 | 4.0 | 4.0 |" in text  # the same data, counted once
    again = dataclasses.replace(found[0], steps=2000, cost=dataclasses.replace(found[0].cost, data=60.0))
    for records in ([*found, again], [again, *found]):  # made again on another machine: both times were spent
        assert "| sum of what was recorded | | 22.5 | 6.0 | 5.0 |" in cost_table.markdown(records)
    # 450 s for 2,000 steps, of each of two columns: 0.45 s x 13 tasks x 8 seeds x 1M steps
    assert "`state_gcivl` in full (13 tasks, 8 seeds, 1,000,000 steps): 13,000.0 GPU hours for 2 of 6 columns" in text
    images = dataclasses.replace(found[0], table="pixel_gcivl", task="visual-scene-play-v0", cost=Cost(1000, 9e9))
    text = cost_table.markdown([*found, images])
    assert "13,000.0 GPU hours" in text, "at the rate of states"
    # 9e9 s for 2,000 steps, of one column: 4.5e6 s x 7 tasks x 4 seeds x 500,000 steps
    assert "`pixel_gcivl` in full (7 tasks, 4 seeds, 500,000 steps): 17,500,000,000.0 GPU hours for 1 of 6" in text
    assert "## What the rows cost" in results_page.build(tmp_path / "results")


def test_noisy_goals_of_a_run_cost_no_second_training(tmp_path):
    run = settings.preset("cube-single-play-v0", "dual", "gcivl", **RUN)
    noisy = rows(run, 7, steps=run.eval_steps[-3:], noise=0.2)
    write_timing(write_run(tmp_path / "runs" / "a", run, rows(run, 9), noisy=noisy), [(1000, 0, 600)])
    results_page.collect(tmp_path / "runs", tmp_path / "results")
    text = cost_table.markdown(row_files.load_all(tmp_path / "results"))
    assert "| noise, cube-single-play-v0, Dual | 1,000 x 2 | not recorded |" in text
    assert "| sum of what was recorded | | 10.0 |" in text


def test_one_run_prices_its_columns_in_all_tables(tmp_path):
    run = settings.preset("visual-puzzle-3x3-play-v0", "orig", "gcivl", **RUN)
    write_timing(write_run(tmp_path / "runs" / "a", run, rows(run, 9)), [(1000, 0, 600)])
    results_page.collect(tmp_path / "runs", tmp_path / "results")
    text = cost_table.markdown(row_files.load_all(tmp_path / "results"))
    assert "`pixel_gcivl` in full" in text and "`fusion` in full" in text and "1 of 2 columns (Early)" in text


def test_rows_without_a_record_say_so(pair, tmp_path):
    results_page.collect(tmp_path / "runs", tmp_path / "results")
    text = cost_table.markdown(row_files.load_all(tmp_path / "results"))
    assert text.count("not recorded") == 9 and "in full" not in text

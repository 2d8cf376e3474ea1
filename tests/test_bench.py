"""The benchmark runs and says what it must; how fast is a matter for the command, not for a test."""

import json

import numpy as np
import pytest

from dualgoal.bench import measure
from dualgoal.bench.options import Options
from dualgoal.errors import UserError
from dualgoal.interface import Frames

KEYS = (
    "rep algo seeds precision batch width ms_per_step ms_per_step_per_seed baseline_ms ratio "
    "compile_s peak_bytes device"
)


def test_rows_have_the_promised_fields(capsys):
    small = {"reps": ("orig",), "algos": ("gcbc",), "widths": (8,), "batches": (8,), "seconds": 0.02}
    measure.run_bench(Options(seeds=(2,), json=True, **small))
    (row,) = json.loads(capsys.readouterr().out)
    assert set(KEYS.split()) <= set(row)
    assert row["seeds"] == 2 and row["batch"] == 8 and row["width"] == 8 and row["peak_bytes"] > 0
    assert row["ms_per_step_per_seed"] == pytest.approx(row["ms_per_step"] / 2)
    assert row["ratio"] == pytest.approx(row["baseline_ms"] / row["ms_per_step_per_seed"])
    assert sum(row["parts_ms"].values()) == pytest.approx(row["ms_per_step"])


def test_host_batches_follow_the_goal_mix():
    agent = measure.Case(width=8, batch=4000).agent()
    host = measure.rows_of("cube-single-play-v0")
    batch = measure.host_batch(host, agent.streams, agent.spec, np.random.default_rng(0))
    assert set(batch.draws) == {"value", "actor"} and agent.draw_of["rep"] == "value"
    assert float(np.mean(batch.draws["value"].success)) == pytest.approx(0.2, abs=0.03)
    windows = measure.Case(rep="vip", width=8, batch=4).agent()
    batch = measure.host_batch(host, windows.streams, windows.spec, np.random.default_rng(0))
    assert isinstance(batch.draws["rep"], Frames)


@pytest.mark.parametrize("bad", [{"seeds": (0,)}, {"widths": (0,)}, {"batches": (8, -1)}])
def test_sizes_below_one_are_refused(bad):
    with pytest.raises(UserError, match="whole numbers from 1 to"):
        measure.run_bench(Options(**bad))


def test_an_empty_list_is_refused():
    with pytest.raises(UserError, match="nothing to measure"):
        measure.run_bench(Options(reps=()))

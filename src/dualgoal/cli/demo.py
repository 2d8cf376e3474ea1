"""The whole way on a small maze in a few minutes: data, two trainings, evaluation, comparison with chance, a report.

Not the paper's settings: narrow networks, large steps and fast targets learn enough in 16,000 steps on two
cores to be far above chance. The presets of `dualgoal train` are the paper's.
"""

import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from dualgoal.paper import settings
from dualgoal.runs.rows import EvalRow

TASK = "pointmaze-medium-navigate-v0"
DATA_EPISODES = 200
SEEDS = (0, 1)
SMALL: dict[str, Any] = {
    "seeds": SEEDS, "steps": 16_000, "batch_size": 256, "lr": 2e-3, "tau": 0.05, "episodes": 10,
    "eval_every": 8_000, "save_every": 8_000, "log_every": 500, "algo.hidden": [64, 64],
}  # fmt: skip
SMALL_REP: dict[str, dict[str, Any]] = {"dual": {"rep.hidden": [64, 64], "rep.dim": 32}, "orig": {}}
TITLES = {"dual": "Dual + GCIVL", "orig": "Orig + GCIVL", "random": "random actions"}


def demo(out: str | Path = "demo", *, workers: int | None = None, **changes: Any) -> Path:
    """Do everything below `out` and return the report. `changes` make it smaller, for tests."""
    from dualgoal.collect import generate
    from dualgoal.report import page as report
    from dualgoal.runs import directory, evaluation, training

    out, began = Path(out), time.monotonic()
    say = lambda text: print(f"[{time.monotonic() - began:4.0f} s] {text}", flush=True)
    episodes = changes.pop("data_episodes", DATA_EPISODES)
    say(f"making {episodes} episodes of {TASK}")
    generate.generate_dataset(TASK, episodes, out / "data", workers=workers)
    rows: dict[str, list[EvalRow]] = {}
    for rep, options in SMALL_REP.items():
        run = settings.preset(TASK, rep, "gcivl", **(SMALL | options | changes))
        say(f"training {TITLES[rep]}, {len(run.seeds)} seeds at once, {run.steps:,} steps")
        training.train(run, out / rep, data_path=out / "data", workers=workers)
        rows[rep] = [row for row in directory.evaluations(out / rep) if row.step == run.steps]
    say("how far does chance get?")
    rows["random"] = evaluation.evaluate(out / "dual", random=True, workers=workers)
    page = report.report([out / rep for rep in SMALL_REP], out / "report.html", data_path=out / "data")
    print(summary(rows))
    say(f"open {page}")
    return page


def summary(rows: dict[str, list[EvalRow]]) -> str:
    """Success with 95 % intervals, and whether Dual is clear of chance."""
    lines = [f"success on {TASK}, all tasks and seeds together, with 95 % intervals"]
    ranges = {name: interval(found) for name, found in rows.items()}
    for name, (mean, low, high) in ranges.items():
        count = sum(row.episodes for row in rows[name])
        lines.append(f"  {TITLES[name]:<15} {mean:5.1f} %  [{low:.1f}, {high:.1f}]  of {count} episodes")
    gain = ranges["dual"][0] - ranges["random"][0]
    apart = ranges["dual"][1] > ranges["random"][2]
    lines.append(f"  Dual is {gain:.0f} points above chance; the intervals are {'apart' if apart else 'not apart'}")
    return "\n".join(lines)


def interval(rows: Sequence[EvalRow], z: float = 1.96) -> tuple[float, float, float]:
    """Mean success in percent and its Wilson interval over all episodes."""
    n, k = sum(row.episodes for row in rows), sum(row.successes for row in rows)
    centre, width = (k + z * z / 2) / (n + z * z), z / (n + z * z) * math.sqrt(k * (n - k) / n + z * z / 4)
    percent: Callable[[float], float] = lambda x: 100 * min(max(x, 0.0), 1.0)
    return percent(k / n), percent(centre - width), percent(centre + width)

"""`dualgoal demo`: everything on a small maze in a few minutes, from making data to a report.

These are not the paper's settings: narrow networks, a large learning rate and fast target networks learn enough in
16,000 steps on two cores to be far better than random actions.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from dualgoal.cli.parsing import unset
from dualgoal.cli.verb import Verb
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


@dataclass(frozen=True)
class Demo(Verb):
    """Trains Dual + GCIVL and Orig + GCIVL, compares both with random actions, and writes a report. The networks are
    small and the training is short; these are not the paper's settings."""

    out: Path = Path("demo")
    """Folder for everything."""
    workers: Annotated[int | None, unset("all cores", "INT")] = None
    """Number of processes that make data and evaluate."""

    def run(self) -> None:
        run_demo(self.out, workers=self.workers)


def run_demo(out: Path, *, workers: int | None = None, **changes: Any) -> Path:
    """Do everything below `out` and return the report. `changes` make it smaller, for tests."""
    from dualgoal.collect import generate
    from dualgoal.paper import settings
    from dualgoal.report import page
    from dualgoal.runs import directory, evaluation, training

    began = time.monotonic()
    say = lambda text: print(f"[{time.monotonic() - began:4.0f} s] {text}", flush=True)
    episodes = changes.pop("data_episodes", DATA_EPISODES)
    say(f"making {episodes} episodes of {TASK}")
    generate.generate_dataset(TASK, episodes, out / "data", workers=workers)
    rows: dict[str, list[EvalRow]] = {}
    for rep, options in SMALL_REP.items():
        run = settings.preset(TASK, rep, "gcivl", **(SMALL | options | changes))
        say(f"training {TITLES[rep]}: {len(run.seeds)} seeds at the same time, {run.steps:,} steps")
        training.train(run, out / rep, data_path=out / "data", workers=workers)
        rows[rep] = [row for row in directory.evaluations(out / rep) if row.step == run.steps]
    say("evaluating random actions, for comparison")
    rows["random"] = evaluation.evaluate(out / "dual", random=True, workers=workers)
    report = page.write_report([out / rep for rep in SMALL_REP], out / "report.html", data_path=out / "data")
    print(summary(rows))
    say(f"open {report}")
    return report


def summary(rows: dict[str, list[EvalRow]]) -> str:
    """Success with 95 % confidence intervals, and whether Dual is clearly better than random actions."""
    lines = [f"success rate on {TASK} over all goals and seeds, with 95 % confidence intervals"]
    ranges = {name: interval(found) for name, found in rows.items()}
    for name, (mean, low, high) in ranges.items():
        count = sum(row.episodes for row in rows[name])
        lines.append(f"  {TITLES[name]:<15} {mean:5.1f} %  [{low:.1f}, {high:.1f}]  of {count} episodes")
    gain = ranges["dual"][0] - ranges["random"][0]
    apart = ranges["dual"][1] > ranges["random"][2]
    overlap = "do not overlap" if apart else "overlap"
    lines.append(f"  Dual is {gain:.0f} points better than random actions; the intervals {overlap}")
    return "\n".join(lines)


def interval(rows: Sequence[EvalRow]) -> tuple[float, float, float]:
    """Mean success in percent and its Wilson interval over all episodes."""
    from dualgoal.paper import stats

    episodes, successes = sum(row.episodes for row in rows), sum(row.successes for row in rows)
    low, high = stats.wilson_interval(successes, episodes)
    return 100 * successes / episodes, 100 * low, 100 * high

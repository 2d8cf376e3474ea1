#!/usr/bin/env python3
"""Measure planning, status and the final table of a sweep of many runs, on run directories that are written for it.

    python tools/measure_runs.py --runs 300

The directories hold what runs of the paper's length leave: 10 evaluations of 4 seeds and 5 goals, 200 rows of metrics
per seed and split, and a status. Checkpoints are names without content. Memory is the peak of this process, which does
everything that the driver of a cluster does, before and after the final table.
"""

import argparse
import json
import resource
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

import run_files
from dualgoal.paper import jobs, sweep
from dualgoal.runs import directory, overview, owner


def write(job: jobs.Job) -> None:
    """A finished run."""
    run = job.planned.run
    metric = {"actor/loss": 0.1, "value/loss": 0.2, "rep/loss": 0.3, "total/loss": 0.6}
    steps = range(run.log_every, run.steps + 1, run.log_every)
    metrics = [{"step": n, "seed": s, "split": x, **metric} for n in steps for s in run.seeds for x in ("train", "val")]
    run_files.write_run(job.out, run, run_files.rows(run, 5), metrics=metrics)
    (job.out / directory.CHECKPOINTS).mkdir()
    directory.checkpoint_path(job.out, run.steps).with_suffix(".json").write_text("{}")
    status = owner.Status("t", "node", 1, time.time(), 5.0, state="finished", step=run.steps, rate=441.0)
    (job.out / owner.STATUS).write_text(json.dumps(asdict(status)))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--runs", type=int, default=300)
    count = options.parse_args().runs
    peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # MiB, on Linux
    with tempfile.TemporaryDirectory() as folder:
        file, out = Path(folder) / "many.toml", Path(folder) / "runs"
        rates = ", ".join(f"{i + 1}e-6" for i in range(count))
        file.write_text(f'tasks = ["cube-single-play-v0"]\nseeds = [0, 1, 2, 3]\n[grid]\nlr = [{rates}]\n')
        began = time.perf_counter()
        planned = sweep.plan(file, out)
        print(f"planning {len(planned)} new runs: {time.perf_counter() - began:.1f} s")
        for job in planned[::2]:
            write(job)
        began = time.perf_counter()
        sweep.plan(file, out)
        print(f"planning, half of them finished: {time.perf_counter() - began:.1f} s")
        for job in planned[1::2]:
            write(job)
        before = peak()
        for name, action in (
            ("planning again, all finished", lambda: sweep.plan(file, out)),
            ("status (dualgoal runs)", lambda: overview.text([overview.look(path) for path in overview.find(out)])),
            (
                "the same command again: plan and final table",
                lambda: sweep.carry_out(file, out=out, say=lambda _: None),
            ),
        ):
            began = time.perf_counter()
            action()
            print(f"{name}: {time.perf_counter() - began:.1f} s")
        print(f"peak memory: {before:.0f} MiB before, {peak():.0f} MiB after")


if __name__ == "__main__":
    main()

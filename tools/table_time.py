#!/usr/bin/env python3
"""How long the paper's four main tables take on several GPUs, from measured rates.

    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python tools/table_time.py --measure   # CPU time of environments
    python tools/table_time.py                                                      # the table of docs/cluster.md

Training rates are those of results/bench_*.json (one H200). The rules that fill what was not measured:

- A representation other than Orig costs what Dual costs, the most expensive one. Under CRL and GCFBC only Orig was
  measured; the difference between Dual and Orig under GCIVL is added.
- Four seeds lie on the straight line through the measured one and eight of Dual + GCIVL; others in proportion.
- Image runs cost what Dual + GCIVL costs with four seeds.
- Every evaluation episode takes as many steps as it may: no goal is reached early.
- Evaluation runs beside training on the cores of each GPU (--cores); a run takes the longer of the two, plus its last
  evaluation and its compilation.
- Runs are given to GPUs longest first; a GPU does one run at a time.
"""

import argparse
import heapq
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from dualgoal import texts
from dualgoal.envs import registry, tasks
from dualgoal.paper import tables
from dualgoal.runs.episodes import BLOCK

RESULTS = Path(__file__).parent.parent / "results"
STEPS_FILE = RESULTS / "env_steps.json"
TABLES = ("state_gcivl", "state_crl", "state_gcfbc", "pixel_gcivl")
GOALS = 5


def measure(seconds: float) -> None:
    """Milliseconds per step of every environment and of a policy of the paper's size, on one core."""
    if os.environ.get("OMP_NUM_THREADS") != "1":
        raise SystemExit("evaluation processes have one thread each: set OMP_NUM_THREADS=1 and OPENBLAS_NUM_THREADS=1")
    os.environ["LP_NUM_THREADS"] = "0"  # of a renderer in software
    found = []
    for task in tasks.TASKS:
        env = registry.make(task)
        shape = env.observation_shape
        rng = np.random.default_rng(0)
        width = 512
        inputs = 2 * int(np.prod(shape)) if len(shape) == 1 else 2 * width
        sizes = [inputs, width, width, width, env.action_dim]
        weights = [rng.normal(size=pair).astype(np.float32) for pair in zip(sizes, sizes[1:], strict=False)]
        rows = rng.normal(size=(BLOCK, inputs)).astype(np.float32)
        env.reset(seed=0, task_id=1)
        steps, began = 0, time.process_time()  # not by the clock: this machine may have other things to do
        while time.process_time() - began < seconds:
            hidden = rows
            for matrix in weights:
                hidden = np.maximum(hidden @ matrix, 0)
            for _ in range(BLOCK):
                *_, done, cut, _info = env.step(rng.uniform(-1, 1, env.action_dim).astype(np.float32))
                if done or cut:
                    env.reset(seed=0, task_id=1)
                steps += 1
        spent = 1000 * (time.process_time() - began) / steps
        found.append({"task": task, "ms_per_step": round(spent, 4), "max_steps": env.max_steps})
        print(found[-1], flush=True)
        env.close()
    STEPS_FILE.write_text(json.dumps(found, indent=1) + "\n")


def bench(name: str, **wanted: Any) -> dict[str, Any]:
    """The row of a bench file with these values."""
    rows = json.loads((RESULTS / f"bench_{name}.json").read_text())
    (row,) = [row for row in rows if all(row[key] == value for key, value in wanted.items())]
    return row


def train_ms(rep: str, algo: str, seeds: int, pixels: bool) -> float:
    """Milliseconds per step of all seeds of a run."""
    if pixels:
        return bench("pixels_bf16", seeds=4)["ms_per_step"] * seeds / 4
    one, eight = (bench("dual_bf16", seeds=n)["ms_per_step"] for n in (1, 8))
    orig = bench("others_bf16", rep="orig", algo="gcivl")["ms_per_step"]
    of_eight = bench("others_bf16", rep="orig", algo=algo)["ms_per_step"] + (eight - orig) * (rep != "orig")
    return of_eight * (one + (eight - one) * (seeds - 1) / 7) / eight


def hours(planned: tables.PlannedRun, steps: dict[str, dict[str, Any]], cores: int) -> tuple[float, float, float]:
    """(the run, its training, its evaluations) in hours."""
    run, pixels = planned.run, tasks.is_pixels(planned.task)
    compiling = bench("pixels_bf16" if pixels else "dual_bf16", seeds=4 if pixels else 8)["compile_s"] / 3600
    training = run.steps * train_ms(planned.rep, planned.algo, len(run.seeds), pixels) / 3.6e6
    env = steps[planned.task]
    episodes = GOALS * run.episodes * len(run.seeds)
    one = episodes * env["max_steps"] * env["ms_per_step"] / cores / 3.6e6
    evaluating = one * len(run.eval_steps)
    return max(training, evaluating) + one + compiling, training, evaluating


def makespan(lengths: list[float], gpus: int) -> float:
    """When the last run ends."""
    free = [0.0] * gpus
    for length in sorted(lengths, reverse=True):
        heapq.heappush(free, heapq.heappop(free) + length)
    return max(free)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument(
        "--measure", action="store_true", help="time the environments and write results/env_steps.json"
    )
    options.add_argument("--seconds", type=float, default=2.0, help="per environment, with --measure")
    options.add_argument("--gpus", type=int, nargs="+", default=[1, 8, 64])
    options.add_argument("--cores", type=int, default=15, help="evaluation cores of each GPU")
    given = options.parse_args()
    if given.measure:
        measure(given.seconds)
        return
    steps = {row["task"]: row for row in json.loads(STEPS_FILE.read_text())}
    columns = [f"{n} GPU{'s' * (n > 1)}, hours" for n in given.gpus]
    evaluation = f"evaluation, hours on {given.cores} cores"
    rows = [["table", "runs", "seeds", "GPU hours of training", evaluation, *columns]]
    everything: list[float] = []
    for name in TABLES:
        runs = tables.expand(name)
        found = [hours(run, steps, given.cores) for run in runs]
        everything += [all_ for all_, *_ in found]
        seeds, sums = sum(len(run.seeds) for run in runs), [sum(part) for part in list(zip(*found, strict=True))[1:]]
        cells = [name, str(len(runs)), str(seeds), *(f"{total:.0f}" for total in sums)]
        rows.append([*cells, *ends([all_ for all_, *_ in found], given.gpus)])
    rows.append(["all four", "", "", "", "", *ends(everything, given.gpus)])
    print("\n".join(texts.markdown(rows, right=range(1, len(rows[0])))))


def ends(lengths: list[float], gpus: list[int]) -> list[str]:
    """When the last run ends, for each number of GPUs."""
    return [f"{makespan(lengths, n):.1f}" for n in gpus]


if __name__ == "__main__":
    main()

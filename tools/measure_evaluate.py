#!/usr/bin/env python3
"""Measure, as ratios in one run: evaluation with two workers against one, and training beside evaluation against alone.

    python tools/measure_evaluate.py --data DIR     # DIR holds cube-single-play-v0 and pointmaze-medium-navigate-v0

Cores are divided (`--pin`): training on one half, workers on the other. Say on what machine, and that it was idle.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

from dualgoal import data, evaluate, machine, policy, presets, sampler, store, train, trees
from dualgoal.program import Program

CUBE, MAZE = "cube-single-play-v0", "pointmaze-medium-navigate-v0"
SMALL = {"batch_size": 256, "algo.hidden": [64, 64], "rep.hidden": [64, 64], "rep.dim": 32, "seeds": (0, 1)}


def run_directory(task: str, source: Path, path: Path) -> Program:
    """An untrained run of the small preset."""
    run = presets.preset(task, "dual", "gcivl", steps=1, **SMALL)
    facts = train.describe(run, data.load(source, task))
    program = Program(policy.agent_for(run, facts["dataset"]), run.seeds)
    with store.Store(path, run, facts) as record:
        record.save(1, trees.to_host(program.init()))
    return program


def seconds(path: Path, workers: int, cpus: list[int] | None = None) -> float:
    """Time of one evaluation after the workers have warmed up."""
    with evaluate.Pool(workers, cpus) as pool:
        for episodes in (workers * evaluate.BLOCK, 20):
            began = time.perf_counter()
            pool.submit(1, evaluate.jobs_for(path, 1, (0,), episodes))
            pool.collect(wait=True)
        return time.perf_counter() - began


def rate(program: Program, rows: sampler.Data, steps: int) -> float:
    state, _ = program.advance(program.init(), rows, 10)
    began = time.perf_counter()
    state, _ = program.advance(state, rows, steps)
    state.step.block_until_ready()
    return steps / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=1000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        cube, maze = Path(folder) / "cube", Path(folder) / "maze"
        run_directory(CUBE, options.data, cube)
        one, two = seconds(cube, 1), seconds(cube, 2)
        others = machine.pin()
        program = run_directory(MAZE, options.data, maze)
        rows = program.place_data(sampler.to_device(data.load(options.data, MAZE)))
        alone = rate(program, rows, options.steps)
        with evaluate.Pool(1, others) as pool:
            pool.submit(1, evaluate.jobs_for(maze, 1, (0, 1), 50))
            time.sleep(10)  # the worker has started
            beside = rate(program, rows, options.steps)
            busy = bool(pool.pending) and not pool.collect()
    found = {"evaluation, 2 workers / 1": one / two, "training, beside evaluation / alone": beside / alone}
    print(json.dumps({**found, "evaluation lasted": busy, "cores": machine.cores()}, indent=1))


if __name__ == "__main__":
    main()

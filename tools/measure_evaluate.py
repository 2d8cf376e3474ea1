#!/usr/bin/env python3
"""Measure, as ratios in one run: evaluation with two workers against one, and training beside evaluation against alone.

    python tools/measure_evaluate.py --data DIR     # DIR holds cube-single-play-v0 and pointmaze-medium-navigate-v0

The two sides of a ratio take turns and the middle ratio of the rounds is the result; all rounds are printed. Rounds are
many and short, because on a shared machine the same work on a core of its own can take half as long again ten seconds
later: in few long ones, two workers had 1.8 to 2.5 times the throughput of one. Training is the demo's small preset in
a process that takes its half of the cores before JAX starts, as `train --separate-cores` does; its evaluation worker
lives on the other half and is held (SIGSTOP) while training is measured alone. Say on what machine, and that it was
idle.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dualgoal import machine
from dualgoal.cli import demo
from dualgoal.data import dataset
from dualgoal.runs.episodes import BLOCK, Episode
from dualgoal.runs.evaluation import Plan
from dualgoal.runs.worker import ENVIRONMENT, Job, Player
from dualgoal.workers import Pool

CUBE, MAZE = "cube-single-play-v0", demo.TASK


def run_directory(task: str, source: Path, path: Path) -> tuple[Any, Any]:
    """An untrained run of the small preset, its program and its data. Here JAX starts."""
    from dualgoal import sampler
    from dualgoal.loop import TrainingLoop
    from dualgoal.paper import settings
    from dualgoal.runs import directory, policy, training, trees

    run = settings.preset(task, "dual", "gcivl", **demo.MAZE)
    rows = dataset.load(source, task)
    facts = training.describe(run, rows)
    program = TrainingLoop(policy.agent_for(run, facts.sizes), run.seeds)
    with directory.Store(path, run, facts) as record:
        record.save(1, trees.to_host(program.init()))
    return program, program.place_data(sampler.to_device(rows))


def serve_training(source: Path, path: Path) -> None:
    """The training process: answers each number of seconds to train for with steps per second."""
    others = machine.pin()
    program, rows = run_directory(MAZE, source, path)
    state, _ = program.advance(program.init(), rows, 100)
    print(json.dumps(others), flush=True)
    for line in sys.stdin:
        began, steps = time.perf_counter(), 0
        while (spent := time.perf_counter() - began) < float(line):
            state, _ = program.advance(state, rows, 100)
            state.step.block_until_ready()
            steps += 100
        print(json.dumps(steps / spent), flush=True)


def cpu_seconds(pid: int) -> float:
    """What a process has used so far."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def compare(one: Callable[[], float], other: Callable[[], float], rounds: int) -> list[float]:
    """one() / other(), measured in turns: one other, other one, ..., so that a drift favours neither."""
    ratios = []
    for i in range(rounds):
        first, second = (one, other) if i % 2 == 0 else (other, one)
        a, b = first(), second()
        ratios.append(a / b if i % 2 == 0 else b / a)
    return ratios


def evaluation(source: Path, folder: Path, rounds: int, blocks: int) -> list[float]:
    """Throughput of two workers / of one; the same blocks of episodes, by workers that have all played before."""
    run_directory(CUBE, source, folder)
    jobs = Plan(seeds=(0,), goals=1, episodes=blocks * BLOCK).jobs(folder, 1)  # of one goal, so equally long

    def seconds(pool: Pool[Job, list[Episode]]) -> float:
        began = time.perf_counter()
        for _ in pool.each(jobs):
            pass
        return time.perf_counter() - began

    with Pool(Player(), 1, environment=ENVIRONMENT) as single, Pool(Player(), 2, environment=ENVIRONMENT) as double:
        for pool in (single, double):
            seconds(pool)
        return compare(lambda: seconds(single), lambda: seconds(double), rounds)


def training(source: Path, folder: Path, rounds: int, length: float) -> list[float]:
    """Steps per second beside an evaluation on the other half of the cores / alone on the same half."""
    command = [sys.executable, __file__, "--data", str(source), "--serve-training", str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as trainer:
        assert trainer.stdin is not None and trainer.stdout is not None
        others = json.loads(trainer.stdout.readline())
        if others is None:
            sys.exit("needs Linux and two cores")
        with Pool(Player(), len(others), environment=ENVIRONMENT, cpus=others) as pool:
            jobs = Plan(seeds=(0, 1), goals=5, episodes=10_000).jobs(folder, 1)  # longer than the measurement
            answers = [pool.submit(job) for job in jobs]
            answers[0].result()

            def rate(number: int) -> float:
                for pid in pool.pids:
                    os.kill(pid, number)
                before = sum(map(cpu_seconds, pool.pids))
                trainer.stdin.write(f"{length}\n")
                trainer.stdin.flush()
                found = json.loads(trainer.stdout.readline())
                busy = (sum(map(cpu_seconds, pool.pids)) - before) / length / len(others)
                assert busy > 0.8 if number == signal.SIGCONT else busy < 0.05, f"workers were busy {busy:.0%}"
                return found

            ratios = compare(lambda: rate(signal.SIGCONT), lambda: rate(signal.SIGSTOP), rounds)
            assert not answers[-1].done()
        trainer.stdin.close()
    return ratios


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--blocks", type=int, default=4, help="of episodes per evaluation, an even number")
    parser.add_argument("--seconds", type=float, default=3, help="of training, alone and beside")
    parser.add_argument("--serve-training", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve_training:
        return serve_training(options.data, options.serve_training)
    with tempfile.TemporaryDirectory() as folder:
        found = {
            "evaluation, 2 workers / 1": evaluation(
                options.data, Path(folder) / "cube", options.rounds, options.blocks
            ),
            "training, beside evaluation / alone": training(
                options.data, Path(folder) / "maze", options.rounds, options.seconds
            ),
        }
    medians = {name: round(statistics.median(ratios), 3) for name, ratios in found.items()}
    rounds = {name: [round(r, 3) for r in sorted(ratios)] for name, ratios in found.items()}
    print(json.dumps({**medians, "cores": machine.cores(), "all rounds": rounds}, indent=1))


if __name__ == "__main__":
    main()

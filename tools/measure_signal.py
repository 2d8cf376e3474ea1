#!/usr/bin/env python3
"""Measure how long a training run takes from SIGTERM to its end, and check its exit status and its last checkpoint.

    python tools/measure_signal.py --times 5

The run is Dual + GCIVL with the paper's networks on random data of cube-single's sizes, one seed, without evaluation.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from dualgoal.runs import directory, owner

TASK = "cube-single-play-v0"


def make_data(folder: Path) -> None:
    rng = np.random.default_rng(0)
    for name, episodes in ((TASK, 20), (f"{TASK}-val", 2)):
        ends = np.zeros((episodes, 101), bool)
        ends[:, -1] = True
        rows = {"observations": rng.normal(size=(ends.size, 28)).astype(np.float32)}
        rows["actions"] = rng.uniform(-1, 1, size=(ends.size, 5)).astype(np.float32)
        np.savez(folder / f"{name}.npz", **rows, terminals=ends.reshape(-1))


def once(folder: Path, batch: int) -> float:
    """Start or resume the run, wait until it trains, send the signal; seconds until it has ended."""
    out = folder / "run"
    words = ["train", TASK, "--data", str(folder), "--out", str(out), "--episodes", "0", "--quiet"]
    words += ["--batch-size", str(batch), "--log-every", "1000000"]
    environment = {**os.environ, "DUALGOAL_CACHE": str(folder / "cache"), "DUALGOAL_HEARTBEAT": "0.2"}
    process = subprocess.Popen([sys.executable, "-m", "dualgoal", *words], env=environment, stderr=subprocess.DEVNULL)
    while (status := owner.read_status(out)) is None or status.pid != process.pid or status.rate is None:
        if process.poll() is not None:
            raise SystemExit(f"training ended with status {process.returncode}")
        time.sleep(0.05)
    time.sleep(1)
    began = time.perf_counter()
    process.send_signal(signal.SIGTERM)
    code = process.wait()
    spent = time.perf_counter() - began
    step = directory.choose_step(out)
    size = directory.checkpoint_path(out, step).stat().st_size
    print(f"{spent:.2f} s to exit status {code}; step {step} saved, {size / 2**20:.0f} MiB", flush=True)
    return spent


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--times", type=int, default=5)
    options.add_argument("--batch", type=int, default=64)
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        make_data(Path(folder))
        spent = sorted(once(Path(folder), given.batch) for _ in range(given.times))
    print(f"median {spent[len(spent) // 2]:.2f} s, most {spent[-1]:.2f} s")


if __name__ == "__main__":
    main()

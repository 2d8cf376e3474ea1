"""Small runs that the tests of training, evaluation and policies share: random walks, narrow networks, few steps."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from dualgoal import workers
from dualgoal.paper import settings
from dualgoal.runs import directory
from dualgoal.runs.config import Run
from dualgoal.runs.rows import EvalRow

TASK = "pointmaze-medium-navigate-v0"
# A sweep over learning rates whose runs take long enough to be disturbed.
SWEEP = f"""
tasks = ["{TASK}"]
reps = ["orig"]
algos = ["gcbc"]
seeds = [3]
[options]
steps = 30_000
batch_size = 16
save_every = 1_500
log_every = 1_500
episodes = 0
algo.hidden = [8, 8]
[grid]
lr = [{{rates}}]
"""


def make_data(folder: Path, episodes: int = 12, length: int = 41, seed: int = 0) -> Path:
    """Straight walks with noise, in the coordinates and the format of pointmaze: going there is easy to learn."""
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    for name, count in ((TASK, episodes), (f"{TASK}-val", 2)):
        angles = rng.uniform(0, 2 * np.pi, (count, 1))
        heading = np.stack([np.cos(angles), np.sin(angles)], -1)
        actions = np.clip(heading + 0.2 * rng.normal(size=(count, length, 2)), -1, 1).astype(np.float32)
        places = rng.uniform(0, 20, (count, 1, 2)) + 0.2 * np.cumsum(actions, 1)
        ends = np.zeros((count, length), bool)
        ends[:, -1] = True
        rows = {"observations": places.astype(np.float32).reshape(-1, 2), "actions": actions.reshape(-1, 2)}
        np.savez(folder / f"{name}.npz", **rows, terminals=ends.reshape(-1))
    return folder


def tiny_run(rep: str = "orig", algo: str = "gcbc", **changes) -> Run:
    """A run of a few seconds: the smallest pair unless told otherwise."""
    options = {"steps": 40, "batch_size": 16, "eval_every": 20, "save_every": 10, "log_every": 10, "episodes": 0}
    options |= {"seeds": (0, 3)} | ({} if algo == "none" else {"algo.hidden": [8, 8]})
    options |= {} if rep == "orig" else {"rep.hidden": [8, 8], "rep.dim": 4}
    return settings.preset(TASK, rep, algo, **(options | changes))


def flags(run: Run) -> list[str]:
    """The command line of a tiny run of orig + gcbc."""
    words = ["train", TASK, "--rep", "orig", "--algo", "gcbc", "--algo.hidden", "8", "8"]
    words += ["--seeds", *map(str, run.seeds)]
    for name in ("steps", "batch_size", "eval_every", "save_every", "log_every", "episodes"):
        words += [f"--{name.replace('_', '-')}", str(getattr(run, name))]
    return words


def dualgoal(*words: str, cache: Path, **environment: str) -> "subprocess.Popen[str]":
    """The command line in a process of its own."""
    env = {**os.environ, "DUALGOAL_CACHE": str(cache), **environment}
    command = [sys.executable, "-m", "dualgoal", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env)


def record(path: Path) -> dict[str, bytes]:
    """Everything a run leaves that must not depend on how it was run."""
    files = [path / "metrics.jsonl", path / "eval.jsonl", *sorted((path / "checkpoints").glob("step-*"))]
    return {file.name: file.read_bytes() for file in files}


def untrained(path: Path, folder: Path, rep: str = "orig", algo: str = "gcbc", **changes) -> Run:
    """A run directory as after the last step, with the parameters of before the first: enough for what only reads."""
    return untrained_run(path, folder, tiny_run(rep, algo, **changes))


def untrained_run(path: Path, folder: Path, run: Run) -> Run:
    from dualgoal.data import dataset
    from dualgoal.loop import TrainingLoop
    from dualgoal.runs import directory, policy, preparation, trees

    facts = preparation.describe(run, dataset.load(folder, TASK))
    program = TrainingLoop(policy.agent_for(run, facts.sizes), run.seeds)
    with directory.Store(path, run, facts) as record:
        record.save(run.steps, trees.to_host(program.init()))
    return run


def here(work, *_, **__):
    """In place of a pool of worker processes, whatever its options."""
    return workers.InProcess(work)


class Scorer:
    """An evaluator without environments: the success of a checkpoint is its step, in percent. `ask` is called whenever
    rows are collected."""

    goals = 1

    def __init__(self, seeds, ask=lambda: None):
        self.pending, self.seeds, self.ask = [], seeds, ask

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def submit(self, path, step):
        assert step in directory.steps(path), "only what is saved can be evaluated"
        self.pending.append(step)

    def collect(self):
        self.ask()
        done, self.pending = self.pending, []
        return [(step, [EvalRow(seed, step, 1, 100, step, 5.0) for seed in self.seeds]) for step in done]

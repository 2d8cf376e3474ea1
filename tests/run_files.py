"""Run directories written by hand, for tests of what only reads them."""

import json
from pathlib import Path

from dualgoal.machine import Hardware
from dualgoal.runs import config, directory
from dualgoal.runs.config import Run
from dualgoal.runs.facts import DataFacts, RunFacts, Sizes
from dualgoal.runs.rows import EvalRow

FACTS = RunFacts(
    Sizes((28,), 5, discrete=False),
    DataFacts(rows=40, episodes=60, sha256="ab" * 32, source="generated", file="/somewhere/private/x.npz"),
    {"mujoco": "3.4.0"},
    Hardware("Linux x86_64", "cpu", "cpu", 1, 2, "float32"),
    goals=5,
    git="0123abc",
)


def rows(run: Run, successes: int, *, steps=None, noise: float = 0.0) -> list[EvalRow]:
    """Evaluations of all seeds and goals in which `successes` of ten episodes reach the goal."""
    return [
        EvalRow(seed, step, goal, 10, successes, 50.0, goal_noise=noise)
        for step in (run.eval_steps if steps is None else steps)
        for seed in run.seeds
        for goal in range(1, 6)
    ]


def write_rows(path: Path, found) -> None:
    path.write_text("".join(json.dumps(row.to_json() if isinstance(row, EvalRow) else row) + "\n" for row in found))


def write_run(path: Path, run: Run, evaluations, *, noisy=None, metrics=None, **facts) -> Path:
    """A run directory without checkpoints. `facts` take the place of those of the same names in `FACTS`."""
    path.mkdir(parents=True, exist_ok=True)
    content = {"run": config.to_dict(run), "id": run.id, **FACTS.to_json(), **facts}
    (path / directory.CONFIG).write_text(json.dumps(content))
    for name, found in (
        (directory.EVALUATIONS, evaluations),
        (directory.NOISY_EVALUATIONS, noisy),
        (directory.METRICS, metrics),
    ):
        if found is not None:
            write_rows(path / name, found)
    return path

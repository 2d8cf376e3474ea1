"""Labels: what a trained run says about every row of a dataset, as columns for other people's training.

The goal is the end of the row's own episode, or one goal for all rows. Rows are read and measured in batches, so images
stay on disk; a JSON file next to the columns records the run, the data and what the columns mean.
"""

import os
from collections.abc import Sequence
from pathlib import Path

import jax.numpy as jnp
import numpy as np

from dualgoal import imports, jsons
from dualgoal.data import dataset, npz
from dualgoal.data.dataset import Dataset
from dualgoal.errors import UserError, brief
from dualgoal.files import make_folder, os_errors_in_one_line, replacing, sha256
from dualgoal.losses import temporal_distance
from dualgoal.progress import Rate, bar, counted
from dualgoal.runs import environment, policy
from dualgoal.runs.export import require_free
from dualgoal.runs.policy import Policy

BATCH, IMAGES = 4096, 256  # rows measured at once
FORMAT = "dualgoal-labels-1"
COLUMNS = {
    "episode": "number of the row's episode, from 0",
    "step": "number of the row in its episode, from 0",
    "distance": "learned number of steps from the row's observation to the goal",
    "advantage": "V(next observation, goal) - V(observation, goal) under a reward of -1 per step, which GCIVL weighs "
    "actions by; NaN in the last row of an episode, which has no next",
}


@os_errors_in_one_line
def write_labels(
    run: str | Path,
    data: str | Path,
    out: str | Path,
    *,
    goal: np.ndarray | None = None,
    split: str = "train",
    seed: int | None = None,
    step: int | None = None,
    quiet: bool = False,
) -> Path:
    """Write the columns of `COLUMNS` for every row of a dataset to `out` (.npz or .parquet), and a JSON file next to
    it. `goal`, one for all rows, takes the place of the end of each episode."""
    out = Path(out).expanduser()
    if out.suffix not in (".npz", ".parquet"):
        raise UserError(f"{out}: expected a name that ends in .npz or .parquet")
    if out.suffix == ".parquet":
        imports.optional("pyarrow", "parquet", "a parquet file")
    require_free(out, FORMAT, "labels")
    loaded = policy.load(run, seed, step)
    rows = dataset.load(data, loaded.run.task if Path(data).is_dir() else None, split)
    loaded.facts.sizes.require_fit(data, rows.observation_shape, rows.goal_shape)
    if goal is None:
        loaded.facts.dataset.require_goals_of(data, rows)
    elif np.shape(goal) not in ((shape := loaded.facts.sizes.goal), (1, *shape)):
        raise UserError(f"the goal has shape {np.shape(goal)}; expected one for all rows, of shape {shape}")
    columns = measure(loaded, rows, goal, quiet)
    make_folder(out.parent)
    with replacing(out) as temporary:
        _write(temporary, columns, out.suffix)
        digest = sha256(temporary)
        facts = {
            "format": FORMAT, "file": out.name, "sha256": digest, "columns": COLUMNS, "rows": rows.rows,
            "episodes": rows.episodes,
            "run": str(run), "run_id": loaded.run.id, "seed": loaded.seed, "step": loaded.step,
            "discount": loaded.run.discount, "data": str(rows.provenance.get("file")), "split": split,
            "data_sha256": rows.provenance.get("sha256"),
            "goal": "the last row of the episode" if goal is None else np.asarray(goal).tolist(),
        }  # fmt: skip
        jsons.write(out.with_suffix(".json"), facts)
    return out


def measure(loaded: Policy, rows: Dataset, goal: np.ndarray | None, quiet: bool) -> dict[str, np.ndarray]:
    """The columns. The goal is the same in all rows of an episode, so one value per row gives the advantages too."""
    lengths = rows.ends - rows.starts + 1
    episode = np.repeat(np.arange(rows.episodes), lengths)
    value, size = np.empty(rows.rows, np.float32), IMAGES if rows.pixels else BATCH
    with bar("labels", *counted("rows", Rate("rows")), total=rows.rows, quiet=quiet) as update:
        for first in range(0, rows.rows, size):
            part = slice(first, min(first + size, rows.rows))
            towards = rows.attained[rows.ends[episode[part]]] if goal is None else np.asarray(goal)
            value[part] = loaded.value(rows.observations[part], towards)
            update(part.stop, rows.rows)
    distance = np.asarray(temporal_distance(jnp.asarray(value), loaded.run.discount))
    advantage = np.append(value[1:] - value[:-1], np.float32(np.nan)).astype(np.float32)
    advantage[rows.ends] = np.nan
    within = np.arange(rows.rows) - rows.starts[episode]
    return {"episode": episode, "step": within, "distance": distance, "advantage": advantage}


def parse_goal(words: Sequence[str]) -> np.ndarray | None:
    """A goal from the command line: numbers, or the name of a file with them, as evaluation goals are read."""
    if not words:
        return None
    try:
        goal = np.array([float(word) for word in words], np.float32)
        if not np.isfinite(goal).all():
            raise ValueError("a number is not finite")
        return goal
    except ValueError as problem:
        given = " ".join(words)
        if os.path.isfile(file := os.path.expanduser(given)):
            return environment.read_numbers(Path(file), "the numbers of one goal")
        raise UserError(
            f"--goal {given}: {brief(problem)}; expected numbers, or a file (.npy, .json, text)"
        ) from problem


def _write(file: Path, columns: dict[str, np.ndarray], kind: str) -> None:
    if kind == ".npz":
        npz.save(file, columns)
        return
    arrow = imports.optional("pyarrow", "parquet", "a parquet file")
    parquet = imports.optional("pyarrow.parquet", "parquet", "a parquet file")
    parquet.write_table(arrow.table(columns), str(file))

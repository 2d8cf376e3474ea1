"""Looking at a dataset: sizes, ranges, where it came from, and for mazes a picture of the places it covers."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dualgoal.data import npz
from dualgoal.data.dataset import Dataset, load_splits
from dualgoal.envs import own_maze, registry
from dualgoal.errors import UserError, listed, pairs, printable
from dualgoal.files import make_folder, os_errors_in_one_line, replacing

if TYPE_CHECKING:
    from rich.text import Text

_ROWS = 1 << 14


def describe(dataset: Dataset) -> dict[str, Any]:
    """Everything `info` prints, as plain numbers and strings."""
    lengths = np.diff(dataset.ends, prepend=-1)
    return {
        "task": dataset.task,
        "rows": dataset.rows,
        "episodes": dataset.episodes,
        "episode_length": {"min": int(lengths.min()), "mean": float(lengths.mean()), "max": int(lengths.max())},
        "observations": {"shape": list(dataset.observations.shape), **_range(dataset.observations)},
        "actions": {"shape": list(dataset.actions.shape), "discrete": dataset.discrete, **_range(dataset.actions)},
        **({} if dataset.goals is None else {"goals": {"shape": list(dataset.goals.shape), **_range(dataset.goals)}}),
        "provenance": dataset.provenance,
    }


def _range(array: np.ndarray) -> dict[str, Any]:
    """Type, and per coordinate (over all of them for images) the least and greatest value, block by block."""
    low, high = array[0], array[0]
    for at in range(0, len(array), _ROWS):
        block = array[at : at + _ROWS]
        low, high = np.minimum(low, block.min(axis=0)), np.maximum(high, block.max(axis=0))
    if array.ndim > 2:
        low, high = low.min(), high.max()
    return {"dtype": array.dtype.name, "min": _plain(low), "max": _plain(high)}


def _plain(value: np.ndarray) -> Any:
    value = np.asarray(value)
    return value.tolist() if value.dtype.kind in "iub" else np.round(value.astype(float), 4).tolist()


@os_errors_in_one_line
def summarize(path: str | Path, *, task: str | None = None, plot: str | Path | None = None) -> dict[str, Any]:
    """What both splits at `path` hold, as plain JSON values; draws a maze's coverage into `plot` if given."""
    train, val = load_splits(path, task)
    splits: dict[str, Any] = {"train": describe(train)}
    if val is not None:
        splits["val"] = describe(val)
    if plot is not None:
        splits["plot"] = str(draw_coverage(train, plot))
    return splits


def text(splits: dict[str, Any]) -> str:
    """The same as a table to read."""
    from rich.console import Console
    from rich.table import Table

    facts = {split: facts for split, facts in splits.items() if split != "plot"}
    table = Table("", *facts, title=_plain_text(splits["train"]["task"] or "dataset"))
    table.add_row("rows", *(f"{f['rows']:,}" for f in facts.values()))
    table.add_row("episodes", *(f"{f['episodes']:,} of {_length(f)} rows" for f in facts.values()))
    for key in ("observations", "actions", *(["goals"] if "goals" in splits["train"] else [])):
        table.add_row(key, *(f"{tuple(f[key]['shape'])} {f[key]['dtype']}" for f in facts.values()))
        spans = (f"{np.min(f[key]['min']):.4g} to {np.max(f[key]['max']):.4g}" for f in facts.values())
        table.add_row(f"{key} range", *spans)
    origin = splits["train"]["provenance"]
    made, drawn = ("source", "file", "sha256", "collector", "seed"), ("shadow_size", "mesh_cell")
    read = ("keys", "observation_keys", "skipped_episodes", "skipped_names", "goal_space", "action_range")
    for key in (*made, *drawn, "versions", "counts", *read):
        if key in origin:
            table.add_row(key, _plain_text(_in_words(origin[key])))
    if "observation_standard" in origin:
        table.add_row("standardized", _plain_text("networks read coordinates minus mean, divided by deviation"))
    console = Console()
    with console.capture() as shown:
        console.print(table)
        if "plot" in splits:
            console.print(_plain_text(f"coverage drawn in {splits['plot']}"), soft_wrap=True)
    return shown.get().rstrip("\n")


def _plain_text(value: Any) -> "Text":
    """What a file says, as text: neither rich's markup nor the terminal's escape sequences mean anything in it."""
    from rich.text import Text

    return Text(printable(str(value)))


def _length(facts: dict[str, Any]) -> str:
    length = facts["episode_length"]
    if length["min"] == length["max"]:
        return str(length["min"])
    return f"{length['min']} to {length['max']} (mean {length['mean']:.0f})"


def _in_words(value: Any) -> str:
    """A value of the JSON file to read; of long lists the beginning."""
    if isinstance(value, dict):
        return pairs(value)
    return listed(map(str, value)) if isinstance(value, list) else str(value)


def draw_coverage(dataset: Dataset, out: str | Path) -> Path:
    """Draw the places a maze dataset covers, as a PNG: the number of rows in each half metre, over the walls."""
    name, maze = dataset.task, registry.maze(dataset.task, own_maze.recorded(dataset.provenance))
    if maze is None:
        raise UserError(f"{name or dataset.provenance['file']}: only mazes have a floor plan to draw; leave --plot out")
    xy = _positions(dataset)
    from matplotlib.figure import Figure  # without pyplot: no display, no global state

    rows, cols = maze.walls.shape
    (left, bottom), (right, top) = maze.centre((0, 0)), maze.centre((rows - 1, cols - 1))
    half = maze.unit / 2
    box = (left - half, right + half, bottom - half, top + half)
    bins = (np.arange(box[0], box[1] + 0.25, 0.5), np.arange(box[2], box[3] + 0.25, 0.5))
    counts, _, _ = np.histogram2d(xy[:, 0], xy[:, 1], bins=bins)
    figure = Figure(figsize=(0.6 * cols + 1.2, 0.6 * rows), layout="constrained")
    axes = figure.add_subplot()
    axes.imshow(maze.walls, extent=box, origin="lower", cmap="Greys", vmin=0, vmax=1.6)
    seen = np.ma.masked_equal(counts.T, 0)
    image = axes.imshow(seen, extent=box, origin="lower", cmap="viridis", norm="log")
    figure.colorbar(image, label="rows", shrink=0.8)
    axes.set(title=f"{name}: {dataset.rows:,} rows", xlabel="x (m)", ylabel="y (m)")
    target = Path(out).expanduser()
    target = target if target.suffix == ".png" else target.with_name(target.name + ".png")
    make_folder(target.parent)
    with replacing(target) as temporary:
        figure.savefig(temporary, dpi=120, format="png")
    return target


def _positions(dataset: Dataset) -> np.ndarray:
    """Positions in the plane: the first two coordinates of a state, or of the simulator's state stored with images."""
    if not dataset.pixels:
        return dataset.observations[:, :2]
    with npz.Archive(Path(dataset.provenance["file"])) as archive:
        if "qpos" not in archive.members:
            raise UserError(f"{archive.path.name}: images without 'qpos' do not say where they were taken")
        return archive.read("qpos")[:, :2]

"""Pictures of states for the distance explorer: what a run reads if that is an image, else the scene of one of
OGBench's arms, drawn from the simulator's state where the data hold it and this machine can draw.

All pictures of a run lie side by side in one JPEG file, so that a page holds a single one.
"""

import base64
import functools
import io
import math
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dualgoal.data import npz
from dualgoal.envs import registry, tasks
from dualgoal.errors import UserError

SIDE = 96  # pixels of the longer side, at most
CLEAR = 48  # and at least, so that a file that blurs the edges of pixels shows what they were
COUNT = 160  # pictures of one run, at most
LIMIT = 8 << 20  # characters of the file in base64
START = base64.b64encode(b"\xff\xd8\xff").decode()  # of every JPEG file


@dataclass(frozen=True)
class Pictures:
    """One JPEG file with pictures of some states, row by row; checked, as the file of a run may hold anything."""

    states: tuple[int, ...]
    columns: int
    height: int  # of each
    width: int
    jpeg: str  # in base64

    def __post_init__(self) -> None:
        sizes = all(1 <= size <= 4096 for size in (self.columns, self.height, self.width))
        text = len(self.jpeg) <= LIMIT and self.jpeg.startswith(START)
        if not (sizes and text and re.fullmatch(r"[A-Za-z0-9+/]+={0,2}", self.jpeg)):
            raise UserError("these are no pictures that a page can show")


def of_images(images: np.ndarray) -> np.ndarray:
    """Observations that are images, (N, H, W, C) bytes, in three colours and small; of stacked frames the last."""
    channels = images.shape[-1]
    if channels % 3 == 0:
        return _smaller(images[..., -3:])
    return _smaller(images[..., :3] if channels > 3 else np.repeat(images[..., :1], 3, axis=-1))


def of_scenes(task: str, file: str | Path, rows: np.ndarray) -> np.ndarray | None:
    """The scenes in which these rows of a file were recorded; None where they cannot be drawn."""
    if tasks.family(task) not in tasks.MANIPULATION or not Path(file).is_file():
        return None
    return _drawn(task, Path(file), Path(file).stat().st_mtime_ns, tuple(rows.tolist()))


@functools.lru_cache(maxsize=1)  # the runs of a page mostly have the same data, of which the same rows are shown
def _drawn(task: str, file: Path, changed: int, rows: tuple[int, ...]) -> np.ndarray | None:
    try:
        with npz.Archive(file) as archive:
            there = [key for key in ("qpos", "button_states") if key in archive.members]
            states: dict[str, np.ndarray] = {key: archive.read(key)[list(rows)] for key in there}
        return registry.draw(task, states, SIDE)
    except Exception:  # whatever a renderer raises where it cannot start: a page without pictures is a page
        return None


def _smaller(images: np.ndarray) -> np.ndarray:
    """Images whose longer side has at most `SIDE` pixels, each the mean over a square of pixels. Very small ones are
    made larger, a square for each pixel."""
    count, height, width, channels = images.shape
    by = math.ceil(max(height, width) / SIDE)
    down, across = min(by, height), min(by, width)
    cut = images[:, : height - height % down, : width - width % across]
    squares = cut.reshape(count, height // down, down, width // across, across, channels)
    small = squares.mean(axis=(2, 4)).round().astype(np.uint8)
    more = math.ceil(CLEAR / max(small.shape[1:3]))
    return small.repeat(more, axis=1).repeat(more, axis=2)


def side_by_side(images: np.ndarray, states: np.ndarray) -> Pictures:
    """Pictures (N, H, W, 3) of the states with these indices as one file, row by row."""
    from matplotlib.image import imsave

    count, height, width, _ = images.shape
    columns = math.ceil(math.sqrt(count))
    lines = math.ceil(count / columns)
    places = np.zeros((lines * columns, height, width, 3), np.uint8)
    places[:count] = images
    whole = places.reshape(lines, columns, height, width, 3).swapaxes(1, 2)
    file = io.BytesIO()
    imsave(
        file,
        whole.reshape(lines * height, columns * width, 3),
        format="jpeg",
        pil_kwargs={"quality": 90, "subsampling": 0},
    )
    content = base64.b64encode(file.getvalue()).decode()
    return Pictures(tuple(states.tolist()), columns, height, width, content)

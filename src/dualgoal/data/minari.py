"""Episodes out of a Minari dataset, for `dualgoal data import minari:ID`; the `minari` package is an extra.

Minari keeps one more observation than actions and may keep observations as dicts (goal environments do): the parts to
use are chosen by name and joined as one vector. Images stay images, and cannot be joined with anything.
"""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dualgoal import imports, jsons
from dualgoal.data import hdf5
from dualgoal.data.contents import Parts
from dualgoal.data.goals import join
from dualgoal.data.origin import Origin, digest
from dualgoal.data.sources import Episode, Rows, Source
from dualgoal.errors import UserError, one_line

MOST_EPISODES = 1_000_000
foreign = partial(
    one_line,
    what="Minari cannot open it",
    advice="'minari list local' says what is here, 'minari download ID' brings more",
)


def open_minari(src: str | Path, parts: Parts) -> Source:
    """All episodes of a local or downloadable Minari dataset (`minari:ID`), or of one in a folder."""
    minari = imports.optional("minari", "minari", f"{src}: reading a Minari dataset")
    if parts.keys:
        raise UserError(f"{src}: --key is for npz, HDF5 and LeRobot files; use --observation-keys or --goal-keys here")
    text, folder = str(src), Path(src).expanduser()
    with foreign(text):
        if text.startswith("minari:"):
            dataset = minari.load_dataset(text.removeprefix("minari:"))
        else:
            _refuse_outside(folder / "data")
            _refuse_too_many(folder / "data" / "metadata.json")
            dataset = minari.MinariDataset(folder / "data")
        indices = [int(k) for k in dataset.episode_indices]

    def read(index: int) -> Rows:
        with foreign(f"{text} (episode {index})"):
            (episode,) = dataset.iterate_episodes([index])
            found = episode.observations
            inside = parts.goal if isinstance(found, dict) else ()
            goals = join(text, "observations", found, inside) if inside else None
            return Rows(_join(text, found, parts.observation), np.asarray(episode.actions), goals)

    return Source(
        [Episode(f"{text} (episode {k})", partial(read, k)) for k in indices],
        Origin(
            source="imported", imported_from=text, observation_keys=parts.observation,
            imported_sha256=None if text.startswith("minari:") else digest(folder, sorted(folder.glob("data/*"))),
        ),
    )  # fmt: skip


def _refuse_outside(folder: Path) -> None:
    """Raise if a file of the folder keeps its data in another file."""
    h5py = imports.optional("h5py", "minari", "reading a Minari dataset")
    for path in sorted(folder.glob("*.hdf5")):
        with h5py.File(path, "r") as file:
            hdf5.refuse_outside(file)


def _refuse_too_many(metadata: Path) -> None:
    """Minari makes a list of as many episodes as a folder claims to have, before it looks for any."""
    claimed = jsons.json_object(jsons.read(metadata, follow=True), f"{metadata}:").get("total_episodes")
    if not isinstance(claimed, int) or not 0 <= claimed <= MOST_EPISODES:
        raise UserError(f"{metadata}: total_episodes is {claimed}; expected at most {MOST_EPISODES:,}")


def _join(name: str, observations: Any, chosen: tuple[str, ...]) -> np.ndarray:
    if not isinstance(observations, dict):
        return np.asarray(observations)
    if not chosen:
        parts = ", ".join(f"{key} {np.shape(value)[1:]}" for key, value in observations.items())
        raise UserError(f"{name}: observations are dicts ({parts}); choose the parts to join with --observation-keys")
    return join(name, "observations", observations, chosen)

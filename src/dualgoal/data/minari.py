"""Episodes out of a Minari dataset, for `dualgoal data import minari:ID`; the `minari` package is an extra.

Minari keeps one more observation than actions and may keep observations as dicts (goal environments do): the parts to
use are chosen by name and joined as one vector. Images stay images, and cannot be joined with anything.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from dualgoal.data.origin import Origin
from dualgoal.data.sources import Rows, Source
from dualgoal.errors import UserError


def open_minari(src: str | Path, observation_keys: tuple[str, ...]) -> Source:
    """All episodes of a local or downloadable Minari dataset (`minari:ID`), or of one in a folder."""
    try:
        import minari
    except ImportError as problem:
        raise UserError(f"{src}: reading Minari datasets needs 'pip install dualgoal[minari]'") from problem
    text = str(src)
    try:
        if text.startswith("minari:"):
            dataset = minari.load_dataset(text.removeprefix("minari:"))
        else:
            dataset = minari.MinariDataset(Path(text).expanduser() / "data")
    except Exception as problem:  # a foreign reader: damaged folders raise anything, assertions included
        reason = " ".join(str(problem).split())[:160] or type(problem).__name__
        raise UserError(f"{src}: Minari cannot open it ({reason}); see 'minari list'") from problem
    indices = [int(k) for k in dataset.episode_indices]

    def reader(index: int) -> Callable[[], Rows]:
        def read() -> Rows:
            (episode,) = dataset.iterate_episodes([index])
            return _join(text, episode.observations, observation_keys), np.asarray(episode.actions)

        return read

    return Source(
        [f"{text} (episode {k})" for k in indices], [reader(k) for k in indices],
        Origin(source="imported", imported_from=text, observation_keys=observation_keys),
    )  # fmt: skip


def _join(name: str, observations: Any, chosen: tuple[str, ...]) -> np.ndarray:
    if not isinstance(observations, dict):
        return np.asarray(observations)
    if not chosen:
        parts = ", ".join(f"{key} {np.shape(value)[1:]}" for key, value in observations.items())
        raise UserError(f"{name}: observations are dicts ({parts}); choose the parts to join with --observation-keys")
    if missing := [key for key in chosen if key not in observations]:
        raise UserError(f"{name}: observations have no part '{missing[0]}' (they have {', '.join(observations)})")
    parts_ = [np.asarray(observations[key]) for key in chosen]
    if len(parts_) == 1:
        return parts_[0]
    if any(part.ndim > 2 for part in parts_):
        raise UserError(f"{name}: images cannot be joined with other observations; choose one part")
    return np.concatenate([part.reshape(len(part), -1) for part in parts_], axis=1)

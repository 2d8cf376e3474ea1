"""What a row of a table cost: time on the device, and CPU time of evaluation and of making its data.

Training records them as it goes (timing.jsonl, and the record next to a generated dataset); a row file keeps the sums.
A row that is older than these records says so instead of guessing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dualgoal import jsons
from dualgoal.errors import UserError
from dualgoal.runs import directory

Span = tuple[float, float]  # from, until: seconds since 1970


@dataclass(frozen=True)
class Cost:
    """Seconds; None where they were not recorded."""

    steps: int | None = None  # that were trained; a run that was cut off may not have evaluated the last of them
    device: float | None = None  # from compiling to the last step; a part of them where runs shared a device
    evaluation: float | None = None  # CPU time of all worker processes together
    data: float | None = None  # CPU time of all processes that made the data, which several rows may share


@dataclass(frozen=True)
class _Timing:
    """A row of timing.jsonl; those of old runs have none of the optional entries."""

    step: int
    time: float
    seconds: float | None = None
    evaluation_cpu_seconds: float | None = None


def of_runs(paths: Sequence[Path], shared: bool = False) -> dict[Path, Cost]:
    """The costs of run directories, without their data; a run whose timing is damaged has none.

    With `shared`, all of them used one device, and a second in which n of them were training costs each an n-th.
    """
    timing = {path: rows for path in paths if (rows := _read(path)) is not None}
    spans = {
        path: [(row.time - row.seconds, row.time) for row in rows if row.seconds is not None]
        for path, rows in timing.items()
    }
    everyone = [span for found in spans.values() for span in found] if shared else None
    costs = {}
    for path, rows in timing.items():
        played = [row.evaluation_cpu_seconds for row in rows if row.evaluation_cpu_seconds is not None]
        steps = max((row.step for row in rows), default=0)
        costs[path] = Cost(steps or None, _busy(spans[path], everyone), sum(played) if played else None)
    return costs


def _read(path: Path) -> list[_Timing] | None:
    try:
        parse = lambda value, where: jsons.typed_file(value, _Timing, where)
        return jsons.read_rows(path / directory.TIMING, parse)
    except UserError:  # costs are optional: damaged timing must not hide a result
        return None


def _busy(spans: Sequence[Span], everyone: Sequence[Span] | None) -> float | None:
    """Seconds of these spans, each second divided by how many spans of `everyone` contain it."""
    if not spans:
        return None
    if everyone is None:
        return sum(until - since for since, until in spans)
    edges = np.unique(np.array(everyone))
    middle, length = (edges[1:] + edges[:-1]) / 2, np.diff(edges)
    inside = lambda some: sum(((since < middle) & (middle < until)).astype(float) for since, until in some)
    return float((length * inside(spans) / np.maximum(inside(everyone), 1)).sum())


def of_data(settings: Mapping[str, Any]) -> float | None:
    """CPU seconds that the dataset of a config.json took; None if it was not generated, or by an older version."""
    dataset = settings.get("dataset")
    details = dataset.get("details") if isinstance(dataset, Mapping) else None
    seconds = details.get("cpu_seconds") if isinstance(details, Mapping) else None
    return float(seconds) if isinstance(seconds, int | float) and not isinstance(seconds, bool) else None

"""Whether runs that are there already were trained on the data that a command names: whoever gives other data wants
other results, and a finished run is not trained again."""

import contextlib
import functools
from collections.abc import Mapping
from pathlib import Path

from dualgoal.data import dataset
from dualgoal.errors import UserError
from dualgoal.runs import directory
from dualgoal.runs.facts import DataFacts


def require(runs: Mapping[Path, str], data: str | Path) -> None:
    """Raise if one of these runs, each with its task, was trained on other data."""
    facts_of = functools.cache(functools.partial(_facts, data))
    for path, task in runs.items():
        if change := _change(path, facts_of(task)):
            raise UserError(f"{path}: {change}; give that --data or another --out")


def _facts(data: str | Path, task: str) -> DataFacts | None:
    """What a run on these data would record; None if they are not there, as results may outlive their data."""
    with contextlib.suppress(UserError):
        return DataFacts.of(dataset.with_digest(dataset.load(data, task, outline=True)))
    return None


def _change(path: Path, now: DataFacts | None) -> str | None:
    """How the data of a run differ from these, as far as both are known. If its folder cannot be read, whoever trains
    there will say why."""
    with contextlib.suppress(UserError):
        before = directory.read(path).facts.dataset
        return None if now is None or before.sha256 is None else now.change_since(before)
    return None

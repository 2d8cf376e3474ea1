"""A first pass over all episodes of an import: whether they can be stored, and what has to be known before they are."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dualgoal.data import checks, tidy
from dualgoal.data.origin import ActionRange
from dualgoal.data.rounding import Coarse, Rounding
from dualgoal.data.sources import Source
from dualgoal.data.standard import Moments, Standard
from dualgoal.errors import UserError, number_of
from dualgoal.progress import Rate, bar, counted

Kind = tuple[tuple[int, ...], np.dtype]  # shape of a row, and type
VECTORS = frozenset({"observations", "goals"})  # arrays of vectors, if they are not images


@dataclass(frozen=True)
class Survey:
    """What a first pass over all episodes finds out."""

    rows: list[int]  # of each episode
    kinds: dict[str, Kind]  # by name of an array; without goals where these are observations
    num_actions: int | None  # of discrete actions
    scale: ActionRange | None  # if asked for
    standards: dict[str, Standard]  # of observations, and of goals that are not; if asked for


def survey_of(source: Source, scale_actions: bool, standardize: bool, quiet: bool) -> Survey:
    """Read and check every episode."""
    rows: list[int] = []
    kinds: dict[str, Kind] = {}
    lowest, highest = [], []  # actions of each episode
    moments: dict[str, Moments] = {}
    rounding: dict[str, Rounding] = {}
    bad: dict[int, str] = {}
    for at, (name, read) in enumerate(one_by_one(source.episodes, "checking", quiet)):
        try:
            arrays = tidy.arrays(read())
            kinds = _checked(name, arrays, scale_actions, kinds)
        except checks.BadEpisode as problem:
            bad[at] = str(problem)
            continue
        observations, actions = arrays["observations"], arrays["actions"]
        recorded = actions[:-1] if actions.ndim == 2 else actions  # the last vector may have been filled in
        lowest.append(recorded.min(axis=0))
        highest.append(recorded.max(axis=0))
        for key in VECTORS & arrays.keys():
            rounding.setdefault(key, Rounding()).add(arrays[key])
            if standardize:
                if arrays[key].dtype == np.uint8:
                    raise UserError(f"{name}: --standardize is for vectors; images need none")
                moments.setdefault(key, Moments()).add(arrays[key])
        rows.append(len(observations))
    _refuse(source, bad)
    low, high = np.min(lowest, axis=0), np.max(highest, axis=0)
    standards = {key: found.standard for key, found in moments.items()}
    for line in filter(None, (found.warning(key) for key, found in sorted(rounding.items(), reverse=True))):
        warnings.warn(line, Coarse, stacklevel=2)
    if low.ndim == 0:
        return Survey(rows, kinds, int(high) + 1, None, standards)
    bounds = (tuple(bound.astype(np.float64).tolist()) for bound in (low, high))
    return Survey(rows, kinds, None, ActionRange(*bounds) if scale_actions else None, standards)


def _checked(name: str, arrays: dict[str, np.ndarray], any_range: bool, before: dict[str, Kind]) -> dict[str, Kind]:
    """The kinds of an episode's arrays, if its values can be stored and its kinds are those of the episodes before."""
    observations, goals = arrays["observations"], arrays.get("goals")
    terminals = np.zeros(len(observations), bool)
    terminals[-1:] = True
    checks.arrays(name, observations, arrays["actions"], terminals, any_range=any_range)
    if any_range and arrays["actions"].ndim == 1:
        raise UserError(
            f"{name}: --scale-actions is for vectors, and these actions are discrete; leave it out, or save them as "
            "floats if they are not"
        )
    if goals is not None:
        checks.goals(name, goals, observations)
    kinds = {key: (array.shape[1:], tidy.stored(key, array)) for key, array in arrays.items()}
    if before and kinds != before:
        this, earlier = (", ".join(f"{key} {shape}" for key, (shape, _) in k.items()) for k in (kinds, before))
        raise checks.BadEpisode(f"{name}: rows of shapes {this}, but earlier episodes have {earlier}; make them equal")
    return kinds


def _refuse(source: Source, bad: Mapping[int, str]) -> None:
    """Raise if there are bad episodes, by their places among those of the source: the first problem, and the numbers by
    which they can be left out. Where half of them are bad, what is wrong is probably how all of them were recorded."""
    if not bad:
        return
    at, problem = next(iter(bad.items()))
    if source.origin.source != "imported":
        raise checks.BadEpisode(problem)
    skipped = source.origin.skipped_episodes
    numbers = sorted(set(range(len(source.episodes) + len(skipped))).difference(skipped))
    if len(bad) == 1 or 2 * len(bad) >= len(source.episodes):
        raise UserError(f"{problem} (--skip-episodes {numbers[at]} leaves this episode out)")
    others, all_of_them = number_of(len(bad) - 1, "other episode"), " ".join(str(numbers[at]) for at in bad)
    raise UserError(f"{problem} ({others} cannot be used either; --skip-episodes {all_of_them} leaves all of them out)")


def one_by_one(episodes: Sequence[Any], title: str, quiet: bool) -> Iterator[Any]:
    """The same episodes one after the other, with a progress bar."""
    with bar(title, *counted("episodes", Rate("episodes")), total=len(episodes), quiet=quiet) as update:
        for done, episode in enumerate(episodes, 1):
            yield episode
            update(done, len(episodes))

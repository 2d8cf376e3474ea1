"""What a goal is: by default a whole observation, else some of its coordinates, parts that were recorded next to it, or
a function of it.

At import the goal of every row is computed and stored as the array `goals`, so that loading a dataset runs nobody's
code. How that was done is recorded, so that the goals of an environment can be brought into the same space.
"""

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dualgoal import imports
from dualgoal.data.checks import BadEpisode
from dualgoal.errors import UserError, kind_of, listed


@dataclass(frozen=True)
class GoalSpace:
    """Where goals live. At most one of `dims`, `keys` and `function` is set; none for goals that were handed over."""

    shape: tuple[int, ...] = ()  # of one goal; () before any has been seen
    dims: tuple[int, ...] = ()  # coordinates of the observation
    keys: tuple[str, ...] = ()  # arrays of the imported file, or parts of dict observations, joined in this order
    function: str | None = None  # module:name of a function from rows of observations to rows of goals

    @classmethod
    def choose(cls, dims: Sequence[int], keys: Sequence[str], function: str | None) -> "GoalSpace | None":
        """The space that a user's options describe; None if goals are whole observations."""
        dims, keys = _coordinates(dims), names(keys)
        if function is not None and not isinstance(function, str):
            raise UserError(
                f"goal_function is {kind_of(function)}; give its name, module:name or file.py:name, by which "
                "evaluation finds it again"
            )
        given = [name for name, value in (("dims", dims), ("keys", keys), ("function", function)) if value]
        if len(given) > 1:
            raise UserError(f"--goal-{given[0]} and --goal-{given[1]} both say what a goal is; give one of them")
        if not given:
            return None
        if len(set(dims)) < len(dims) or min(dims, default=0) < 0:
            raise UserError(f"--goal-dims {' '.join(map(str, dims))}: expected different coordinates from 0 on")
        return cls((), dims, keys, imports.absolute(function) if function else None)

    @property
    def option(self) -> str:
        """Which of the options describes this space."""
        return "dims" if self.dims else "keys" if self.keys else "function"

    def of(self, name: str, observations: np.ndarray) -> np.ndarray | None:
        """The goals of rows of observations, where they follow from these; `name` says whose rows in messages."""
        if self.dims:
            width = observations.shape[1] if observations.ndim == 2 else 0
            if max(self.dims) >= width:
                shape = observations.shape[1:]
                raise UserError(f"{name}: --goal-dims {max(self.dims)} is not a coordinate of observations {shape}")
            return observations[:, list(self.dims)]
        if self.function is None:
            return None
        function = imports.function("goal function", self.function)
        with imports.calling(f"goal function '{self.function}'"):
            goals = np.asarray(function(observations))
        if goals.ndim < 2 or len(goals) != len(observations):
            raise UserError(
                f"{name}: {self.function} gives shape {goals.shape} for {len(observations)} rows of observations; "
                f"expected ({len(observations)}, G) with G numbers for each goal"
            )
        return goals


def _coordinates(dims: Any) -> tuple[int, ...]:
    """Coordinates, or one alone, as integers that can be recorded; NumPy's cannot."""
    try:
        return tuple(operator.index(dim) for dim in np.atleast_1d(dims))
    except (TypeError, ValueError) as problem:
        raise UserError(f"goal_dims is {dims!r}; expected numbers of coordinates, such as (0, 1)") from problem


def names(keys: str | Sequence[str]) -> tuple[str, ...]:
    """Names of parts, or one alone, which is not a sequence of letters."""
    return (keys,) if isinstance(keys, str) else tuple(keys)


def join(name: str, what: str, parts: Mapping[str, Any], chosen: Sequence[str]) -> np.ndarray:
    """Parts of dict observations, or arrays of a file, as one vector per row; an image can only stand alone."""
    require_parts(name, what, parts, chosen)
    found = [np.asarray(parts[key]) for key in chosen]
    for key, part in zip(chosen, found, strict=True):
        if part.dtype.kind not in "bfiu":
            raise UserError(f"{name}: '{key}' is of type {part.dtype}; {what} are made of numbers")
    if len(found) == 1:
        return found[0]
    for key, part in zip(chosen, found, strict=True):
        if part.ndim == 4 and part.dtype == np.uint8:
            raise UserError(f"{name}: images cannot be joined with other {what}; choose one part")
        if part.ndim > 2:
            raise UserError(f"{name}: '{key}' has shape {part.shape}, and only vectors can be joined; flatten its rows")
    rows = {key: part.shape[:1] for key, part in zip(chosen, found, strict=True)}
    if len(set(rows.values())) > 1 or () in rows.values():
        counts = ", ".join(f"{key} {shape[0] if shape else 'none'}" for key, shape in rows.items())
        raise BadEpisode(f"{name}: parts of {what} have different numbers of rows ({counts})")
    return np.concatenate([part.reshape(len(part), -1) for part in found], axis=1)


def require_parts(name: str, what: str, parts: Mapping[str, Any], chosen: Sequence[str]) -> None:
    """Raise if one of the chosen parts is not there."""
    if missing := [key for key in chosen if key not in parts]:
        raise UserError(f"{name}: {what} have no part '{missing[0]}' (they have {listed(parts)})")

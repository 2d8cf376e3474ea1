"""What options of parts, runs and commands may be: kinds and ranges, which are checked when one is made.

Options are fields of frozen dataclasses. Their types say what is allowed, so that a value from Python, from the command
line or from a file is refused in the same words.
"""

import dataclasses
import math
import numbers
import os
import typing
from collections.abc import Callable
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np

from dualgoal.errors import MOST, UserError, check_range, unknown


class Limit(NamedTuple):
    """What the value of an option must satisfy, as a part of its type."""

    words: str
    holds: Callable[[Any], bool]


class Range(NamedTuple):
    """The numbers that the value of an option may be, both ends included, as a part of its type."""

    least: float
    most: float = MOST


WIDEST = 1 << 20  # of a layer or a vector


def is_size(n: Any) -> bool:
    """Whether a layer or a vector can be of this size."""
    return isinstance(n, numbers.Integral) and not isinstance(n, bool) and 1 <= int(n) <= WIDEST


AtLeastOne = Annotated[int, Limit("at least 1 and at most a billion", lambda n: 1 <= n <= 10**9)]  # rows have 32 bits
Discount = Annotated[  # a float32 nearer to 1 is rounded to 1, and its logarithm is 0
    float, Limit("a number above 0 and at most 1 - 1e-7", lambda x: 0 < x <= 1 - 1e-7)
]
Expectile = Annotated[float, Limit("a number between 0 and 1, both excluded", lambda x: 0 < x < 1)]
FromOne = Annotated[int, Range(1)]
FromZero = Annotated[int, Range(0)]
Positive = Annotated[float, Limit("a number above 0", lambda x: x > 0)]
Rate = Annotated[float, Limit("a number above 0 and at most 1", lambda x: 0 < x <= 1)]
Seeds = Annotated[
    tuple[int, ...],
    Limit("one or more different integers from 0 on", lambda s: s != () and len(set(s)) == len(s) and min(s) >= 0),
]
Share = Annotated[float, Limit("a number from 0 to 1", lambda x: 0 <= x <= 1)]
Size = Annotated[int, Limit(f"a whole number from 1 to {WIDEST:,}", is_size)]
Sizes = Annotated[  # of layers
    tuple[int, ...],
    Limit(f"one or more whole numbers from 1 to {WIDEST:,}", lambda sizes: sizes != () and all(map(is_size, sizes))),
]
Weight = Annotated[float, Limit("a number that is not negative", lambda x: x >= 0)]

KINDS: dict[Any, tuple[type, str]] = {  # of options: the type that a value must have, and its name in errors
    int: (numbers.Integral, "a whole number"),
    float: (numbers.Real, "a number"),
    bool: (bool, "True or False"),
    tuple[int, ...]: (tuple, "a tuple of whole numbers, such as (512, 512)"),
}


def as_option(name: str, value: Any) -> Any:
    """The value of an option as a configuration has it: no NumPy in it, and texts for paths and distances."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple | range):
        return tuple(as_option("", entry) for entry in value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return str(value) if name == "success" and type(value) in (int, float) else value


def whole(name: str, value: Any) -> int | None:
    """A whole number, perhaps one of NumPy, as Python's own; None is one that was not given."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, numbers.Integral)):
        raise UserError(f"{name} is {value!r}; expected a whole number")
    return None if value is None else int(value)


def _taken_apart(kind: Any) -> tuple[Any, list[Any], bool]:
    """The type of an option without what is annotated and without None; the annotations; and whether None is meant."""
    limits: list[Any] = []
    optional = False
    while True:
        inner = typing.get_args(kind)
        if typing.get_origin(kind) is Annotated:
            limits += inner[1:]
        elif type(None) in inner and len(inner) == 2:
            optional, inner = True, tuple(one for one in inner if one is not type(None))
        else:
            return kind, limits, optional
        kind = inner[0]


def check_options(options: Any) -> None:
    """Refuse a value whose kind is not that of its field, one that is not among the choices of a `Literal` field or
    does not satisfy a `Limit` or a `Range`, and a number that is not finite."""
    types = typing.get_type_hints(type(options), include_extras=True)
    for field in dataclasses.fields(options):
        value, (kind, limits, optional) = getattr(options, field.name), _taken_apart(types[field.name])
        if value is None and optional:
            continue
        if typing.get_origin(kind) is Literal and value not in typing.get_args(kind):
            raise unknown(field.name, str(value), typing.get_args(kind))
        truth = isinstance(value, bool) and kind is not bool  # Python counts it as a whole number
        if kind in KINDS and (truth or not isinstance(value, KINDS[kind][0])):
            raise UserError(f"{field.name} is {value!r}; expected {KINDS[kind][1]}")
        for number in value if isinstance(value, tuple) else (value,):
            if isinstance(number, float) and not math.isfinite(number):
                raise UserError(f"{field.name} is {number}; expected a finite number")
            if kind == tuple[int, ...] and not isinstance(number, numbers.Integral):
                raise UserError(f"{field.name} is {number}; expected a whole number")
        for limit in limits:
            if isinstance(limit, Range):
                check_range(field.name, value, *limit)
            if isinstance(limit, Limit) and not limit.holds(value):
                raise UserError(f"{field.name} is {value}; expected {limit.words}")

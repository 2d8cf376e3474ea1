"""Attributes of an environment that wrappers around it may replace."""

from typing import Any

import numpy as np

from dualgoal.errors import UserError, kind_of

NUMBERS = (int, float, np.integer, np.floating)


def declared(task: str, env: Any, *names: str) -> int | None:
    """The first of these attributes that is not None: the outermost wrapper's that has one, else the environment's."""
    there = (getattr(layer, name, None) for layer in layers(env) for name in names)
    value = next((value for value in there if value is not None), None)
    if value is None:
        return None
    if not isinstance(value, NUMBERS) or value < 1 or not float(value).is_integer():
        found = value if isinstance(value, NUMBERS) else kind_of(value)
        raise UserError(f"{task}: the environment's {names[0]} is {found}; expected a whole number from 1 on")
    return int(value)


def layers(env: Any) -> list[Any]:
    """An environment with wrappers, from the outermost to what all of them wrap."""
    found, inner = [env], getattr(env, "unwrapped", env)
    while found[-1] is not inner:
        found.append(getattr(found[-1], "env", inner))
    return found

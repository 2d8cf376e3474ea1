"""Names for the leaves of a pytree, so that agent state can be stored as a flat table of arrays and read by anyone."""

from typing import Any

import jax
import numpy as np
from jax.tree_util import keystr, tree_flatten_with_path

from dualgoal.runs.checkpoint import Arrays, Shape


def named(tree: Any) -> dict[str, Any]:
    """The leaves by their path, 'params/rep/phi/0/weight' and so on."""
    return {keystr(path, simple=True, separator="/"): leaf for path, leaf in tree_flatten_with_path(tree)[0]}


def shapes(tree: Any) -> dict[str, Shape]:
    """What `named(tree)` must look like; works on abstract values, so nothing is allocated."""
    return {name: Shape(tuple(leaf.shape), np.dtype(leaf.dtype)) for name, leaf in named(tree).items()}


def to_host(tree: Any) -> Arrays:
    """Copies of the leaves. Copies, because a live view of a buffer silently switches donation off."""
    return {name: np.array(leaf) for name, leaf in named(jax.device_get(tree)).items()}


def fill(template: Any, arrays: Arrays) -> Any:
    """A tree like `template` with the stored arrays as leaves."""
    return jax.tree.unflatten(jax.tree.structure(template), [arrays[name] for name in named(template)])

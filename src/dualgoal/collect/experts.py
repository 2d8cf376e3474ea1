"""Walking policies for the collectors that need one: what an expert file holds, and how it acts (section 9.4).

An expert is any callable from a float32 vector to an action vector. A file is a safetensors archive, so nothing runs on
loading it, with one multilayer perceptron per skill:

    <skill>.layers.<k>.weight   (inputs, outputs) float32
    <skill>.layers.<k>.bias     (outputs,) float32

and, in its metadata, `activation` ("gelu", "relu" or "tanh"; default "gelu", the tanh approximation) between layers and
`squash` ("tanh" or "none"; default "tanh") after the last. Skills are `walk` (state without xy, then the unit direction
to walk in) and, for antsoccer, also `dribble` (section 9.2 gives its 42 inputs).
"""

import math
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open

from dualgoal.errors import UserError

Expert = Callable[[np.ndarray], np.ndarray]


def gelu(x: np.ndarray) -> np.ndarray:
    # Plain numbers, unlike NumPy's own, leave float32 what it is.
    return 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * (x * x * x))))


def relu(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0.0)


def identity(x: np.ndarray) -> np.ndarray:
    return x


# Named functions, not lambdas: a policy travels to spawned worker processes.
ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {"gelu": gelu, "relu": relu, "tanh": np.tanh}
SQUASHES: dict[str, Callable[[np.ndarray], np.ndarray]] = {"tanh": np.tanh, "none": identity}


class MLP:
    """A perceptron in NumPy: so small that compiling it would cost more than it saves."""

    def __init__(self, layers: list[tuple[np.ndarray, np.ndarray]], activation: str = "gelu", squash: str = "tanh"):
        self.layers, self.activation, self.squash = layers, ACTIVATIONS[activation], SQUASHES[squash]

    def __call__(self, x: np.ndarray) -> np.ndarray:
        for weight, bias in self.layers[:-1]:
            x = self.activation(x @ weight + bias)
        weight, bias = self.layers[-1]
        return self.squash(x @ weight + bias)

    @property
    def sizes(self) -> tuple[int, int]:
        return self.layers[0][0].shape[0], self.layers[-1][0].shape[1]


def load(path: Path, skills: Mapping[str, tuple[int, int]]) -> dict[str, Expert]:
    """The experts a collector needs: `skills` gives the input and output size that each must have."""
    if not path.is_file():
        raise UserError(f"{path}: no such expert file; see docs/data.md for its format")
    try:
        with safe_open(path, framework="numpy") as file:
            meta = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
    except (SafetensorError, OSError, TypeError, AttributeError) as problem:  # the last two: types NumPy does not have
        raise UserError(f"{path.name}: not a readable safetensors file ({problem})") from problem
    for option, known in (("activation", ACTIVATIONS), ("squash", SQUASHES)):
        if option in meta and meta[option] not in known:
            raise UserError(f"{path.name}: {option} '{meta[option]}' is not one of {', '.join(known)}")
    return {skill: _skill(path, tensors, meta, skill, sizes) for skill, sizes in skills.items()}


def _skill(path: Path, tensors: dict, meta: dict, skill: str, sizes: tuple[int, int]) -> MLP:
    layers: list[tuple[np.ndarray, np.ndarray]] = []
    while f"{skill}.layers.{len(layers)}.weight" in tensors:
        name = f"{skill}.layers.{len(layers)}"
        weight, bias = tensors[f"{name}.weight"], tensors.get(f"{name}.bias")
        inputs = layers[-1][0].shape[1] if layers else sizes[0]
        if bias is None or weight.ndim != 2 or weight.shape[0] != inputs or bias.shape != weight.shape[1:]:
            raise UserError(f"{path.name}: '{name}' must be a weight ({inputs}, outputs) with a bias (outputs,)")
        if not (np.isfinite(weight).all() and np.isfinite(bias).all()):
            raise UserError(f"{path.name}: '{name}' holds NaN or infinity")
        layers.append((weight.astype(np.float32), bias.astype(np.float32)))
    if not layers:
        raise UserError(f"{path.name}: no skill '{skill}'; expected '{skill}.layers.0.weight', see docs/data.md")
    policy = MLP(layers, meta.get("activation", "gelu"), meta.get("squash", "tanh"))
    if policy.sizes[1] != sizes[1]:
        raise UserError(f"{path.name}: skill '{skill}' gives {policy.sizes[1]} numbers but actions have {sizes[1]}")
    return policy

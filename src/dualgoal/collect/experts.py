"""Walking policies for the collectors that need one: what an expert file holds, and how it acts (section 9.4).

An expert is any callable from a float32 vector to an action vector. A file is a safetensors archive, so nothing runs on
loading it, with one multilayer perceptron per skill (docs/data.md describes it). `dualgoal expert train` makes such
files, and those in `SHIPPED` come with the package, one for each body that was trained.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors import SafetensorError, safe_open

from dualgoal.errors import UserError

ACTOR = "actor.safetensors"  # in the folder of a training
SHIPPED = Path(__file__).parent.parent / "experts"
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


def turned(x: Any, pairs: Sequence[int], xp: Any = np) -> Any:
    """Rows x with pairs of columns turned around the vertical so that the last pair, a direction, becomes (1, 0).

    `pairs` are the columns where the others begin; `xp` is NumPy or its like.
    """
    ahead, left = x[..., -2:-1], x[..., -1:]
    parts, at = [], 0
    for k in (*pairs, x.shape[-1] - 2):
        first, second = x[..., k : k + 1], x[..., k + 1 : k + 2]
        parts += [x[..., at:k], ahead * first + left * second, ahead * second - left * first]
        at = k + 2
    return xp.concatenate(parts, axis=-1)


class NumpyMLP:
    """A perceptron in NumPy: so small that compiling it would cost more than it saves.

    With an `aim` above 0 its last two inputs, the way to go, are scaled to that length: a ball that is near its goal is
    then played as one with a goal behind it, instead of being stopped short of it. With `turns` it reads the world
    as if the command, its last two inputs, always pointed along the first axis (see `turned`).
    """

    def __init__(
        self, layers: list[tuple[np.ndarray, np.ndarray]], activation: str = "gelu", squash: str = "tanh",
        aim: float = 0.0, turns: Sequence[int] = (),
    ):  # fmt: skip
        self.layers, self.activation, self.squash = layers, ACTIVATIONS[activation], SQUASHES[squash]
        self.aim, self.turns = aim, tuple(turns)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        if self.aim:
            state, way = x[..., :-2], x[..., -2:]
            length = np.linalg.norm(way, axis=-1, keepdims=True)
            x = np.concatenate([state, way * (self.aim / (length + 1e-6))], axis=-1, dtype=x.dtype)
        if self.turns:
            x = turned(x, self.turns)
        for weight, bias in self.layers[:-1]:
            x = self.activation(x @ weight + bias)
        weight, bias = self.layers[-1]
        return self.squash(x @ weight + bias)


class Skill(NamedTuple):
    """What a collector asks of an expert, and the body that is trained for it."""

    name: str
    body: str
    sizes: tuple[int, int]  # of the input and of the action


SKILLS = {
    "ant": Skill("walk", "ant", (29, 8)),
    "antball": Skill("dribble", "antball", (42, 8)),
    "humanoid": Skill("walk", "humanoid", (69, 21)),
}  # by body
FAMILIES = {"antmaze": ("ant",), "humanoidmaze": ("humanoid",), "antsoccer": ("ant", "antball")}


def skills(family: str) -> tuple[Skill, ...]:
    """The skills that collectors of a family of tasks need; none for scripted families."""
    return tuple(SKILLS[body] for body in FAMILIES.get(family, ()))


def all_shipped(family: str) -> bool:
    """Whether every skill that a family needs comes with the package."""
    return all(shipped(skill.body) is not None for skill in skills(family))


def of_body(body: str, path: Path) -> NumpyMLP:
    """The policy that was trained for a body, from its file or from the folder of its training."""
    skill = SKILLS[body]
    return load(holding([path], skill.name), skill.name, skill.sizes)


def shipped(body: str) -> Path | None:
    """The file of a body's policy that comes with the package, if there is one."""
    path = SHIPPED / f"{body}.safetensors"
    return path if path.is_file() else None


def require_shipped(body: str) -> Path:
    found = shipped(body)
    if found is None:
        raise UserError(f"no policy for {body} comes with this version; make one with 'dualgoal expert train {body}'")
    return found


def holding(files: Sequence[Path], skill: str) -> Path:
    """The first of several files that has a skill; a folder stands for the file of the training in it."""
    paths = [path / ACTOR if path.is_dir() else path for path in (Path(file).expanduser() for file in files)]
    return next((path for path in paths if has(path, skill)), paths[0])


def has(path: Path, skill: str) -> bool:
    """Whether a file holds a policy with a skill."""
    return f"{skill}.layers.0.weight" in _read(path)[0]


def load(path: Path, skill: str, sizes: tuple[int, int]) -> NumpyMLP:
    """The policy in a file that has a skill; `sizes` are those that its input and its output must have."""
    tensors, meta = _read(path)
    for option, known in (("activation", ACTIVATIONS), ("squash", SQUASHES)):
        if option in meta and meta[option] not in known:
            raise UserError(f"{path.name}: {option} '{meta[option]}' is not one of {', '.join(known)}")
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
    if (outputs := len(layers[-1][1])) != sizes[1]:
        raise UserError(f"{path.name}: skill '{skill}' gives {outputs} numbers but actions have {sizes[1]}")
    return NumpyMLP(
        layers,
        meta.get("activation", "gelu"),
        meta.get("squash", "tanh"),
        _aim(path, meta),
        _turns(path, meta, sizes[0]),
    )


def _turns(path: Path, meta: dict[str, str], inputs: int) -> tuple[int, ...]:
    words = meta.get("turns", "").split()
    turns = tuple(int(word) for word in words if word.isdecimal())
    ends = (*turns, inputs - 2)
    if len(turns) != len(words) or any(b - a < 2 for a, b in itertools.pairwise(ends)):
        raise UserError(f"{path.name}: turns '{meta['turns']}' are not columns where pairs of inputs begin")
    return turns


def _aim(path: Path, meta: dict[str, str]) -> float:
    try:
        aim = float(meta.get("aim", "0"))
    except ValueError:
        aim = math.nan
    if not 0 <= aim < math.inf:
        raise UserError(f"{path.name}: aim '{meta['aim']}' is not a length in metres")
    return aim


def _read(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The arrays and the metadata of a file."""
    if not path.is_file():
        raise UserError(f"{path}: no such expert file; see docs/data.md for its format")
    try:
        with safe_open(path, framework="numpy") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except (SafetensorError, OSError, TypeError, AttributeError) as problem:  # the last two: types NumPy does not have
        raise UserError(f"{path.name}: not a readable safetensors file ({problem})") from problem

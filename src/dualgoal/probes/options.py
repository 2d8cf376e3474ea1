"""What `dualgoal joins` trains, without the libraries that training needs."""

from dataclasses import dataclass
from typing import Literal

from dualgoal.options import FromOne, Positive, Seeds, Size, Sizes, check_options

WorldName = Literal["buttons", "lightsout"]
JoinName = Literal[
    "early",
    "late",
    "inner",
    "symmetric",
    "asymmetric",
    "one_inner",
    "one_symmetric",
    "one_asymmetric",
    "one_late",
    "one_difference",
    "pair",
    "token",
]
JOINS: tuple[JoinName, ...] = JoinName.__args__  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Options:
    """Every join is trained with every seed."""

    world: WorldName = "buttons"
    """buttons: coloured buttons under an arm. lightsout: the boards of Lights Out and their exact distances."""
    size: str = "3x3"
    """Board as ROWSxCOLUMNS."""
    joins: tuple[JoinName, ...] = JOINS
    """Ways in which a network can join two images."""
    seeds: Seeds = (0, 1, 2)
    """Training seeds."""
    steps: int = 600
    """Gradient steps."""
    batch_size: FromOne = 64
    """Pairs of images per gradient step."""
    lr: Positive = 1e-3
    """Adam's learning rate."""
    hidden: Sizes = (128, 128)
    """Widths of the hidden layers behind the image encoder."""
    dim: Size = 128
    """Size of an embedding, for joins that have one."""

    def __post_init__(self) -> None:
        check_options(self)

"""What decides how an environment behaves besides its task: the simulators' versions, and how images are rendered.

A dataset records both, so that training and evaluation can warn where this machine differs. Nothing here imports a
simulator.
"""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from dualgoal.errors import UserError

SIMULATORS = ("mujoco", "ogbench")


@dataclass(frozen=True)
class Quality:
    """How images are drawn; as in the released image datasets, unless told otherwise."""

    shadow_size: int = 4096  # width of the renderer's shadow map in pixels; MuJoCo's default
    mesh_cell: float = 0.0  # millimetres; corners of a mesh in a cube of this size are drawn as one, 0: none are

    def __post_init__(self) -> None:
        if not 1 <= self.shadow_size <= 16384:
            raise UserError(f"shadow size {self.shadow_size}: expected a width from 1 to 16384 pixels")
        if not 0 <= self.mesh_cell <= 1000:
            raise UserError(f"mesh cell {self.mesh_cell}: expected millimetres from 0 (meshes as they are) to 1000")

    @classmethod
    def recorded(cls, provenance: Mapping[str, Any]) -> "Quality | None":
        """That of a dataset; None for one without images."""
        size = provenance.get("shadow_size")
        return None if size is None else cls(size, provenance.get("mesh_cell") or 0.0)

    def __str__(self) -> str:
        return f"a shadow map of {self.shadow_size} and mesh cells of {self.mesh_cell:g} mm"


QUICK = Quality(shadow_size=512, mesh_cell=4.0)  # of images made here; docs/data.md has what it saves and changes


class Mismatch(UserWarning):
    """The environments on this machine differ from those a dataset was made with."""


def simulators() -> dict[str, str]:
    """Versions of those simulators that are installed, read without importing them."""
    found = {}
    for name in SIMULATORS:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def mismatches(provenance: Mapping[str, Any], quality: Quality | None = None) -> list[str]:
    """One line for each way in which this machine's environments differ from those a dataset was made with.

    `quality` is that of the images here, if one was chosen other than the dataset's.
    """
    made = provenance.get("versions") or {}
    lines = [
        f"made with {name} {made[name]}, evaluated with {name} {here}: scores may differ"
        for name, here in simulators().items()
        if made.get(name, here) != here
    ]
    rendered = Quality.recorded(provenance)
    if rendered is not None and quality is not None and rendered != quality:
        lines.append(f"rendered with {rendered}, evaluated with {quality}: pixels differ a little")
    return lines

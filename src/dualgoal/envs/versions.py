"""What decides how an environment behaves besides its task: the simulators' versions, and how images are rendered.

A dataset records both, so that training and evaluation can warn where this machine differs. Nothing here imports a
simulator.
"""

import contextlib
from collections.abc import Mapping
from importlib import metadata
from typing import Any

SIMULATORS = ("mujoco", "ogbench")
OFFICIAL_SHADOW_SIZE = 4096  # the renderer's shadow map in the released image datasets; MuJoCo's default


class Mismatch(UserWarning):
    """The environments on this machine differ from those a dataset was made with."""


def simulators() -> dict[str, str]:
    """Versions of those simulators that are installed, read without importing them."""
    found = {}
    for name in SIMULATORS:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def mismatches(provenance: Mapping[str, Any], shadow_size: int | None = None) -> list[str]:
    """One line for each way in which this machine's environments differ from those a dataset was made with.

    `shadow_size` is the size to render with, if one was chosen other than the dataset's.
    """
    made = provenance.get("versions") or {}
    lines = [
        f"made with {name} {made[name]}, evaluated with {name} {here}: scores may differ"
        for name, here in simulators().items()
        if made.get(name, here) != here
    ]
    rendered = provenance.get("shadow_size")
    if rendered is not None and shadow_size is not None and rendered != shadow_size:
        lines.append(f"rendered with shadow size {rendered}, evaluated with {shadow_size}: pixels differ a little")
    return lines

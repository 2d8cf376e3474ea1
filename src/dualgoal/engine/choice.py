"""The word after `--on` as an engine."""

from pathlib import Path

from dualgoal.engine.items import Engine, Here, Placement
from dualgoal.errors import unknown


def engine(on: str, folder: Path, placement: Placement, workers: int | None) -> Engine:
    """`here`, `ray`, `ray:HOST:PORT` or `slurm`; `folder` is where the runs are and must be shared by all machines."""
    kind, _, address = on.partition(":")
    if kind == "ray":
        from dualgoal.engine.on_ray import OnRay

        return OnRay(address or None, placement, folder, workers)
    if on == "slurm":
        from dualgoal.engine.on_slurm import OnSlurm

        return OnSlurm(placement, folder, workers)
    if on == "here":
        return Here(workers)
    raise unknown("engine", on, ("here", "ray", "ray:HOST:PORT", "slurm"))

"""What has to be equal on all machines: the folder of the runs, the version of this package and of what it computes
with. It is looked at before anything is trained, because it would be noticed only at the end, in the numbers."""

import platform
import secrets
from dataclasses import dataclass
from pathlib import Path

import dualgoal
from dualgoal import machine
from dualgoal.errors import UserError
from dualgoal.files import make_folder, write_atomic

COMPARED = ("python", "dualgoal", "jax", "jaxlib", "mujoco")


@dataclass(frozen=True)
class Site:
    """A machine as a run would find it."""

    host: str
    versions: dict[str, str | None]
    nonce: str | None  # what the planted file says there; None where it cannot be read


def plant(folder: Path) -> Path:
    """Write a file with a random number, by which other machines show that they see the same folder."""
    file = make_folder(folder).resolve() / f".nonce-{secrets.token_hex(4)}"
    write_atomic(file, secrets.token_hex(16).encode())
    return file


def look(planted: Path) -> Site:
    """This machine."""
    try:
        nonce = planted.read_text()
    except OSError:
        nonce = None
    versions = machine.versions() | {"dualgoal": dualgoal.__version__}
    commit = machine.commit()
    if commit is not None:
        versions["dualgoal"] = f"{dualgoal.__version__} at {commit[:12]}{'+' * commit.endswith('+')}"
    return Site(platform.node(), {name: versions[name] for name in COMPARED}, nonce)


def require_equal(site: Site, driver: Site, planted: Path) -> None:
    """Raise one line about the first thing in which a machine differs from the one that planted the file."""
    if site.nonce is None or site.nonce != driver.nonce:
        raise UserError(
            f"node {site.host} does not see {planted.parent}; give an --out on storage that all nodes share"
        )
    for name in COMPARED:
        there, here = site.versions[name], driver.versions[name]
        if there != here:
            raise UserError(f"node {site.host} has {name} {there}, here it is {here}; install the same on all nodes")

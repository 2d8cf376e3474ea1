"""What has to be equal on all machines: the folder of the runs, the version of this package and of what it computes
with. It is looked at before anything is trained, because it would be noticed only at the end, in the numbers."""

import contextlib
import platform
import secrets
from collections.abc import Iterator
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
    nonce: str | None  # as read from the shared folder


@dataclass(frozen=True)
class Nonce:
    """A file of the driver that every other machine must be able to read."""

    file: str
    content: str


def plant(folder: Path) -> Nonce:
    """Write a nonce into a folder that all machines must see."""
    nonce = Nonce(str(make_folder(folder).resolve() / f".nonce-{secrets.token_hex(4)}"), secrets.token_hex(16))
    write_atomic(Path(nonce.file), nonce.content.encode())
    return nonce


@contextlib.contextmanager
def planted(folder: Path) -> Iterator[Nonce]:
    """The same, until everybody has looked."""
    nonce = plant(folder)
    try:
        yield nonce
    finally:
        Path(nonce.file).unlink(missing_ok=True)


def look(nonce: Nonce) -> Site:
    """This machine."""
    try:
        found = Path(nonce.file).read_text()
    except OSError:
        found = None
    versions = machine.versions() | {"dualgoal": dualgoal.__version__}
    commit = machine.commit()
    if commit is not None:
        versions["dualgoal"] = f"{dualgoal.__version__} at {commit[:12]}{'+' * commit.endswith('+')}"
    return Site(platform.node(), {name: versions[name] for name in COMPARED}, found)


def require_equal(site: Site, driver: Site, nonce: Nonce) -> None:
    """Raise one line about the first thing in which a machine differs from the one that planted the nonce."""
    if site.nonce != nonce.content:
        folder = Path(nonce.file).parent
        raise UserError(f"node {site.host} does not see {folder}; give an --out on storage that all nodes share")
    for name in COMPARED:
        there, here = site.versions[name], driver.versions[name]
        if there != here:
            raise UserError(f"node {site.host} has {name} {there}, here it is {here}; install the same on all nodes")

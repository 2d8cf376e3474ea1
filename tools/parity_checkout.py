"""A checkout of somebody else's agents: is it one, which commit is it, and how its modules are imported."""

import importlib
import importlib.metadata
import subprocess
import sys
from pathlib import Path

from dualgoal.errors import UserError

NEEDED = ("flax", "distrax", "ml_collections", "optax", "tqdm")  # what their modules import, beside jax and NumPy
FILES = {  # what tells the two kinds of checkouts from other folders
    "ogbench": ("agents/gcivl.py", "utils/datasets.py", "utils/evaluation.py"),
    "release": ("agents/gcivl/original.py", "agents/gcivl/state/dual.py", "utils/datasets.py"),
}


def folder(kind: str, path: Path) -> Path:
    """The folder from which modules are imported: the checkout, or the `impls` in it where OGBench keeps its agents."""
    for candidate in (path / "impls", path):
        if all((candidate / name).is_file() for name in FILES[kind]):
            return candidate.resolve()
    if not path.is_dir():
        raise UserError(f"--{kind} {path}: no such folder; give a checkout of the repository")
    raise UserError(f"--{kind} {path}: not such a checkout, it has no {FILES[kind][0]} (nor impls/{FILES[kind][0]})")


def check_packages() -> None:
    missing = []
    for name in NEEDED:
        try:
            importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            missing.append(name)
    if missing:
        raise UserError(f"the other agents need packages that are not installed: pip install {' '.join(missing)}")


def versions() -> str:
    names = ("jax", "numpy", "flax", "distrax", "optax")
    return ", ".join(f"{name} {importlib.metadata.version(name)}" for name in names)


def commit(path: Path) -> str:
    """The commit that is checked out, if the folder is a Git checkout."""
    try:
        asked = subprocess.run(["git", "-C", str(path), "rev-parse", "HEAD"], capture_output=True, text=True)
    except OSError:
        return "unknown (git cannot be run)"
    return asked.stdout.strip() if asked.returncode == 0 else "unknown (not a Git checkout)"


def enter(path: Path) -> None:
    """Import `agents` and `utils` from this folder from now on. Both checkouts use these two names."""
    for name in list(sys.modules):
        if name.split(".")[0] in ("agents", "utils"):
            del sys.modules[name]
    sys.path.insert(0, str(path))
    importlib.invalidate_caches()
    try:
        importlib.import_module("agents")
    except Exception as problem:  # whatever a foreign module may do with other versions of its packages
        reason = f"{type(problem).__name__}: {problem}"
        raise UserError(f"{path}: its agents cannot be imported ({reason}); docs/parity.md names packages") from None

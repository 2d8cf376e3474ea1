"""Large image arrays as memory maps: unpacked once into the cache folder, shared by every process that loads them."""

import hashlib
import json
from pathlib import Path

import numpy as np

from dualgoal import files
from dualgoal.data import npz


def observations(archive: npz.Archive) -> tuple[np.ndarray, str]:
    """The archive's observations as a memory map, and the SHA-256 of the file, which is recorded next to the map."""
    array_path, digest_path, lock_path = _paths(archive.path)
    files.make_folder(array_path.parent)
    # Held while looking as well: another process may be building this map, or removing it because the file changed.
    with files.locked(lock_path, wait=True):
        if not (array_path.is_file() and digest_path.is_file()):
            _build(archive, array_path, digest_path)
        return np.load(array_path, mmap_mode="r"), json.loads(files.read_text(digest_path))["sha256"]


def _paths(file: Path) -> tuple[Path, Path, Path]:
    """Names that change with the file's place, size and modification time, so that an outdated map is never used."""
    place = hashlib.sha256(str(file.resolve()).encode()).hexdigest()[:16]
    stat = file.stat()
    stamp = hashlib.sha256(f"{stat.st_size}-{stat.st_mtime_ns}".encode()).hexdigest()[:16]
    folder = files.cache_folder() / "mapped"
    return folder / f"{place}-{stamp}.npy", folder / f"{place}-{stamp}.json", folder / f".{place}.lock"


def _build(archive: npz.Archive, array_path: Path, digest_path: Path) -> None:
    folder, place = array_path.parent, array_path.stem.split("-")[0]
    for outdated in (*folder.glob(f"{place}-*"), *folder.glob(f".{place}-*")):
        outdated.unlink(missing_ok=True)
    needed = archive.members["observations"].nbytes
    files.require_disk(folder, needed, f"{archive.path.name}: its images", "set DUALGOAL_CACHE to a larger disk")
    with files.replacing(array_path) as temporary:
        archive.unpack("observations", temporary)
    facts = {"file": str(archive.path), "sha256": files.sha256(archive.path)}
    files.write_atomic(digest_path, json.dumps(facts).encode())

"""Large image arrays as memory maps: unpacked once into the cache folder, shared by every process that loads them."""

import hashlib
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from dualgoal import files, jsons
from dualgoal.data import npy, npz


@dataclass(frozen=True)
class Facts:
    """What is recorded next to a map: its source, and when the map was written, so that a later change shows."""

    file: str
    sha256: str  # of the source
    mtime_ns: int  # of the map


def observations(archive: npz.Archive) -> tuple[np.ndarray, str]:
    """The archive's observations as a memory map, and the SHA-256 of the file, which is recorded next to the map."""
    array_path, digest_path, lock_path = _paths(archive.path)
    files.make_folder(array_path.parent)
    # Held while looking as well: another process may be building this map, or removing it because the file changed.
    with files.locked(lock_path, wait=True):
        found = _usable(archive, array_path, digest_path)
        return found or _build(archive, array_path, digest_path)


def _usable(archive: npz.Archive, array_path: Path, digest_path: Path) -> tuple[np.ndarray, str] | None:
    """The map that is there, unless it is not the one that was written, or not what the archive holds."""
    try:
        facts = jsons.read_as(Facts, digest_path)
        mapped = npy.mapped(array_path)
        written = array_path.stat().st_mtime_ns
    except Exception:  # damaged or half of it: it is made again
        return None
    member = archive.members["observations"]
    same = mapped.shape == member.shape and mapped.dtype == member.dtype and written == facts.mtime_ns
    return (mapped, facts.sha256) if same else None


def _paths(file: Path) -> tuple[Path, Path, Path]:
    """Names that change with the file's place, size and modification time, so that an outdated map is never used."""
    place = hashlib.sha256(str(file.resolve()).encode()).hexdigest()[:16]
    stat = file.stat()
    stamp = hashlib.sha256(f"{stat.st_size}-{stat.st_mtime_ns}".encode()).hexdigest()[:16]
    folder = files.cache_folder() / "mapped"
    return folder / f"{place}-{stamp}.npy", folder / f"{place}-{stamp}.json", folder / f".{place}.lock"


def _build(archive: npz.Archive, array_path: Path, digest_path: Path) -> tuple[np.ndarray, str]:
    folder, place = array_path.parent, array_path.stem.split("-")[0]
    for outdated in (*folder.glob(f"{place}-*"), *folder.glob(f".{place}-*")):
        outdated.unlink(missing_ok=True)
    needed = archive.members["observations"].nbytes
    files.require_disk(folder, needed, f"{archive.path.name}: its images", "set DUALGOAL_CACHE to a larger disk")
    with files.replacing(array_path) as temporary:
        archive.unpack("observations", temporary)
    facts = Facts(str(archive.path), files.sha256(archive.path), array_path.stat().st_mtime_ns)
    jsons.write(digest_path, asdict(facts))
    return npy.mapped(array_path), facts.sha256

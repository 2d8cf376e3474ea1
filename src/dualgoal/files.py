"""Files that survive a process killed in the middle of a write, read with a limit, and locks between processes.

A run directory may come from somebody else: its files are opened only if they are plain files, so that a link leads
nowhere, and a pipe or a device neither blocks nor fills the memory.
"""

import contextlib
import errno
import functools
import hashlib
import os
import shutil
import stat
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO, Any, ParamSpec, TypeVar

from dualgoal.errors import Busy, UserError

TOML_LIMIT = 1 << 20  # bytes of a file that people write by hand

Given = ParamSpec("Given")
Result = TypeVar("Result")


def write_atomic(path: Path, content: bytes) -> None:
    """Write a whole file or nothing, and make it durable."""
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def sync_folder(folder: Path) -> None:
    """Make renames durable where the system can do that for a folder (not on Windows)."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _not_written(path: Path, error: OSError) -> UserError:
    cure = "choose another path or check its permissions"
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        cure = "nothing earlier is lost: make room and run the same command again"
    return UserError(f"{path}: not written ({reason(error)}); {cure}")


# Whole files ----------------------------------------------------------------------------------------------------------


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path next to `path` to write to; it becomes `path` at the end, or vanishes on an error."""
    # The process id keeps two writers of the same file apart.
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        remove_leftovers(path.parent, path.name)
        temporary.unlink(missing_ok=True)  # were it a link, writing would go to its target
        yield temporary
        move_into_place(temporary, path)
    except OSError as error:
        raise _not_written(path, error) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def remove_leftovers(folder: Path, name: str | None = None) -> None:
    """Remove temporary files of `replacing` whose process was killed: those of the file `name`, or all in a folder."""
    for left in folder.glob(".*.tmp"):
        begin, _, pid = left.name.removesuffix(".tmp").rpartition(".")
        of = begin.lstrip(".")  # of a temporary file's temporary file, too
        mine = pid.isdecimal() and pid.isascii() and (name is None or of == name or of.startswith(f"{name}."))
        if of and mine and not _is_running(int(pid)):
            with contextlib.suppress(OSError):
                left.unlink()


def _is_running(pid: int) -> bool:
    if os.name == "nt" or pid == os.getpid():
        return True  # Windows has no harmless question, and does not remove open files anyway
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        pass
    return True


def move_into_place(temporary: Path, path: Path) -> None:
    """Rename a complete file so that, even after a power failure, `path` is the old file or the new one."""
    try:
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise _not_written(path, error) from error
    sync_folder(path.parent)


def write_all(file: IO[bytes], path: Path, content: bytes) -> None:
    """Write to an unbuffered file, which may take several writes; a full disk is one line that names `path`."""
    left = memoryview(content)
    try:
        while left:
            left = left[file.write(left) :]
    except OSError as error:
        raise _not_written(path, error) from error


def require_no_link(folder: Path) -> None:
    """Raise if a folder inside a run directory is a link: what is written there would end up elsewhere."""
    if folder.is_symlink():
        raise UserError(f"{folder}: is a link, which is not followed here; remove it or choose another folder")


def make_folder(folder: Path) -> Path:
    """Make a folder with its parents, or say in one line why that is impossible."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder}: cannot be made a folder ({reason(error)}); choose another one") from error
    return folder


def open_plain(path: Path, mode: str, *, buffering: int = -1, follow: bool = False) -> IO[bytes]:
    """Open a plain file ("rb", "r+b", or "a+b", which makes it). Anything else of that name is one line: a folder, a
    device, a pipe (on which opening would wait), and, unless `follow`, a link."""
    flags = {"rb": os.O_RDONLY, "r+b": os.O_RDWR, "a+b": os.O_RDWR | os.O_APPEND | os.O_CREAT}[mode]
    if not follow and path.is_symlink():
        raise UserError(f"{path}: is a link, which is not followed here; put the file itself there, or remove the link")
    for name in ("O_CLOEXEC", "O_NONBLOCK", "O_BINARY", *(() if follow else ("O_NOFOLLOW",))):
        flags |= getattr(os, name, 0)
    handle = os.open(path, flags, 0o666)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise UserError(f"{path}: not a plain file; {'give the path of one' if follow else 'remove it'}")
    return os.fdopen(handle, mode, buffering)


def read_bytes(path: Path, limit: int, *, follow: bool = False) -> bytes:
    """All of a plain file of at most `limit` bytes; a missing one is a FileNotFoundError, all else is one line."""
    try:
        with open_plain(path, "rb", follow=follow) as file:
            size = os.fstat(file.fileno()).st_size
            content = file.read(limit + 1) if size <= limit else b""
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({reason(error)})") from error
    if size > limit or len(content) > limit:
        raise UserError(f"{path}: has more than {limit / 2**20:g} MiB, too much for what it should be; restore it")
    return content


def sha256(path: Path) -> str:
    """The digest of a file's bytes."""
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({reason(error)})") from error


def free_disk(folder: Path) -> int:
    return shutil.disk_usage(folder).free


def require_disk(folder: Path, needed: int, what: str, cure: str) -> None:
    """Raise if `what`, of `needed` bytes, does not fit on the disk of `folder`."""
    free = free_disk(folder)
    if needed > free:
        raise UserError(
            f"{what} needs {needed / 2**30:.1f} GiB in {folder}, where {free / 2**30:.1f} GiB are free; {cure}"
        )


def cache_folder() -> Path:
    """Where downloads, memory maps and compiled programs go: `$DUALGOAL_CACHE`, or the platform's cache folder."""
    chosen = os.environ.get("DUALGOAL_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")) / "dualgoal"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "dualgoal"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dualgoal"


def os_errors_in_one_line(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """Make a function raise `UserError` where the system refuses: permissions, a full disk, a file for a folder."""

    @functools.wraps(function)
    def call(*args: Given.args, **options: Given.kwargs) -> Result:
        try:
            return function(*args, **options)
        except BrokenPipeError:  # whoever reads our output has left; that is no problem with a file
            raise
        except OSError as error:
            raise UserError(refusal(error)) from error

    return call


HINTS = {
    errno.ENOSPC: "free some space or choose another folder",
    errno.EDQUOT: "free some space or choose another folder",
    errno.EACCES: "check its permissions",
    errno.EPERM: "check its permissions",
    errno.EROFS: "choose another folder",
    errno.EEXIST: "remove it or choose another name",
    errno.ENOTDIR: "a file is where a folder is needed",
    errno.EISDIR: "a folder is where a file is needed",
}


def refusal(error: OSError) -> str:
    """What the system refused, in one line: the file, why, and what to do where that is known."""
    paths = [os.fsdecode(path) for path in (error.filename, error.filename2) if isinstance(path, str | bytes)]
    line = ": ".join([*paths, reason(error) or type(error).__name__])
    return f"{line}; {HINTS[error.errno]}" if error.errno in HINTS else line


def reason(error: Exception) -> str:
    """Why the system refused, in its own words."""
    return (getattr(error, "strerror", None) or str(error)).lower()


# Locks ----------------------------------------------------------------------------------------------------------------


class InUse(Busy):
    """Another process has the folder."""

    def __init__(self, folder: Path, by: str) -> None:
        super().__init__(f"{folder}: in use by {by}", "wait for it or choose another --out")


class Lock(AbstractContextManager["Lock"]):
    """A held lock file. Closing it, or the end of the process however it ends, frees it."""

    def __init__(self, path: Path, file: IO[bytes]):
        self._path, self._file = path, file

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._file.closed:
            return
        if sys.platform != "win32":  # which does not remove open files
            with contextlib.suppress(OSError):
                if _has_name(self._path, self._file):  # else it was taken over, and the name is somebody else's
                    self._path.unlink()
        self._file.close()


def locked(path: Path, *, wait: bool = False) -> Lock:
    """Hold the lock file `path` for this process. If another one holds it, raise, or wait for it and say so."""
    announced = False
    while isinstance(held := _try_lock(path), str):
        in_use = InUse(path.parent, held)
        if not wait:
            raise in_use
        if not announced:
            print(f"{in_use.brief}; waiting for it to finish", file=sys.stderr)
            announced = True
        time.sleep(0.1)
    return held


def is_held(path: Path) -> bool:
    """Whether a process of this machine seems to hold the lock file `path`. Nothing is written, so that a reader may
    ask who may not write there."""
    try:
        with open_plain(path, "rb", buffering=0) as file:
            _lock_file(file, shared=True)
    except FileNotFoundError:
        return False
    except OSError:  # held, or nobody can tell
        return True
    return False


def remove_free_lock(path: Path) -> None:
    """Remove the lock file that a killed process has left; one that is held stays."""
    if path.exists():
        with contextlib.suppress(UserError):
            locked(path).close()


def _try_lock(path: Path) -> "Lock | str":
    """The lock, or the name of the process that has it."""
    while True:
        try:
            file = open_plain(path, "a+b", buffering=0)
        except OSError as error:
            raise UserError(f"{path}: cannot be written ({reason(error)}); choose another folder") from error
        try:
            _lock_file(file)
        except OSError:
            file.seek(0)
            owner = file.read(80).decode(errors="replace").strip() or "another process"
            file.close()
            return owner
        if _has_name(path, file):
            break
        file.close()
    with contextlib.suppress(OSError):  # the owner's name is a courtesy; a full disk must not turn it into an error
        file.truncate(0)
        file.write(f"process {os.getpid()}".encode())
    return Lock(path, file)


def _has_name(path: Path, file: IO[bytes]) -> bool:
    """Whether the locked file still is the one at `path`: the previous owner removes it before freeing it."""
    if sys.platform == "win32":
        return True
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def _lock_file(file: IO[bytes], shared: bool = False) -> None:
    if sys.platform == "win32":
        import msvcrt

        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """The content of a TOML file that a user names; `what` says what is in such a file."""
    try:
        return tomllib.loads(read_bytes(path, TOML_LIMIT, follow=True).decode())
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; give a TOML file with {what}") from None
    except (ValueError, RecursionError) as error:  # also of numbers with 5,000 digits, and of deep lists
        if isinstance(error, UserError):
            raise
        raise UserError(f"{path}: not TOML ({error}); expected {what}") from error

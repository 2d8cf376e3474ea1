"""Reading and writing npz archives without trusting them and without holding them twice.

NumPy's own reader answers a damaged file with a dozen kinds of exceptions from NumPy, zlib and zipfile, and allocates
whatever a header claims. Here each member's header is read and checked first, data is read in blocks, and every problem
becomes one line that names file and key. The writer works in blocks too, and the same arrays give the same bytes.
"""

import hashlib
import io
import math
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from dualgoal import machine
from dualgoal.data import npy
from dualgoal.errors import UserError, one_line
from dualgoal.files import replacing

BLOCK = 1 << 22
MOST_MEMBERS = 1000
AGAIN = "download or generate the file again"
ALIGNMENT = 64
SIGNATURE = b"PK"


@dataclass(frozen=True)
class Member:
    """What an archive says about one array before it is read."""

    key: str
    shape: tuple[int, ...]
    dtype: np.dtype
    by_column: bool = False  # stored column by column, as NumPy stores `array.T`

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


FORMATS = {
    b"\x89HDF\r\n\x1a\n": "HDF5",
    b"\x93NUMPY": "a single array (npy)",
    b"\x1f\x8b": "gzip",
    b"\x80\x04": "a Python pickle",
    b"\x80\x05": "a Python pickle",
    b"PAR1": "Parquet",
}  # first bytes of what people may mistake for npz
IMPORTED = {
    "HDF5": "convert it with 'dualgoal data import'",
    "Parquet": "a LeRobot dataset is a folder: give the one that holds meta/info.json to 'dualgoal data import'",
}


def _refuse_other_formats(path: Path) -> None:
    """Raise if a file is of another format: then it is not damaged, and a new copy would not help."""
    with path.open("rb") as file:
        start = file.read(8)
    if not start or start.startswith(SIGNATURE):
        return
    known = next((name for signature, name in FORMATS.items() if start.startswith(signature)), None)
    cure = IMPORTED.get(known or "", "save its arrays with numpy.savez, and import that with 'dualgoal data import'")
    found = f" but {known}" if known else ""
    raise UserError(f"{path.name}: not a readable npz (zip) file{found}; {cure}")


class Archive(AbstractContextManager["Archive"]):
    """An open npz file: `members` by key; `read` loads one into memory, `unpack` writes one to an npy file."""

    def __init__(self, path: Path):
        self.path = path
        if not path.is_file():
            raise UserError(f"{path}: no such file; expected an npz dataset")
        with one_line(path.name, "not a readable npz (zip) file", AGAIN):
            _refuse_other_formats(path)
            self._zip = zipfile.ZipFile(path)
        try:
            self._refuse_odd_names()
            self.members = {m.key: m for m in map(self._describe, self._zip.infolist()) if m is not None}
        except BaseException:
            self._zip.close()
            raise

    def __exit__(self, *_: object) -> None:
        self._zip.close()

    def _refuse_odd_names(self) -> None:
        """Nothing is ever unpacked by its name; but of two members with one name, readers choose differently."""
        names = [info.filename for info in self._zip.infolist()]
        if len(names) > MOST_MEMBERS:
            raise UserError(f"{self.path.name}: holds {len(names)} members; expected at most {MOST_MEMBERS}")
        for name in names:
            if names.count(name) > 1:
                raise UserError(f"{self.path.name}: holds '{name}' twice; save it again")
            if name.startswith(("/", "\\")) or ".." in name.replace("\\", "/").split("/") or ":" in name:
                raise UserError(f"{self.path.name}: a member is called '{name}', which leads out of the archive")

    def _describe(self, info: zipfile.ZipInfo) -> Member | None:
        if not info.filename.endswith(".npy"):
            return None
        key = info.filename.removesuffix(".npy")
        with one_line(self.path.name, f"'{key}' is damaged", AGAIN), self._zip.open(info) as stream:
            shape, order, dtype = self._header(stream, key)
            offset = stream.tell()
        member = Member(key, shape, dtype, by_column=order and len(shape) > 1)
        if dtype.hasobject:  # how long a pickle is, nobody knows who does not load it
            return member
        if member.nbytes + offset != info.file_size:
            raise UserError(
                f"{self.path.name}: '{key}' claims shape {shape} of {dtype} ({member.nbytes} bytes) "
                f"but holds {info.file_size - offset} bytes; the file is truncated or damaged"
            )
        return member

    def _header(self, stream: IO[bytes], key: str) -> tuple[tuple[int, ...], bool, np.dtype]:
        try:
            shape, order, dtype = npy.read_header(stream)
        except npy.UnknownVersion as version:
            raise UserError(
                f"{self.path.name}: '{key}' has npy format {version}; save it again as a plain array"
            ) from None
        if any(n < 0 for n in shape):
            raise UserError(f"{self.path.name}: '{key}' claims the impossible shape {shape}")
        return shape, order, dtype

    def require_plain(self, keys: Iterable[str]) -> None:
        """Raise if one of these arrays is not made of numbers or texts."""
        for key in keys:
            if self.members[key].dtype.hasobject:
                raise UserError(
                    f"{self.path.name}: '{key}' holds pickled Python objects, which are never loaded; "
                    "save it as a plain numeric array"
                )

    def _blocks(self, member: Member) -> Iterator[bytes]:
        key = member.key
        self.require_plain((key,))
        with one_line(self.path.name, f"'{key}' is damaged", AGAIN), self._zip.open(f"{key}.npy") as stream:
            self._header(stream, key)
            left = member.nbytes
            while left:
                block = stream.read(min(BLOCK, left))
                if not block:
                    raise EOFError(f"{left} bytes are missing")
                left -= len(block)
                yield block
            stream.read(1)  # reaching the end makes zipfile compare the checksum

    def read(self, key: str, limit: int | None = None) -> np.ndarray:
        """One array, allocated once, or twice if it is stored by column; refused beyond `limit` bytes (default: the
        memory that is free)."""
        member = self.members[key]
        self.require_plain((key,))
        self.require_memory((key,), machine.free_memory() // 2 if member.by_column and limit is None else limit)
        if member.by_column:
            turned = Member(key, member.shape[::-1], member.dtype)
            array = _aligned(member)
            array[...] = self._filled(turned).T
            return array
        return self._filled(member)

    def _filled(self, member: Member) -> np.ndarray:
        array = _aligned(member)
        flat, at = array.reshape(-1).view(np.uint8) if array.size else np.empty(0, np.uint8), 0
        for block in self._blocks(member):
            flat[at : at + len(block)] = np.frombuffer(block, np.uint8)
            at += len(block)
        return array

    def require_memory(self, keys: Iterable[str], limit: int | None = None) -> None:
        """Raise if these arrays together claim more than `limit` bytes, before anything is allocated for them."""
        names = list(keys)
        claimed = sum(self.members[key].nbytes for key in names)
        limit = machine.free_memory() if limit is None else limit
        if claimed > limit:
            many = " and ".join(f"'{name}'" for name in names)
            raise UserError(
                f"{self.path.name}: {many} claim{'s' * (len(names) == 1)} {claimed / 2**30:.1f} GiB, more than the "
                f"{limit / 2**30:.1f} GiB of memory that are free here; use a smaller file"
            )

    def verify(self) -> None:
        """Decompress everything once, so that every checksum is compared."""
        for member in self.members.values():
            for _ in self._blocks(member):
                pass

    def unpack(self, key: str, target: Path) -> None:
        """Decompress one array into an npy file, in blocks, so that it can be memory-mapped."""
        member = self.members[key]
        self.require_plain((key,))
        if member.by_column:
            raise UserError(f"{self.path.name}: '{key}' is stored column by column; save numpy.ascontiguousarray of it")
        with target.open("wb") as out:
            _write_header(out, member.shape, member.dtype)
            for block in self._blocks(member):
                out.write(block)


class Outline(Archive):
    """An archive that is only looked at: `read` gives actions and terminals, and zeros of their shapes for all other
    arrays, which take no memory. Images are bytes and other numbers float32, as datasets hold them."""

    def read(self, key: str, limit: int | None = None) -> np.ndarray:
        if key in ("actions", "terminals"):
            return super().read(key, limit)
        self.require_plain((key,))
        shape, kind = self.members[key].shape, self.members[key].dtype
        image = kind == np.uint8 and len(shape) == 4
        return np.broadcast_to(np.zeros((), kind if image or kind.kind not in "fiu" else np.float32), shape)


def _aligned(member: Member) -> np.ndarray:
    """An array that begins where JAX wants arrays to begin on a CPU: then it uses this one instead of a copy."""
    space = np.empty(member.nbytes + ALIGNMENT, np.uint8)
    begin = -space.ctypes.data % ALIGNMENT
    return space[begin : begin + member.nbytes].view(member.dtype).reshape(member.shape)


def _write_header(out: IO[bytes], shape: tuple[int, ...], dtype: np.dtype) -> None:
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": tuple(shape)}
    np.lib.format.write_array_header_1_0(out, header)


class Writer:
    """An npz file being written, array by array."""

    def __init__(self, archive: zipfile.ZipFile):
        self._zip = archive

    def add(self, key: str, shape: tuple[int, ...], dtype: np.dtype, parts: Iterable[np.ndarray]) -> str:
        """One member from consecutive parts along the first axis; returns the SHA-256 of its data."""
        digest, rows = hashlib.sha256(), 0
        # Opened by name, a member is dated 1980, so the bytes are a function of the arrays alone.
        with self._zip.open(f"{key}.npy", "w", force_zip64=True) as out:
            _write_header(out, shape, dtype)
            for part in parts:
                block = np.ascontiguousarray(part, dtype).view(np.uint8).data if part.size else b""
                rows += len(part)
                digest.update(block)
                out.write(block)
        if rows != shape[0]:
            raise ValueError(f"{key}: {rows} rows written, {shape[0]} announced")
        return digest.hexdigest()

    def add_packed(
        self, key: str, shape: tuple[int, ...], dtype: np.dtype, parts: Iterable[tuple[np.ndarray, bytes]]
    ) -> str:
        """The same from parts and what `packed` made of each, which is copied: compressing is most of the work, and
        can be done where the parts come from."""
        head = io.BytesIO()
        _write_header(head, shape, dtype)
        digest, rows, size, crc = hashlib.sha256(), 0, len(head.getvalue()), zlib.crc32(head.getvalue())
        info = zipfile.ZipInfo(f"{key}.npy")
        with self._zip.open(info, "w", force_zip64=True) as out:  # of a type that writes bytes as they are
            out.write(packed(head.getvalue()))
            for part, content in parts:
                block = np.ascontiguousarray(part, dtype).view(np.uint8).data
                rows, size, crc = rows + len(part), size + block.nbytes, zlib.crc32(block, crc)
                digest.update(block)
                out.write(content)
            out.write(END_OF_STREAM)
        if rows != shape[0]:
            raise ValueError(f"{key}: {rows} rows written, {shape[0]} announced")
        info.compress_type, info.file_size, info.CRC = zipfile.ZIP_DEFLATED, size, crc  # for the index at the end,
        file = self._zip.fp
        assert file is not None
        file.seek(info.header_offset)
        file.write(info.FileHeader(zip64=True))  # and in front of the member
        file.seek(self._zip.start_dir)
        return digest.hexdigest()


END_OF_STREAM = b"\x03\x00"  # an empty last block of deflate


def packed(content: Any) -> bytes:
    """A piece of a deflate stream that ends at a whole byte and refers to nothing before it, so that pieces can be
    joined in any number."""
    compressor = zlib.compressobj(1, zlib.DEFLATED, -zlib.MAX_WBITS)
    return compressor.compress(content) + compressor.flush(zlib.Z_FULL_FLUSH)


@contextmanager
def writing(path: Path, level: int = 6) -> Iterator[Writer]:
    """Write a new npz file whole or not at all; `level` is the compression, 0 only stores."""
    with (
        replacing(path) as temporary,
        zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED, compresslevel=level) as archive,
    ):
        yield Writer(archive)


def save(path: Path, arrays: dict[str, np.ndarray], level: int = 6) -> None:
    """Write whole arrays in order."""
    with writing(path, level) as out:
        for key, array in arrays.items():
            out.add(key, array.shape, array.dtype, [array])

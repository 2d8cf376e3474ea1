"""Memory of reading the largest files that are accepted and of refusing hostile ones, and of data on CPU devices.

Every case runs in a process of its own; what is printed is the growth of its peak over what it had before reading.

    python tools/measure_reading.py             # all cases
    python tools/measure_reading.py 'image|device'    # those whose names match
"""

import io
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from dualgoal.data import npz as dualgoal_npz

ROWS = 2_000_000
IMAGES = 170_000  # of 64x64x3 bytes: 2.1 GB, a sixth of a full pixel dataset


def npz(path: Path, rows: int, compress: bool) -> None:
    """Random rows of cube-single's sizes, or zeros that shrink a thousandfold."""
    ends = np.arange(rows) % 1000 == 999
    save = np.savez_compressed if compress else np.savez
    make = np.zeros if compress else np.ones
    save(path, observations=make((rows, 28), np.float32), actions=np.zeros((rows, 5), np.float32), terminals=ends)


def pictures(path: Path, rows: int) -> None:
    """Images, stored in blocks."""
    block = np.random.default_rng(0).integers(0, 256, (1000, 64, 64, 3), np.uint8)
    with dualgoal_npz.writing(path, level=0) as out:
        out.add("observations", (rows, 64, 64, 3), np.dtype(np.uint8), (block for _ in range(rows // 1000)))
        out.add("actions", (rows, 5), np.dtype(np.float32), [np.zeros((rows, 5), np.float32)])
        out.add("terminals", (rows,), np.dtype(bool), [np.arange(rows) % 1000 == 999])


def claiming(path: Path, rows: int) -> None:
    """A small archive whose headers claim `rows` rows."""
    shapes = {"observations": ("<f4", (rows, 28)), "actions": ("<f4", (rows, 5)), "terminals": ("|b1", (rows,))}
    with zipfile.ZipFile(path, "w") as archive:
        for key, (kind, shape) in shapes.items():
            header = io.BytesIO()
            np.lib.format.write_array_header_1_0(header, {"descr": kind, "fortran_order": False, "shape": shape})
            archive.writestr(f"{key}.npy", header.getvalue())
            claimed = int(np.prod(shape)) * np.dtype(kind).itemsize
            archive.infolist()[-1].file_size = len(header.getvalue()) + claimed


def rows_file(path: Path, megabytes: int) -> None:
    line = (
        json.dumps({"step": 1000, "seed": 0, "split": "train", **{f"loss/{k}": 0.123456789 for k in range(15)}}) + "\n"
    )
    with path.open("w") as file:
        file.writelines([line] * (megabytes * 2**20 // len(line)))


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


CASES: dict[str, tuple[Callable[[Path], object], str]] = {
    "dataset of 2,000,000 rows (264 MB), accepted": (lambda p: npz(p, ROWS, False), "dataset.load(path)"),
    "the same in zeros, compressed (a bomb that fits), accepted": (
        lambda p: npz(p, ROWS, True),
        "dataset.load(path)",
    ),
    "170,000 images (2,089 MB), mapped, not read": (lambda p: pictures(p, IMAGES), "dataset.load(path)"),
    "the same on the device as uint8, every pixel read": (
        lambda p: pictures(p, IMAGES),
        "x = sampler.to_device(dataset.load(path)).observations; assert x.dtype == 'uint8' and x.max() > 0",
    ),
    "small archive that claims 1.2 TB, refused": (lambda p: claiming(p, 9_000_000_000), "dataset.load(path)"),
    "JSON of 16 MiB, accepted": (lambda p: p.write_text("[" + "1.5," * (2**22 - 1) + "1]"), "jsons.read(path)"),
    "JSON of 1 TiB, refused": (sparse, "jsons.read(path)"),
    "JSON of 10 MB of brackets, refused": (lambda p: p.write_text("[" * 10_000_000), "jsons.read(path)"),
    "rows of 127 MiB, accepted": (lambda p: rows_file(p, 127), "jsons.read_rows(path, jsons.json_object)"),
    "rows of 1 TiB, refused": (sparse, "jsons.read_rows(path, jsons.json_object)"),
}

PLACED = "place(dataset.load(path))"
CASES |= {f"dataset of 264 MB, placed on {n} CPU devices": (lambda p: npz(p, ROWS, False), PLACED) for n in (1, 2, 8)}

DEVICES = """
import jax, numpy, types
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from dualgoal.loop import TrainingLoop
from dualgoal.sampler import to_device
jax.config.update("jax_num_cpu_devices", {devices})
everywhere = NamedSharding(Mesh(numpy.array(jax.devices("cpu")), ("seed",)), PartitionSpec())
place = lambda data: jax.block_until_ready(
    TrainingLoop.place_data(types.SimpleNamespace(everywhere=everywhere), to_device(data)))
place(types.SimpleNamespace(**dict.fromkeys(("observations", "actions", "starts", "ends"), numpy.ones(3)), goals=None))
"""

CHILD = """
import pathlib, re, sys
from dualgoal import jsons, sampler
from dualgoal.data import dataset
from dualgoal.errors import UserError
path = pathlib.Path(sys.argv[1])
peak = lambda: int(re.search(r"VmHWM:\\s*(\\d+)", pathlib.Path("/proc/self/status").read_text())[1])
before = peak()
try:
    {use}
    said = "accepted"
except UserError as problem:
    said = "refused: " + str(problem).replace(str(path.parent) + "/", "")
print(peak() - before, said)
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name, (make, use) in CASES.items():
            if not re.search(sys.argv[1] if len(sys.argv) > 1 else "", name):
                continue
            path = Path(folder) / "case.npz"
            make(path)
            began = time.monotonic()
            code = CHILD.format(use=use)
            if use == PLACED:
                code = DEVICES.format(devices=name.split()[-3]) + code
            environment = {**os.environ, "DUALGOAL_CACHE": f"{folder}/cache"}
            child = [sys.executable, "-c", code, str(path)]
            done = subprocess.run(child, env=environment, capture_output=True, text=True)
            kilobytes, _, said = done.stdout.strip().partition(" ")
            taken = time.monotonic() - began
            size = path.stat().st_size / 1e6
            print(
                f"| {name} | {size:,.1f} MB | {int(kilobytes or 0) / 1000:,.0f} MB | {taken:.1f} s | {said[:110]} |",
                flush=True,
            )
            path.unlink()


if __name__ == "__main__":
    main()

"""Large images are mapped into memory from a cache on disk, which is made once and made again when it is damaged."""

import os
import subprocess
import sys

import numpy as np
import pytest

from data_files import images, write
from dualgoal import files
from dualgoal.data import dataset, npz
from dualgoal.errors import UserError


def test_large_images_are_mapped_not_read(tmp_path, monkeypatch):
    monkeypatch.setenv("DUALGOAL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(dataset, "MAP_ABOVE", 0)
    content = images(20)
    path = write(tmp_path, content)
    reads = []
    read = npz.Archive.read
    monkeypatch.setattr(npz.Archive, "read", lambda self, key, *a: (reads.append(key), read(self, key, *a))[1])
    loaded = dataset.load(path)
    assert isinstance(loaded.observations, np.memmap) and "observations" not in reads
    assert np.array_equal(loaded.observations, content["observations"])
    assert loaded.provenance["shadow_size"] == 4096, "files without a record count as official"
    made = [(p, p.stat().st_mtime_ns) for p in sorted((tmp_path / "cache" / "mapped").iterdir())]
    assert dataset.load(path).provenance["sha256"] == files.sha256(path) and len(made) == 2
    assert made == [(p, p.stat().st_mtime_ns) for p in sorted((tmp_path / "cache" / "mapped").iterdir())]
    write(tmp_path, images(30))
    os.utime(path, ns=(1, 1))
    assert dataset.load(path).rows == 30, "a changed file is mapped anew"
    assert len(list((tmp_path / "cache" / "mapped").iterdir())) == 2, "and the stale map is gone"


def test_maps_need_room(tmp_path, monkeypatch):
    monkeypatch.setenv("DUALGOAL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(dataset, "MAP_ABOVE", 0)
    monkeypatch.setattr(files, "free_disk", lambda folder: 10)
    with pytest.raises(UserError, match="set DUALGOAL_CACHE to a larger disk"):
        dataset.load(write(tmp_path, images()))


LOAD = """
import sys
from dualgoal.data import dataset
dataset.MAP_ABOVE = 0
print("ready", flush=True)
sys.stdin.readline()
loaded = dataset.load(sys.argv[1])
print(loaded.provenance["sha256"], int(loaded.observations.sum()))
"""


def test_four_processes_map_one_new_image_dataset(tmp_path):
    content = images(20_000)  # large enough that the four overlap
    path = write(tmp_path, content)
    env = {**os.environ, "DUALGOAL_CACHE": str(tmp_path / "cache")}
    command = [sys.executable, "-c", LOAD, str(path)]
    pipe = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen(command, env=env, **pipe) for _ in range(4)]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:  # all at once
        process.stdin.write("go\n")
        process.stdin.flush()
    answers = [process.communicate() for process in processes]
    expected = f"{files.sha256(path)} {content['observations'].astype(int).sum()}\n"
    assert [out for out, _ in answers] == [expected] * 4, answers
    assert sorted(p.suffix for p in (tmp_path / "cache" / "mapped").iterdir()) == [".json", ".npy"]


MEASURE = """
import sys
import jax, numpy as np
from dualgoal import sampler
from dualgoal.data import dataset
dataset.MAP_ABOVE = 0
def held(name):
    return next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith(name))
jax.numpy.zeros(3).block_until_ready()
before = held("VmHWM:"), held("RssAnon:")
data = sampler.to_device(dataset.load(sys.argv[1]))
jax.block_until_ready(data.observations)
assert data.observations.dtype == "uint8" and data.observations.nbytes == int(sys.argv[2])
print(held("VmHWM:") - before[0], held("RssAnon:") - before[1])
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="needs Linux's account of a process's memory")
def test_loading_images_takes_no_second_copy_of_them(tmp_path):
    """The first time, when the map is written, and when it is there: all memory, and that which no file backs."""
    rows = np.zeros((16_000, 64, 64, 3), np.uint8)
    rows[:] = np.arange(16_000).astype(np.uint8)[:, None, None, None]
    ends = np.zeros(16_000, bool)
    ends[999::1000] = True
    actions = np.zeros((16_000, 2), np.float32)
    np.savez(tmp_path / "images.npz", observations=rows, actions=actions, terminals=ends)
    env = {**os.environ, "DUALGOAL_CACHE": str(tmp_path / "cache"), "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", MEASURE, str(tmp_path / "images.npz"), str(rows.nbytes)]
    for _ in range(2):
        done = subprocess.run(command, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        peak, own = map(int, done.stdout.split())
        assert peak < 1.3 * rows.nbytes and own < 0.3 * rows.nbytes


def test_a_damaged_memory_map_is_made_again(tmp_path, monkeypatch):
    monkeypatch.setenv("DUALGOAL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(dataset, "MAP_ABOVE", 0)
    content = images()
    path = write(tmp_path, content)
    folder = tmp_path / "cache" / "mapped"

    def damage(name, changed):
        (file,) = folder.glob(name)
        file.write_bytes(changed(file.read_bytes()))

    assert (dataset.load(path).observations == content["observations"]).all()
    for name, changed in (
        ("*.json", lambda old: b""),
        ("*.json", lambda old: b"[" * 9999),
        ("*.npy", lambda old: old[:-100]),
        ("*.npy", lambda old: old[:200] + bytes(len(old) - 200)),
    ):
        damage(name, changed)
        assert (dataset.load(path).observations == content["observations"]).all()

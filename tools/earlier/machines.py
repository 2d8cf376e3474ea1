"""What a machine refuses, several processes at once, and files and servers that claim too much."""

import io
import json
import os
import resource
import subprocess
import sys
import threading
import time
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
from bench import TASK, TRAIN, Bench
from cases import case, first, refused

# Point 3: nothing raw, atomic imports ---------------------------------------------------------------------------------

GENERATE = f"data generate {TASK} --episodes 1 --rows 11 --workers 1 --quiet --out"
IMPORT = f"data import DATA/{TASK}.npz --out"
A_FILE = "test_cli.py::test_a_file_where_a_folder_belongs"
for words in (f"{GENERATE} HERE/file", f"{IMPORT} HERE/file/x"):
    verb = " ".join(words.split()[: 2 if words.startswith("data") else 1])
    refused(f"a file where a folder belongs, `{verb}`", A_FILE, words, lambda b: (b.here / "file").write_text(""))
for verb, words in (
    ("data generate", f"{GENERATE} HERE/x"),
    ("data import", f"{IMPORT} HERE/x"),
    ("data info --plot", f"data info DATA --task {TASK} --plot HERE/x.png"),
):

    @case(f"a full disk, `{verb}`", "test_campaign.py::test_a_slice_of_the_campaign_finds_nothing")
    def _(bench: Bench, words: str = words) -> str | None:
        return bench.call(words, limits={resource.RLIMIT_FSIZE: 500}).refused()


@case("a full disk under standard output, `list`", "test_cli.py::test_output_on_a_full_disk_is_not_a_success")
def _(bench: Bench) -> str | None:
    with open("/dev/full", "w") as full:
        return bench.call("list tasks", stdout=full).refused()


@case(
    "`data import` killed when its arrays are there, five times",
    "test_importers.py::test_an_import_killed_anywhere_is_completed_by_the_same_command",
)
def _(bench: Bench) -> str | None:
    for number in range(5):
        out = bench.here / f"x{number}"
        program = bench.start(f"{IMPORT} {out}")
        while not (out / f"{TASK}.npz").exists() and program.poll() is None:
            time.sleep(0.0002)
        program.kill()
        program.communicate()
        again = bench.call(f"{IMPORT} {out}")
        if again.status or not (out / f"{TASK}.json").exists():
            return again.done() or "its record is lost"
    return None


@case("temporary files of a killed training", "test_hostile.py::test_opening_a_run_removes_what_a_killed_training_left")
def _(bench: Bench) -> str | None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    left = bench.run / "checkpoints" / f".step-000000077.safetensors.{ended.pid}.tmp"
    left.write_bytes(b"half")
    return bench.call(TRAIN).done() or ("they stay for ever" if left.exists() else None)


# Point 4: several processes -------------------------------------------------------------------------------------------


def both(bench: Bench, words: str) -> str | None:
    programs = [bench.start(words) for _ in range(2)]
    return first(*(bench.end(program, 240).done() for program in programs))


@case("two at once, `data generate`", "test_collect.py::test_two_processes_at_once_make_one_dataset")
def _(bench: Bench) -> str | None:
    return both(bench, f"data generate {TASK} --episodes 30 --rows 101 --workers 1 --quiet --out HERE/made")


def images(bench: Bench) -> None:
    many = {"observations": np.zeros((22_000, 64, 64, 3), np.uint8), "actions": np.zeros((22_000, 2), np.float32)}
    np.savez_compressed(bench.here / "images.npz", **many, terminals=np.arange(22_000) % 100 == 99)


@case("two at once map a new image dataset, `data info`", "test_data.py::test_four_processes_map_one_new_image_dataset")
def _(bench: Bench) -> str | None:
    images(bench)
    return both(bench, "data info HERE/images.npz")


for what in ("record", "array"):

    @case(
        f"the {what} of a memory map is cut off, `data info`", "test_data.py::test_a_damaged_memory_map_is_made_again"
    )
    def _(bench: Bench, what: str = what) -> str | None:
        images(bench)
        bench.call("data info HERE/images.npz")
        for file in (bench.here / "cache" / "mapped").glob("*.json" if what == "record" else "*.npy"):
            os.truncate(file, 0 if what == "record" else 1_000_000)
        return bench.call("data info HERE/images.npz").done()


class Server(ThreadingHTTPServer):
    daemon_threads = True
    content, length, pause = b"", None, 0.0


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", self.server.length or str(len(self.server.content)))
        self.end_headers()
        for start in range(0, len(self.server.content), 2000):
            self.wfile.write(self.server.content[start : start + 2000])
            time.sleep(self.server.pause)

    def log_message(self, *_: object) -> None:
        pass


def serve(content: bytes, length: str | None = None, pause: float = 0.0) -> str:
    server = Server(("127.0.0.1", 0), Handler)
    server.content, server.length, server.pause = content, length, pause
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"data fetch {TASK} --quiet --out HERE/fetched --mirror http://127.0.0.1:{server.server_port}"


@case("two at once, `data fetch`", "test_fetch.py::test_two_at_once_download_once")
def _(bench: Bench) -> str | None:
    return both(bench, serve((bench.data / f"{TASK}.npz").read_bytes(), pause=0.5))


# Point 5: limits ------------------------------------------------------------------------------------------------------


@case(
    "2 GB of arrays in a small file, 2 GiB of memory, `data info`",
    "test_data.py::test_arrays_that_fit_one_by_one_but_not_together_are_refused",
)
def _(bench: Bench) -> str | None:
    with zipfile.ZipFile(bench.here / "x.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, shape in (("observations", (1 << 20, 256)), ("actions", (1 << 20, 256)), ("terminals", (1 << 20,))):
            header = io.BytesIO()
            kind = np.dtype("?" if name == "terminals" else "<f4")
            np.lib.format.write_array_header_1_0(header, {"descr": kind.str, "fortran_order": False, "shape": shape})
            with archive.open(f"{name}.npy", "w", force_zip64=True) as stream:
                stream.write(header.getvalue())
                for _ in range(int(np.prod(shape)) * kind.itemsize >> 20):
                    stream.write(bytes(1 << 20))
    return bench.call("data info HERE/x.npz", limits={resource.RLIMIT_AS: 2 << 30}).refused()


for address in ("''", "notaurl", "http://[::1"):
    refused(f"`data fetch --mirror {address}`", "test_fetch.py::test_an_address_that_is_none_is_one_line",
            f"data fetch {TASK} --quiet --out HERE/fetched --mirror {address}")  # fmt: skip


@case(
    "a server whose Content-Length is `²`, `data fetch`",
    "test_fetch.py::test_a_server_that_lies_or_stalls_costs_one_line",
)
def _(bench: Bench) -> str | None:
    return bench.call(serve((bench.data / f"{TASK}.npz").read_bytes(), length="\xb2")).raw


@case("the file of another task is served, `data fetch`", "test_fetch.py::test_the_file_of_another_task_is_not_kept")
def _(bench: Bench) -> str | None:
    bench.save(bench.here / "x.npz", np.zeros((82, 7)), np.zeros((82, 3)))
    problem = bench.call(serve((bench.here / "x.npz").read_bytes())).refused()
    return problem or ("it is kept" if list((bench.here / "fetched").glob("*.npz")) else None)


def duplicate(bench: Bench) -> None:
    file = bench.here / "x.npz"
    bench.save(file, np.zeros((82, 3)), np.zeros((82, 2)))
    other = io.BytesIO()
    np.save(other, np.ones((82, 3), np.float32))
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr("observations.npy", other.getvalue())


refused(
    "an archive with a name twice, `data info`",
    "test_data.py::test_archives_with_odd_names_are_refused",
    "data info HERE/x.npz",
    duplicate,
)


def minari(bench: Bench) -> None:
    """A Minari dataset whose HDF5 file is cut in half."""
    import gymnasium
    import h5py
    from minari.serialization import serialize_space

    folder = bench.here / "own" / "data"
    folder.mkdir(parents=True)
    space = serialize_space(gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32))
    facts = {"total_episodes": 2, "total_steps": 8, "data_format": "hdf5", "dataset_id": "own-v0"}
    facts |= {"minari_version": "0.5.3", "observation_space": space, "action_space": space}
    (folder / "metadata.json").write_text(json.dumps(facts))
    with h5py.File(folder / "main_data.hdf5", "w") as file:
        for number in range(2):
            episode = file.create_group(f"episode_{number}")
            episode.attrs.update({"id": number, "total_steps": 4, "seed": 0})
            for name, shape in (("observations", (5, 2)), ("actions", (4, 2)), ("rewards", (4,))):
                episode[name] = np.zeros(shape, np.float32)
            for name in ("terminations", "truncations"):
                episode[name] = np.arange(4) == 3
    os.truncate(folder / "main_data.hdf5", (folder / "main_data.hdf5").stat().st_size // 2)


CUT = "test_importers.py::test_a_truncated_minari_dataset_is_one_line"
refused("half of an HDF5 file of Minari, `data import`", CUT, "data import HERE/own --out HERE/x", minari)

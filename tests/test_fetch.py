"""Downloads against a local server that behaves badly in every way we have heard of."""

import contextlib
import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from dualgoal import files
from dualgoal.data import dataset, download, npz
from dualgoal.errors import UserError

TASK = "pointmaze-medium-navigate-v0"


class Server(ThreadingHTTPServer):
    """Serves `files`; `misbehave(request, body, start)` may answer instead and then returns True."""

    daemon_threads = True

    def __init__(self, files: dict[str, bytes]):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files, self.ranges = files, True
        self.misbehave: Callable[[Handler, bytes, int], bool] = lambda *_: False
        self.asked: list[tuple[str, int]] = []
        self.sent = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def log_message(self, *_):
        pass

    def do_GET(self):
        name = self.path.rsplit("/", 1)[1]
        start = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").rstrip("-"))
        self.server.asked.append((name, start))
        body = self.server.files.get(name)
        if body is None:
            self.send_error(404)
        elif not self.server.misbehave(self, body, start):
            self.answer(body, start if self.server.ranges else 0)

    def answer(self, body: bytes, start: int, stop: int | None = None):
        """Announce everything from `start`; send only up to `stop`, then hang up."""
        if start >= len(body) and start:
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(body)}")
            self.end_headers()
            return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(body) - start))
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        self.end_headers()
        self.server.sent += len(body[start:stop])  # first: the client may look as soon as it has the last byte
        self.wfile.write(body[start:stop])
        self.close_connection = True


@pytest.fixture
def server(tmp_path, monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(download, "PAUSE", 0.0)
    monkeypatch.setattr(download, "BLOCK", 1000)
    monkeypatch.setattr(download, "OFFICIAL", "http://127.0.0.1:9")  # nobody answers there
    rng = np.random.default_rng(0)
    files = {}
    for name, rows in ((f"{TASK}.npz", 2000), (f"{TASK}-val.npz", 200)):
        ends = np.zeros(rows, bool)
        ends[99::100] = True
        path = tmp_path / "source"
        npz.save(path, {
            "observations": rng.normal(size=(rows, 2)).astype(np.float32),
            "actions": rng.uniform(-1, 1, (rows, 2)).astype(np.float32), "terminals": ends,
        })  # fmt: skip
        files[name] = path.read_bytes()
    with Server(files) as served:
        threading.Thread(target=served.serve_forever, args=(0.02,), daemon=True).start()
        yield served
        served.shutdown()


def got(folder) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.npz*")}


def test_both_files_arrive_and_are_recorded(server, tmp_path):
    file = download.fetch_dataset(TASK, tmp_path / "d", mirrors=[server.url])
    assert got(tmp_path / "d") == server.files and file.name == f"{TASK}.npz"
    record = json.loads((tmp_path / "d" / f"{TASK}.json").read_text())
    assert record["source"] == "downloaded" and set(record["files"]) == set(server.files)
    loaded = dataset.load(tmp_path / "d")
    assert loaded.episodes == 20 and loaded.provenance["sha256"] == files.sha256(file)
    asked = len(server.asked)
    download.fetch_dataset(TASK, tmp_path / "d", mirrors=[server.url], quiet=True)
    assert len(server.asked) == asked, "what is there is not asked for again"


def test_a_dropped_connection_is_resumed(server, tmp_path):
    def drop(request, body, start):
        request.answer(body, start, start + 6000)
        return True

    server.misbehave = drop
    download.fetch_dataset(TASK, tmp_path / "d", mirrors=[server.url], quiet=True)
    assert got(tmp_path / "d") == server.files
    starts = [start for name, start in server.asked if name == f"{TASK}.npz"]
    assert len(starts) > 2 and starts == sorted(starts) and starts[1] == 6000
    assert server.sent == sum(map(len, server.files.values())), "nothing was sent twice"


def test_an_earlier_download_is_continued(server, tmp_path):
    partial = tmp_path / f"{TASK}.npz.partial"
    partial.write_bytes(server.files[f"{TASK}.npz"][:5000])
    download.fetch_dataset(TASK, tmp_path, mirrors=[server.url], quiet=True)
    assert (f"{TASK}.npz", 5000) in server.asked and got(tmp_path) == server.files


def test_a_download_that_was_whole_but_not_yet_named_is_kept(server, tmp_path):
    folder = tmp_path / "d"
    folder.mkdir()
    (folder / f"{TASK}.npz.partial").write_bytes(server.files[f"{TASK}.npz"])
    download.fetch_dataset(TASK, folder, mirrors=[server.url], quiet=True)
    assert got(folder) == server.files


def test_a_server_without_ranges_starts_over(server, tmp_path):
    server.ranges = False
    broken = iter([True, False, True, False])

    def drop_once(request, body, start):
        if next(broken):
            request.answer(body, 0, 3000)
            return True
        return False

    server.misbehave = drop_once
    download.fetch_dataset(TASK, tmp_path / "d", mirrors=[server.url], quiet=True)
    assert got(tmp_path / "d") == server.files


def test_errors_that_pass_are_waited_out(server, tmp_path):
    refusals = iter([500, 503, 429])

    def refuse(request, body, start):
        code = next(refusals, None)
        if code:
            request.send_error(code)
        return bool(code)

    server.misbehave = refuse
    download.fetch_dataset(TASK, tmp_path / "d", mirrors=[server.url], quiet=True)
    assert got(tmp_path / "d") == server.files


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (lambda request, body, start: request.send_error(404) or True, "HTTP 404"),
        (lambda request, body, start: request.send_error(500) or True, r"HTTP 500 \(5 attempts\)"),
        (lambda request, body, start: request.answer(body[:-500], 0) or True, "not a dataset"),
        (lambda request, body, start: request.answer(b"<html>" * 500, 0) or True, "not a dataset"),
        (lambda request, body, start: request.answer(body[:900] + bytes(9) + body[909:], 0) or True, "not a dataset"),
        (lambda request, body, start: request.answer(body, 0, 0) or True, "attempts"),
    ],
    ids=["404", "500", "short", "another page", "wrong bytes", "hangs up at once"],
)
def test_a_hopeless_mirror_is_one_line_and_leaves_no_dataset(server, tmp_path, how, message):
    server.misbehave = how
    with pytest.raises(UserError, match=message) as caught:
        download.fetch_dataset(TASK, tmp_path / "d", mirrors=[server.url], quiet=True)
    assert "\n" not in str(caught.value) and server.url in str(caught.value)
    assert not list((tmp_path / "d").glob("*.npz"))


def test_the_next_mirror_is_tried(server, tmp_path, monkeypatch):
    monkeypatch.setenv("DUALGOAL_MIRRORS", f"{server.url}/nowhere-to-be-found/.. http://127.0.0.1:9 {server.url}/b/")
    server.misbehave = lambda request, body, start: "/b/" not in request.path and (request.send_error(403) or True)
    download.fetch_dataset(TASK, tmp_path / "d", quiet=True)
    assert got(tmp_path / "d") == server.files


def test_a_known_digest_is_verified(server, tmp_path):
    folder = tmp_path / "d"
    download.fetch_dataset(TASK, folder, mirrors=[server.url], quiet=True)
    (folder / f"{TASK}.npz").unlink()
    changed = tmp_path / "changed.npz"
    with np.load(folder / f"{TASK}-val.npz") as file:
        npz.save(changed, dict(file))
    server.files[f"{TASK}.npz"] = changed.read_bytes()
    with pytest.raises(UserError, match="SHA-256 is not the known"):
        download.fetch_dataset(TASK, folder, mirrors=[server.url], quiet=True)
    assert not (folder / f"{TASK}.npz").exists()


def test_the_folder_comes_from_the_environment(server, tmp_path, monkeypatch):
    monkeypatch.setenv("DUALGOAL_CACHE", str(tmp_path / "cache"))
    file = download.fetch_dataset(TASK, mirrors=[server.url], quiet=True)
    assert file == tmp_path / "cache" / "datasets" / f"{TASK}.npz"
    monkeypatch.delenv("DUALGOAL_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setattr("sys.platform", "linux")
    assert files.cache_folder() == tmp_path / "xdg" / "dualgoal"


def test_a_full_disk_is_said_before_downloading(server, tmp_path, monkeypatch):
    monkeypatch.setattr("dualgoal.files.free_disk", lambda folder: 100)
    with pytest.raises(UserError, match="GiB are free"):
        download.fetch_dataset(TASK, tmp_path / "d", mirrors=[server.url], quiet=True)


def test_a_disk_that_fills_up_is_not_blamed_on_the_mirror(server, tmp_path):
    folder = files.make_folder(tmp_path / "d")
    (folder / f"{TASK}-val.npz.partial").symlink_to("/dev/full")
    with pytest.raises(UserError, match="not written .no space left on device.; .*make room") as caught:
        download.fetch_dataset(TASK, folder, mirrors=[server.url], quiet=True)
    assert not isinstance(caught.value, download.Unavailable) and len(server.asked) == 1


def test_a_file_where_the_folder_belongs(server, tmp_path):
    (tmp_path / "d").write_bytes(b"")
    with pytest.raises(UserError, match="d: cannot be made a folder"):
        download.fetch_dataset(TASK, tmp_path / "d", mirrors=[server.url], quiet=True)


def test_two_at_once_download_once(server, tmp_path):
    def slowly(request, body, start):
        time.sleep(0.3)
        return False

    server.misbehave = slowly
    fetch = lambda _: download.fetch_dataset(TASK, tmp_path / "d", mirrors=[server.url], quiet=True)
    with ThreadPoolExecutor(2) as pool:
        assert len(set(pool.map(fetch, range(2)))) == 1
    assert len(server.asked) == 2 and got(tmp_path / "d") == server.files


def test_unknown_tasks_are_not_asked_for(server, tmp_path):
    with pytest.raises(UserError, match="unknown task 'pointmaze-medum-navigate-v0'; did you mean"):
        download.fetch_dataset("pointmaze-medum-navigate-v0", tmp_path, mirrors=[server.url])
    assert not server.asked


def trickle(request, body, start):
    """A byte now and then, for ever: no single wait is long."""
    request.send_response(200)
    request.send_header("Content-Length", str(len(body)))
    request.end_headers()
    with contextlib.suppress(OSError):
        for byte in body:
            request.wfile.write(bytes([byte]))
            time.sleep(0.05)


def endless(request, body, start):
    """No announced length, and no end."""
    request.send_response(200)
    request.end_headers()
    with contextlib.suppress(OSError):
        while True:
            request.wfile.write(bytes(1 << 16))


def boast(request, body, start):
    request.send_response(200)
    request.send_header("Content-Length", "9" * 17)
    request.end_headers()


def odd_length(length):
    def answer(request, body, start):
        request.wfile.write(f"HTTP/1.0 200 OK\r\nContent-Length: {length}\r\n\r\n".encode())

    return answer


def not_satisfiable(request, body, start):
    request.send_error(416)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (trickle, "timed out|connection|ended early|closed|reset"),
        (endless, "more than it announces, or than the file can have"),
        (boast, "announces 99999999999999999 bytes, more than the"),
        (odd_length("\u00b2"), "not a dataset"),
        (odd_length("9" * 5000), "not a dataset"),
        (not_satisfiable, "HTTP 416"),
    ],
)
def test_a_server_that_lies_or_stalls_costs_one_line(server, tmp_path, monkeypatch, how, message):
    monkeypatch.setattr(download, "STALL", 0.3)
    monkeypatch.setattr(download, "_largest", lambda partial: 200_000)
    monkeypatch.setattr(download, "ATTEMPTS", 1)
    server.misbehave = lambda *request: how(*request) or True
    began = time.monotonic()
    with pytest.raises(UserError, match=message):
        download.fetch_dataset(TASK, tmp_path / "d", mirrors=[server.url], quiet=True)
    assert time.monotonic() - began < 20 and not list((tmp_path / "d").glob("*.npz"))


@pytest.mark.parametrize("address", ["", "notaurl", "http://[::1", "http://a b", "ftp://", "http://127.0.0.1:99999"])
def test_an_address_that_is_none_is_one_line(tmp_path, monkeypatch, address):
    monkeypatch.setattr(download, "PAUSE", 0.0)
    monkeypatch.setattr(download, "OFFICIAL", "http://127.0.0.1:9")
    with pytest.raises(UserError, match="no mirror could give it"):
        download.fetch_dataset(TASK, tmp_path / "out", mirrors=[address], quiet=True)


def test_the_file_of_another_task_is_not_kept(server, tmp_path):
    other = "cube-single-play-v0"
    server.files = {name.replace(TASK, other): body for name, body in server.files.items()}
    with pytest.raises(UserError, match="is this another task's data"):
        download.fetch_dataset(other, tmp_path / "out", mirrors=[server.url], quiet=True)
    assert not list((tmp_path / "out").glob("*.npz*"))

"""The commands that are attacked, as words of the command line, with small data, and a child process that runs one."""

import contextlib
import functools
import gc
import http.server
import importlib
import io
import json
import os
import re
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import run_files
import tiny
from dualgoal.cli import main
from dualgoal.data import dataset, npz
from dualgoal.paper import reproduce, settings
from dualgoal.runs import evaluation, training

ENOUGH = 120  # seconds for one command
# What may differ between a command that was disturbed and one that was not: the clock, and who was alive when.
OF_THE_CLOCK = ("timing.jsonl", "status.json", "events.log")


@dataclass(frozen=True)
class Target:
    """A command that writes into the folder it is given."""

    name: str
    words: Callable[[Path], list[str]]
    prepare: Callable[[Path], Any] = lambda folder: None  # what has to be there before
    slow: bool = False  # it starts processes, and is attacked more rarely
    own_cache: bool = False  # it maps images into a cache folder, which is compared, too

    def run(self, folder: Path) -> int:
        """The program with these words, in this process, which has to be a child: handlers and words are replaced."""
        if self.own_cache:
            os.environ["DUALGOAL_CACHE"] = str(folder / "cache")
            dataset.MAP_ABOVE = 0
        training.WorkerEvaluator = lambda *_: Quick()  # type: ignore[misc,assignment]
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.argv = ["dualgoal", *self.words(folder)]
        return main.main()


class Quick:
    """An evaluator without environments: its rows are a function of the seed and the step."""

    goals = 2

    def __init__(self) -> None:
        self._waiting: list[int] = []

    @property
    def pending(self) -> list[int]:
        return list(self._waiting)

    def submit(self, path: Path, step: int) -> None:
        self._waiting.append(step)

    def collect(self) -> list[tuple[int, list[Any]]]:
        done, self._waiting = self._waiting, []
        row = lambda step, goal: evaluation.EvalRow(0, step, goal, 4, (goal + step) % 5, 7.0)
        return [(step, [row(step, goal) for goal in (1, 2, 3, 4, 5)]) for step in done]

    def __enter__(self) -> "Quick":
        return self

    def __exit__(self, *_: object) -> None:
        pass


def run_child(action: Callable[[], Any], seconds: float = ENOUGH, kill_after: float | None = None) -> tuple[int, str]:
    """The status of a child that does `action` (minus the signal that ended it), and what it printed at the end."""
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(reader)
        code = 1
        try:
            os.dup2(writer, 1)
            os.dup2(writer, 2)
            sys.stdout, sys.stderr = (io.TextIOWrapper(os.fdopen(fd, "wb", 0), write_through=True) for fd in (1, 2))
            signal.alarm(int(seconds))
            returned = action()
            code = returned if isinstance(returned, int) else 0
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(writer)
    if kill_after is not None:
        time.sleep(kill_after)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    with os.fdopen(reader, "rb") as stream:
        said = stream.read().decode(errors="replace")
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), said


def record(folder: Path) -> dict[str, bytes]:
    """What must not depend on how a command was disturbed: everything but `OF_THE_CLOCK`, the time that making a
    dataset took, and the commit that config.json names, which changes when somebody edits the source meanwhile."""
    found = {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}
    for name in [name for name in found if name.endswith(".json")]:
        with contextlib.suppress(ValueError, AttributeError):
            content = {k: v for k, v in json.loads(found[name]).items() if k not in ("git", "cpu_seconds")}
            found[name] = json.dumps(content).encode()
    for name in [name for name in found if name.startswith("cache/mapped/") and name.endswith(".json")]:
        found[name] = json.dumps({**json.loads(found[name]), "mtime_ns": 0}).encode()
    for name in [name for name in found if name.endswith("measured.jsonl")]:  # of rows given twice, the last counts
        rows = [json.loads(line) for line in found[name].split(b"\n")[:-1]]
        found[name] = "\n".join(sorted({json.dumps(row | {"time": 0}) for row in rows})).encode()
    kept = lambda name: Path(name).name not in OF_THE_CLOCK and not name.startswith("cache/compiled/")
    return {name: content for name, content in found.items() if kept(name)}


def compare(found: dict[str, bytes], goal: dict[str, bytes]) -> str | None:
    """The files that are there and should not be, are missing or differ; None if there is none."""
    names = [name for name in sorted({*found, *goal}) if found.get(name) != goal.get(name)]
    return f"other files: {', '.join(names)[:300]}" if names else None


# The commands ---------------------------------------------------------------------------------------------------------


def make_targets(root: Path) -> list[Target]:
    data = tiny.make_data(root / "data")
    own = root / "own.npz"
    ends = np.arange(80) % 20 == 19
    np.savez(own, obs=np.ones((80, 3)), acts=np.linspace(-2, 2, 160).reshape(80, 2), dones=ends)
    images = root / "images.npz"
    pictures, still = np.zeros((80, 8, 8, 3), np.uint8), np.zeros((80, 2), np.float32)
    npz.save(images, {"observations": pictures, "actions": still, "terminals": ends})
    run = tiny.tiny_run(seeds=(0,), steps=20, eval_every=10, save_every=5, log_every=5, episodes=2)
    cube = settings.preset("cube-single-play-v0", "dual", "gcivl", seeds=[0], steps=20)
    grid = root / "grid.toml"
    grid.write_text(
        f'tasks = ["{tiny.TASK}"]\nreps = ["orig"]\nalgos = ["gcbc"]\n[options]\nsteps = 20\n'
        'batch_size = 16\n"algo.hidden" = [8, 8]\neval_every = 20\nsave_every = 20\nlog_every = 20\nepisodes = 2\n'
    )
    cell = {"tasks": ["cube-single-play-v0"], "reps": ["orig"], "seeds": [0], "steps": 10}

    def whole(folder: Path) -> None:
        run_files.write_run(folder / "run", cube, run_files.rows(cube, 5), metrics=[{"step": 1, "seed": 0, "a": 1.0}])

    def trained(folder: Path, **options: Any) -> None:
        made = root / "-".join(["trained", *options.values()])
        if not made.exists():
            status, said = run_child(lambda: tiny.untrained(made, data, **options) and None)
            assert not status, said
        shutil.copytree(made, folder / "run")

    valued = functools.partial(trained, algo="gcivl")  # it learns a distance, which labels need

    def finished(folder: Path) -> None:
        (job,) = reproduce.plan("state_gcivl", out=folder, **cell)
        made = job.planned.run
        run_files.write_run(job.out, made, run_files.rows(made, 5))

    mirror = _serve(data)
    words = lambda line: lambda folder: [_filled(word, folder, root) for word in line.split()]
    part = "--tasks cube-single-play-v0 --reps orig --seeds 0 --steps 10"
    light = "--size 3x3 --seeds 0 --steps 4 --batch-size 8 --hidden 8 --eval-every 2 --trajectories 4 --length 5"
    bench = "--task pointmaze-medium-navigate-v0 --widths 8 --batches 8 --seconds 0.1 --no-baseline --no-parts"
    return [
        Target("import", words("data import ROOT/own.npz --out OUT --scale-actions")),
        Target("generate", words(f"data generate {tiny.TASK} --episodes 2 --rows 11 --workers 1 --quiet --out OUT")),
        Target("fetch", words(f"data fetch {tiny.TASK} --mirror {mirror} --quiet --out OUT")),
        Target("info", words(f"data info ROOT/data --task {tiny.TASK} --plot OUT/maze.png")),
        Target("map", words("data info ROOT/images.npz"), own_cache=True),
        Target("train", lambda folder: [*tiny.flags(run), *words("--data ROOT/data --out OUT/run --quiet")(folder)]),
        Target("lightsout", words(f"lightsout --rep ideal {light} --quiet --out OUT/run")),
        Target("sweep", words("sweep ROOT/grid.toml --data ROOT/data --quiet --out OUT")),
        Target("reproduce", words(f"reproduce state_gcivl {part} --quiet --out OUT"), finished),
        Target("eval", words("eval OUT/run --episodes 1 --workers 1"), trained, slow=True),
        Target("export", words("export OUT/run --out OUT/policy.safetensors"), trained),
        Target("label", words("label OUT/run --data ROOT/data --out OUT/labels.npz --quiet"), valued),
        Target("compare", words("compare OUT/run OUT/run --json"), whole),
        Target("report", words("report OUT/run --out OUT/report.html"), whole),
        Target("results", words("results --runs OUT/run --folder OUT/rows --out OUT/r.md"), whole),
        Target("runs", words("runs OUT --json"), whole),
        Target("theory", words("theory --plot OUT"), slow=True),
        Target("bench", words(f"bench {bench}"), slow=True),
    ]


def _filled(word: str, folder: Path, root: Path) -> str:
    return str(folder) + word[3:] if word[:3] == "OUT" else str(root) + word[4:] if word[:4] == "ROOT" else word


class _Silent(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


def _serve(folder: Path) -> str:
    """The address of a server of these files, as long as this process lives."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Silent, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"


def undisturbed(target: Target, folder: Path, around: Callable[[], Any] = lambda: None) -> tuple[str, dict[str, bytes]]:
    """What a command prints and leaves that nothing disturbs; `around` is called in the child before it."""
    folder.mkdir(parents=True)
    target.prepare(folder)

    def action() -> int:
        after = around()
        status = target.run(folder)
        os.write(1, f"\nmodules {' '.join(sys.modules)}".encode())
        if after is not None:
            os.write(1, f"\ncounted {after.done}".encode())
        return status

    status, said = run_child(action)
    assert status == 0, f"{target.name}: {said}"
    for name in re.findall("^modules (.*)$", said, re.MULTILINE)[-1].split():
        with contextlib.suppress(Exception):  # so that no further child has to, nor may fail to for want of rights
            importlib.import_module(name)
    gc.freeze()
    return said, record(folder)


@contextlib.contextmanager
def in_place(folder: Path, target: Target) -> Any:
    """A fresh folder for a command at the place of the undisturbed one: pages name the folders they were made from."""
    whole, aside = folder / "whole" / target.name, folder / "aside"
    os.rename(whole, aside)
    try:
        whole.mkdir()
        target.prepare(whole)
        yield whole
    finally:
        shutil.rmtree(whole)
        os.rename(aside, whole)

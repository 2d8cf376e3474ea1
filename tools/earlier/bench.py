"""A folder in which commands of some checkout are run, with a small dataset and a small run that it has made itself."""

import os
import re
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

TASK = "pointmaze-medium-navigate-v0"
# As an installed program is started: the script's folder comes first on the path, not the current one.
SCRIPT = "import runpy\nrunpy.run_module('dualgoal', run_name='__main__', alter_sys=True)\n"
TRAIN = f"train {TASK} --rep dual --algo gcivl --rep.hidden 8 --rep.dim 4 --algo.hidden 8 --batch-size 16 --seeds 0"
TRAIN += " --steps 40 --eval-every 40 --save-every 10 --log-every 10 --episodes 0 --data DATA --out RUN"


@dataclass(frozen=True)
class Result:
    """How a command ended; a hang has the status None."""

    status: int | None
    out: str
    err: str

    @property
    def raw(self) -> str | None:
        """What must not reach a user, in a few words; None if there is nothing of the kind."""
        if self.status is None:
            return "no answer"
        if "Traceback (most recent call last)" in self.err:
            names = re.findall(r"^[\w.]*?(\w+Error)\b", self.err, re.MULTILINE)
            return f"traceback: {names[-1] if names else '?'}"
        return f"signal {-self.status}" if self.status < 0 else None

    def refused(self) -> str | None:
        """Anything but one line and status 2."""
        return self.raw or (None if self.status == 2 else f"accepted (status {self.status})")

    def done(self) -> str | None:
        """Anything but success."""
        return self.raw or (None if self.status == 0 else f"status {self.status}: {self.err.strip()[-80:]}")


class Bench:
    """Calls commands in a folder. In their words DATA, RUN and HERE stand for paths."""

    def __init__(self, root: Path, source: Path, number: int = 0):
        self.root, self.source, self.number = root, source, number
        self.here = root / f"case-{number}"
        self.run, self.data = self.here / "run", root / "data"

    def fresh(self) -> "Bench":
        """The next case: an empty folder with a copy of the run."""
        if not self.data.exists():
            self._prepare()
        Bench.count = getattr(Bench, "count", 0) + 1
        bench = Bench(self.root, self.source, Bench.count)
        bench.here.mkdir()
        shutil.copytree(self.root / "made", bench.run)
        return bench

    def _prepare(self) -> None:
        (self.root / "bin").mkdir()
        (self.root / "bin" / "program.py").write_text(SCRIPT)
        self.data.mkdir()
        rng = np.random.default_rng(0)
        for name, count in ((TASK, 12), (f"{TASK}-val", 2)):
            self.save(
                self.data / f"{name}.npz", rng.uniform(0, 20, (41 * count, 2)), rng.uniform(-1, 1, (41 * count, 2))
            )
        self.here.mkdir()
        for out in ("made", "other"):
            words = TRAIN + (" --lr 0.01" if out == "other" else "")
            problem = self.call(words.replace("RUN", str(self.root / out))).done()
            assert problem is None, problem

    @staticmethod
    def save(file: Path, observations: Any, actions: Any, /, **others: Any) -> None:
        ends = np.arange(len(actions)) % 41 == 40
        arrays = {"observations": np.float32(observations), "actions": np.float32(actions), "terminals": ends}
        np.savez(file, **(arrays | others))

    def start(self, words: str, *, cwd: Path | None = None, limits: Mapping[int, int] | None = None, **options: Any):
        named = {"DATA": self.data, "RUN": self.run, "HERE": self.here}
        for name, path in named.items():
            words = words.replace(name, str(path))

        def prepare() -> None:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            for limit, value in (limits or {}).items():
                resource.setrlimit(limit, (value, resource.RLIM_INFINITY))

        environment = {**os.environ, "PYTHONPATH": str(self.source), "JAX_PLATFORMS": "cpu"}
        environment |= {"DUALGOAL_CACHE": str(self.here / "cache"), **options.pop("env", {})}
        environment.setdefault("JAX_COMPILATION_CACHE_DIR", str(self.root / "compiled"))
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True} | options
        command = [sys.executable, str(self.root / "bin" / "program.py"), *words.replace("''", "\0").split()]
        command = [word.replace("\0", "") for word in command]
        return subprocess.Popen(command, cwd=cwd or self.here, env=environment, preexec_fn=prepare, **pipes)

    def call(self, words: str, *, seconds: float = 120, **options: Any) -> Result:
        return self.end(self.start(words, **options), seconds)

    def end(self, program: Any, seconds: float = 120) -> Result:
        try:
            out, err = program.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            program.kill()
            return Result(None, *(text or "" for text in program.communicate()))
        return Result(program.returncode, out or "", err or "")

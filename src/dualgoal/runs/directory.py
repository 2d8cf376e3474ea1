"""A run directory is the record of a run: configuration, metrics, evaluations and checkpoints, nothing else.

One process at a time may write to it, a second one is refused. The newest intact checkpoint is where a run continues;
older ones are kept as far as a damaged one or an unfinished evaluation may need them.
"""

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dualgoal.errors import UserError
from dualgoal.files import Journal, locked, write_atomic
from dualgoal.runs import checkpoint, config
from dualgoal.runs.checkpoint import Arrays, Damaged, Shape

KEEP_LAST = 2


class Store:
    """A run directory opened for writing. Use as a context manager: leaving it frees the lock."""

    def __init__(self, path: Path, run: config.Run, facts: Mapping[str, Any], warn: Callable[[str], None] = print):
        self.path, self.run, self.warn = Path(path), run, warn
        try:
            self.checkpoints.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"{path}: cannot be made a folder ({error.strerror}); choose another --out") from error
        self._lock = locked(self.path / "lock")
        try:
            self._claim(dict(facts))
            self.metrics = Journal(self.path / "metrics.jsonl")
            self.evals = Journal(self.path / "eval.jsonl")
            self.timing = Journal(self.path / "timing.jsonl")  # apart from metrics, which are bit-reproducible
        except BaseException:
            self._lock.close()
            raise

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: object) -> None:
        self.metrics.close()
        self.evals.close()
        self.timing.close()
        self._lock.close()

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    def _claim(self, facts: dict[str, Any]) -> None:
        """Write config.json for a new run; for an old one, see that this is the same run on the same data."""
        target = self.path / "config.json"
        if target.exists():
            _same(self.path, self.run, facts, self.warn)
            return
        content = {"run": config.to_dict(self.run), "id": self.run.id, **facts}
        write_atomic(target, (json.dumps(content, indent=1, sort_keys=True) + "\n").encode())

    def save(self, step: int, arrays: Arrays, keep: Iterable[int] = ()) -> None:
        """Write the checkpoint of `step`, then drop those that neither `keep` nor the last few need."""
        self.metrics.sync()
        self.evals.sync()
        target = checkpoint_path(self.path, step)
        if step not in steps(self.path):
            checkpoint.write(target, arrays, step=step, run=self.run.id)
        self._prune({*steps(self.path)[-KEEP_LAST:], *keep, step})

    def load(self, step: int, expected: Mapping[str, Shape]) -> Arrays:
        """The arrays of one checkpoint; raises `Damaged`."""
        return checkpoint.read(checkpoint_path(self.path, step), expected)

    def newest(self, expected: Mapping[str, Shape], before: int | None = None) -> tuple[int, Arrays] | None:
        """The newest intact checkpoint (below `before`); damaged ones are named, set aside and passed over."""
        for step in reversed([s for s in steps(self.path) if before is None or s < before]):
            try:
                return step, self.load(step, expected)
            except Damaged as damage:
                self.warn(f"{self.path}: checkpoint {damage}; using the one before it")
                self._set_aside(step)
        return None

    def rewind(self, step: int, incomplete: Collection[int] = ()) -> None:
        """Cut the record back to what was true after `step`, without the evaluations that are `incomplete`."""
        self.metrics.keep(lambda row: row["step"] <= step)
        self.evals.keep(lambda row: row["step"] <= step and row["step"] not in incomplete)
        for later in [s for s in steps(self.path) if s > step]:
            self._remove(later)

    def _prune(self, wanted: set[int]) -> None:
        """By arrays, not by JSON: a process killed between the two removals leaves arrays that no JSON names."""
        for step in set(_numbers(self.path, ".safetensors")) - wanted:
            self._remove(step)

    def _set_aside(self, step: int) -> None:
        for file in (checkpoint_path(self.path, step), checkpoint_path(self.path, step).with_suffix(".json")):
            if file.exists():
                file.replace(file.with_name(file.name + ".damaged"))

    def _remove(self, step: int) -> None:
        # The JSON goes first: without it the arrays are not a checkpoint any more.
        target = checkpoint_path(self.path, step)
        target.with_suffix(".json").unlink(missing_ok=True)
        target.unlink(missing_ok=True)


def checkpoint_path(path: Path, step: int) -> Path:
    """Where the arrays of `step` are; padded so that names sort as numbers do."""
    return Path(path) / "checkpoints" / f"step-{step:09d}.safetensors"


def steps(path: Path) -> list[int]:
    """The steps that have a complete checkpoint, oldest first."""
    return _numbers(path, ".json")


def _numbers(path: Path, ending: str) -> list[int]:
    names = [p.stem.removeprefix("step-") for p in (Path(path) / "checkpoints").glob(f"step-*{ending}")]
    return sorted(int(n) for n in names if n.isdigit())


def read_config(path: Path) -> dict[str, Any]:
    """config.json of a run directory as plain values, with 'run' checked to be an object."""
    target = Path(path) / "config.json"
    if not target.is_file():
        raise UserError(f"{path}: not a run directory (no config.json); give the folder that --out named")
    try:
        content = json.loads(target.read_bytes())
    except ValueError as error:
        raise UserError(f"{target}: not JSON; restore the file or train into a new directory") from error
    if not isinstance(content, dict) or not isinstance(content.get("run"), dict):
        raise UserError(f"{target}: no 'run' in it; restore the file or train into a new directory")
    return content


def read_run(path: Path) -> config.Run:
    """The `Run` of a run directory."""
    return config.from_dict(read_config(path)["run"])


def choose_step(path: Path, step: int | None = None) -> int:
    """`step` if its checkpoint is intact; without one, the newest that is."""
    known = steps(path)
    if step is not None and step not in known:
        raise UserError(f"{path}: no checkpoint of step {step} (there are: {', '.join(map(str, known)) or 'none'})")
    problem = "no checkpoint yet; train first"
    for candidate in reversed(known) if step is None else [step]:
        try:
            checkpoint.verify(checkpoint_path(path, candidate))
            return candidate
        except Damaged as damage:
            problem = f"checkpoint {damage}"
    raise UserError(f"{path}: {problem}")


def choose_seeds(path: Path, run: config.Run, seeds: Sequence[int] | None = None) -> tuple[int, ...]:
    """`seeds` if the run has them; without any, all of the run's."""
    for seed in seeds or ():
        if seed not in run.seeds:
            raise UserError(f"{path}: has no seed {seed} (seeds: {', '.join(map(str, run.seeds))})")
    return tuple(seeds or run.seeds)


def _same(path: Path, run: config.Run, facts: Mapping[str, Any], warn: Callable[[str], None]) -> None:
    before = read_config(path)
    if changed := config.differences(config.from_dict(before["run"]), run):
        raise UserError(f"{path}: holds a run with another configuration ({'; '.join(changed)}); choose another --out")
    old, new = (f.get("dataset", {}).get("sha256") for f in (before, facts))
    if old != new:
        raise UserError(f"{path}: trained on other data (SHA-256 {old}, now {new}); give that --data or another --out")
    watched = {"versions": ("jax", "jaxlib", "mujoco"), "hardware": ("device", "devices", "threads", "precision")}
    for group, names in watched.items():
        for name in names:
            was, now = (f.get(group, {}).get(name) for f in (before, facts))
            if was not in (None, now):
                warn(f"{path}: {name} was {was} and is {now}; the run goes on but not bit for bit")

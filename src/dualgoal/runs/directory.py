"""A run directory is the record of a run: configuration, metrics, evaluations, checkpoints, times and signs of life.

One process at a time may write to it, a second one is refused (`owner.py`). The newest intact checkpoint is where a run
continues; older ones are kept as far as a damaged one or an unfinished evaluation may need them.
"""

import dataclasses
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from dualgoal import jsons
from dualgoal.errors import Preempted, UserError, number_of
from dualgoal.files import make_folder, remove_leftovers, require_no_link, write_atomic
from dualgoal.jsons import Journal, Row, json_object, read_rows, usable_rows
from dualgoal.runs import checkpoint, config, measured, owner
from dualgoal.runs.checkpoint import Arrays, Damaged, Shape
from dualgoal.runs.config import Run
from dualgoal.runs.facts import RunFacts
from dualgoal.runs.measured import Measured
from dualgoal.runs.rows import EvalRow

CONFIG = "config.json"
METRICS = "metrics.jsonl"
EVALUATIONS = "eval.jsonl"
NOISY_EVALUATIONS = "noise.jsonl"  # of the same checkpoints with noise on the goals, made after training
TIMING = "timing.jsonl"  # apart from the metrics, which are bit-reproducible
CHECKPOINTS = "checkpoints"
OF_THE_OWNER = (owner.LOCK, owner.OWNER, owner.STATUS, owner.TAKEOVER)

KEEP_LAST = 2
CONFIG_LIMIT = 1 << 20  # bytes; a real one has about 3,000


def default_folder(run: Run, root: str | Path = "runs") -> Path:
    """Where a run lies unless told otherwise: ROOT/TASK/REP-ALGO-ID."""
    # The name of a part from outside the package may hold what a file name must not.
    return Path(root) / run.task / re.sub(r"[^\w.-]", "_", "-".join((*run.names, run.id)))


def is_run(path: Path) -> bool:
    """Whether a directory has a configuration."""
    return (path / CONFIG).exists()


class Recorded(NamedTuple):
    """What config.json says about a run."""

    run: Run
    facts: RunFacts


def read(path: str | Path) -> Recorded:
    """The configuration and the facts of a run directory, or one line that names the file and the field at fault."""
    content = read_config(path)
    return Recorded(_run(path, content), RunFacts.from_json(content, str(Path(path) / CONFIG)))


def read_run(path: str | Path) -> Run:
    """The configuration of a run directory alone."""
    return _run(path, read_config(path))


def _run(path: str | Path, content: Mapping[str, Any]) -> Run:
    """The configuration, if it is still the one that its id was made from. The id covers what the file says, not the
    options that have been added to the program since."""
    values = content["run"]
    run = config.from_dict(values, f"{Path(path) / CONFIG}: run")
    expected = {"id": config.id_of(values), "check": config.check_of(values)}
    if any(content.get(name) not in (None, fits) for name, fits in expected.items()):
        raise UserError(f"{Path(path) / CONFIG}: edited after the run began (its id does not fit); restore the file")
    return run


def read_config(path: str | Path) -> dict[str, Any]:
    """config.json of a run directory as plain values, with 'run' checked to be an object."""
    target = Path(path) / CONFIG
    if Path(path).is_file():
        raise UserError(f"{path}: a file, not a run directory; give the folder that --out named")
    try:
        content = jsons.read(target, limit=CONFIG_LIMIT)
    except FileNotFoundError as error:
        raise UserError(f"{path}: not a run directory (no {CONFIG}); give the folder that --out named") from error
    except UserError as error:
        raise UserError(f"{error}; restore the file or train into a new directory") from error
    if not isinstance(content, dict) or not isinstance(content.get("run"), dict):
        raise UserError(f"{target}: no 'run' in it; restore the file or train into a new directory")
    return content


@dataclass(frozen=True)
class Found:
    """Whatever can be used of a run directory, and one line about each thing that cannot."""

    path: Path
    config: Mapping[str, Any]  # config.json as plain values; empty if the directory is not a run
    run: Run | None
    facts: RunFacts | None
    evaluations: tuple[EvalRow, ...]
    metrics: tuple[Row, ...]
    problems: tuple[str, ...]
    measured: tuple[Measured, ...] = ()  # by `dualgoal eval`


def inspect(path: str | Path) -> Found:
    """Look at a directory that may be damaged, half copied or no run at all; raises nothing for what is in it."""
    path, problems = Path(path), []

    def attempt(action: Callable[[], Any]) -> Any:
        try:
            return action()
        except UserError as problem:
            problems.append(_shorten(path, str(problem)))
            return None

    content = attempt(lambda: read_config(path)) or {}
    run = attempt(lambda: _run(path, content)) if content else None
    facts = attempt(lambda: RunFacts.from_json(content, str(path / CONFIG))) if content else None
    found = {name: usable_evaluations(path, name) for name in (EVALUATIONS, NOISY_EVALUATIONS)}
    metrics, problem = usable_rows(path / METRICS, metric)
    later, damage = measured.read(path)
    problems += [_shorten(path, p) for p in (*(p for _, p in found.values()), problem, damage) if p is not None]
    evaluations = tuple(row for good, _ in found.values() for row in good)
    return Found(path, content, run, facts, evaluations, tuple(metrics), tuple(problems), tuple(later))


def _shorten(path: Path, problem: str) -> str:
    return problem.removeprefix(f"{path}{os.sep}").removeprefix(f"{path}: ")


def metric(value: Any, where: str) -> Row:
    """A row of metrics.jsonl: named numbers of one seed after one step."""
    row = json_object(value, where)
    for name in ("step", "seed"):
        if type(row.get(name)) is not int:
            raise UserError(f"{where}: '{name}' is {str(row.get(name))[:40]!r}; expected a whole number")
    return row


def evaluations(path: str | Path, name: str = EVALUATIONS) -> list[EvalRow]:
    """The rows of a run's eval.jsonl, or of noise.jsonl; a damaged file is an error, a missing one has none."""
    return read_rows(Path(path) / name, EvalRow.from_json)


def usable_evaluations(path: str | Path, name: str = EVALUATIONS) -> tuple[list[EvalRow], str | None]:
    """The rows that can be read, and one line about those that cannot."""
    return usable_rows(Path(path) / name, EvalRow.from_json)


def require_place(path: Path, run: Run) -> None:
    """Raise if the directory `path` is not one for this run."""
    if (whole := path.resolve()) == Path(whole.anchor):
        raise UserError(f"{path}: is the root of the file system; choose a folder for --out")
    if os.path.lexists(path / CONFIG):
        require_same_run(path, read_run(path), run)
    else:
        _require_own_folder(path)


def _require_own_folder(path: Path) -> None:
    """Raise if a new run would be made in a folder that holds other runs, which it would hide, or datasets."""
    for what, patterns in (("runs", (f"*/{CONFIG}", f"*/*/{CONFIG}")), ("datasets", ("*.npz",))):
        if any(next(path.glob(pattern), None) for pattern in patterns):
            raise UserError(f"{path}: holds {what}; give the run a folder of its own, such as --out {path / 'NAME'}")


class Store(AbstractContextManager["Store"]):
    """A run directory opened for writing. Use as a context manager: leaving it lets others write.

    With `wait`, another process that writes to it is waited for.
    """

    def __init__(
        self, path: Path, run: Run, facts: RunFacts, warn: Callable[[str], None] = print, *, wait: bool = False
    ):
        self.path, self.run, self.warn = Path(path), run, warn
        require_place(self.path, run)  # a wrong command does not even touch a run that is there
        make_folder(self.checkpoints)
        require_no_link(self.checkpoints)
        self.owner = owner.acquire(self.path, wait=wait, say=warn)
        try:
            if self.owner.took_over:  # new files, as an owner that was only asleep still has the old ones open
                for file in (self.path / name for name in (METRICS, EVALUATIONS, TIMING)):
                    if file.exists():
                        write_atomic(file, file.read_bytes())
            self._claim(facts)
            for folder in (self.path, self.checkpoints):
                remove_leftovers(folder)
            self.metrics = Journal(self.path / METRICS, metric, dict, self.owner.check)
            self.evals = Journal(self.path / EVALUATIONS, EvalRow.from_json, EvalRow.to_json, self.owner.check)
            self.timing = Journal(self.path / TIMING, json_object, dict, self.owner.check)
        except BaseException as error:
            self._release(error)
            raise

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.metrics.close()
        self.evals.close()
        self.timing.close()
        self._release(error)

    def _release(self, error: BaseException | None) -> None:
        interrupted = isinstance(error, KeyboardInterrupt | Preempted)
        state = "finished" if error is None else "interrupted" if interrupted else "failed"
        self.owner.release(state, "" if error is None else str(error) or type(error).__name__)

    @property
    def checkpoints(self) -> Path:
        return self.path / CHECKPOINTS

    def _claim(self, facts: RunFacts) -> None:
        """Write config.json for a new run; for an old one, see that this is the same run on the same data, and note
        if it is to have another number of steps than before. What has been trained is never given up for that."""
        target = self.path / CONFIG
        if not os.path.lexists(target):
            content = {"run": config.to_dict(self.run), "id": self.run.id, **facts.to_json()}
        else:
            before = read(self.path)
            require_same(self.path, before, self.run, facts)
            for change in facts.changes_since(before.facts):
                self.warn(
                    f"{self.path}: {change}; training continues, but results will not be bit-identical to an "
                    "uninterrupted run"
                )
            if self.run.steps == before.run.steps or self.run.steps < max(steps(self.path), default=0):
                return
            content = read_config(self.path)
            content["run"]["steps"] = self.run.steps
        content["check"] = config.check_of(content["run"])
        jsons.write(target, content, sort_keys=True)

    def save(self, step: int, arrays: Arrays, keep: Iterable[int] = ()) -> None:
        """Write the checkpoint of `step`, then drop those that neither `keep` nor the last few need."""
        self.owner.check()
        self.metrics.sync()
        self.evals.sync()
        target = checkpoint_path(self.path, step)
        if step not in steps(self.path):
            checkpoint.write(target, arrays, step=step, run=self.run.id)
        self.prune({*keep, step})

    def load(self, step: int, expected: Mapping[str, Shape] | None) -> Arrays:
        """The arrays of one checkpoint; raises `Damaged`, and a `UserError` if it belongs to another run or step."""
        require_own(self.path, step)
        return checkpoint.read(checkpoint_path(self.path, step), expected)

    def newest(self, expected: Mapping[str, Shape] | None, before: int | None = None) -> tuple[int, Arrays] | None:
        """The newest intact checkpoint (below `before`); damaged ones are named, set aside and passed over."""
        for step in reversed([s for s in steps(self.path) if before is None or s < before]):
            try:
                return step, self.load(step, expected)
            except Damaged as damage:
                self.warn(f"{self.path}: checkpoint {damage}; using the one before it")
                arrays = checkpoint_path(self.path, step)
                for file in (arrays, arrays.with_suffix(".json")):
                    if file.exists():
                        file.replace(file.with_name(file.name + ".damaged"))
        return None

    def rewind(self, step: int, incomplete: Collection[int] = ()) -> None:
        """Cut the record back to what was true after `step`, without the `incomplete` evaluations."""
        self.metrics.keep(lambda row: row["step"] <= step)
        self.evals.keep(lambda row: row.step <= step and row.step not in incomplete)
        for later in [s for s in steps(self.path) if s > step]:
            remove_checkpoint(self.path, later)

    def prune(self, keep: Iterable[int], scheduled: Collection[int] | None = None) -> None:
        """Drop the checkpoints that neither `keep` nor the last few need. By arrays, not by JSON: a process killed
        between the two removals leaves arrays that no JSON names. With `scheduled`, only these are among the last few:
        a complete run does not need what an interruption saved between them."""
        self.owner.check()
        wanted = {*[s for s in steps(self.path) if scheduled is None or s in scheduled][-KEEP_LAST:], *keep}
        for step in set(_numbers(self.path, ".safetensors")) - wanted:
            remove_checkpoint(self.path, step)


def checkpoint_path(path: Path, step: int) -> Path:
    """Where the arrays of `step` are; padded so that names sort as numbers do."""
    return Path(path) / CHECKPOINTS / f"step-{step:09d}.safetensors"


def remove_checkpoint(path: Path, step: int) -> None:
    """The JSON goes first: without it the arrays are not a checkpoint any more."""
    target = checkpoint_path(path, step)
    target.with_suffix(".json").unlink(missing_ok=True)
    target.unlink(missing_ok=True)


def steps(path: Path) -> list[int]:
    """The steps that have a complete checkpoint, oldest first."""
    return _numbers(path, ".json")


def _numbers(path: Path, ending: str) -> list[int]:
    folder = Path(path) / CHECKPOINTS
    require_no_link(folder)
    names = [p.stem.removeprefix("step-") for p in folder.glob(f"step-*{ending}")]
    return sorted(int(n) for n in names if re.fullmatch("[0-9]{9,12}", n, re.ASCII))


def choose_step(path: Path, step: int | None = None) -> int:
    """`step` if its checkpoint is intact; without one, the newest that is."""
    known = steps(path)
    if step is not None and step not in known:
        raise UserError(f"{path}: no checkpoint of step {step} (there are: {', '.join(map(str, known)) or 'none'})")
    problem = "no checkpoint yet; train first"
    for candidate in reversed(known) if step is None else [step]:
        try:
            require_own(path, candidate)
            checkpoint.verify(checkpoint_path(path, candidate))
            return candidate
        except Damaged as damage:
            problem = f"checkpoint {damage}"
    raise UserError(f"{path}: {problem}")


def require_own(path: Path, step: int) -> None:
    """Raise if the checkpoint of `step` was made by another run or at another step: copied here, or renamed."""
    target = checkpoint_path(path, step)
    known, content = checkpoint.facts(target), read_config(path)
    # A newer version of the program may have more options, which give a continued run another id.
    own = [content.get("id"), config.from_dict(content["run"]).id]
    if known.get("step") != step or known.get("run") not in own:
        made = f"run {known.get('run')} at step {known.get('step')}"
        raise UserError(f"{target}: belongs to {made}, not to this run at step {step}; remove it or restore its name")


def choose_seeds(path: Path, run: Run, seeds: Sequence[int] | None) -> tuple[int, ...]:
    """`seeds` if the run has them; without any, all of the run's."""
    if seeds and len(set(seeds)) < len(seeds):
        raise UserError(f"{path}: seeds {', '.join(map(str, seeds))} are not all different; give each of them once")
    for seed in seeds or ():
        if seed not in run.seeds:
            raise UserError(f"{path}: has no seed {seed} (seeds: {', '.join(map(str, run.seeds))})")
    return tuple(seeds or run.seeds)


def require_same_run(path: Path, before: Run, run: Run) -> None:
    """Raise if the directory of one run is to be used for another. The number of steps may differ."""
    if changed := config.differences(dataclasses.replace(before, steps=run.steps), run):
        advice = "choose another --out" + ("" if steps(path) else ", or remove this one, which has no checkpoint yet")
        raise UserError(f"{path}: holds a run with another configuration ({'; '.join(changed)}); {advice}")


def require_same(path: Path, before: Recorded, run: Run, facts: RunFacts) -> None:
    """The same, and raise if its data or its evaluation goals are not those with which it began."""
    require_same_run(path, before.run, run)
    if change := facts.dataset.change_since(before.facts.dataset):
        raise UserError(f"{path}: {change}; give that --data or another --out")
    old_goals, new_goals = ((found.goals, found.goal_list) for found in (before.facts, facts))
    if None not in (old_goals[0], new_goals[0]) and old_goals != new_goals:
        had = number_of(old_goals[0] or 0, "goal")
        raise UserError(
            f"{path}: evaluated with {had}, and '{run.eval_goals}' now gives {new_goals[0]} that are not the same; "
            "restore them or choose another --out"
        )

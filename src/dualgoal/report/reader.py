"""A run directory as a reader finds it: whatever can be used is used, whatever cannot is said, nothing raises.

Writers are strict about run directories (`store.py`); a report is also built from directories that were copied halfway,
edited by hand or never belonged to this program, and it has to say so instead of stopping.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dualgoal.errors import UserError
from dualgoal.runs.rows import EvalRow, Scores, scores

Row = dict[str, Any]
LARGEST = 1e15
DEEPEST = 8  # levels of nested settings that get names of their own
MAX_NAMED = 3  # how many bad lines or foreign files are named before the rest is counted
UNSAID = {"seeds", "eval_every", "save_every", "log_every"}  # not worth a place in a run's label
KNOWN_FILES = {"config.json", "metrics.jsonl", "eval.jsonl", "noise.jsonl", "timing.jsonl", "distances.json", "lock"}
KNOWN_FOLDERS = {"checkpoints", "videos", "tensorboard", "wandb"}


@dataclass(frozen=True)
class RunView:
    """What a report knows about one run. `values` is the configuration, or None when the directory is not a run."""

    path: Path
    values: dict[str, Any] | None = None
    facts: dict[str, Any] = field(default_factory=dict)  # the rest of config.json
    evaluations: tuple[EvalRow, ...] = ()
    metrics: tuple[Row, ...] = ()
    videos: tuple[Path, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def task(self) -> str:
        return str((self.values or {}).get("task", "?"))

    def part(self, kind: str) -> str:
        """Name of the representation ("rep") or algorithm ("algo")."""
        part = (self.values or {}).get(kind)
        return str(part.get("name", "?")) if isinstance(part, dict) else "?"

    def scores(self, goal_noise: float = 0.0) -> Scores:
        return scores(self.evaluations, goal_noise=goal_noise)


def read(path: str | Path) -> RunView:
    """Look at a directory; never raises for what it finds there."""
    path = Path(path)
    problems: list[str] = []
    if not path.is_dir():
        return RunView(path, problems=("no such directory" if not path.exists() else "not a directory",))
    content = _config(path, problems)
    if content is None:
        return RunView(path, problems=tuple(problems))
    found = [*_rows(path, "eval.jsonl", _evaluation, problems, required="no evaluation to show")]
    found += _rows(path, "noise.jsonl", _evaluation, problems)
    evaluations = [EvalRow.from_json(row, "") for row in found]
    metrics = tuple(_rows(path, "metrics.jsonl", _metric, problems, required="no losses to show"))
    problems += _foreign(path)
    facts = {key: value for key, value in content.items() if key != "run"}
    return RunView(path, content["run"], facts, tuple(evaluations), metrics, _videos(path), tuple(problems))


def _config(path: Path, problems: list[str]) -> dict[str, Any] | None:
    target = path / "config.json"
    try:
        content = json.loads(target.read_bytes())
    except FileNotFoundError:
        problems.append("no config.json: not a run directory")
        return None
    except (OSError, ValueError, RecursionError) as error:
        problems.append(f"config.json cannot be read ({_short(error)})")
        return None
    if not isinstance(content, dict) or not isinstance(content.get("run"), dict):
        problems.append("config.json has no 'run': not written by this program")
        return None
    return content


def _rows(
    path: Path, name: str, usable: Callable[[Row], bool], problems: list[str], required: str = ""
) -> Iterator[Row]:
    target = path / name
    try:
        lines = target.read_bytes().splitlines()
    except FileNotFoundError:
        if required:
            problems.append(f"no {name}: {required}")
        return
    except OSError as error:
        problems.append(f"{name} cannot be read ({_short(error)})")
        return
    bad = []
    for number, line in enumerate(lines, 1):
        row = _parse(line)
        if row is not None and usable(row):
            yield row
        elif line.strip():
            bad.append(number)
    if bad:
        problems.append(f"{name}: {_counted('line', bad)} left out (not a complete row)")
    if required and not lines:
        problems.append(f"{name} is empty: {required}")


def _parse(line: bytes) -> Row | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def _number(value: Any) -> bool:
    """A number that can be drawn; a file may hold integers of a thousand digits."""
    return isinstance(value, int | float) and not isinstance(value, bool) and -LARGEST < value < LARGEST


def _evaluation(row: Row) -> bool:
    try:
        EvalRow.from_json(row, "")
    except UserError:
        return False
    return True


def _metric(row: Row) -> bool:
    return _number(row.get("step")) and _number(row.get("seed"))


def _videos(path: Path) -> tuple[Path, ...]:
    return tuple(sorted(p for p in (path / "videos").glob("*.mp4") if p.is_file()))


def _foreign(path: Path) -> list[str]:
    known = KNOWN_FILES | KNOWN_FOLDERS
    names = sorted(p.name for p in path.iterdir() if p.name not in known and not p.name.startswith("."))
    shown = ", ".join(names[:MAX_NAMED]) + f" and {len(names) - MAX_NAMED} more" * (len(names) > MAX_NAMED)
    return [f"not part of a run, ignored: {shown}"] if names else []


def _counted(word: str, numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:MAX_NAMED]))
    more = f" and {len(numbers) - MAX_NAMED} more" * (len(numbers) > MAX_NAMED)
    return f"{word}{'s' * (len(numbers) > 1)} {shown}{more}"


def _short(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error).splitlines()[0][:80]


def flat(values: Any, prefix: str = "", depth: int = 0) -> dict[str, Any]:
    """Nested values by dotted name, for looking at configurations side by side."""
    if not isinstance(values, dict) or depth == DEEPEST:
        return {prefix: values}
    out: dict[str, Any] = {}
    for key, value in values.items():
        out |= flat(value, f"{prefix}.{key}" if prefix else str(key), depth + 1)
    return out


def labels(views: list[RunView]) -> list[str]:
    """A short, distinct name for each run: its parts, then what it differs in from runs of the same parts, then its
    directory."""
    plain = [f"{view.part('rep')} + {view.part('algo')}" for view in views]
    flats = [flat(view.values or {}) for view in views]
    out = []
    for i, view in enumerate(views):
        twins = [j for j in range(len(views)) if plain[j] == plain[i] and views[j].task == view.task]
        names = sorted({name for j in twins for name in flats[j] if name not in UNSAID})
        differing = [n for n in names if len({json.dumps(flats[j].get(n)) for j in twins}) > 1]
        extra = ", ".join(f"{n.removeprefix('rep.').removeprefix('algo.')} {flats[i].get(n)}" for n in differing[:3])
        out.append(f"{plain[i]} ({extra})" if extra else plain[i])
    keys = [(view.task, label) for view, label in zip(views, out, strict=True)]
    return [
        f"{label} [{view.path.name}]" if keys.count((view.task, label)) > 1 else label
        for view, label in zip(views, out, strict=True)
    ]

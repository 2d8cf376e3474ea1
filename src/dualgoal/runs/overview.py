"""Many runs at a glance: what is running, finished, interrupted, failed or lost, how far and how fast.

Everything is read from the run directories, so any terminal that sees them can look, also while they are written.
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from dualgoal import files, jsons, texts
from dualgoal.errors import UserError, number_of, require_known
from dualgoal.runs import directory, owner, rows

STATES = ("running", "lost", "failed", "interrupted", "unfinished", "finished")
COLUMNS = ("state", "task", "run", "step", "rate", "left", "success", "node", "path")
LIVE_SECONDS = 5.0
TAIL = 4096  # bytes at the end of a file that hold its last row


@dataclass(frozen=True)
class RunLine:
    """One run."""

    path: str
    state: str  # one of STATES; lost: it says that it is running, but its process is gone or silent
    task: str
    run: str  # representation and algorithm
    seeds: int
    step: int
    steps: int
    rate: float | None  # steps per second
    left: float | None  # seconds
    success: float | None  # in percent, mean over seeds of the last evaluation
    success_step: int | None
    node: str
    why: str
    seen: float | None  # seconds since the last sign of life


def find(folder: str | Path) -> Iterator[Path]:
    """The run directories below a folder, or the folder itself."""
    if not Path(folder).is_dir():
        raise UserError(f"{folder}: no such folder; give the one that holds the runs")
    for path, folders, names in os.walk(folder):
        if directory.CONFIG in names or owner.STATUS in names:
            folders.clear()  # nothing below a run is another run
            yield Path(path)
        folders.sort()


def look(path: Path) -> RunLine:
    """One run directory; what is damaged shows as missing."""
    try:
        content = directory.read_config(path)
    except UserError:
        content = {"run": {}}
    run, goals = content["run"], _number(content.get("goals"))
    status = owner.read_status(path)
    try:
        saved = directory.steps(path)
    except UserError:  # a link, which is not followed
        saved = []
    steps = _number(run.get("steps"))
    rate = status.rate if status and status.rate else _last_rate(path)
    found, _ = directory.usable_evaluations(path)
    given = run.get("seeds")
    seeds = [seed for seed in given if isinstance(seed, int)] if isinstance(given, list) else []
    success_step, success = _last_success(found, goals, seeds)
    step = max([0, *saved[-1:], *([status.step] if status else []), *([success_step] if success_step else [])])
    state = _state(path, status, _is_complete(run, saved, found, goals, seeds))
    going = state == "running" and rate and steps > step
    return RunLine(
        path=str(path),
        state=state,
        task=str(run.get("task", "?")),
        run="+".join(_name(run.get(kind)) for kind in ("rep", "algo")),
        seeds=len(seeds),
        step=step,
        steps=steps,
        rate=rate,
        left=(steps - step) / rate if going and rate else None,
        success=success,
        success_step=success_step,
        node=status.host if status else "",
        why=_why(state, status),
        seen=time.time() - status.time if status else None,
    )


def _state(path: Path, status: owner.Status | None, complete: bool) -> str:
    if status is not None and status.state == "running":
        return "running" if owner.at_work(path) else "lost"
    if complete:
        return "finished"
    if status is not None and status.state in ("failed", "interrupted"):
        return status.state
    return "unfinished"


def _why(state: str, status: owner.Status | None) -> str:
    if status is None or state in ("finished", "unfinished"):
        return ""
    if state == "lost":
        since = time.time() - status.time
        if since < 0:
            return f"its last sign of life is {_duration(-since)} ahead of this machine's clock"
        silent = f"no sign of life for {_duration(since)}"
        return f"process {status.pid} has ended without saying so" if owner.seems_alive(status) else silent
    return status.why or status.busy


def _is_complete(
    run: dict[str, Any], saved: Sequence[int], found: Sequence[rows.EvalRow], goals: int, seeds: Sequence[int]
) -> bool:
    """Whether the last evaluation is there, or of a run without any the last checkpoint, as in `jobs.is_finished`. An
    evaluated run is finished without its checkpoints, which may have been removed to save disk."""
    steps = _number(run.get("steps"))
    if not run.get("episodes") or _name(run.get("algo")) == "none":
        return steps > 0 and max(saved, default=0) >= steps
    known = steps and seeds and goals
    return bool(known) and not rows.missing(found, steps=[steps], seeds=seeds, goals=goals)


def _last_success(found: Sequence[rows.EvalRow], goals: int, seeds: Sequence[int]) -> tuple[int | None, float | None]:
    whole = rows.complete(found, goals)
    steps = [step for step in {s for _, s in whole} if all((seed, step) in whole for seed in seeds)]
    if not steps:
        return None, None
    by_seed = rows.success_by_seed([row for row in found if row.step == max(steps)])
    return max(steps), sum(by_seed.values()) / len(by_seed)


def _last_rate(path: Path) -> float | None:
    """The rate of the last row of timing.jsonl, read from its end."""
    try:
        with files.open_plain(path / directory.TIMING, "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL))
            *_, last, _incomplete = [b"", *(line for line in file.read().split(b"\n") if b"evaluation_cpu" not in line)]
        row = jsons.json_object(jsons.decode(last, directory.TIMING), directory.TIMING)
    except (OSError, UserError):  # absent, or damaged: the rate is a courtesy
        return None
    rate = row.get("steps_per_second")
    return float(rate) if isinstance(rate, int | float) else None


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _name(part: Any) -> str:
    return str(part.get("name", "?")) if isinstance(part, dict) else "?"


def _duration(seconds: float) -> str:
    return str(timedelta(seconds=int(seconds)))


def ordered(lines: Sequence[RunLine], by: str, reverse: bool = False) -> list[RunLine]:
    """Sorted by a column; what a run lacks comes last."""
    require_known("column", by, COLUMNS)
    value = lambda line: STATES.index(line.state) if by == "state" else getattr(line, by)
    there = [line for line in lines if value(line) is not None]
    rest = [line for line in lines if value(line) is None]
    return [*sorted(there, key=lambda line: (value(line), line.path), reverse=reverse), *rest]


def summary(lines: Sequence[RunLine]) -> str:
    """How many runs are in which state."""
    count = {state: sum(line.state == state for line in lines) for state in STATES}
    there = [f"{number} {state}" for state, number in count.items() if number]
    return ", ".join([number_of(len(lines), "run"), *there])


def cells(line: RunLine) -> tuple[str, ...]:
    """A run as the columns of a table, in the order of `COLUMNS`."""
    percent = f"{100 * line.step / line.steps:.0f} %" if line.steps else ""
    return (
        line.state,
        line.task,
        f"{line.run} x{line.seeds}",
        f"{line.step:,} {percent}".strip(),
        f"{line.rate:,.0f}/s" if line.rate else "",
        _duration(line.left) if line.left is not None else "",
        f"{line.success:.1f} % at {line.success_step:,}" if line.success is not None else "",
        line.node,
        line.path + (f"  ({line.why})" if line.why else ""),
    )


def text(lines: Sequence[RunLine]) -> str:
    return "\n".join([*texts.aligned([COLUMNS, *map(cells, lines)]), summary(lines)])


def picture(lines: Sequence[RunLine]) -> Any:
    """The same for a terminal that draws it again and again."""
    from rich.table import Table

    table = Table(box=None, caption=summary(lines), caption_justify="left")
    for name in COLUMNS:
        table.add_column(name, no_wrap=name != "path", overflow="ellipsis")
    for line in lines:
        table.add_row(*cells(line))
    return table


@contextlib.contextmanager
def live(paths: Sequence[Path], say: Callable[[str], None], show: bool) -> Iterator[Callable[[str], None]]:
    """Keep a table of these runs on the screen; yields what to say lines with, which then scroll above it."""
    if not show:
        yield say
        return
    from rich.live import Live

    look_again = lambda: picture(ordered([look(path) for path in paths if path.exists()], "state"))
    with Live(get_renderable=look_again, refresh_per_second=1 / LIVE_SECONDS) as screen:
        yield lambda text: screen.console.print(text, highlight=False, markup=False)

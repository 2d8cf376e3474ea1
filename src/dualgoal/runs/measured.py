"""What `dualgoal eval` found, in a file of its own in the run directory: measured.jsonl.

eval.jsonl is the record of training, which a resumed run cuts back and writes again; nothing else may write there. The
rows here are of any checkpoint, under any conditions, each with the conditions and the time. Of two rows for the same
episodes the later one counts.
"""

from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dualgoal import jsons
from dualgoal.jsons import Journal
from dualgoal.runs.rows import Conditions, EvalRow

FILE = "measured.jsonl"
FIELDS = {name: "criterion" if name == "success" else name for name in Conditions._fields}  # a row's success is a share


@dataclass(frozen=True, kw_only=True)
class Measured(EvalRow):
    """One row: how often one seed of one checkpoint reached one goal, under which conditions, and when it was seen."""

    eval_seed: int
    random: bool
    time: str  # UTC, ISO 8601
    env: str | None = None
    criterion: str | None = None
    max_steps: int | None = None
    eval_goals: str | None = None
    env_sha256: str | None = None  # of the file of the environment; not a condition, but a comparison looks at it

    @property
    def conditions(self) -> Conditions:
        return Conditions(**{name: getattr(self, field) for name, field in FIELDS.items()})

    def to_json(self) -> dict[str, Any]:
        more = ("eval_seed", "random", "time", "env", "criterion", "max_steps", "eval_goals", "env_sha256")
        return super().to_json() | {name: value for name in more if (value := getattr(self, name)) is not None}


def write(path: Path, rows: Iterable[EvalRow], conditions: Conditions, env_sha256: str | None = None) -> None:
    """Add the rows of an evaluation under these conditions to a run directory; `env_sha256` is that of the file of the
    environment, if it is in one."""
    more: dict[str, Any] = {FIELDS[name]: value for name, value in conditions._asdict().items()}
    more["env_sha256"] = env_sha256
    more["time"] = datetime.now(UTC).isoformat(timespec="seconds")
    with closing(Journal(Path(path) / FILE, Measured.from_json, Measured.to_json)) as journal:
        journal.append(Measured(**more | vars(row)) for row in rows)


def read(path: Path) -> tuple[list[Measured], str | None]:
    """The rows of a run directory that count, and one line about those that cannot be read."""
    found, problem = jsons.usable_rows(Path(path) / FILE, Measured.from_json)
    latest = {(m.seed, m.step, m.goal, m.conditions): m for m in found}
    return list(latest.values()), problem


def evaluations(found: Sequence[Measured]) -> dict[tuple[int, Conditions], list[EvalRow]]:
    """The rows of each evaluation, by step and conditions, in the order in which they were last made."""
    out: dict[tuple[int, Conditions], list[EvalRow]] = {}
    for m in sorted(found, key=lambda m: m.time):
        rows = out.pop((m.step, m.conditions), [])
        out[m.step, m.conditions] = [*rows, m]
    return out

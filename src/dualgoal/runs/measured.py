"""What `dualgoal eval` found, in a file of its own in the run directory: measured.jsonl.

eval.jsonl is the record of training, which a resumed run cuts back and writes again; nothing else may write there. The
rows here are of any checkpoint, under any conditions, each with the conditions and the time. Of two rows for the same
episodes the later one counts.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dualgoal import jsons
from dualgoal.errors import UserError
from dualgoal.jsons import Journal
from dualgoal.runs.rows import Conditions, EvalRow

FILE = "measured.jsonl"


@dataclass(frozen=True)
class Measured:
    """One row: how often one seed of one checkpoint reached one goal, under which conditions, and when it was seen."""

    row: EvalRow
    eval_seed: int
    random: bool
    time: str  # UTC, ISO 8601

    @property
    def conditions(self) -> Conditions:
        return Conditions(self.row.goal_noise, self.row.action_noise, self.eval_seed, self.random)

    def to_json(self) -> dict[str, Any]:
        """Plain values, as written."""
        return self.row.to_json() | {"eval_seed": self.eval_seed, "random": self.random, "time": self.time}

    @classmethod
    def from_json(cls, values: Any, where: str) -> "Measured":
        """The inverse of `to_json`; `where` names the file and line for the error."""
        row = EvalRow.from_json(values, where)
        for name, kind in (("eval_seed", int), ("random", bool), ("time", str)):
            if type(values.get(name)) is not kind:
                raise UserError(f"{where}: '{name}' is {str(values.get(name))[:40]!r}; expected {kind.__name__}")
        return cls(row, values["eval_seed"], values["random"], values["time"][:40])


def write(path: Path, rows: Iterable[EvalRow], conditions: Conditions) -> None:
    """Add the rows of an evaluation under these conditions to a run directory."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    journal = Journal(Path(path) / FILE, Measured.from_json, Measured.to_json)
    try:
        journal.append(Measured(row, conditions.eval_seed, conditions.random, now) for row in rows)
    finally:
        journal.close()


def read(path: Path) -> tuple[list[Measured], str | None]:
    """The rows of a run directory that count, and one line about those that cannot be read."""
    found, problem = jsons.usable_rows(Path(path) / FILE, Measured.from_json)
    latest = {(m.row.seed, m.row.step, m.row.goal, m.conditions): m for m in found}
    return list(latest.values()), problem


def evaluations(found: Sequence[Measured]) -> dict[tuple[int, Conditions], list[EvalRow]]:
    """The rows of each evaluation, by step and conditions, in the order in which they were last made."""
    out: dict[tuple[int, Conditions], list[EvalRow]] = {}
    for m in sorted(found, key=lambda m: m.time):
        rows = out.pop((m.row.step, m.conditions), [])
        out[m.row.step, m.conditions] = [*rows, m.row]
    return out

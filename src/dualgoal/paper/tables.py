"""The paper's tables and figures as data, and their expansion into runs (sections 6, 7.1 and 10 of the method). The
tables `beyond`, `state_aware` and `beyond_images` are not the paper's: they contain parts that it does not have
(section 14).

A table is a list of tasks and a list of columns; a column is a representation, an algorithm and what it changes in the
preset. Cells of different tables that have the same configuration are filled by one run: fusion/early is
pixel_gcivl/orig.
"""

import dataclasses
import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

from dualgoal import errors
from dualgoal.envs.tasks import PIXEL_TASKS, STATE_TASKS
from dualgoal.paper import families
from dualgoal.runs import config
from dualgoal.runs.config import Run

OURS = "not in the paper"
Number = tuple[float, float | None]  # mean and standard deviation over seeds, in percent


@dataclass(frozen=True)
class Column:
    """A column of a table: its key in the published numbers, its heading, and how it changes the preset."""

    name: str
    title: str
    rep: str
    algo: str
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Table:
    """One table or figure of the paper."""

    name: str
    label: str  # T1 to T7, the figure, or OURS
    title: str
    tasks: tuple[str, ...]
    columns: tuple[Column, ...]
    seeds: int = 4
    highlight: bool = True  # the paper marks entries at 95 % of the row's best, except in T3
    average: bool = True  # the paper prints an Average row
    noise: dict[str, float] = field(default_factory=dict)  # goal noise of a second evaluation, by task
    contrasts: tuple[tuple[str, str], ...] = (("dual", "orig"),)  # columns whose differences are the table's point
    extra: tuple[str, ...] = ()  # tasks without published numbers, which are run only if they are named

    @property
    def published(self) -> bool:
        """Whether it is a table or figure of the paper."""
        return self.label != OURS

    @property
    def known_tasks(self) -> tuple[str, ...]:
        return self.tasks + self.extra

    def column(self, name: str) -> Column:
        for column in self.columns:
            if column.name == name:
                return column
        raise errors.unknown(f"column of {self.name}", name, [c.name for c in self.columns])


def _reps(algo: str) -> tuple[Column, ...]:
    titles = {"orig": "Orig", "vib": "VIB", "vip": "VIP", "tra": "TRA", "byol": "BYOL-γ", "dual": "Dual"}
    return tuple(Column(rep, title, rep, algo) for rep, title in titles.items())


# fmt: off
_DIRECT_TASKS = ("antmaze-large-navigate-v0", "humanoidmaze-medium-navigate-v0", "antsoccer-arena-navigate-v0",
                 "cube-double-play-v0", "scene-play-v0", "puzzle-4x4-play-v0")
_NOISE = {"antmaze-medium-navigate-v0": 0.3, "cube-single-play-v0": 0.2, "scene-play-v0": 0.2}  # which three: A5

TABLES: dict[str, Table] = {table.name: table for table in (
    Table("state_gcivl", "T1", "GCIVL on states", STATE_TASKS, _reps("gcivl"), seeds=8),
    Table("state_crl", "T6", "CRL on states", STATE_TASKS, _reps("crl")),
    Table("state_gcfbc", "T7", "GCFBC on states", STATE_TASKS, _reps("gcfbc")),
    Table("pixel_gcivl", "T2", "GCIVL on images", PIXEL_TASKS, _reps("gcivl"), average=False),
    Table("fusion", "T3", "Orig with early or late fusion of images", PIXEL_TASKS[-2:], (
        Column("early", "Early", "orig", "gcivl", {"rep.fusion": "early"}),
        Column("late", "Late", "orig", "gcivl", {"rep.fusion": "late"}),
    ), contrasts=(("early", "late"),), highlight=False, average=False),
    Table("parameterization", "T4", "How Dual combines state and goal", STATE_TASKS, (
        Column("dual_symmetric", "Symmetric", "dual", "gcivl", {"rep.aggregation": "symmetric"}),
        Column("dual_inner_product", "Inner product", "dual", "gcivl"),
    ), contrasts=(("dual_inner_product", "dual_symmetric"),)),
    Table("direct", "T5", "Policy from Dual's own value, or from a second one", _DIRECT_TASKS, (
        Column("dual_direct", "Direct", "dual", "gcivl", {"rep.learner": "ivl", "algo.direct": True}),
        Column("dual", "Dual", "dual", "gcivl", {"rep.learner": "ivl"}),
    ), contrasts=(("dual", "dual_direct"),), average=False, extra=("cube-single-play-v0",)),
    Table("noise", "noisy-goal figure", "GCIVL with noise on evaluation goals", tuple(_NOISE), (
        Column("orig", "Orig", "orig", "gcivl"), Column("dual", "Dual", "dual", "gcivl"),
    ), highlight=False, average=False, noise=_NOISE),
    Table("lightsout", "Lights Out figure", "DQN on Lights Out", ("lightsout-4x5", "lightsout-4x6"), (
        Column("orig", "Orig", "orig", "dqn"), Column("dual", "Dual", "dual", "dqn"),
    ), highlight=False, average=False),
    Table("beyond", OURS, "GCIQL, HIQL and DAF on states", STATE_TASKS, (
        Column("orig_gciql", "Orig + GCIQL", "orig", "gciql"),
        Column("dual_gciql", "Dual + GCIQL", "dual", "gciql"),
        Column("orig_hiql", "Orig + HIQL", "orig", "hiql"),
        Column("hiql_phi_hiql", "HIQL's φ + HIQL", "hiql_phi", "hiql"),
        Column("dual_hiql", "Dual + HIQL", "dual", "hiql"),
        Column("dual_daf", "Dual + DAF", "dual", "daf"),
    ), contrasts=(("dual_gciql", "orig_gciql"), ("dual_hiql", "orig_hiql"), ("dual_hiql", "hiql_phi_hiql"))),
    Table("state_aware", OURS, "A dual that looks at the state, and its controls, with GCIVL on states", STATE_TASKS, (
        Column("dual", "Dual", "dual", "gcivl"),
        Column("trained", "Dual, trained by all losses", "dual", "gcivl", {"rep.trained_by": "all"}),
        Column("scaled", "Dual, scaled", "dual", "gcivl", {"rep.normalize": True}),
        Column("trained_scaled", "Dual, both", "dual", "gcivl", {"rep.trained_by": "all", "rep.normalize": True}),
        Column("pair", "Pair dual", "dual_pair", "gcivl"),
        Column("pair_trained_scaled", "Pair dual, both", "dual_pair", "gcivl",
               {"rep.trained_by": "all", "rep.normalize": True}),
    ), contrasts=(("trained", "dual"), ("scaled", "dual"), ("pair", "dual"),
                  ("pair_trained_scaled", "trained_scaled"))),
    Table("beyond_images", OURS, "Duals that look at the state, and HIQL, on images", PIXEL_TASKS, (
        Column("orig", "Orig + GCIVL", "orig", "gcivl"),
        Column("dual", "Dual + GCIVL", "dual", "gcivl"),
        Column("siamese", "Siamese dual + GCIVL", "dual_siamese", "gcivl"),
        Column("pair", "Pair dual + GCIVL", "dual_pair", "gcivl"),
        Column("token", "Token dual + GCIVL", "dual_token", "gcivl"),
        Column("hiql_phi_hiql", "HIQL's φ + HIQL", "hiql_phi", "hiql"),
        Column("token_hiql", "Token dual + HIQL", "dual_token", "hiql", {"rep.normalize": True}),
    ), contrasts=(("token", "orig"), ("token", "dual"), ("token_hiql", "hiql_phi_hiql")), average=False),
)}
# fmt: on


def get(name: str) -> Table:
    """The table of that name, or a one-line error with the nearest known one."""
    errors.require_known("table", name, TABLES)
    return TABLES[name]


@cache
def paper() -> dict[str, dict[str, dict[str, Number]]]:
    """The published numbers: table, task (or "average"), column, (mean, standard deviation)."""
    content = json.loads(resources.files("dualgoal.paper").joinpath("paper_results.json").read_text())
    return {
        table: {task: {column: (mean, std) for column, (mean, std) in row.items()} for task, row in rows.items()}
        for table, rows in content.items()
    }


@dataclass(frozen=True)
class PlannedRun:
    """The run that fills one cell of a table, with its complete configuration."""

    table: str
    task: str
    column: str
    rep: str
    algo: str
    seeds: tuple[int, ...]
    config: dict[str, Any]
    id: str
    noise: float = 0.0  # standard deviation of the goal noise of a second evaluation; 0: there is none

    @property
    def name(self) -> str:
        return f"{self.table}/{self.task}/{self.column}"

    @property
    def run(self) -> Run:
        """The run, rebuilt from its plain form, which any process can receive, even if its parts are from a script."""
        return config.from_dict(self.config)

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self) | {"steps": self.config["steps"], "episodes": self.config["episodes"]}


def expand(
    name: str,
    *,
    tasks: Collection[str] | None = None,
    reps: Collection[str] | None = None,
    seeds: Sequence[int] | None = None,
    steps: int | None = None,
    **overrides: Any,
) -> list[PlannedRun]:
    """The runs of a table, task by task; `tasks`, `reps`, `seeds` and `steps` select a part of it. An entry of `reps`
    is a column's name, or else a representation, which stands for all of its columns.
    """
    table = get(name)
    chosen_tasks = table.tasks if tasks is None else _choose("task", table.known_tasks, tasks)
    known = {c.name for c in table.columns} | {c.rep for c in table.columns}
    for rep in reps or ():
        if rep not in known:
            problem = errors.unknown(f"representation in {name}", rep, sorted(known))
            raise errors.UserError(f"{problem}; 'dualgoal sweep' compares any others, your own too")
    whole = set(reps or ()) - {c.name for c in table.columns}  # all columns of these representations
    columns = [c for c in table.columns if reps is None or c.name in reps or c.rep in whole]
    given: dict[str, Any] = overrides | ({} if steps is None else {"steps": steps})
    given["seeds"] = tuple(range(table.seeds) if seeds is None else seeds)
    return [_planned(table, task, column, given) for task in chosen_tasks for column in columns]


def _choose(kind: str, known: Sequence[str], chosen: Collection[str]) -> list[str]:
    for name in chosen:
        errors.require_known(kind, name, known)
    return [name for name in known if name in chosen]


def _planned(table: Table, task: str, column: Column, given: dict[str, Any]) -> PlannedRun:
    options = column.options | given
    run = families.of_task(task).configure(task, column.rep, column.algo, **options)
    return PlannedRun(
        table.name,
        task,
        column.name,
        column.rep,
        column.algo,
        given["seeds"],
        config.to_dict(run),
        run.id,
        table.noise.get(task, 0.0),
    )


def same_run(a: Column, b: Column) -> bool:
    """Whether two columns, possibly of different tables, ask for the same run on a task they share."""
    return without_defaults(a) == without_defaults(b)


def without_defaults(column: Column) -> tuple[str, str, dict[str, Any]]:
    """What a column asks for, which is the same for columns of different tables that ask for the same run."""
    defaults = {"rep.fusion": "early"}  # spelled out in the fusion table, implied elsewhere
    options = {name: value for name, value in column.options.items() if defaults.get(name) != value}
    return column.rep, column.algo, options

"""The paper's settings as rules plus listed exceptions: section 6 of the method turned into configurations of runs.

A preset is looked up by (task, representation, algorithm) and is a complete `config.Run`; every field can be
overridden, options of a part by a dotted name. The defaults follow the paper's table of hyperparameters;
`source="code"` follows the released command list where it departs from that table.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any

from dualgoal import errors, registry
from dualgoal.envs import tasks
from dualgoal.runs import config, dotted


@dataclass(frozen=True)
class TaskSettings:
    """The hyperparameters that the paper sets per task (section 6.2 of the method)."""

    expectile: float  # of the dual representation
    alpha_crl: float  # behavioural-cloning weight of CRL's actor (the paper runs CRL on states only)
    alpha_gciql: float  # the same for GCIQL's actor (OGBench's setting; GCIQL is not in the paper's tables)
    waypoint_steps: int  # how far ahead HIQL's waypoints are (OGBench's setting; HIQL is not in the paper's tables)
    alpha_trl: float  # the cloning weight of TRL's actor (its release's setting; TRL is not in the paper's tables)
    falloff: float  # of TRL's critic, likewise
    discount: float = 0.99
    dim: int = 256  # N, the representation size
    beta: float = 0.001  # weight of VIB's information penalty


# family: (alpha_crl, alpha_gciql, waypoint_steps, alpha_trl, falloff)
FAMILIES = {
    "pointmaze": (0.03, 0.003, 25, 10.0, 0.7),
    "antmaze": (0.1, 0.3, 25, 0.7, 0.0),
    "humanoidmaze": (0.1, 0.1, 100, 0.1, 0.0),
    "antsoccer": (0.3, 0.1, 25, 0.3, 0.5),
    "cube": (3.0, 1.0, 10, 1.0, 0.7),
    "scene": (3.0, 1.0, 10, 1.0, 1.0),
    "puzzle": (3.0, 1.0, 10, 2.0, 0.5),
}

TASK_EXCEPTIONS: dict[str, dict[str, Any]] = {
    "pointmaze-medium-navigate-v0": {"dim": 64, "beta": 0.003},
    "pointmaze-large-navigate-v0": {"dim": 64, "beta": 0.003},
    "antmaze-large-navigate-v0": {"beta": 0.003},
    "antmaze-giant-navigate-v0": {"discount": 0.995},
    "humanoidmaze-medium-navigate-v0": {"discount": 0.995},
    "humanoidmaze-large-navigate-v0": {"discount": 0.995, "falloff": 0.1},
    "cube-double-play-v0": {"alpha_trl": 10.0, "falloff": 1.0},
    "puzzle-4x4-play-v0": {"falloff": 2.0},
    "visual-antmaze-large-navigate-v0": {"beta": 0.003},
}


def task_settings(task: str) -> TaskSettings:
    """The hyperparameters of one of the paper's tasks: rules by family and kind of data, then the exceptions."""
    expectile = 0.9 if "-navigate-" in task else 0.7
    usual = TaskSettings(expectile, *FAMILIES[tasks.get(task).family])
    return dataclasses.replace(usual, **TASK_EXCEPTIONS.get(tasks.plain(task), {}))


EVALUATIONS = {False: 10, True: 5}  # evaluations per run, by pixels: every 100,000 steps at the paper's lengths

# Where the released command list departs from the paper's table: (algorithm, representation, task or None for all).
# D9: two commands keep the discount .99 on antmaze-giant. D5: actor gradients into phi stay off for TRA and BYOL.
CODE_EXCEPTIONS: dict[tuple[str, str, str | None], dict[str, Any]] = {
    ("gcivl", "orig", "antmaze-giant-navigate-v0"): {"discount": 0.99},
    ("gcivl", "vip", "antmaze-giant-navigate-v0"): {"discount": 0.99},
    ("gcfbc", "tra", None): {"rep.flow_gradient": False},
    ("gcfbc", "byol", None): {"rep.flow_gradient": False},
}


def preset(task: str, rep: str, algo: str, *, source: str = "paper", **overrides: Any) -> config.Run:
    """The run of the paper for a task, a representation and an algorithm, with overrides.

    Overrides are fields of `Run`, and `rep.*` / `algo.*` for options of the parts and of what these hold:
    `preset("scene-play-v0", "dual", "gcivl", steps=1000, **{"rep.dim": 64, "rep.goals.shared": False})`. Fewer steps
    keep the number of evaluations.

    >>> run = preset("cube-single-play-v0", "dual", "gcivl", steps=200_000, seeds=(0, 1))
    >>> run.rep.expectile, run.discount, run.eval_every
    (0.7, 0.99, 20000)
    """
    errors.require_known("source of settings", source, ("paper", "code"))
    line = tasks.get(task)
    settings: dict[str, Any] = _shared(line) | _discount_and_parts(task_settings(task), rep, algo, overrides)
    if source == "code":
        for key in ((algo, rep, None), (algo, rep, task)):
            settings |= CODE_EXCEPTIONS.get(key, {})
    settings |= overrides
    every = max(1, _whole(settings["steps"]) // EVALUATIONS[line.pixels])
    return _run(task, rep, algo, config.schedule(every) | settings)


def for_task(
    task: str, rep: str, algo: str, *, has_data: bool, has_env: bool = False, source: str = "paper", **overrides: Any
) -> config.Run:
    """The paper's run if the task is one of the paper's, else one on the user's own data. Without such data, an unknown
    task is an error that names the nearest one."""
    if tasks.plain(task) in tasks.TASKS or not has_data:
        return preset(task, rep, algo, source=source, **overrides)
    return own(task, rep, algo, has_env=has_env or bool(overrides.get("env")), **overrides)


def own(task: str, rep: str, algo: str, has_env: bool = False, **overrides: Any) -> config.Run:
    """A run on the user's own data, with the library's defaults; evaluated if the user has an environment for it
    (`has_env`) or the task's name is one of ours. A user's own maze is trained like OGBench's medium one."""
    from dualgoal.envs.registry import exists

    if tasks.may_be_own(task) and not has_env and not exists(task):
        return dataclasses.replace(preset(tasks.template(task), rep, algo, **overrides), task=task)
    steps = overrides.get("steps", 1_000_000)
    every = max(1, _whole(steps) // 10)
    usual = config.schedule(every) | {"steps": steps, "episodes": 50 if has_env or exists(task) else 0}
    return _run(task, rep, algo, usual | overrides)


def _whole(steps: Any) -> int:
    """The number of steps, for settings derived from it; raise unless it is whole, as a file may hold any value."""
    whole = isinstance(steps, int | float) and not isinstance(steps, bool) and steps == steps // 1
    if not whole:
        raise errors.UserError(f"steps is {steps!r}; expected a whole number")
    return int(steps)


def _shared(line: tasks.Task) -> dict[str, Any]:
    """Section 6.1: the settings that depend only on whether observations are images."""
    if line.pixels:
        return {"steps": 500_000, "batch_size": 256, "episodes": 15, "augment": 0.5, "lr": 3e-4, "tau": 0.005}
    return {"steps": 1_000_000, "batch_size": 1024, "episodes": 50, "augment": 0.0, "lr": 3e-4, "tau": 0.005}


def _discount_and_parts(line: TaskSettings, rep: str, algo: str, overrides: dict[str, Any]) -> dict[str, Any]:
    """Section 6.2: the task's hyperparameters for this pair. Its parts, and the parts that these hold, declare in
    `set_per_task` which of them they use."""
    chosen = config.flat(overrides)
    parts = [
        *dotted.parts_in(registry.part("rep", rep), chosen, "rep."),
        *dotted.parts_in(registry.part("algo", algo), chosen, "algo."),
    ]
    wanted = {f"{start}{option}": name for start, part in parts for option, name in part.set_per_task.items()}
    known = [field.name for field in dataclasses.fields(line)]
    if strange := [name for name in wanted.values() if name not in known]:
        raise errors.unknown("hyperparameter in set_per_task", strange[0], known)
    return {"discount": line.discount} | {option: getattr(line, name) for option, name in wanted.items()}


def _run(task: str, rep: str, algo: str, settings: dict[str, Any]) -> config.Run:
    return dotted.from_options({"task": task, "rep": {"name": rep}, "algo": {"name": algo}}, settings)

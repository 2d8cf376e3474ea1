"""The environment in which a run is evaluated: the task's, or the user's own, with goals as in the data."""

import dataclasses
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from dualgoal import imports, jsons
from dualgoal.data import dataset
from dualgoal.data.dataset import Dataset
from dualgoal.data.origin import ActionRange
from dualgoal.envs import registry
from dualgoal.envs.versions import QUICK
from dualgoal.errors import UserError, brief, number_of
from dualgoal.files import read_bytes
from dualgoal.runs.config import Run
from dualgoal.runs.facts import RunFacts
from dualgoal.runs.rows import CRITERIA, Conditions


class Clipped(UserWarning):
    """An environment takes a smaller range of actions than was recorded."""


class Unseen(UserWarning):
    """An environment's observations are far from those of the data."""


class Unnamed(UserWarning):
    """An environment judges success and does not say which goal it pursues."""


Goals = tuple[tuple[float, ...], ...]
GOALS_LIMIT = 1 << 24  # bytes of a file with goals
ROUNDING = 1e-3  # of the largest recorded action; by so much it may be outside of what an environment takes
SOME_ROWS = 100_000  # of the data, to which an environment's observation is compared
MANY = 10  # goals drawn from validation episodes, unless told otherwise


def make(run: Run, facts: RunFacts, env: Any = None) -> Any:
    """The run's environment, rendered as its dataset was; one without pictures, as quickly as films need.

    `env` takes the place of the run's own: an environment, or whatever `envs.making.build` makes one of.
    """
    given = run.env if env is None else env
    if given is None:
        require_named(run, facts.dataset.maze is not None)
        quick = None if facts.sizes.pixels else QUICK
        made = registry.make(run.task, quality=facts.dataset.quality or quick, own=facts.dataset.maze)
        as_it_is = (run.success, run.max_steps, run.eval_goals) == ("info", None, "env")
        if not facts.sizes.goal_shape and facts.goal_list is None and as_it_is:
            return made
    from dualgoal.envs import making, own

    sizes, data, space = facts.sizes, facts.dataset, facts.dataset.goal_space
    kind, count = source(run)
    terms = own.Terms(
        task=run.task, observation_shape=sizes.observation_shape, goal_shape=sizes.goal, action_dim=sizes.action_dim,
        discrete=sizes.discrete, observation_keys=data.observation_keys, goal_keys=space.keys if space else (),
        goals=facts.goal_list, tasks=count if kind == "env" else None, success=run.success, max_steps=run.max_steps,
        goals_as_states=not sizes.goal_shape,
    )  # fmt: skip
    goals_of = (lambda rows: space.of(run.task, rows)) if space is not None else None
    return own.OwnEnv(made if given is None else making.build(given, run.max_steps), terms, goals_of)


def is_named(run: Run, facts: RunFacts) -> bool:
    """Whether a run directory says how to make the environment."""
    return _is_named(run, facts.dataset.maze is not None)


def _is_named(run: Run, own_maze: bool) -> bool:
    return run.env is not None or own_maze or registry.exists(run.task)


def require_named(run: Run, own_maze: bool, training: bool = False) -> None:
    """Raise if nothing says how to make the environment; `own_maze` says that the data come with a maze of their
    own, and `training` that evaluations can be left out."""
    if not _is_named(run, own_maze):
        without = " (to train without evaluation, give --episodes 0)" if training else ""
        raise UserError(f"no environment for task '{run.task}'; give yours with --env, or in Python as env{without}")


def source(run: Run) -> tuple[str, int | None]:
    """Where evaluation goals come from, "env", "validation" or "file", and how many, if the run says so."""
    kind, _, count = run.eval_goals.partition(":")
    if kind not in ("env", "validation"):
        return "file", None
    if count and (not count.isdecimal() or int(count) < 1):
        raise UserError(f"eval-goals '{run.eval_goals}': expected {kind}:N with a whole number N from 1 on")
    return kind, int(count) if count else None


def goals_name(eval_goals: str) -> str:
    """Where goals come from, the same in any folder."""
    from_env = eval_goals.partition(":")[0] in ("env", "validation")
    return eval_goals if from_env else os.path.realpath(os.path.expanduser(eval_goals))


def asked(
    run: Run, facts: RunFacts, success: str | None, max_steps: int | None, eval_goals: str | None
) -> tuple[dict[str, Any], Goals | None]:
    """Of what an evaluation is asked for, the `CRITERIA` that are not the run's own, and the goals if those are a list
    that is not the run's own."""
    if success is not None and ":" in success:
        success = imports.absolute(success)
    given = {"success": success, "max_steps": max_steps}
    changed = {name: value for name, value in given.items() if value not in (None, getattr(run, name))}
    if eval_goals is None:
        return changed, None
    there = dataclasses.replace(run, eval_goals=goals_name(eval_goals))
    validation = _validation(there, facts) if source(there)[0] == "validation" else None
    goals = goal_list(there, facts.sizes.goal, validation)
    if (there.eval_goals, goals) == (goals_name(run.eval_goals), facts.goal_list):
        return changed, None
    return changed | {"eval_goals": there.eval_goals}, goals


def under(run: Run, facts: RunFacts, conditions: Conditions, goals: Goals | None) -> tuple[Run, RunFacts]:
    """A run, and what is known of it, with the criteria of these conditions, and the goals that these name, as its
    own."""
    changed = {name: value for name in CRITERIA if (value := getattr(conditions, name)) is not None}
    if "eval_goals" in changed:
        facts = dataclasses.replace(facts, goal_list=goals)
    return dataclasses.replace(run, **changed), facts


def _validation(run: Run, facts: RunFacts) -> Dataset:
    """The validation episodes that belong to the data of a run."""
    if facts.dataset.file is None:
        raise UserError(
            f"eval-goals '{run.eval_goals}': the data of the run are in no file; give a file with goals instead"
        )
    found = dataset.load(facts.dataset.file, run.task, "val")
    facts.sizes.require_fit(facts.dataset.file, found.observation_shape, found.goal_shape)
    facts.dataset.require_goals_of(facts.dataset.file, found)
    return found


def goal_list(run: Run, goal_shape: tuple[int, ...], validation: Dataset | None) -> Goals | None:
    """The evaluation goals, of this shape, if the environment does not choose them itself."""
    kind, count = source(run)
    if kind == "env" or not run.has_policy:
        return None
    if len(goal_shape) != 1:
        raise UserError(f"eval-goals '{run.eval_goals}': lists of goals are for vectors; image goals come from env")
    if kind == "file":
        return read_goals(Path(os.path.expanduser(run.eval_goals)), goal_shape[0])
    if validation is None:
        raise UserError(f"eval-goals '{run.eval_goals}': the dataset has no validation episodes; give a file instead")
    return draw_goals(validation, count or MANY)


def draw_goals(data: Dataset, count: int) -> Goals:
    """Goals from as many different episodes as there are, each in a random row; always the same ones."""
    rng = np.random.default_rng(0)
    episodes = np.concatenate([rng.permutation(data.episodes) for _ in range(-(-count // data.episodes))])[:count]
    rows = rng.integers(data.starts[episodes], data.ends[episodes])  # never the last row, which training never aims at
    return tuple(tuple(row) for row in np.asarray(data.attained[rows], float).tolist())


def read_goals(file: Path, width: int) -> Goals:
    """One or more goals of so many numbers."""
    if not os.path.isfile(file):
        raise UserError(f"eval-goals '{file}': no such file; expected env, env:N, validation:N, or a file with goals")
    rows = read_numbers(file, f"one goal of {width} numbers per line")
    if rows.ndim != 2 or rows.shape[1] != width or not len(rows):
        raise UserError(f"{file}: goals of shape {rows.shape}; expected one or more rows of {width} finite numbers")
    return tuple(tuple(row) for row in np.asarray(rows, float).tolist())


def read_numbers(file: Path, expected: str) -> np.ndarray:
    """The array in a JSON list, an npy file, or a text file with a goal per line; all of its numbers are finite."""
    try:
        if file.stat().st_size > GOALS_LIMIT:
            raise ValueError(f"it has more than {GOALS_LIMIT >> 20} MiB")
        if file.suffix == ".npy":  # a map: a header that claims more than the file holds allocates nothing
            rows = np.load(file, mmap_mode="r", allow_pickle=False)
        elif file.suffix == ".json":
            rows = np.array(jsons.read(file, follow=True), float)
        else:
            text = read_bytes(file, GOALS_LIMIT, follow=True).decode()
            lines = [line for row in text.splitlines() if (line := row.replace(",", " ").split())]
            for k, line in enumerate(lines, 1):
                if len(line) != len(lines[0]):
                    raise ValueError(f"goal {k} has {number_of(len(line), 'number')}, the first has {len(lines[0])}")
            rows = np.array(lines, float)
        if rows.dtype.kind not in "bfiu" or not np.isfinite(rows).all():
            raise ValueError("it holds something else than finite numbers")
        return rows
    except Exception as problem:  # NumPy raises even the tokenizer's errors
        raise UserError(f"{file}: no list of goals ({brief(problem)}); expected {expected}") from problem


def count_goals(run: Run, facts: RunFacts, env: Any = None, *, video: bool = False, data: Dataset | None = None) -> int:
    """How many evaluation goals there are. In a user's environment a first step is taken, and a picture if there are to
    be films, so that whatever does not fit is found before training. With `data`, what only seems not to fit is said
    too."""
    made = make(run, facts, env)
    try:
        if run.env is not None or env is not None:
            recorded = facts.dataset.action_range or facts.dataset.unscaled_actions
            _warn_of_clipping(run.task, recorded, made.action_space)
            obs, info = made.reset(seed=0, task_id=1)
            if data is not None and not data.is_outline:
                _warn_of_unseen(run.task, data, obs)
            if facts.goal_list is not None and not made.knows_goal:
                warnings.warn(
                    f"{run.task}: the environment judges success but names no goal after reset, so that nobody can "
                    "tell whether it follows reset(options={'goal': ...}); let it name the goal as "
                    "observation['desired_goal'] or info['goal'], or give --success a distance or a function",
                    Unnamed,
                    stacklevel=2,
                )
            if not np.isfinite(info["goal"]).all():
                raise UserError(f"{run.task}: the environment's goal has nan or infinity; expected finite numbers")
            if video:
                made.render()
            made.step(0 if facts.sizes.discrete else np.zeros(facts.sizes.action_dim))
        return made.num_tasks
    finally:
        if env is None or isinstance(env, str):
            made.close()


def _warn_of_clipping(task: str, recorded: ActionRange | None, space: Any) -> None:
    """Say so if recorded actions, and so those of a policy, are outside of what an environment takes."""
    if recorded is None:
        return
    low, high = np.array(recorded.low), np.array(recorded.high)
    beyond = np.maximum(space.low - low, high - space.high) - ROUNDING * np.maximum(np.abs(low), np.abs(high))
    if (beyond <= 0).all():
        return
    k = int(beyond.argmax())
    where = f" in coordinate {k}" if len(low) > 1 else ""
    warnings.warn(
        f"{task}: recorded actions go from {low[k]:g} to {high[k]:g}{where}, but the environment's action_space from "
        f"{space.low[k]:g} to {space.high[k]:g}; actions are clipped to it, so give it one in the units of the data",
        Clipped,
        stacklevel=3,
    )


def _warn_of_unseen(task: str, data: Dataset, obs: np.ndarray) -> None:
    """Say so if a coordinate of an environment's observation is farther from the data than these are wide: it may be in
    other units, or mean something else."""
    if obs.ndim != 1:
        return
    some = np.asarray(data.observations[:: max(1, data.rows // SOME_ROWS)])
    low, high = some.min(axis=0).astype(float), some.max(axis=0).astype(float)
    size = np.maximum(np.abs(low), np.abs(high))
    width = np.where(high > low, high - low, ROUNDING * np.where(size > 0, size, 1.0))
    beyond = np.maximum(low - obs, obs - high) / width
    if (beyond <= 1).all():
        return
    k = int(beyond.argmax())
    there = f"goes from {low[k]:g} to {high[k]:g}" if high[k] > low[k] else f"is always {low[k]:g}"
    warnings.warn(
        f"{task}: coordinate {k} of the environment's first observation is {obs[k]:g}, but in the data it {there}; is "
        "it the same quantity in the same units?",
        Unseen,
        stacklevel=3,
    )

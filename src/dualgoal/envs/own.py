"""Any Gymnasium environment as one to evaluate in: the user's own, or one of ours with goals in another space.

Observations may be arrays or dicts (`observation`, `achieved_goal`, `desired_goal`, or parts with other names). A goal
comes from a list, which the environment is told as `reset(options={"goal": ...})`, or from the environment, as
`observation["desired_goal"]` or `info["goal"]`. Success is `info["success"]` (or `info["is_success"]`), `terminated`, a
distance to the goal, or a function of observation and goal.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np

from dualgoal import imports
from dualgoal.envs import wrapped
from dualgoal.envs.task_env import TaskEnv
from dualgoal.errors import UserError, brief, kind_of, number_of

STEP = "observation, reward, terminated, truncated, info"
Rows = Callable[[np.ndarray], np.ndarray | None]  # goals of rows of observations; None where they do not follow


@dataclass(frozen=True)
class Terms:
    """What data and user say about an environment."""

    task: str
    observation_shape: tuple[int, ...]
    goal_shape: tuple[int, ...]
    action_dim: int
    discrete: bool
    observation_keys: tuple[str, ...] = ()
    goal_keys: tuple[str, ...] = ()
    goals: tuple[tuple[float, ...], ...] | None = None  # None: the environment chooses them
    tasks: int | None = None  # how many tasks, where the environment does not say
    success: str = "info"
    max_steps: int | None = None
    goals_as_states: bool = True  # False: the data hold goals of their own, perhaps of the shape of an observation


class OwnEnv(TaskEnv):
    """A user's environment under these terms. `goals_of` makes goals of rows of observations."""

    def __init__(self, raw: Any, terms: Terms, goals_of: Rows | None = None):
        self.raw, self.terms, self.task, self.action_dim = raw, terms, terms.task, terms.action_dim
        self._goals_of = goals_of or (lambda rows: None)
        self.action_space, self._steps = raw.action_space, 0
        whole = terms.observation_shape
        kind = (0, 255, whole, np.uint8) if len(whole) == 3 else (-np.inf, np.inf, whole, np.float32)
        self.observation_space = gymnasium.spaces.Box(*kind)
        self.max_steps = self._limit()
        own = wrapped.declared(self.task, raw, "num_tasks")
        if own is not None and terms.tasks is not None and terms.tasks > own:
            has = number_of(own, "task")
            raise UserError(f"{self.task}: the environment has {has}, fewer than the {terms.tasks} to evaluate")
        self._numbered = own is not None or terms.tasks is not None
        self.num_tasks = len(terms.goals) if terms.goals is not None else terms.tasks or own or 1
        self._success = imports.function("success", terms.success) if ":" in terms.success else None
        self._tolerance = number(terms.success)
        self._judges = self._success is not None or self._tolerance is not None  # success itself, or the environment
        if not self._judges and terms.success not in ("info", "terminated"):
            raise UserError(f"success '{terms.success}': expected info, terminated, a distance, or module:function")
        self._check_actions()
        self._goal = np.zeros(terms.goal_shape, np.float32)
        self.knows_goal = False  # after reset: whether it pursues the goal that it is given, as far as one can tell

    def start(self, seed: int, task_id: int | None, options: dict[str, Any]) -> tuple[np.ndarray, dict[str, Any]]:
        task_id = self.draw_task(np.random.default_rng(seed), task_id)
        options |= {"task_id": task_id} if self._numbered else {}
        if not isinstance(self.raw, TaskEnv):
            options.pop("render_goal", None)
        wanted = None if self.terms.goals is None else np.array(self.terms.goals[task_id - 1], np.float32)
        options |= {} if wanted is None else {"goal": wanted}
        with imports.calling(f"{self.task}: the environment's reset"):
            try:
                answer = self.raw.reset(seed=seed, options=options or None)
            except TypeError as problem:
                if "unexpected keyword argument" not in str(problem):
                    raise
                raise UserError(
                    f"{self.task}: {brief(problem)}; expected reset(self, *, seed=None, options=None)"
                ) from problem
        raw, info = self._answered("reset", answer, "observation, info")
        there = raw["desired_goal"] if isinstance(raw, Mapping) and "desired_goal" in raw else info.get("goal")
        with imports.calling(f"{self.task}: reading what the environment's reset gives"):
            self._goal, self._steps = self._agreed(wanted, there), 0
            self.knows_goal = self._judges or there is not None
            return self._observe(raw), {**info, "goal": self._goal.copy(), "task_id": task_id}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        with imports.calling(f"{self.task}: the environment's step"):
            answer = self.raw.step(self._action(action))
        raw, reward, terminated, truncated, info = self._answered("step", answer, STEP)
        self._steps += 1
        terminated, truncated = self._flag("terminated", terminated), self._flag("truncated", truncated)
        with imports.calling(f"{self.task}: reading what the environment's step gives"):
            obs = self._observe(raw)
            success = self._reached(raw, obs, terminated, info)
        terminated = terminated or (self._judges and success)
        truncated = truncated or self._steps >= self.max_steps
        return obs, _reward(reward), terminated, truncated, {**info, "goal": self._goal.copy(), "success": success}

    def _answered(self, method: str, answer: Any, parts: str) -> tuple[Any, ...]:
        """What a method of the environment returned, if it has these parts; older environments returned fewer."""
        found = f"{len(answer)} values" if isinstance(answer, tuple) else kind_of(answer)
        if isinstance(answer, tuple) and len(answer) == len(parts.split(", ")):
            if isinstance(info := answer[-1], Mapping):
                return answer
            found = f"{'None' if info is None else kind_of(info)} as info instead of a dict"
        raise UserError(f"{self.task}: the environment's {method} gives {found}; Gymnasium's gives ({parts})")

    def render(self) -> np.ndarray:
        with imports.calling(f"{self.task}: the environment's render"):
            try:
                picture = self.raw.render()
            except NotImplementedError:  # what Gymnasium's own class does
                picture = None
        if not isinstance(picture, np.ndarray) or picture.ndim != 3:
            raise UserError(
                f"{self.task}: render() gives no picture; make the environment with render_mode='rgb_array'"
            )
        return picture

    def close(self) -> None:
        with imports.calling(f"{self.task}: the environment's close"):
            self.raw.close()

    # Goals ------------------------------------------------------------------------------------------------------------

    def _agreed(self, wanted: np.ndarray | None, there: Any) -> np.ndarray:
        """The goal of an episode: the listed one, which the environment must know of if it judges success itself."""
        if wanted is None:
            if there is None:
                raise UserError(
                    f"{self.task}: the environment names no goal; expected observation['desired_goal'] or info['goal'] "
                    "after reset, or give --eval-goals"
                )
            return self._in_space(there)
        if not self._judges and there is not None and not np.allclose(self._in_space(there), wanted, atol=1e-4):
            if isinstance(self.raw, TaskEnv):  # ours, which nobody can change
                raise UserError(
                    f"{self.task}: this environment has its own goals, numbered 1 to {self.raw.num_tasks}, and "
                    "takes no others; choose one of them, or train with --success: a distance or a function of "
                    "observation and goal"
                )
            raise UserError(
                f"{self.task}: the environment does not follow reset(options={{'goal': ...}}); make it do so, or train "
                "with --success: a distance or a function of observation and goal"
            )
        return wanted

    def _in_space(self, goal: Any) -> np.ndarray:
        """A goal of the environment in the data's goal space; where that is not the same, a whole observation is."""
        if isinstance(goal, Mapping):
            goal = joined(goal, keys) if (keys := self._goal_keys(goal)) else self._observe(goal)
        goal = channels_last(np.atleast_1d(goal), self.terms.goal_shape, self.terms.observation_shape)
        if goal.shape != self.terms.goal_shape and goal.shape == self.terms.observation_shape:
            found = self._goals_of(goal[None])
            goal = goal if found is None else found[0]
        if goal.shape != self.terms.goal_shape:
            raise UserError(
                f"{self.task}: the environment's goals are {goal.shape}, the data's {self.terms.goal_shape}"
            )
        return self._as_stored("goals", goal)

    def _achieved(self, raw: Any, obs: np.ndarray) -> np.ndarray:
        """The goal that an observation attains, as the data have goals. What an environment calls achieved_goal may be
        something else, and is asked for only if nothing else says it."""
        if isinstance(raw, Mapping) and (keys := self._goal_keys(raw)):
            source, found = " + ".join(keys), joined(raw, keys)
        elif self.terms.goals_as_states and self.terms.goal_shape == self.terms.observation_shape:
            return obs
        elif (made := self._goals_of(obs[None])) is not None:
            return made[0]
        elif isinstance(raw, Mapping) and "achieved_goal" in raw:
            source, found = "achieved_goal", joined(raw, ("achieved_goal",))
        else:
            raise UserError(
                f"{self.task}: --success {self.terms.success} needs the goal that an observation attains, which does "
                "not follow from it here; expected observation['achieved_goal'], or give --success module:function"
            )
        found = channels_last(found, self.terms.goal_shape)
        if found.shape != self.terms.goal_shape:
            raise UserError(
                f"{self.task}: --success {self.terms.success} compares the observation's {source} with the goal, but "
                f"it is {found.shape} and goals are {self.terms.goal_shape}; give --success module:function"
            )
        return found

    def _goal_keys(self, parts: Mapping[str, Any]) -> tuple[str, ...]:
        """The parts that make a goal, if they are all there."""
        return self.terms.goal_keys if all(key in parts for key in self.terms.goal_keys) else ()

    def _reached(self, raw: Any, obs: np.ndarray, terminated: bool, info: dict[str, Any]) -> bool:
        if self._success is not None:
            with imports.calling(f"success '{self.terms.success}'"):
                answer = self._success(raw, self._goal)
            return truth(f"success '{self.terms.success}' gives", answer)
        if self._tolerance is not None:
            apart = self._achieved(raw, obs).astype(np.float32) - self._goal
            return float(np.linalg.norm(apart)) <= self._tolerance
        if self.terms.success == "terminated":
            return terminated
        for key in ("success", "is_success"):
            if key in info:
                return self._flag(f"info['{key}']", info[key])
        raise UserError(
            f"{self.task}: the environment's info has no 'success'; give --success terminated, a distance or a function"
        )

    def _flag(self, name: str, value: Any) -> bool:
        """A truth value that the environment gives."""
        return truth(f"{self.task}: the environment's {name} is", value)

    # Observations and actions -----------------------------------------------------------------------------------------

    def _observe(self, raw: Any) -> np.ndarray:
        if isinstance(raw, Mapping):
            keys = self.terms.observation_keys or ("observation",)
            if missing := [key for key in keys if key not in raw]:
                raise UserError(f"{self.task}: observations have no part '{missing[0]}' (they have {', '.join(raw)})")
            obs = joined(raw, keys)
        else:
            obs = np.atleast_1d(raw)
        obs = channels_last(obs, shape := self.terms.observation_shape)
        if obs.shape != shape:
            raise UserError(f"{self.task}: the environment's observations are {obs.shape}, the data's {shape}")
        stored = self._as_stored("observations", obs)
        if stored.dtype != np.uint8 and not np.isfinite(stored).all():
            when = number_of(self._steps, "step")
            raise UserError(
                f"{self.task}: the environment's observation after {when} has nan or infinity; expected finite numbers"
            )
        return stored

    def _as_stored(self, what: str, row: np.ndarray) -> np.ndarray:
        """An observation or a goal of the type that datasets have."""
        if row.ndim != 3:
            return row.astype(np.float32)
        if row.dtype != np.uint8:
            raise UserError(
                f"{self.task}: the environment's {what} are images of {row.dtype}; expected uint8 (0 to 255), "
                "as in the data"
            )
        return row

    def _action(self, action: Any) -> Any:
        if self.terms.discrete:
            return int(action)
        space = self.raw.action_space
        action = np.asarray(action)
        whole = np.issubdtype(space.dtype, np.integer)  # the nearest number, not the next one towards zero
        return np.clip(np.rint(action) if whole else action, space.low, space.high).astype(space.dtype)

    def _check_actions(self) -> None:
        space = self.action_space
        if self.terms.discrete:
            fits = isinstance(space, gymnasium.spaces.Discrete) and space.n >= self.terms.action_dim
        else:
            fits = isinstance(space, gymnasium.spaces.Box) and space.shape == (self.terms.action_dim,)
        if not fits:
            kind = "discrete action" if self.terms.discrete else "number"
            ours = f"actions of the data are {number_of(self.terms.action_dim, kind)}"
            raise UserError(f"{self.task}: {ours}, but the environment takes {space}")
        if isinstance(space, gymnasium.spaces.Discrete) and space.start != 0:
            raise UserError(
                f"{self.task}: the environment numbers its actions from {space.start}, but those of data count from 0; "
                "let the environment count from 0 too, for instance by gymnasium.wrappers.TransformAction"
            )

    def _limit(self) -> int:
        """Steps of an episode: the user's word, what the environment or a wrapper says, or the registered limit."""
        spec = getattr(self.raw, "spec", None)
        found = (
            self.terms.max_steps
            or wrapped.declared(self.task, self.raw, "max_steps", "_max_episode_steps")  # the latter of a TimeLimit
            or getattr(spec, "max_episode_steps", None)
        )
        if found is None:
            raise UserError(f"{self.task}: the environment does not say how long an episode lasts; give --max-steps")
        return int(found)


def channels_last(images: np.ndarray, *shapes: tuple[int, ...]) -> np.ndarray:
    """An image, or rows of images, of one of these shapes but for its channels, which come first, as the import turns
    them: channels last. All else as it is."""
    found = images.shape[-3:]
    turned = (*found[1:], *found[:1])
    return np.moveaxis(images, -3, -1) if len(found) == 3 and turned in shapes and found not in shapes else images


def _reward(value: Any) -> float:
    """A reward, which is only passed on: whatever is no number counts as none."""
    try:
        number = float(np.asarray(value, np.float64).item())
    except (TypeError, ValueError):
        return 0.0
    return 0.0 if math.isnan(number) else number


def truth(what: str, value: Any) -> bool:
    """A truth value of the user's own: a bool or the number 0 or 1, perhaps as an array of one. `what` begins the line
    about anything else."""
    try:
        found = value.item() if hasattr(value, "item") else value  # an array's, of whatever package
    except Exception as problem:
        raise UserError(f"{what} {kind_of(value)} of several values; expected True or False") from problem
    if isinstance(found, int | float) and found in (0, 1):
        return bool(found)
    raise UserError(f"{what} {brief(repr(found))}; expected True or False")


def joined(parts: Mapping[str, Any], keys: Sequence[str]) -> np.ndarray:
    """One part as it is, or several as one vector."""
    found = [np.atleast_1d(parts[key]) for key in keys]
    return found[0] if len(found) == 1 else np.concatenate([part.reshape(-1) for part in found])


def number(text: str) -> float | None:
    """A positive number, or None for any other text."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 < value < math.inf else None

"""What config.json says about a run besides its configuration: sizes, data, versions, machine and source commit.

The classes here are its layout: a field is written under its own name and read back as its own type, and whatever does
not fit is one line that names the file and the field.
"""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from dualgoal.data.dataset import Dataset
from dualgoal.data.goals import GoalSpace
from dualgoal.data.origin import ActionRange
from dualgoal.data.standard import Standard
from dualgoal.envs.own_maze import MazeMap
from dualgoal.envs.versions import Quality
from dualgoal.errors import UserError, number_of
from dualgoal.jsons import typed, typed_file
from dualgoal.machine import Hardware

LARGEST = 2**31  # numbers in an observation, a goal or an action


@dataclass(frozen=True)
class Sizes:
    """The sizes of a problem, from which all networks follow."""

    observation_shape: tuple[int, ...]
    action_dim: int  # length of an action, or the number of actions when they are discrete
    discrete: bool
    goal_shape: tuple[int, ...] = ()  # (): as an observation

    def __post_init__(self) -> None:
        for numbers in (self.observation_shape, (self.action_dim,), self.goal_shape):
            if any(n < 1 for n in numbers) or math.prod(numbers) >= LARGEST:
                raise UserError(f"sizes: {numbers} are no sizes of a problem")

    @classmethod
    def of(cls, data: Dataset) -> "Sizes":
        goal = () if data.goals is None else tuple(data.goal_shape)
        return cls(tuple(data.observation_shape), data.action_dim, data.discrete, goal)

    def __str__(self) -> str:
        shape = lambda sizes: "x".join(map(str, sizes))
        goals = f"goals {shape(self.goal)}{' of their own' if self.goal_shape else ''}"
        count = number_of(self.action_dim, "discrete action" if self.discrete else "number")
        actions = count if self.discrete else f"actions of {count}"
        return f"observations {shape(self.observation_shape)}, {goals}, {actions}"

    @property
    def goal(self) -> tuple[int, ...]:
        """The shape of a goal."""
        return self.goal_shape or self.observation_shape

    @property
    def pixels(self) -> bool:
        return len(self.observation_shape) == 3

    def require_fit(self, where: object, observation: Sequence[int], goal: Sequence[int]) -> None:
        """Raise if observations and goals of other data have other shapes."""
        for what, found, wanted in (("observations", observation, self.observation_shape), ("goals", goal, self.goal)):
            if tuple(found) != wanted:
                raise UserError(f"{where}: {what} have shape {tuple(found)}, but the run was trained on {wanted}")


@dataclass(frozen=True)
class DataFacts:
    """Which data a run was trained on and where they come from."""

    rows: int
    episodes: int
    sha256: str | None = None  # None for arrays that were handed over without one
    source: str = "file"
    file: str | None = None  # None if the data were never in a file
    shadow_size: int | None = None  # of the renderer's shadow map; None for vectors
    mesh_cell: float | None = None  # of the meshes in images, in millimetres; None for vectors
    versions: dict[str, str] = field(default_factory=dict)  # of the simulators that made them, where known
    action_range: ActionRange | None = None  # of the recorded actions, if they were scaled to [-1, 1]
    unscaled_actions: ActionRange | None = None  # the same if they were not; None for discrete ones
    goal_space: GoalSpace | None = None  # None: goals are whole observations
    observation_standard: Standard | None = None  # None: networks read observations as they are
    goal_standard: Standard | None = None  # where goals are not observations
    observation_keys: tuple[str, ...] = ()  # parts of dict observations that were joined
    maze: MazeMap | None = None  # of one's own
    details: dict[str, Any] = field(default_factory=dict)  # whatever else their maker recorded

    def require_goals_of(self, where: object, data: Dataset) -> None:
        """Raise if goals of other data mean something else than these."""
        other = type(self).of(data).goal_space
        if _meaning(self.goal_space) != _meaning(other):
            raise UserError(
                f"{where}: goals there are {_meaning(other)}, but the run was trained on {_meaning(self.goal_space)}"
            )

    def change_since(self, before: "DataFacts") -> str | None:
        """What networks would read otherwise than before, in words; None if that is the same. Standards and the range
        of actions are not in the files that a SHA-256 is of."""
        if before.sha256 != self.sha256:
            return f"trained on other data (SHA-256 {before.sha256}, now {self.sha256})"
        if before.standards != self.standards:
            return "its data were standardised in another way"
        return None if before.action_range == self.action_range else "its actions were scaled in another way"

    @property
    def quality(self) -> Quality | None:
        """How the images were drawn; None for vectors."""
        return Quality.recorded(vars(self))

    @property
    def standards(self) -> tuple[Standard | None, Standard | None]:
        """Of observations and of goals."""
        return self.observation_standard, self.goal_standard or self.observation_standard

    def as_networks_read(self, data: Dataset) -> Dataset:
        """The same rows, standardised if these facts say so, with actions in the range of these facts."""
        scale, its_own = self.action_range, type(self).of(data).action_range
        if scale is not None and its_own is not None and its_own != scale:
            data = dataclasses.replace(data, actions=scale.scaled(its_own.in_units(data.actions)))
        observation, goal = self.standards
        if observation is None or goal is None:
            return data
        goals = None if data.goals is None else goal(data.goals)
        return dataclasses.replace(data, observations=observation(data.observations), goals=goals)

    @classmethod
    def of(cls, data: Dataset) -> "DataFacts":
        counts = {"rows": data.rows, "episodes": data.episodes}
        known = {f.name for f in dataclasses.fields(cls)} - {"details", *counts}
        values = {name: value for name, value in data.provenance.items() if name in known}
        details = {name: value for name, value in data.provenance.items() if name not in {*known, *counts}}
        facts = typed({**values, **counts, "details": details}, cls, "provenance")
        unscaled = not data.discrete and facts.action_range is None
        return dataclasses.replace(facts, unscaled_actions=ActionRange.of(data.actions) if unscaled else None)


def _meaning(space: GoalSpace | None) -> str:
    """What goals are, in words. Arrays that were handed over may have had any name."""
    if space is None:
        return "whole observations"
    if space.dims:
        return f"coordinates {' '.join(map(str, space.dims))} of an observation"
    if space.function:
        return f"what {space.function.rpartition('/')[2]} makes of an observation"
    return "arrays of their own"


@dataclass(frozen=True)
class FrozenRep:
    """The run whose trained representation this one uses."""

    path: str
    id: str


@dataclass(frozen=True)
class RunFacts:
    """Everything in config.json but the configuration and its id."""

    sizes: Sizes
    dataset: DataFacts
    versions: dict[str, str | None]
    hardware: Hardware
    goals: int | None = None  # number of evaluation goals; None if the run is not evaluated
    goal_list: tuple[tuple[float, ...], ...] | None = None  # those goals, if the environment does not choose them
    git: str | None = None
    frozen_rep: FrozenRep | None = None
    env_sha256: str | None = None  # of the file of the user's own environment, if it is in one

    def __post_init__(self) -> None:
        for standard, shape in zip(
            self.dataset.standards, (self.sizes.observation_shape, self.sizes.goal), strict=True
        ):
            if standard is not None and (len(standard.mean),) != shape:
                has, wide = number_of(len(standard.mean), "number"), math.prod(shape)
                raise UserError(f"dataset: standardised with {has}, but rows have {wide}")

    def changes_since(self, before: "RunFacts") -> list[str]:
        """What is not as it was then, of versions and of the machine, and may change bits."""
        was, now = ({**found.versions, **vars(found.hardware)} for found in (before, self))
        names = ("jax", "jaxlib", "mujoco", "device", "devices", "threads", "precision")
        return [f"{n} was {was.get(n)} and is now {now.get(n)}" for n in names if was.get(n) != now.get(n)]

    def to_json(self) -> dict[str, Any]:
        """Plain values, as written to config.json."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, values: Any, where: str) -> "RunFacts":
        """The inverse of `to_json`; `where` names the file for the error."""
        return typed_file(values, cls, where, "restore the file")

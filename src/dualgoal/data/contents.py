"""Which named arrays of a file, a group or a dictionary are taken, and which of its rows make an episode; one answer
for all of them.

A single table, with all episodes one after the other, must say where they end. Of several tables each is an episode,
or several if it says so itself.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NoReturn

import numpy as np

from dualgoal.data import checks, goals
from dualgoal.data.goals import GoalSpace
from dualgoal.data.tables import MemoryTable, Table
from dualgoal.errors import UserError, listed

ALIASES = {
    "observations": ("observations", "observation", "obs", "states", "state", "images", "pixels"),
    "actions": ("actions", "action", "acts", "act"),
    "terminals": ("terminals", "terminal", "dones", "done", "ends", "terminated", "terminations", "is_last"),
    "timeouts": ("timeouts", "timeout", "truncated", "truncations", "truncateds"),
    "episodes": ("episode_index", "episode_id", "episode_ids", "episodes", "episode"),
    "goals": ("goals",),
    "next_observations": ("next_observations", "next_observation", "next_obs", "next_states", "next_state"),
}
FAMILIES = (("observations", "observation", "obs"), ("states", "state"))  # names of the same thing
REQUIRED = ("observations", "actions")
ENDS = ("terminals", "timeouts", "episodes")  # any of them says where episodes end


@dataclass(frozen=True)
class Parts:
    """Which parts of the source to use: our names of arrays and those in the file (an empty one where none is to be
    taken), and the parts of observations and goals to join."""

    keys: dict[str, str] = field(default_factory=dict)
    observation: tuple[str, ...] = ()
    goal: tuple[str, ...] = ()

    @classmethod
    def choose(
        cls, keys: Mapping[str, str] | Sequence[str], observation: tuple[str, ...], space: GoalSpace | None
    ) -> "Parts":
        """The parts that a user's options describe, if no two of these say the same thing differently."""
        if not isinstance(keys, Mapping) and (wrong := [pair for pair in keys if "=" not in pair]):
            raise UserError(f"--key '{wrong[0]}' is not a pair; write it as observations=NAME")
        given = dict(keys) if isinstance(keys, Mapping) else dict(pair.split("=", 1) for pair in keys)
        if unknown := set(given) - set(ALIASES):
            raise UserError(f"no key is called '{sorted(unknown)[0]}' here; rename to one of {', '.join(ALIASES)}")
        for key in REQUIRED:
            if given.get(key) == "":
                raise UserError(f"--key {key}= names no array; write --key {key}=NAME")
        twice = "both say what {} are; give one of them"
        if (named := given.get("observations")) and observation:
            raise UserError(f"--key observations={named} and --observation-keys {twice.format('observations')}")
        if (named := given.get("goals")) and space is not None:
            raise UserError(f"--key goals={named} and --goal-{space.option} {twice.format('goals')}")
        return cls(given, observation, space.keys if space else ())

    @property
    def joined(self) -> dict[str, tuple[str, ...]]:
        """The arrays that are joined from several of the file, with their names there."""
        return {key: names for key, names in (("observations", self.observation), ("goals", self.goal)) if names}


Names = dict[str, tuple[str, ...]]  # for our name of an array those in the table, which are joined


class Contents(NamedTuple):
    """What is taken of a table: the names of arrays, and the rows of each episode, None for all rows."""

    names: Names
    spans: list[slice | None]


def look(table: Table, parts: Parts, alone: bool) -> Contents:
    """What is in a table; `alone` is the only one of its source."""
    return Recording(table, _choose(table, parts), alone).contents(parts)


# Names ----------------------------------------------------------------------------------------------------------------


def _choose(table: Table, parts: Parts) -> Names:
    """The arrays to take; optional ones that the table does not have are left out."""
    for key, name in parts.keys.items():
        if name and name not in table.members:
            raise UserError(f"{table.name}: no array '{name}' to use as {key} (it holds {listed(table.members)})")
    names = dict(parts.joined)
    for key in ALIASES:
        if key not in parts.joined:
            names[key] = (parts.keys[key],) if key in parts.keys else _look_up(table, key, names)
    for key, joined in parts.joined.items():
        goals.require_parts(table.name, key, table.members, joined)
    return {key: names[key] for key in ALIASES if any(names[key])}


def _look_up(table: Table, key: str, names: Names) -> tuple[str, ...]:
    """The names in the table of one of our arrays, of which the user says nothing."""
    by_lower = {name.lower(): name for name in table.members}
    if key == "next_observations":
        return _following(by_lower, names["observations"])
    found = _observations(table) if key == "observations" else [by_lower[a] for a in ALIASES[key] if a in by_lower][:1]
    if not found and key in REQUIRED:
        joining = ", or the parts to join: --observation-keys NAME NAME" if key == "observations" else ""
        raise UserError(
            f"{table.name}: no array looks like {key} (it holds {listed(table.members) or 'nothing'}); "
            f"name it: --key {key}=NAME{joining}"
        )
    return tuple(found)


def _observations(table: Table) -> list[str]:
    """The array of observations: the one called so, or else the only one that looks like it."""
    aliases = ALIASES["observations"]
    found = [name for name in table.members if name.lower().split("/")[0] in aliases]
    found = [name for name in found if table.members[name].shape] or found
    found = [name for name in found if table.members[name].dtype.kind in "bfiu"] or found
    exact = [name for name in found if name.lower() == "observations"]
    if exact or not found or (len(found) == 1 and found[0].lower() in aliases):
        return exact or found
    raise UserError(
        f"{table.name}: does not say which arrays are the observations (it holds {listed(found)}); choose one, or "
        "several to join: --observation-keys NAME NAME"
    )


def _following(by_lower: dict[str, str], observations: tuple[str, ...]) -> tuple[str, ...]:
    """The arrays with the observations after each action: `next_obs/joints` for `obs/joints`. For a single array a
    name of the same kind will do, and one of another kind if no array of the table has that kind of name."""
    chosen = [name.lower() for name in observations]
    named = [by_lower[f"next_{name}"] for name in chosen if f"next_{name}" in by_lower]
    if len(named) == len(chosen):
        return tuple(named)
    if len(chosen) > 1:
        return ()
    same = [family for family in FAMILIES if chosen[0] in family]
    free = [family for family in FAMILIES if not any(name in by_lower for name in family)]
    following = [f"next_{name}" for family in same + free for name in family]
    return tuple(by_lower[name] for name in following if name in by_lower)[:1]


# Ends -----------------------------------------------------------------------------------------------------------------


class Recording:
    """A table and the arrays that are taken of it, as far as is known; `alone` is the only table of its source."""

    def __init__(self, table: Table, names: Names, alone: bool):
        self.table, self.names, self.alone = table, names, alone
        self.in_memory = isinstance(table, MemoryTable)
        seen, done = (_rows(self._array(key)) for key in REQUIRED)
        self.lengths = seen, done  # of observations and of actions

    def contents(self, parts: Parts) -> Contents:
        """Leave aside what is not to be taken, and divide the rows into episodes."""
        seen, done = self.lengths
        if not self.alone and (seen != done or not done):
            self.names.pop("next_observations", None)  # an episode that has one observation more needs none
        self._require_following_fits()
        self._leave_aside(parts)
        arrays = {key: self._array(key) for key in self.names if key not in (*ENDS, *parts.joined)}
        arrays |= {name: self.table.members[name] for key in parts.joined for name in self.names[key]}
        self._require_marks(arrays)
        marked = {key: self._marked(key)[: min(self.lengths)] for key in self._marks}
        ends = self._ends(marked)
        if not self.alone and not ends[:-1].any():
            whole = (*REQUIRED, "next_observations") if "next_observations" in self.names else ()
            self._require_equal_rows({key: self._array(key) for key in whole})
            return Contents(self.names, [None])
        self._require_states_of_steps(marked, ends)
        self._require_equal_rows(arrays)
        ends[-1:] = True  # files often stop in the middle of an episode
        last = np.flatnonzero(ends)
        first = np.concatenate([[0], last[:-1] + 1])
        return Contents(self.names, [slice(int(a), int(b) + 1) for a, b in zip(first, last, strict=True)])

    def too_short(self, episode: str, row: int) -> checks.BadEpisode:
        """The error for an episode of a single row, with what made it one and what else that could mean."""
        marks, cures = self._marks, ["mark only the last row of each"]
        if self.in_memory:
            cures.append(self._without(marks))
        else:
            cures.append("name what numbers the episodes with --key episodes=NAME")
            if not self.alone:
                cures.append(f"if every file or group is one, take no notice: --key {' '.join(f'{k}=' for k in marks)}")
            elif len(marks) > 1:
                cures.append(f"take no notice of one of them, for instance --key {marks[0]}=")
        return checks.BadEpisode(
            f"{episode}: {self._quoted(marks)} make{'s' * (len(marks) == 1)} row {row} an episode of one row; two or "
            f"more are needed: {', or '.join(cures)}"
        )

    @property
    def _marks(self) -> list[str]:
        """What is taken that says where episodes end."""
        return [key for key in ENDS if key in self.names]

    def _array(self, key: str) -> Any:
        return self.table.members[self.names[key][0]]

    def _refuse(self, problem: str) -> NoReturn:
        raise UserError(f"{self.table.name}: {problem}")

    def _quoted(self, keys: Sequence[str]) -> str:
        return " and ".join(f"'{name}'" for key in keys for name in self.names[key])

    def _without(self, keys: Sequence[str], effect: str = "takes no notice of it") -> str:
        """What the user can do so that these arrays are not taken."""
        if self.in_memory:
            return f"leave {self._quoted(keys)} out of the dictionary"
        return f"--key {' '.join(f'{key}=' for key in keys)} {effect}"

    def _cure(self, key: str) -> str:
        """A mark that is wrong can be left out, but not where nothing else says where episodes end."""
        return "" if self.alone else f" ({self._without([key])})"

    def _require_following_fits(self) -> None:
        """Raise if the observations after the actions are of another kind than those before."""
        if "next_observations" not in self.names:
            return
        entries = lambda key: [(name, self.table.members[name]) for name in self.names[key]]
        taken = entries("next_observations"), entries("observations")
        after, before = ([(entry.shape[1:], entry.dtype == np.uint8) for _, entry in pairs] for pairs in taken)
        if after != before:
            rows = [" and ".join(f"'{name}' {e.dtype} {e.shape[1:]}" for name, e in pairs) for pairs in taken]
            cure = "name the array with --key next_observations=NAME, or take none with --key next_observations="
            if self.in_memory:
                cure = self._without(["next_observations"])
            self._refuse(f"rows of {rows[0]} cannot follow rows of {rows[1]}; {cure}")

    def _leave_aside(self, parts: Parts) -> None:
        """Take no notice of marks that say nothing about rows, unless the user names them: one number for a whole
        episode, or facts about the episodes of a file whose ends are marked."""
        unnamed = [key for key in self._marks if key not in parts.keys]
        for key in unnamed:
            if not self.alone and math.prod(self._array(key).shape) <= 1:
                del self.names[key]
        if parts.keys.get("episodes"):  # then these alone count
            self.names.pop("terminals", None)
            self.names.pop("timeouts", None)
        of_rows = [key for key in self._marks if _rows(self._array(key)) in self.lengths]
        if of_rows and "episodes" in unnamed and "episodes" not in of_rows:
            self.names.pop("episodes", None)

    def _require_marks(self, arrays: dict[str, Any]) -> None:
        """Raise if what marks ends is missing or not one per row. It is known from headers alone: what they claim may
        be more than there is memory for."""
        if self.alone and not self._marks:
            self._refuse(
                f"nothing says where episodes end (it holds {listed(self.table.members)}); name it: "
                "--key terminals=NAME for flags, --key episodes=NAME for the number of each row's episode, "
                "or save a file per episode"
            )
        odd = [key for key in self._marks if _rows(self._array(key)) not in self.lengths][:1]
        if odd and not self.alone:
            self._refuse(
                f"{self._quoted(odd)} has {_rows(self._array(odd[0]))} rows but {self._quoted(['actions'])} has "
                f"{self.lengths[1]}; it must have one per step ({self._without(odd)})"
            )
        for key in self._marks:
            self._require_flat(key)
        if self.alone:
            marks = {self.names[key][0]: self._array(key) for key in self._marks}
            cure = f" ({self._without(odd)})" if odd and len(marks) > 1 else ""
            self._require_equal_rows(marks, cure)
            self._require_equal_rows(arrays | marks, cure)

    def _require_flat(self, key: str) -> None:
        """Raise unless there is one number per row, or one flag."""
        shape, kind = self._array(key).shape, self._array(key).dtype
        flat = len(shape) == 1 or (len(shape) == 2 and shape[1] == 1)
        if key == "episodes" and not flat:
            self._refuse(f"numbers of episodes have shape {shape}; expected (T,){self._cure(key)}")
        if key != "episodes" and not (flat and kind.kind in "bfiu"):
            described = f"{self._quoted([key])} has shape {shape} and type {kind}"
            self._refuse(f"{described}; expected (T,) of 0 and 1{self._cure(key)}")

    def _require_equal_rows(self, arrays: dict[str, Any], cure: str = "") -> None:
        lengths = {key: _rows(array) for key, array in arrays.items()}
        if len(set(lengths.values())) > 1:
            counts = ", ".join(f"{key} {rows}" for key, rows in lengths.items())
            self._refuse(f"arrays of different lengths ({counts}); they must have one row per step{cure}")

    def _marked(self, key: str) -> np.ndarray:
        """Which rows `terminals` or `timeouts` mark, or after which the number of the episode changes."""
        name = self.names[key][0]
        values = np.asarray(self.table.column(name)[...]).reshape(-1)  # it may have an axis of one
        if key != "episodes":
            try:
                return checks.booleans(self.table.name, name, values)
            except UserError as problem:
                raise UserError(f"{problem}{self._cure(key)}") from None
        changes = np.append(values[1:] != values[:-1], True)[: len(values)]
        if len(values) > 1 and changes.all():
            cure = "" if self.in_memory else "name what does with --key episodes=NAME, or "
            cure += self._without([key])
            self._refuse(f"'{name}' changes in every row, so it does not number episodes; {cure}")
        return changes

    def _ends(self, marked: dict[str, np.ndarray]) -> np.ndarray:
        """Which rows are the last of an episode, by all that marks them together."""
        none = np.zeros(min(self.lengths), bool)
        flagged = np.logical_or.reduce([none, *(mark for key, mark in marked.items() if key != "episodes")])
        if not self.alone:
            flagged = _once_at_the_end(flagged)
        ends = flagged | marked.get("episodes", none)
        if self.alone and not ends.any():
            said = " and ".join(self.names[key][0] for key in marked)
            self._refuse(
                f"no row ends an episode ({said} are false everywhere); mark the last row of each, or name what tells "
                "episodes apart: --key terminals=NAME or --key episodes=NAME"
            )
        return ends

    def _require_states_of_steps(self, marked: dict[str, np.ndarray], ends: np.ndarray) -> None:
        """Raise if a table that ends in the middle has one observation more than actions: of which episode would it
        be?"""
        seen, done = self.lengths
        if seen == done + 1:
            row = int(np.argmax(ends))
            keys = [key for key, mark in marked.items() if mark[row]]
            self._refuse(
                f"{self._quoted(keys)} mark{'s' * (len(keys) == 1)} row {row}, but an episode with one observation "
                f"more than actions ends only in its last row; {self._without(keys, 'makes one episode of it')}"
            )


def _once_at_the_end(flags: np.ndarray) -> np.ndarray:
    """Flags that are true from some row to the last, as a success is that lasts, mark the last row alone."""
    lasting = flags.any() and flags[int(np.argmax(flags)) :].all()
    return np.arange(len(flags)) == len(flags) - 1 if lasting else flags


def _rows(array: Any) -> int:
    return int(array.shape[0]) if array.shape else 0

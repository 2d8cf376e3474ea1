"""Which named arrays of a file, a group or a dictionary are taken, and which of its rows make an episode; one answer
for all of them.

A single table, with all episodes one after the other, must say where they end. Of several tables each is an episode,
or several if it says so itself.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

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


class Contents(NamedTuple):
    """What is taken of a table: for our name of an array those in the table, which are joined; and the rows of each
    episode, None for all rows."""

    names: dict[str, tuple[str, ...]]
    spans: list[slice | None]


def look(table: Table, parts: Parts, alone: bool) -> Contents:
    """What is in a table; `alone` is the only one of its source."""
    names = _choose(table, parts)
    seen, done = _lengths(table, names)
    if not alone and (seen != done or not done):
        names.pop("next_observations", None)  # an episode that has one observation more needs none
    _require_following_fits(table, names)
    _leave_aside(table, names, parts, alone)
    arrays = {key: table.members[name] for key, (name, *more) in names.items() if key not in (*ENDS, *parts.joined)}
    arrays |= {name: table.members[name] for key in parts.joined for name in names[key]}
    _require_marks(table, names, arrays, alone)
    marked = _marked(table, names, alone)
    ends = _ends(table, names, marked, alone)
    if not alone and not ends[:-1].any():
        whole = ("observations", "actions", "next_observations") if "next_observations" in names else ()
        _equal_rows(table.name, {key: table.members[names[key][0]] for key in whole})
        return Contents(names, [None])
    _require_states_of_steps(table, names, marked, ends)
    _equal_rows(table.name, arrays)
    ends[-1:] = True  # files often stop in the middle of an episode
    last = np.flatnonzero(ends)
    first = np.concatenate([[0], last[:-1] + 1])
    return Contents(names, [slice(int(a), int(b) + 1) for a, b in zip(first, last, strict=True)])


def too_short(table: Table, contents: Contents, alone: bool, episode: str, row: int) -> checks.BadEpisode:
    """The error for an episode of a single row, with what made it one and what else that could mean."""
    marks = [key for key in ENDS if key in contents.names]
    said = _quoted(contents.names, marks)
    words = f"{episode}: {said} make{'s' * (len(marks) == 1)} row {row} an episode of one row; two or more are needed"
    if isinstance(table, MemoryTable):
        cure = _without(table, contents.names, marks)
        return checks.BadEpisode(f"{words}: mark only the last row of each, or {cure}")
    cures = ["mark only the last row of each", "name what numbers the episodes with --key episodes=NAME"]
    if not alone:
        cures.append(f"if every file or group is one, take no notice: --key {' '.join(f'{key}=' for key in marks)}")
    elif len(marks) > 1:
        cures.append(f"take no notice of one of them, for instance --key {marks[0]}=")
    return checks.BadEpisode(f"{words}: {', or '.join(cures)}")


# Names ----------------------------------------------------------------------------------------------------------------


def _choose(table: Table, parts: Parts) -> dict[str, tuple[str, ...]]:
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


def _look_up(table: Table, key: str, names: dict[str, tuple[str, ...]]) -> tuple[str, ...]:
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


def _require_following_fits(table: Table, names: dict[str, tuple[str, ...]]) -> None:
    """Raise if the observations after the actions are of another kind than those before."""
    if "next_observations" not in names:
        return
    before, after = ([table.members[name] for name in names[key]] for key in ("observations", "next_observations"))
    kinds = [[(entry.shape[1:], entry.dtype == np.uint8) for entry in entries] for entries in (before, after)]
    if kinds[0] != kinds[1]:
        described = [
            " and ".join(f"'{name}' {table.members[name].dtype} {table.members[name].shape[1:]}" for name in names[key])
            for key in ("next_observations", "observations")
        ]
        cure = "name the array with --key next_observations=NAME, or take none with --key next_observations="
        if isinstance(table, MemoryTable):
            cure = _without(table, names, ["next_observations"])
        raise UserError(f"{table.name}: rows of {described[0]} cannot follow rows of {described[1]}; {cure}")


# Ends -----------------------------------------------------------------------------------------------------------------


def _leave_aside(table: Table, names: dict[str, tuple[str, ...]], parts: Parts, alone: bool) -> None:
    """Take no notice of marks that say nothing about rows, unless the user names them: one number for a whole episode,
    or facts about the episodes of a file whose ends are marked."""
    unnamed = [key for key in ENDS if key in names and key not in parts.keys]
    for key in unnamed:
        if not alone and math.prod(table.members[names[key][0]].shape) <= 1:
            del names[key]
    if parts.keys.get("episodes"):  # then these alone count
        names.pop("terminals", None)
        names.pop("timeouts", None)
    of_rows = [key for key in ENDS if key in names and _rows(table.members[names[key][0]]) in _lengths(table, names)]
    if "episodes" in names and "episodes" in unnamed and "episodes" not in of_rows and of_rows:
        del names["episodes"]


def _require_marks(table: Table, names: dict[str, tuple[str, ...]], arrays: dict[str, Any], alone: bool) -> None:
    """Raise if what marks ends is missing or not one per row. It is known from headers alone: what they claim may be
    more than there is memory for."""
    marks = {names[key][0]: table.members[names[key][0]] for key in ENDS if key in names}
    if not alone:
        _require_steps(table, names, marks)
    elif not marks:
        raise UserError(
            f"{table.name}: nothing says where episodes end (it holds {listed(table.members)}); "
            "name it: --key terminals=NAME for flags, --key episodes=NAME for the number of each row's episode, "
            "or save a file per episode"
        )
    for key in ENDS:
        for name in names.get(key, ()):
            _require_flat(table, key, name, "" if alone else f" ({_without(table, names, [key])})")
    if alone:
        odd = [key for key in ENDS if key in names and _rows(marks[names[key][0]]) not in _lengths(table, names)]
        cure = f" ({_without(table, names, odd[:1])})" if odd and len(marks) > 1 else ""
        _equal_rows(table.name, marks, cure)
        _equal_rows(table.name, arrays | marks, cure)


def _require_flat(table: Table, key: str, name: str, cure: str) -> None:
    """Raise unless there is one number per row, or one flag."""
    shape, kind = table.members[name].shape, table.members[name].dtype
    flat = len(shape) == 1 or (len(shape) == 2 and shape[1] == 1)
    if key == "episodes" and not flat:
        raise UserError(f"{table.name}: numbers of episodes have shape {shape}; expected (T,){cure}")
    if key != "episodes" and not (flat and kind.kind in "bfiu"):
        raise UserError(f"{table.name}: '{name}' has shape {shape} and type {kind}; expected (T,) of 0 and 1{cure}")


def _require_steps(table: Table, names: dict[str, tuple[str, ...]], marks: dict[str, Any]) -> None:
    """Raise unless marks are of the rows with an observation and an action, or of one row more."""
    lengths = _lengths(table, names)
    for name, mark in marks.items():
        if _rows(mark) not in lengths:
            key = next(key for key in ENDS if name in names.get(key, ()))
            raise UserError(
                f"{table.name}: '{name}' has {_rows(mark)} rows but '{names['actions'][0]}' has {lengths[1]}; it must "
                f"have one per step ({_without(table, names, [key])})"
            )


def _marked(table: Table, names: dict[str, tuple[str, ...]], alone: bool) -> dict[str, np.ndarray]:
    """Which rows `terminals` and `timeouts` mark, and after which the number of the episode changes."""
    rows = min(_lengths(table, names))
    return {key: _read_mark(table, names, key, alone)[:rows] for key in ENDS if key in names}


def _read_mark(table: Table, names: dict[str, tuple[str, ...]], key: str, alone: bool) -> np.ndarray:
    mark = _flat(table, names[key][0])
    if key == "episodes":
        return _changes(table, names, mark)
    try:
        return checks.booleans(table.name, names[key][0], mark)
    except UserError as problem:
        raise UserError(f"{problem}{'' if alone else f' ({_without(table, names, [key])})'}") from None


def _ends(table: Table, names: dict[str, tuple[str, ...]], marked: dict[str, np.ndarray], alone: bool) -> np.ndarray:
    """Which rows are the last of an episode, by all that marks them together."""
    if not alone:
        none = np.zeros(min(_lengths(table, names)), bool)
        flagged = np.logical_or.reduce([none, *(mark for key, mark in marked.items() if key != "episodes")])
        return _once_at_the_end(flagged) | marked.get("episodes", none)
    ends = np.logical_or.reduce(list(marked.values()))
    if not ends.any():
        said = " and ".join(names[key][0] for key in marked)
        raise UserError(
            f"{table.name}: no row ends an episode ({said} are false everywhere); mark the last "
            "row of each, or name what tells episodes apart: --key terminals=NAME or --key episodes=NAME"
        )
    return ends


def _require_states_of_steps(
    table: Table, names: dict[str, tuple[str, ...]], marked: dict[str, np.ndarray], ends: np.ndarray
) -> None:
    """Raise if a table that ends in the middle has one observation more than actions: of which episode would it be?"""
    seen, done = _lengths(table, names)
    if seen == done + 1:
        row = int(np.argmax(ends))
        keys = [key for key, mark in marked.items() if mark[row]]
        raise UserError(
            f"{table.name}: {_quoted(names, keys)} mark{'s' * (len(keys) == 1)} row {row}, but an episode with one "
            "observation more than actions ends only in its last row; "
            f"{_without(table, names, keys, 'makes one episode of it')}"
        )


def _once_at_the_end(flags: np.ndarray) -> np.ndarray:
    """Flags that are true from some row to the last, as a success is that lasts, mark the last row alone."""
    lasting = flags.any() and flags[int(np.argmax(flags)) :].all()
    return np.arange(len(flags)) == len(flags) - 1 if lasting else flags


def _changes(table: Table, names: dict[str, tuple[str, ...]], numbers: np.ndarray) -> np.ndarray:
    """The last row of each stretch of one number, which is that of an episode."""
    changes = np.append(numbers[1:] != numbers[:-1], True)[: len(numbers)]
    if len(numbers) > 1 and changes.all():
        name = "" if isinstance(table, MemoryTable) else "name what does with --key episodes=NAME, or "
        raise UserError(
            f"{table.name}: '{names['episodes'][0]}' changes in every row, so it does not number episodes; "
            f"{name}{_without(table, names, ['episodes'])}"
        )
    return changes


def _quoted(names: dict[str, tuple[str, ...]], keys: Sequence[str]) -> str:
    return " and ".join(f"'{name}'" for key in keys for name in names[key])


def _without(
    table: Table, names: dict[str, tuple[str, ...]], keys: Sequence[str], effect: str = "takes no notice of it"
) -> str:
    """What the user can do so that these arrays are not taken."""
    if isinstance(table, MemoryTable):
        return f"leave {_quoted(names, keys)} out of the dictionary"
    return f"--key {' '.join(f'{key}=' for key in keys)} {effect}"


def _flat(table: Table, name: str) -> np.ndarray:
    """What marks each row, without an axis of one."""
    return np.asarray(table.column(name)[...]).reshape(-1)


def _lengths(table: Table, names: dict[str, tuple[str, ...]]) -> tuple[int, int]:
    """How many observations and how many actions there are."""
    seen, done = (_rows(table.members[names[key][0]]) for key in REQUIRED)
    return seen, done


def _rows(array: Any) -> int:
    return int(array.shape[0]) if array.shape else 0


def _equal_rows(name: str, arrays: dict[str, Any], cure: str = "") -> None:
    lengths = {key: _rows(array) for key, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        counts = ", ".join(f"{key} {rows}" for key, rows in lengths.items())
        raise UserError(f"{name}: arrays of different lengths ({counts}); they must have one row per step{cure}")

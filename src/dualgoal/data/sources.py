"""Episodes to import, from one npz or HDF5 file, from a folder of such files, or from memory.

Arrays are found by their usual names. Where a file stores `next_observations`, the state after an episode's last action
is taken from there.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np

from dualgoal.data import goals, hdf5
from dualgoal.data.checks import BadEpisode
from dualgoal.data.contents import ALIASES, ENDS, Contents, Parts, Recording, look
from dualgoal.data.origin import Origin, digest
from dualgoal.data.paths import natural_order
from dualgoal.data.tables import SUFFIXES, MemoryTable, Table, open_table
from dualgoal.errors import UserError, kind_of, listed, one_line
from dualgoal.files import sha256

EPISODE = ("observations", "actions", "goals")
IN_A_DICTIONARY = {alias for key in (*ENDS, "next_observations") for alias in ALIASES[key]}

Columns = dict[str, dict[str, Any]]  # for our name of an array the columns to join, by their names in the table


class Rows(NamedTuple):
    """One episode. Observations may have one row more than actions; goals only where they were recorded."""

    observations: np.ndarray
    actions: np.ndarray
    goals: np.ndarray | None = None


class Episode(NamedTuple):
    """An episode that is read when it is needed."""

    name: str  # in messages
    read: Callable[[], Rows]


class Source(NamedTuple):
    """Where episodes come from."""

    episodes: list[Episode]
    origin: Origin


def open_file(path: Path, parts: Parts) -> Source:
    """One npz or HDF5 file with all episodes one after the other, or an HDF5 file with a group for each."""
    tables = _open_tables(path, parts)
    origin = Origin(source="imported", imported_from=path.name, imported_sha256=sha256(path))
    return _source([path.name], lambda file: tables, parts, origin, alone=len(tables) == 1)


def open_folder(path: Path, parts: Parts) -> Source:
    """npz or HDF5 files, each with one episode or several, in the order of their names."""
    files = _files(path)
    origin = Origin(
        source="imported", imported_from=path.name, episode_files=len(files), imported_sha256=digest(path, files)
    )
    return _source([file.name for file in files], lambda file: _open_tables(files[file], parts), parts, origin)


def _files(folder: Path) -> list[Path]:
    """The files of recordings in a folder, all of one kind; hidden ones are the system's."""
    visible = [file for file in folder.iterdir() if not file.name.startswith(".") and not file.is_dir()]
    found = {kind: [f for f in visible if f.suffix.lower() in endings] for kind, endings in SUFFIXES.items()}
    first, *others = sorted((files for files in found.values() if files), key=len, reverse=True) or [[]]
    if others:
        counts = " and ".join(f"{len(files)} {kind}" for kind, files in found.items())
        raise UserError(f"{folder}: holds {counts} files; import one kind, from a folder of its own")
    if not first:
        raise UserError(f"{folder}: holds no npz or HDF5 file; expected one per episode, or with several episodes each")
    return sorted(first, key=lambda file: natural_order(file.name))


def _open_tables(path: Path, parts: Parts) -> Sequence[Table]:
    """A file as the table that it is, or an HDF5 file as the groups in it that are episodes."""
    table = open_table(path)
    if not isinstance(table, hdf5.Hdf5Table):
        return [table]
    given = parts.keys.get("actions")
    if given in table.members:
        return [table]
    groups = table.episodes((given.lower(),)) if given else []
    return groups or table.episodes(ALIASES["actions"]) or [table]


def from_memory(episodes: Sequence[Mapping[str, Any]], parts: Parts) -> Source:
    """Episodes as dictionaries with `observations` (an array, or a dictionary of parts), `actions`, perhaps `goals`.
    Where nobody names the parts to join, they are those of the first episode, in its order."""
    if not episodes:
        raise UserError("no episodes; give at least one with observations and actions")
    first = episodes[0].get("observations") if isinstance(episodes[0], Mapping) else None
    chosen = parts.observation or (tuple(first) if isinstance(first, Mapping) else ())
    names = [f"episode {k}" for k in range(len(episodes))]
    tables = lambda k: [_in_memory(names[k], episodes[k], chosen, parts.goal)]
    made = _source(names, tables, Parts(), Origin(source="memory"))
    return Source(made.episodes, replace(made.origin, observation_keys=chosen))


def _in_memory(name: str, episode: Mapping[str, Any], chosen: tuple[str, ...], goal: tuple[str, ...]) -> MemoryTable:
    """The arrays of a dictionary, with the chosen parts of dict observations joined."""
    wanted = "give a dictionary with arrays 'observations' and 'actions'"
    if not isinstance(episode, Mapping):
        raise UserError(f"{name}: is {kind_of(episode)}; {wanted}")
    with one_line(name, "not an episode", wanted):
        if missing := [key for key in ("observations", "actions") if key not in episode]:
            raise UserError(f"{name}: '{missing[0]}' is missing (it holds {listed(map(str, episode))})")
        arrays = {key: value for key, value in episode.items() if str(key).lower() in IN_A_DICTIONARY}
        arrays |= {key: episode[key] for key in EPISODE if key in episode}
        seen = episode["observations"]
        if goal and isinstance(seen, Mapping):
            arrays["goals"] = goals.join(name, "observations", seen, goal)
        for key in ("observations", "next_observations"):
            if isinstance(seen, Mapping) and isinstance(arrays.get(key), Mapping):
                arrays[key] = goals.join(name, key, arrays[key], chosen)
        return MemoryTable(name, {key: np.asarray(value) for key, value in arrays.items() if value is not None})


class _Found(NamedTuple):
    """A table of one of the places where episodes are recorded, and what is in it, or why it cannot be read."""

    name: str
    place: int
    number: int  # of the table in its place
    contents: Contents | str


class _Reader:
    """Opens places and reads episodes of their tables. The last place, and the columns of the last table, are kept:
    episodes are read in their order, so that each table is read once for all of its own."""

    def __init__(self, open_tables: Callable[[int], Sequence[Table]], alone: bool):
        self.tables = lru_cache(maxsize=1)(open_tables)
        self._alone = alone
        self._kept: dict[tuple[int, int], tuple[Table, Columns]] = {}

    def _columns(self, place: int, number: int, contents: Contents) -> tuple[Table, Columns]:
        if (place, number) not in self._kept:
            self._kept.clear()
            table = self.tables(place)[number]
            self._kept[place, number] = table, _columns(table, contents)
        return self._kept[place, number]

    def read(self, place: int, number: int, contents: Contents, span: slice | None, name: str) -> Rows:
        """The episode in these rows of a table, or in all."""
        try:
            table, columns = self._columns(place, number, contents)
            rows = _read_rows(table.name, columns, span)
        except UserError as problem:
            if self._alone:
                raise
            raise BadEpisode(str(problem)) from problem  # the episodes of other files may be sound
        if span is not None and len(rows.observations) == 1:
            raise Recording(table, contents.names, self._alone).too_short(name, span.start)
        return rows


def _source(
    names: Sequence[str],
    open_tables: Callable[[int], Sequence[Table]],
    parts: Parts,
    origin: Origin,
    *,
    alone: bool = False,
) -> Source:
    """All episodes of what was recorded in places of these names, in their order. A place may hold several tables, and
    a table, unless it is `alone`, is an episode or several. One that cannot be read counts as an episode, so that it
    can be left out; where that is so with all of them, nothing can be imported."""
    reader = _Reader(open_tables, alone)
    found = [table for place, name in enumerate(names) for table in _look(name, place, reader, parts, alone)]
    readable = [(table.name, table.contents) for table in found if isinstance(table.contents, Contents)]
    if not readable:
        raise UserError(str(found[0].contents))
    usual = _usual(readable)
    episodes: list[Episode] = []
    for table, place, number, contents in found:
        problem = contents if isinstance(contents, str) else _other_names(table, contents, *usual)
        if isinstance(contents, str) or problem:
            episodes.append(Episode(table, partial(_refuse, problem)))
            continue
        for span in contents.spans:
            row = "" if span is None else f"from row {span.start}"
            name = f"{table} (episode {len(episodes)}, {row})" if alone else ", ".join(filter(None, (table, row)))
            episodes.append(Episode(name, partial(reader.read, place, number, contents, span, name)))
    keys = _used(parts, [contents for table, contents in readable if not _other_names(table, contents, *usual)])
    return Source(episodes, replace(origin, keys=keys, observation_keys=parts.observation))


def _look(name: str, place: int, reader: _Reader, parts: Parts, alone: bool) -> Iterator[_Found]:
    """What is in each table of a place."""
    try:
        tables = reader.tables(place)
    except UserError as problem:
        yield _Found(name, place, 0, str(problem))
        return
    for number, table in enumerate(tables):
        try:
            yield _Found(table.name, place, number, look(table, parts, alone))
        except UserError as problem:
            yield _Found(table.name, place, number, str(problem))


def _refuse(problem: str) -> NoReturn:
    raise BadEpisode(problem)


def _names(contents: Contents) -> dict[str, str]:
    """How the arrays are called of which an episode consists, in small letters."""
    return {key: " and ".join(contents.names[key]).lower() for key in EPISODE if key in contents.names}


def _usual(found: Sequence[tuple[str, Contents]]) -> tuple[str, Contents]:
    """The first of those tables whose names of arrays most tables share."""
    names = [tuple(_names(contents).items()) for _, contents in found]
    return found[names.index(Counter(names).most_common(1)[0][0])]


def _other_names(table: str, contents: Contents, other: str, usual: Contents) -> str:
    """What is wrong if a table's arrays are called otherwise than in most: then they may be something else."""
    here, there = _names(contents), _names(usual)
    for key in EPISODE:
        if here.get(key, there.get(key)) != there.get(key, here.get(key)):
            return f"{table}: {key} are '{here[key]}', but '{there[key]}' in {other}; name them: --key {key}=NAME"
    return ""


def _used(parts: Parts, found: Sequence[Contents]) -> dict[str, str]:
    """Which arrays were taken, and those of which none is to be taken; joined ones are recorded as such."""
    used = {key: "" for key, name in parts.keys.items() if not name}
    for contents in found:
        for key, names in contents.names.items():
            used.setdefault(key, ", ".join(names))
    return {key: used[key] for key in ALIASES if key in used and key not in parts.joined}


def _columns(table: Table, contents: Contents) -> Columns:
    """The columns of all that is taken but marks of ends."""
    taken = {key: names for key, names in contents.names.items() if key not in ENDS}
    every = sorted({name for names in taken.values() for name in names})
    table.require_memory(every)
    columns = {name: table.column(name) for name in every}
    return {key: {name: columns[name] for name in names} for key, names in taken.items()}


def _read_rows(table: str, columns: Columns, span: slice | None) -> Rows:
    """One episode: these rows of the columns, or all, and the observation that follows the last action."""

    def read(key: str, rows: slice | None) -> np.ndarray:
        parts = {name: np.asarray(column[... if rows is None else rows]) for name, column in columns[key].items()}
        return goals.join(table, key, parts, tuple(parts))

    observations, actions = read("observations", span), read("actions", span)
    if "next_observations" in columns:
        end = len(actions) if span is None else span.stop
        observations = np.concatenate([observations, read("next_observations", slice(end - 1, end))])
    return Rows(observations, actions, read("goals", span) if "goals" in columns else None)

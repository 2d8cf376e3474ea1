"""Bringing your own data: npz, HDF5, folders of episodes, LeRobot and Minari datasets, into the files of section 2.1.

Every source becomes a list of episodes that are read one at a time, in which observations may have one row more than
actions (the state after the last action); the missing last action, which nothing ever uses, is zero. Every tenth
episode goes to the validation file. What was done (keys, scaling, digests) is recorded next to the result.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dualgoal import imports
from dualgoal.data import lerobot, minari, npz, origin, sources, tidy
from dualgoal.data.contents import Parts
from dualgoal.data.goals import GoalSpace, names
from dualgoal.data.origin import FileFacts
from dualgoal.data.paths import DatasetFiles
from dualgoal.data.sources import Episode, Rows, Source
from dualgoal.data.survey import Survey, one_by_one, survey_of
from dualgoal.errors import UserError, kind_of, listed, number_of, pairs, printable
from dualgoal.files import locked, make_folder, os_errors_in_one_line, remove_free_lock, replacing, sha256

VALIDATION_EVERY = 10
LARGEST_SIDE = 4096


@os_errors_in_one_line
def import_dataset(
    src: str | Path,
    out: str | Path,
    *,
    task: str | None = None,
    keys: Mapping[str, str] | Sequence[str] = (),
    observation_keys: Sequence[str] = (),
    scale_actions: bool = False,
    goal_dims: Sequence[int] = (),
    goal_keys: Sequence[str] = (),
    goal_function: str | None = None,
    image_size: Sequence[int] = (),
    standardize: bool = False,
    skip_episodes: Sequence[int] = (),
    quiet: bool = False,
) -> Path:
    """Write SRC as `TASK.npz` and `TASK-val.npz` in `out`; returns the training file.

    `src` is an npz file, an HDF5 file in D4RL's layout or with a group per episode, a folder of npz or HDF5 files
    with one episode or several each, a LeRobot v3 folder, or `minari:ID` (or a Minari folder). `keys` maps our names to
    those in the files where they are not found automatically (or lists pairs `ours=theirs`), and to an empty name where
    none is to be taken; `observation_keys` says which parts of dict observations, or which arrays, to join;
    `scale_actions` maps the range of each action coordinate onto [-1, 1]; `standardize` lets networks read each
    coordinate of observations and goals in units of its standard deviation; `image_size` is the height and width to
    which frames of a LeRobot folder are scaled; `skip_episodes` are the numbers of episodes to leave out, counted from
    0 in the order of the source.

    A goal is a whole observation unless the file has an array `goals`, or one of these says otherwise: `goal_dims`, the
    coordinates of an observation; `goal_keys`, parts of dict observations or arrays to join; `goal_function`, a
    function `module:name` from rows of observations to rows of goals.
    """
    space = GoalSpace.choose(goal_dims, goal_keys, goal_function)
    parts = Parts.choose(keys, names(observation_keys), space)
    source = _without(src, _with_goals(_open(src, parts, _checked_size(image_size)), space), skip_episodes)
    name = task or Path(str(src).removeprefix("minari:").rstrip("/")).stem.replace(" ", "-")
    files = DatasetFiles(Path(out).expanduser(), name)
    there = _there(source, files, scale_actions, standardize)
    if there == "whole":
        remove_free_lock(files.lock)
        _say(f"{files.train}: already there; nothing was done", quiet)
        return files.train
    if there != "outdated":
        _require_free(files)
    survey = survey_of(source, scale_actions, standardize, quiet)
    make_folder(files.folder)
    with locked(files.lock):
        if there == "outdated":
            files.train.unlink(missing_ok=True)  # its absence says that the others are not whole
        _require_free(files)
        _write(source, survey, files, quiet)
    for line in _choices(src, source, survey):
        _say(line, quiet)
    if there == "outdated":
        _say(f"{files.train}: made again, as the file of the goal function has changed", quiet)
    return files.train


def _say(line: str, quiet: bool) -> None:
    if not quiet:
        print(printable(line), file=sys.stderr)


def _choices(src: str | Path, source: Source, survey: Survey) -> Iterator[str]:
    """What an import has found and chosen, in lines to read."""
    found = source.origin
    files, episodes = found.episode_files, len(source.episodes) + len(found.skipped_episodes)
    if files and episodes > files:
        yield f"{src}: {number_of(files, 'file')}, {number_of(episodes, 'episode')}"
    space = found.goal_space
    joined = {"observations": found.observation_keys, "goals": space.keys if space else ()}
    taken = {key: " + ".join(names) for key, names in joined.items() if names} | found.keys
    if taken:
        yield f"{src}: taken: {pairs(taken)}"
    if survey.num_actions is not None:
        count = number_of(survey.num_actions, "discrete action")
        yield f"{src}: {count}, as actions are single whole numbers; save them as floats if they are quantities"
    if found.skipped_names:
        yield f"{src}: left out: {listed(found.skipped_names)}"


def _checked_size(size: Sequence[int]) -> tuple[int, int] | None:
    if not size:
        return None
    if len(size) != 2 or not all(1 <= n <= LARGEST_SIDE for n in size):
        raise UserError(
            f"--image-size {' '.join(map(str, size))}: expected height and width, each from 1 to {LARGEST_SIDE}"
        )
    return size[0], size[1]


def _there(source: Source, files: DatasetFiles, scaled: bool, standardized: bool) -> str:
    """Whether this very import is there already: "whole", "outdated" if the file of its goal function was another one,
    or "" if not; known for sources of which the digest is recorded."""
    if source.origin.imported_sha256 is None or not (files.train.is_file() and files.val.is_file()):
        return ""
    found = origin.read(files)
    space = source.origin.goal_space if found.goal_space is None else _goal_space(source, found.goal_space.shape)
    asked = replace(
        source.origin, task=files.name, files=found.files, goal_space=space, action_range=found.action_range,
        num_actions=found.num_actions, goal_function_sha256=found.goal_function_sha256,
        observation_standard=found.observation_standard, goal_standard=found.goal_standard,
    )  # fmt: skip
    digests = {file.name: sha256(file) for file in (files.train, files.val)}
    same = (
        found == asked
        and (found.action_range is not None) == scaled
        and (found.observation_standard is not None) == standardized
        and digests == {name: facts.sha256 for name, facts in found.files.items()}
    )
    if not same:
        return ""
    return "whole" if found.goal_function_sha256 == source.origin.goal_function_sha256 else "outdated"


def gather(
    episodes: Iterable[Mapping[str, Any]],
    space: GoalSpace | None,
    observation_keys: Sequence[str],
    scale_actions: bool,
    standardize: bool,
) -> tuple[dict[str, np.ndarray], origin.Origin]:
    """The arrays of a dataset from episodes in memory, and what is recorded about them; options as for an import."""
    if isinstance(episodes, Mapping) or not isinstance(episodes, Iterable):
        found = "a single dictionary" if isinstance(episodes, Mapping) else kind_of(episodes)
        raise UserError(f"episodes are {found}; give a list with a dictionary for each of them")
    parts = Parts({}, names(observation_keys), space.keys if space else ())
    source = _with_goals(sources.from_memory(list(episodes), parts), space)
    survey = survey_of(source, scale_actions, standardize, quiet=True)
    every = range(len(survey.rows))
    read = [_arrays(source, survey, k) for k in every]
    made = {
        key: np.concatenate([arrays[key] for arrays in read]).astype(kind) for key, (_, kind) in survey.kinds.items()
    }
    made["terminals"] = _ends(survey, every)
    return made, _origin(source, survey)


def _require_free(files: DatasetFiles) -> None:
    if files.train.exists():
        raise UserError(f"{files.train}: already there, and not from this import; choose another --out or --task")


def _open(src: str | Path, parts: Parts, image_size: tuple[int, int] | None) -> Source:
    path = Path(src).expanduser()
    if lerobot.is_lerobot(path):
        return lerobot.open_folder(path, parts, image_size)
    if image_size is not None:
        raise UserError(f"{src}: --image-size is for LeRobot's frames; scale other images before")
    if str(src).startswith("minari:") or (path / "data" / "metadata.json").is_file():
        return minari.open_minari(src, parts)
    return sources.open_folder(path, parts) if path.is_dir() else sources.open_file(path, parts)


def _with_goals(source: Source, space: GoalSpace | None) -> Source:
    """The same episodes with goals as the user's options describe them, which take the place of an array `goals`."""
    if space is None:
        return source

    def with_goals(name: str, read: Callable[[], Rows]) -> Rows:
        rows = read()
        made = rows.goals if space.keys else space.of(name, rows.observations)
        if made is None:
            raise UserError(f"{name}: observations have no parts; --goal-keys is for dict observations and arrays")
        return rows._replace(goals=made)

    episodes = [Episode(name, partial(with_goals, name, read)) for name, read in source.episodes]
    digest = imports.digest("goal function", space.function) if space.function else None
    keys = {key: name for key, name in source.origin.keys.items() if key != "goals"}
    return Source(episodes, replace(source.origin, keys=keys, goal_space=space, goal_function_sha256=digest))


def _without(src: str | Path, source: Source, skipped: Iterable[int]) -> Source:
    """The source without the episodes of these numbers, of which none is ever read; enough of them must be left."""
    count, numbers = len(source.episodes), set(skipped)
    if unknown := sorted(numbers.difference(range(count))):
        raise UserError(f"{src}: no episode {unknown[0]} to skip; it holds {count}, counted from 0")
    left = [episode for number, episode in enumerate(source.episodes) if number not in numbers]
    if len(left) < 2:
        skips = f", and --skip-episodes leaves {len(left) or 'none'}" if numbers else ""
        found = f"{number_of(count, 'episode')}{skips}"
        raise UserError(f"{src}: holds {found}; at least 2 are needed, as one is for validation")
    skipped = tuple(sorted(map(int, numbers)))
    left_out = tuple(source.episodes[number].name for number in skipped)
    return Source(left, replace(source.origin, skipped_episodes=skipped, skipped_names=left_out))


def _write(source: Source, survey: Survey, files: DatasetFiles, quiet: bool) -> None:
    """Write both files and the record. The training file gets its name last: its presence says that all is there."""
    count = len(survey.rows)
    held_out = set(range(VALIDATION_EVERY - 1, count, VALIDATION_EVERY)) or {count - 1}
    facts = {}
    with replacing(files.train) as unnamed:
        for file, written, held in ((files.val, files.val, True), (files.train, unnamed, False)):
            picked = [k for k in range(count) if (k in held_out) is held]
            _write_split(source, survey, picked, written, None if quiet else f"writing {file.name}")
            total = sum(survey.rows[k] for k in picked)
            facts[file.name] = FileFacts(episodes=len(picked), rows=total, sha256=sha256(written))
        origin.write(files, replace(_origin(source, survey), task=files.name, files=facts))


def _origin(source: Source, survey: Survey) -> origin.Origin:
    """Where the episodes come from, and what was found out about them."""
    shape = survey.kinds["goals"][0] if "goals" in survey.kinds else None
    return replace(
        source.origin, action_range=survey.scale, num_actions=survey.num_actions,
        goal_space=None if shape is None else _goal_space(source, shape),
        observation_standard=survey.standards.get("observations"), goal_standard=survey.standards.get("goals"),
    )  # fmt: skip


def _goal_space(source: Source, shape: tuple[int, ...]) -> GoalSpace:
    """The goal space that was asked for, or else that of the array of goals in the source."""
    given = source.origin.goal_space or GoalSpace(keys=(source.origin.keys.get("goals", "goals"),))
    return replace(given, shape=shape)


def _arrays(source: Source, survey: Survey, k: int) -> dict[str, np.ndarray]:
    """The arrays of episode `k`, with scaled actions; types are changed when they are written."""
    arrays = tidy.arrays(source.episodes[k].read())
    if survey.scale is not None:
        arrays["actions"] = survey.scale.scaled(arrays["actions"])
    return arrays


def _ends(survey: Survey, picked: Sequence[int]) -> np.ndarray:
    ends = np.zeros(sum(survey.rows[k] for k in picked), bool)
    ends[np.cumsum([survey.rows[k] for k in picked]) - 1] = True
    return ends


def _write_split(source: Source, survey: Survey, picked: list[int], file: Path, title: str | None) -> None:
    """One file. Each episode is read once, and again only for goals that are images, which memory might not hold."""
    ends = _ends(survey, picked)
    kept: dict[str, list[np.ndarray]] = {
        key: [] for key, (_, kind) in survey.kinds.items() if key != "observations" and kind != np.uint8
    }

    def observations() -> Iterator[np.ndarray]:
        for k in one_by_one(picked, title or "", title is None):
            arrays = _arrays(source, survey, k)
            for key, parts in kept.items():
                parts.append(arrays[key])
            yield arrays["observations"]

    with npz.writing(file) as out:
        for key, (shape, kind) in survey.kinds.items():
            again = kept[key] if key in kept else (_arrays(source, survey, k)[key] for k in picked)
            out.add(key, (len(ends), *shape), kind, observations() if key == "observations" else again)
        out.add("terminals", ends.shape, ends.dtype, [ends])

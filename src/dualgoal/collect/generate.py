"""Generating a dataset: episodes of the scripted behaviours, collected by several processes, resumable (section 9).

Episode k of a split is a function of (task, seed, split, k) alone, so any number of workers gives the same bytes and an
interrupted generation continues where it stopped: each finished episode is one small file in a hidden folder. A thread
joins them in order into the two npz files while others are still being collected; when all are there, the files are put
into place, with a JSON file that records how they were made.
"""

import functools
import json
import math
import os
import shutil
import time
import typing
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict
from importlib import metadata
from pathlib import Path

import numpy as np

from dualgoal import jsons, machine
from dualgoal.collect import behaviours, experts
from dualgoal.data import npz, origin
from dualgoal.data.origin import FileFacts, Item, Origin, Plan
from dualgoal.data.paths import SPLITS, DatasetFiles
from dualgoal.envs import ogbench, own_maze
from dualgoal.envs.own_maze import MazeMap
from dualgoal.envs.tasks import TASKS, family, is_oracle, is_pixels, plain
from dualgoal.envs.versions import QUICK, Quality, simulators
from dualgoal.errors import UserError, check_range
from dualgoal.files import (
    locked,
    make_folder,
    move_into_place,
    os_errors_in_one_line,
    remove_free_lock,
    sha256,
)
from dualgoal.progress import Rate, bar, counted
from dualgoal.workers import Pool

DEFAULT_ROWS = 1001
CPU_MS = "cpu_ms"  # what an episode took, kept with its counts until it is joined

Experts = Mapping[str, experts.Expert]


@os_errors_in_one_line
def generate_dataset(
    task: str,
    episodes: int,
    out: str | Path,
    seed: int = 0,
    workers: int | None = None,
    *,
    rows: int | None = None,
    quality: Quality = QUICK,
    expert: str | Path | Sequence[Path] | Experts | None = None,
    with_visual: bool = False,
    maze: str | Path | None = None,
    quiet: bool = False,
) -> Path:
    """Make `episodes` training and a tenth as many validation episodes in folder `out`; returns the training file.

    Calling it again after an interruption resumes; after completion it does nothing. A second process with the same
    target waits for the first. `rows` is the stored length of an episode (default: the official one). Families that
    need an expert use the one that comes with the package unless `expert` is given: files, or callables by skill.
    `with_visual` makes the image version of a task of states as well, in the same simulation: row k of one is row k of
    the other. `maze` is a text file with a maze of one's own, of which `task` is the name then.
    """
    if is_oracle(task) and is_pixels(task):
        raise UserError(f"'{task}': there are no oracle goals for images; give {plain(task)}")
    task = plain(task)
    own = None if maze is None else own_maze.read(Path(maze))
    plan = lambda name: _plan(name, episodes, seed, rows, quality, expert, own)
    if with_visual:
        visual = f"visual-{task}"
        if is_pixels(task):
            raise UserError(f"'{task}' is the version with images; give {task.removeprefix('visual-')} to make both")
        if not ogbench.exists(visual):
            raise UserError(f"'{task}' has no version with images; give a task such as cube-single-play-v0")
        states, _ = plan(task)
        here = DatasetFiles(Path(out).expanduser(), task)
        _complete(states, here, here.folder / f".{task}.parts")  # files in the way are told before hours of rendering
        _make(*plan(visual), Path(out), workers, quiet, states)
    return _make(*plan(task), Path(out), workers, quiet)


def _make(plan: Plan, skills: Experts, out: Path, workers: int | None, quiet: bool, states: Plan | None = None) -> Path:
    """The dataset of a plan, unless it is there; if it is made, also that of the plan `states`, of the same rows."""
    files = DatasetFiles(out.expanduser(), plan.task)
    check_range("workers", workers, 1)
    parts = files.folder / f".{plan.task}.parts"
    if files.train.exists() and not parts.exists() and _complete(plan, files, parts):
        remove_free_lock(files.lock)
        return files.train  # without a lock: the folder may be read-only
    make_folder(files.folder)
    with locked(files.lock, wait=True):
        if not _complete(plan, files, parts):
            there: dict[Item, Future[None]] = {item: Future() for item in plan.items}  # done when it is on disk
            with ThreadPoolExecutor(1) as beside:
                joined = beside.submit(_join, plan, parts, files, lambda item: there[item].result())

                def arrived(*items: Item) -> None:
                    for item in items:
                        there[item].set_result(None)
                    if joined.done():  # before all are there only if it failed, which is told now
                        joined.result()

                try:
                    _generate(plan, skills, parts, workers or machine.cores(), quiet, arrived)
                finally:
                    for future in there.values():
                        future.cancel()  # nobody waits for what will not come
                if states is not None:
                    _join_states(states, parts, DatasetFiles(files.folder, states.task))
                _put_into_place(parts, files, joined.result())
        shutil.rmtree(parts, ignore_errors=True)
    return files.train


def _generate(
    plan: Plan, skills: Experts, parts: Path, workers: int, quiet: bool, arrived: Callable[..., None]
) -> None:
    """Collect all episodes that are not in the folder `parts` yet, and call `arrived` with each that is."""
    done = _resume(plan, parts)
    arrived(*done)
    pending = [item for item in plan.items if item not in done]
    workers = max(1, min(workers, len(pending)))
    collect, total = _EpisodeWriter(plan, skills, parts), len(plan.items)
    columns = counted("episodes", Rate("rows", plan.rows))
    with ExitStack() as stack:
        update = stack.enter_context(bar(plan.task, *columns, total=total, done=len(done), quiet=quiet))
        collected: Iterable[Item] = map(collect, pending)
        if workers > 1:
            pool = stack.enter_context(Pool(collect, workers, needs_script=_defined_in_script(skills)))
            collected = pool.each(pending)
        for number, item in enumerate(collected, len(done) + 1):
            arrived(item)
            update(number, total)


def _plan(
    task: str, episodes: int, seed: int, rows: int | None, quality: Quality,
    expert: str | Path | Sequence[Path] | Experts | None, own: MazeMap | None,
) -> tuple[Plan, Experts]:  # fmt: skip
    known = TASKS.get(task)
    if rows is None:
        rows = known.rows_per_episode if known else DEFAULT_ROWS
    for name, value, least in (("episodes", episodes, 1), ("rows", rows, 2), ("seed", seed, 0)):
        check_range(name, value, least, math.inf)
    ogbench.check(task, own)
    pixels = is_pixels(task)
    skills, policy = _experts(task, expert)
    behaviours.check(task, skills, own)
    plan = Plan(
        task, seed, episodes, rows, quality.shadow_size if pixels else None,
        os.environ.get("MUJOCO_GL") if pixels else None, policy,
        {**simulators(), "dualgoal": metadata.version("dualgoal"), "numpy": np.__version__}, own,
        quality.mesh_cell if pixels else None,
    )  # fmt: skip
    return plan, skills


def _experts(task: str, expert: str | Path | Sequence[Path] | Experts | None) -> tuple[Experts, str | None]:
    """The experts by skill, and what is recorded about them."""
    needed = experts.skills(family(task))
    if not needed:
        if expert:
            raise UserError(f"'{task}' is collected without a walking policy; leave --expert out")
        return {}, None
    if isinstance(expert, Mapping):
        names = (f"{skill}: {getattr(f, '__qualname__', type(f).__name__)}" for skill, f in expert.items())
        return expert, ", ".join(names)
    given = [Path(expert)] if isinstance(expert, str | Path) else list(expert or ())
    files = [(s, experts.holding(given, s.name) if given else experts.shipped(s.body)) for s in needed]
    there = [(skill, file) for skill, file in files if file is not None]
    found = {skill.name: experts.load(file, skill.name, skill.sizes) for skill, file in there}
    return found, ", ".join(dict.fromkeys(sha256(file) for _, file in there)) or None


def _defined_in_script(skills: Experts) -> bool:
    return any("__main__" in (getattr(f, "__module__", ""), type(f).__module__) for f in skills.values())


def _complete(plan: Plan, files: DatasetFiles, parts: Path) -> bool:
    """Whether this very dataset is there already; anything else under its names is not ours to replace."""
    paths = [files.train, files.val, files.origin]
    if not any(path.exists() for path in paths) or (not files.train.exists() and _read_plan(parts) == plan):
        return False
    if all(path.exists() for path in paths) and origin.read(files).plan == plan:
        return True
    raise UserError(
        f"{files.train}: already there, made in another way (episodes, seed, versions, ...); "
        f"remove it together with {files.val.name} and {files.origin.name}, or choose another folder"
    )


def _read_plan(parts: Path) -> Plan | None:
    """The plan of an unfinished generation."""
    path = parts / "plan.json"
    return jsons.read_as(Plan, path, "remove that folder") if path.is_file() else None


def _resume(plan: Plan, parts: Path) -> set[Item]:
    """Episodes already collected for this plan; a damaged one is collected again."""
    unfinished = _read_plan(parts)
    if unfinished is None:
        shutil.rmtree(parts, ignore_errors=True)  # without its plan nothing in there can be trusted
        make_folder(parts)
        jsons.write(parts / "plan.json", asdict(plan))
    elif unfinished != plan:
        raise UserError(f"{parts}: an unfinished generation with other settings; finish it, or remove that folder")
    done = set()
    for item in plan.items:
        path = _part(parts, item)
        if path.is_file():
            try:
                with npz.Archive(path):
                    done.add(item)
            except UserError:
                path.unlink()
    return done


def _part(parts: Path, item: Item) -> Path:
    return parts / f"{item[0]}-{item[1]:06d}.npz"


class _EpisodeWriter:
    """Collects episodes, each written whole or not at all. Its environment is made at the first one."""

    def __init__(self, plan: Plan, skills: Experts, parts: Path):
        self.plan, self.skills, self.parts = plan, skills, parts

    def __call__(self, item: Item) -> Item:
        began = time.process_time()
        episode, counts = self._play(self.plan.generator(*item), self.plan.rows)
        packed = {}
        if is_pixels(self.plan.task):  # the many bytes of images are compressed here, in parallel; the rest at the end
            packed = {"packed": npz.packed(episode["observations"])}
        spent = {CPU_MS: round(1000 * (time.process_time() - began))}
        extra = {"counts": json.dumps(counts | spent, sort_keys=True).encode(), **packed}
        arrays = {key: np.frombuffer(content, np.uint8) for key, content in extra.items()}
        npz.save(_part(self.parts, item), {**episode, **arrays}, level=0)
        return item

    @functools.cached_property
    def _play(self) -> behaviours.Collector:
        return behaviours.make(self.plan.task, self.plan.quality, self.skills, self.plan.maze)


def _join_states(plan: Plan, parts: Path, files: DatasetFiles) -> None:
    """The dataset of states from episodes of images. Both draw and simulate the same, so these are the very bytes that
    making it alone would give."""
    with locked(files.lock, wait=True):
        if not _complete(plan, files, parts):
            _put_into_place(parts, files, _join(plan, parts, files))


def _join(plan: Plan, parts: Path, files: DatasetFiles, wait_for: Callable[[Item], None] = lambda item: None) -> Origin:
    """Stream the episodes into the two files, which stay in the folder `parts`, and return what is to be recorded."""
    facts, counts = {}, Counter[str]()
    for split in SPLITS:
        target, picked = parts / files.split(split).name, [item for item in plan.items if item[0] == split]
        digests = _join_split(plan, parts, picked, target, wait_for)
        facts[target.name] = FileFacts(
            episodes=len(picked), rows=plan.rows * len(picked), sha256=sha256(target), arrays=digests
        )
        for item in picked:
            with npz.Archive(_part(parts, item)) as part:
                counts.update(_counts(part))
    spent = counts.pop(CPU_MS, 0)  # not there in episodes that an older version collected
    return Origin(
        task=plan.task, source="generated", collector=_collector_name(plan.task), seed=plan.seed,
        versions=plan.versions, shadow_size=plan.shadow_size, mesh_cell=plan.mesh_cell,
        cpu_seconds=spent / 1000 or None, maze=plan.maze,
        counts={"episodes": len(plan.items), **dict(sorted(counts.items()))}, files=facts, plan=plan,
    )  # fmt: skip


def _put_into_place(parts: Path, files: DatasetFiles, record: Origin) -> None:
    """The training file, put there last, says 'done'."""
    move_into_place(parts / files.val.name, files.val)
    origin.write(files, record)
    move_into_place(parts / files.train.name, files.train)


def _counts(part: npz.Archive) -> dict[str, int]:
    """What was counted in one episode, by name."""
    where = f"{part.path}: 'counts'"
    content = part.read("counts", limit=jsons.LINE_LIMIT).tobytes()
    return typing.cast(dict[str, int], jsons.typed(jsons.decode(content, where), dict[str, int], where))


def _join_split(
    plan: Plan, parts: Path, picked: list[Item], file: Path, wait_for: Callable[[Item], None]
) -> dict[str, str]:
    wait_for(picked[0])
    with npz.Archive(_part(parts, picked[0])) as first:
        members = {key: m for key, m in first.members.items() if key not in ("counts", "packed", "states")}
        if not is_pixels(plan.task):  # perhaps from episodes of images
            members["observations"] = first.members.get("states", members["observations"])

    def rows_of(*keys: str) -> Iterator[tuple[np.ndarray, ...]]:
        for item in picked:
            wait_for(item)
            with npz.Archive(_part(parts, item)) as part:
                yield tuple(part.read(key) for key in keys)

    digests = {}
    with npz.writing(file) as out:
        for key, m in members.items():
            shape = (plan.rows * len(picked), *m.shape[1:])
            if key == "observations" and is_pixels(plan.task):
                pieces = ((rows, content.tobytes()) for rows, content in rows_of(key, "packed"))
                digests[key] = out.add_packed(key, shape, m.dtype, pieces)
            else:
                digests[key] = out.add(key, shape, m.dtype, (rows for (rows,) in rows_of(m.key)))
    return digests


def _collector_name(task: str) -> str:
    if experts.skills(family(task)):
        return "route + expert"
    return "direction oracle" if family(task) == "pointmaze" else "plan oracle"

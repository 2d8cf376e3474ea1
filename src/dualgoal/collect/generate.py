"""Making a dataset here: episodes from the scripted collectors, by several processes, resumable (section 9).

Episode k of a split is a function of (task, seed, split, k) alone, so any number of workers gives the same bytes and an
interrupted generation continues where it stopped: each finished episode is one small file in a hidden folder, and when
all are there they are joined into `TASK.npz` and `TASK-val.npz` with a JSON that records how they were made.
"""

import functools
import importlib.metadata
import json
import os
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dualgoal import workers as crew
from dualgoal.collect import behaviours, experts
from dualgoal.data import npz
from dualgoal.data.dataset import OFFICIAL_SHADOW_SIZE, read_record, record_path, simulators
from dualgoal.envs import ogbench
from dualgoal.errors import UserError

SHADOW_SIZE = 512  # of images made here: three times faster on a GPU than 4096, and 0.05 of 255 different per pixel
DEFAULT_ROWS = 1001
SPLITS = ("train", "val")

Experts = Mapping[str, experts.Expert]


@dataclass(frozen=True)
class Plan:
    """Everything that decides the bytes of a generated dataset."""

    task: str
    seed: int
    episodes: int  # of training data
    rows: int  # per episode
    shadow_size: int | None  # None for states
    renderer: str | None
    expert: str | None  # SHA-256 of the file, or the name of a function
    versions: dict[str, str]

    @property
    def items(self) -> list[tuple[str, int]]:
        """All episodes, training first."""
        counts = {"train": self.episodes, "val": max(1, self.episodes // 10)}
        return [(split, k) for split in SPLITS for k in range(counts[split])]

    def generator(self, split: str, episode: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, SPLITS.index(split), episode])


def generate(
    task: str,
    episodes: int,
    out: str | Path,
    seed: int = 0,
    workers: int | None = None,
    progress: bool = True,
    *,
    rows: int | None = None,
    shadow_size: int | None = SHADOW_SIZE,
    expert: str | Path | Experts | None = None,
) -> Path:
    """Make `episodes` training and a tenth as many validation episodes in folder `out`; returns the training file.

    Calling it again after an interruption resumes; after completion it does nothing. `rows` is the stored length of an
    episode (default: the official one); `expert` is a file, or callables by skill, for the families that need one.
    """
    folder = Path(out).expanduser()
    plan, skills = _plan(task, episodes, seed, rows, shadow_size, expert)
    target, parts = folder / f"{task}.npz", folder / f".{task}.parts"
    if _complete(plan, target, parts):
        shutil.rmtree(parts, ignore_errors=True)
        return target
    done = _resume(plan, parts)
    pending = [item for item in plan.items if item not in done]
    workers = _workers(workers, len(pending))
    with _bar(plan, progress, len(done)) as advance:
        work = functools.partial(_collect, plan, skills, parts)
        if workers > 1:
            crew.run(work, [pending[w::workers] for w in range(workers)], advance, _defined_in_script(skills))
        else:
            work(pending, advance)
    _join(plan, parts, target)
    shutil.rmtree(parts)
    return target


def _plan(
    task: str, episodes: int, seed: int, rows: int | None, shadow_size: int | None, expert: str | Path | Experts | None
) -> tuple[Plan, Experts]:
    from dualgoal.envs.tasks import TASKS

    known = TASKS.get(task)
    rows = rows or (known.rows_per_episode if known else DEFAULT_ROWS)
    for name, value, least in (("episodes", episodes, 1), ("rows", rows, 2), ("seed", seed, 0)):
        if value < least:
            raise UserError(f"'{task}': {name} is {value}; it must be at least {least}")
    ogbench.check(task)
    pixels = ogbench.is_pixels(task)
    skills, policy = _experts(task, expert)
    behaviours.check(task, skills)
    plan = Plan(
        task, seed, episodes, rows, (shadow_size or OFFICIAL_SHADOW_SIZE) if pixels else None,
        os.environ.get("MUJOCO_GL") if pixels else None, policy,
        {**simulators(), "dualgoal": importlib.metadata.version("dualgoal"), "numpy": np.__version__},
    )  # fmt: skip
    return plan, skills


def _experts(task: str, expert: str | Path | Experts | None) -> tuple[Experts, str | None]:
    needed = behaviours.skills(task)
    if expert is None or not needed:
        return {}, None
    if isinstance(expert, str | Path):
        file = Path(expert).expanduser()
        return experts.load(file, needed), npz.sha256(file)
    return expert, ", ".join(f"{skill}: {getattr(f, '__qualname__', type(f).__name__)}" for skill, f in expert.items())


def _defined_in_script(skills: Experts) -> bool:
    return any("__main__" in (getattr(f, "__module__", ""), type(f).__module__) for f in skills.values())


def _workers(asked: int | None, pending: int) -> int:
    if asked is not None and asked < 1:
        raise UserError(f"workers is {asked}; it must be at least 1")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(asked or cores, pending))


def _complete(plan: Plan, target: Path, parts: Path) -> bool:
    """Whether this very dataset is there already; anything else under its names is the user's, not ours to replace."""
    names = [target, _val(target), record_path(target)]
    if not any(path.exists() for path in names) or (_same(plan, parts) and not target.exists()):
        return False
    if all(path.exists() for path in names) and read_record(target).get("plan") == asdict(plan):
        return True
    raise UserError(
        f"{target}: already there, made in another way (episodes, seed, versions, ...); "
        "remove it with its -val.npz and .json, or choose another folder"
    )


def _val(target: Path) -> Path:
    return target.with_name(f"{target.stem}-val.npz")


def _same(plan: Plan, parts: Path) -> bool:
    note = parts / "plan.json"
    return note.is_file() and json.loads(note.read_text()) == asdict(plan)


def _resume(plan: Plan, parts: Path) -> set[tuple[str, int]]:
    """Episodes already collected for this plan; a damaged one is collected again."""
    if not _same(plan, parts):
        if (parts / "plan.json").is_file():
            raise UserError(f"{parts}: an unfinished generation with other settings; finish it, or remove that folder")
        shutil.rmtree(parts, ignore_errors=True)  # without its plan nothing in there can be trusted
        parts.mkdir(parents=True)
        _write_text(parts / "plan.json", json.dumps(asdict(plan), indent=1))
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


def _part(parts: Path, item: tuple[str, int]) -> Path:
    return parts / f"{item[0]}-{item[1]:06d}.npz"


def _write_text(path: Path, text: str) -> None:
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, path)


def _collect(plan: Plan, skills: Experts, parts: Path, items: list[tuple[str, int]], advance: crew.Report) -> None:
    """Collect episodes in this process, each written whole or not at all."""
    if not items:
        return
    collect = behaviours.make(plan.task, plan.shadow_size, skills)
    for item in items:
        episode, counts = collect(plan.generator(*item), plan.rows)
        note = np.frombuffer(json.dumps(counts, sort_keys=True).encode(), np.uint8)
        npz.save(_part(parts, item), {**episode, "counts": note}, level=0)  # joined and compressed at the end
        advance(plan.rows)


def _join(plan: Plan, parts: Path, target: Path) -> None:
    """Stream the episodes into the two files and write the record; the training file, put there last, says 'done'."""
    files, counts = {}, Counter[str]()
    for split, name in zip(SPLITS, (target.name, _val(target).name), strict=True):
        items = [item for item in plan.items if item[0] == split]
        digests = _join_split(plan, parts, items, parts / name)
        files[name] = {
            "episodes": len(items), "rows": plan.rows * len(items), "sha256": npz.sha256(parts / name),
            "arrays": digests,
        }  # fmt: skip
        for item in items:
            with npz.Archive(_part(parts, item)) as part:
                counts.update(json.loads(part.read("counts").tobytes()))
    record = {
        "task": plan.task, "source": "generated", "collector": _collector_name(plan.task), "seed": plan.seed,
        "versions": plan.versions, **({"shadow_size": plan.shadow_size} if plan.shadow_size else {}),
        "counts": {"episodes": len(plan.items), **dict(sorted(counts.items()))}, "files": files, "plan": asdict(plan),
    }  # fmt: skip
    os.replace(parts / _val(target).name, _val(target))
    _write_text(record_path(target), json.dumps(record, indent=1) + "\n")
    os.replace(parts / target.name, target)


def _join_split(plan: Plan, parts: Path, items: list[tuple[str, int]], file: Path) -> dict[str, str]:
    with npz.Archive(_part(parts, items[0])) as first:
        members = {key: m for key, m in first.members.items() if key != "counts"}
    level = 1 if ogbench.is_pixels(plan.task) else 6  # images are large and hardly shrink further

    def rows_of(key: str) -> Iterator[np.ndarray]:
        for item in items:
            with npz.Archive(_part(parts, item)) as part:
                yield part.read(key)

    with npz.Writer(file, level) as out:
        return {
            key: out.add(key, (plan.rows * len(items), *m.shape[1:]), m.dtype, rows_of(key))
            for key, m in members.items()
        }


def _collector_name(task: str) -> str:
    if behaviours.skills(task):
        return "route + expert"
    return "direction oracle" if ogbench.family(task) == "pointmaze" else "plan oracle"


class _bar:
    """A progress bar of episodes, rows per second and time left; entered, it is a function to call per episode."""

    def __init__(self, plan: Plan, show: bool, done: int):
        self.plan, self.show, self.done = plan, show, done

    def __enter__(self) -> crew.Report:
        if not self.show:
            return lambda rows: None
        from rich import progress as p

        self.progress: Any = p.Progress(
            p.TextColumn("{task.description}"), p.BarColumn(), p.MofNCompleteColumn(), p.TextColumn("episodes"),
            p.TextColumn("{task.fields[rate]}"), p.TimeRemainingColumn(),
        )  # fmt: skip
        self.progress.start()
        bar = self.progress.add_task(self.plan.task, total=len(self.plan.items), completed=self.done, rate="")

        def advance(rows: int) -> None:
            self.progress.advance(bar)
            speed = self.progress.tasks[0].speed
            self.progress.update(bar, rate=f"{speed * rows:,.0f} rows/s" if speed else "")

        return advance

    def __exit__(self, *_: object) -> None:
        if self.show:
            self.progress.stop()

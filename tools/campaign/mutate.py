"""Damaged files of every kind that the program reads, and everything that reads them."""

import contextlib
import copy
import hashlib
import io
import json
import os
import random
import resource
import shutil
import signal
import warnings
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from campaign import Outcome

import run_files
import tiny
from dualgoal.collect import experts, generate
from dualgoal.data import dataset, download, importing, info, npz, origin
from dualgoal.data.paths import DatasetFiles
from dualgoal.errors import UserError
from dualgoal.paper import pairwise, reproduce, results_page, row_files, settings
from dualgoal.report import distances, page, reader
from dualgoal.runs import checkpoint, config, directory, measured, policy

LONGEST = 20  # seconds
MEMORY = 1 << 30  # bytes that reading a damaged file may take more than ever before
TABLE, CELL = "state_gcivl", {"tasks": ["cube-single-play-v0"], "reps": ["orig"], "seeds": [0], "steps": 10}

DEEP = "DEEP"  # replaced by text that no Python value can stand for
RAW = {
    DEEP: "[" * 3000 + "]" * 3000,
    "DEEPER": "[" * 100_000,
    "NAN": "NaN",
    "MINUS": "-Infinity",
    "LARGE": "1e999",
    "DIGITS": "9" * 5000,
    "NUL": '"\\u0000"',
    "HALF": '"\\ud800"',
    "TWICE": '{"a": 1, "a": 2}',
    "BYTE": '"\udcff"',
}
VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 2**31, 2**53 + 1, 2**63, -(2**63), 0.5, -0.0, 1e308, 5e-324, "", "x", "²", "\r",
    "\u2028", "[/red]", "\x1b[2J", "<script>", "../../etc/passwd", "/dev/zero", "a" * 100_000, [], {}, [[]],
    [1, "a", None], {"name": "dual"}, {"name": "os:system"}, [0] * 1000, *RAW,
]  # fmt: skip


@dataclass
class Place:
    """Good files in a folder, and which of them is damaged. `seal` makes digests right again after the damage."""

    name: str
    file: Path
    uses: list[Callable[[], Any]]
    kind: str = "json"  # or "rows", "binary", "npz"
    seal: Callable[[], None] = lambda: None
    same: Callable[[Any], bool] | None = None  # whether the result of the first use is what it was


# Damage ---------------------------------------------------------------------------------------------------------------


def damaged_json(content: bytes, rng: random.Random) -> tuple[bytes, str]:
    value = json.loads(content)
    paths = list(walk(value))
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        path = rng.choice(paths)
        value, how = edit(value, path, rng)
    return spelled(value), f"{how} at {'.'.join(map(str, path)) or 'top'}"


def walk(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    pairs = value.items() if isinstance(value, dict) else enumerate(value[:4]) if isinstance(value, list) else ()
    for key, inner in pairs:
        yield from walk(inner, (*path, key))


def edit(value: Any, path: tuple[Any, ...], rng: random.Random) -> tuple[Any, str]:
    value, how = copy.deepcopy(value), rng.choice(["replace", "replace", "replace", "remove", "rename", "wrap"])
    new = copy.deepcopy(rng.choice(VALUES))
    if not path:
        return (new, f"replace by {str(new)[:20]}") if how != "wrap" else ([value], how)
    at = value
    try:
        for key in path[:-1]:
            at = at[key]
        if how == "remove":
            del at[path[-1]]
        elif how == "rename" and isinstance(at, dict):
            at[str(new)[:50]] = at.pop(path[-1])
        elif how == "wrap":
            at[path[-1]] = [at[path[-1]]]
        else:
            at[path[-1]], how = new, f"replace by {str(new)[:20]}"
    except (KeyError, IndexError, TypeError):
        how = "nothing"
    return value, how


def spelled(value: Any) -> bytes:
    text = json.dumps(value)
    for name, raw in RAW.items():
        text = text.replace(f'"{name}"', raw)
    return text.encode(errors="surrogateescape")


def damaged_bytes(content: bytes, rng: random.Random) -> tuple[bytes, str]:
    out, how = bytearray(content), rng.choice(["flip", "flip", "cut", "zero", "insert", "repeat", "empty", "text"])
    at = rng.randrange(len(out)) if out else 0
    if how == "flip":
        for _ in range(rng.choice([1, 1, 4, 32])):
            out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)
    elif how == "cut":
        del out[at:]
    elif how == "zero":
        out[at : at + 64] = bytes(len(out[at : at + 64]))
    elif how == "insert":
        out[at:at] = rng.choice(
            [b"\0", b"\r", b"\n", b"\xff\xfe", b"{", b"]", b'"', b"\xef\xbb\xbf", rng.randbytes(50)]
        )
    elif how == "repeat":
        out[at:at] = out[at : at + rng.randrange(1, 400)]
    elif how == "empty":
        out.clear()
    else:
        out[:] = rng.choice([b"null", b"[]", b"{}", b"1", b'"x"', "{}".encode("utf-16"), b"[" * 100_000, bytes(10_000)])
    return bytes(out), f"{how} at byte {at}"


def damaged_rows(content: bytes, rng: random.Random) -> tuple[bytes, str]:
    lines = content.split(b"\n")
    number = rng.randrange(len(lines) - 1)
    how = rng.choice(["edit", "edit", "edit", "swap", "twice", "join"])
    if how == "edit":
        lines[number], how = damaged_json(lines[number], rng)
    elif how == "swap":
        rng.shuffle(lines)
    elif how == "twice":
        lines.insert(number, lines[number])
    else:
        lines[number : number + 2] = [b"\r".join(lines[number : number + 2])]
    return b"\n".join(lines), f"line {number}: {how}"


def damaged_npz(content: bytes, rng: random.Random) -> tuple[bytes, str]:
    """One array of another type, shape, length or value, or one member more, named strangely."""
    with np.load(io.BytesIO(content)) as found:
        arrays = {key: found[key] for key in found}
    key = rng.choice(sorted(arrays))
    array = arrays[key]
    hows: dict[str, Callable[[], Any]] = {
        "type": lambda: array.astype(rng.choice(["f2", "f8", "i1", "u8", "c8", "S3", "U2", "M8[s]", "?", ">f4"])),
        "shape": lambda: array.reshape(rng.choice([(-1,), (1, -1), (-1, 1), (1, 1, -1)])),
        "short": lambda: array[: rng.randrange(len(array))],
        "scalar": lambda: array.reshape(-1)[0],
        "value": lambda: put(array.astype("f8"), rng.choice([np.nan, np.inf, -1, 0.5, 2, 1e39, 255, -5]), rng),
        "columns": lambda: np.asfortranarray(array),
        "objects": lambda: np.array([{}, 1], object),
    }
    how = rng.choice([*hows, "remove", "rename", "escape", "twice"])
    if how in hows:
        arrays[key] = hows[how]()
    elif how == "remove":
        del arrays[key]
    else:
        name = {"rename": "obs", "escape": "../../x", "twice": key}[how]
        arrays = {**arrays, name: arrays.pop(key)} if how == "rename" else arrays | {name: array}
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, one in [*arrays.items(), *([(key, array)] if how == "twice" else [])]:
            with archive.open(f"{name}.npy", "w") as stream:
                np.lib.format.write_array(stream, np.asanyarray(one), allow_pickle=True)
    return out.getvalue(), f"{how} of {key}"


def put(array: np.ndarray, value: float, rng: random.Random) -> np.ndarray:
    array.reshape(-1)[rng.randrange(array.size)] = value
    return array


BY_KIND = {"json": damaged_json, "rows": damaged_rows, "npz": damaged_npz}


# What is damaged, and who reads it ------------------------------------------------------------------------------------


def make_places(folder: Path) -> list[Place]:
    places = [*run_places(folder / "run"), *data_places(folder / "data"), *other_places(folder / "other")]
    return places + minari_places(folder / "minari")


def run_places(root: Path) -> list[Place]:
    data = tiny.make_data(root / "data")
    run = root / "tiny"
    tiny.untrained(run, data)
    made = directory.read_run(run)
    run_files.write_rows(run / "eval.jsonl", [r for step in (20, 40) for r in run_files.rows(made, 5, steps=[step])])
    measured.write(run, run_files.rows(made, 5, steps=[40]), eval_seed=0, random=False)
    metrics = [{"step": s, "seed": 0, "split": "train", "algo/actor/loss": 1.5} for s in range(10, 41, 10)]
    run_files.write_rows(run / "metrics.jsonl", metrics)
    grid = np.zeros((2, 3)).tolist()
    kept = {"format": distances.FORMAT, "kind": "maze", "points": [[0.0, 1.0]] * 3, "goals": [0, 1], "learned": grid}
    (run / "distances.json").write_text(json.dumps({**kept, "seed": 0, "step": 40, "correlation": 0.5}))
    planned = reproduce.plan(TABLE, out=root / "runs", **CELL)[0]
    cell = config.from_dict(planned.planned.config)
    run_files.write_run(planned.out, cell, run_files.rows(cell, 5))
    (arrays,) = (run / "checkpoints").glob("*.safetensors")
    record = arrays.with_suffix(".json")

    def resume() -> None:
        recorded = directory.read(run)
        with directory.Store(run, recorded.run, recorded.facts, warn=lambda text: None) as store:
            store.evals.rows()
            store.newest(None)
            store.rewind(40)

    def table() -> None:
        jobs = reproduce.plan(TABLE, out=root / "runs", **CELL)
        reproduce.write_table(TABLE, jobs, root / "out") if random.random() < 0.02 else [j.to_dict() for j in jobs]

    def collect() -> None:
        results_page.collect(root / "runs", root / "rows", say=lambda text: None)

    def seal() -> None:
        """The digests of the checkpoint that fit its arrays, so that more than the digests is tried."""
        with contextlib.suppress(Exception):
            facts = json.loads(record.read_bytes())
            content = arrays.read_bytes()
            facts |= {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
            facts["check"] = checkpoint._check(facts)
            record.write_text(json.dumps(facts))

    def versus() -> None:
        pairwise.text(pairwise.compare([run, run], rows="eval"))

    report = lambda: page.build([run], title="t", explore=True) if random.random() < 0.02 else None
    look = [lambda: directory.inspect(run), lambda: reader.read(run), lambda: policy.load(run), resume, report]
    cells = [table, collect]
    return [
        Place("config.json", run / "config.json", look),
        Place("config.json in reproduce", planned.out / "config.json", cells),
        Place("eval.jsonl", run / "eval.jsonl", look, "rows"),
        Place("eval.jsonl in reproduce", planned.out / "eval.jsonl", cells, "rows"),
        Place("metrics.jsonl", run / "metrics.jsonl", look, "rows"),
        Place("measured.jsonl", run / measured.FILE, [*look, versus], "rows"),
        Place("distances.json", run / "distances.json", [lambda: distances.kept(run), report]),
        Place("checkpoint JSON", record, look, seal=seal),
        Place("checkpoint arrays", arrays, look, "binary", seal=seal),
    ]


def data_places(root: Path) -> list[Place]:
    data = tiny.make_data(root / "own")
    file = data / f"{tiny.TASK}.npz"
    files = DatasetFiles.holding(file)
    facts = {file.name: origin.FileFacts(episodes=12, rows=492, sha256=None, arrays={"observations": "ab"})}
    plan = generate._plan(tiny.TASK, 3, 0, 41, None, None)[0]
    bounds = origin.ActionRange((-1.0, -1.0), (1.0, 1.0))
    full = origin.Origin(
        task=tiny.TASK, source="generated", collector="oracle", seed=0, versions={"mujoco": "3.3.0"}, shadow_size=512,
        counts={"goals": 3}, imported_from="x", imported_sha256="ab", keys={"actions": "a"}, observation_keys=("p",),
        episode_files=3, image_size=(64, 64), files=facts, plan=plan, action_range=bounds, cpu_seconds=1.5,
    )  # fmt: skip
    origin.write(files, full)
    whole = dataset.load(file)

    def same(found: dataset.Dataset) -> bool:
        names = ("observations", "actions", "terminals")
        return all(np.array_equal(getattr(found, name), getattr(whole, name)) for name in names)

    def show() -> str:
        return info.text(info.summarize(data, task=tiny.TASK))

    def bring(scale: bool) -> Callable[[], None]:
        def use() -> None:
            shutil.rmtree(root / "imported", ignore_errors=True)
            importing.import_dataset(file, root / "imported", scale_actions=scale)

        return use

    images = root / "images.npz"
    pixels = np.zeros((6, 8, 8, 3), np.uint8)
    ends = np.array([0, 0, 1, 0, 0, 1], bool)
    npz.save(images, {"observations": pixels, "actions": np.zeros((6, 2), np.float32), "terminals": ends})
    os.environ["DUALGOAL_CACHE"] = str(root / "cache")

    def mapped() -> dataset.Dataset:
        above, dataset.MAP_ABOVE = dataset.MAP_ABOVE, 0
        try:
            return dataset.load(images)
        finally:
            dataset.MAP_ABOVE = above

    mapped()
    (map_json,), (map_array,) = ((root / "cache" / "mapped").glob(name) for name in ("*.json", "*.npy"))
    parts = root / ".parts"
    parts.mkdir()
    (parts / "plan.json").write_text(json.dumps(generate.asdict(plan)))
    load, known = (lambda: dataset.load(file)), (lambda: download.known_digest(file))
    intact = lambda found: np.array_equal(found.observations, pixels)
    return [
        Place("TASK.json", files.origin, [load, show, known]),
        Place("npz", file, [load, show, bring(False), bring(True)], "npz"),
        Place("npz, bytes", file, [load, bring(False)], "binary", same=same),
        Place("plan.json", parts / "plan.json", [lambda: generate._read_plan(parts)]),
        Place("memory map JSON", map_json, [mapped], same=intact),
        Place("memory map", map_array, [mapped], "binary", same=intact),
    ]


def other_places(root: Path) -> list[Place]:
    root.mkdir()
    run = settings.preset("cube-single-play-v0", "dual", "gcivl", seeds=[0], steps=1000)
    run_files.write_run(root / "run", run, run_files.rows(run, 5))
    rows = root / "results"
    (file,) = results_page.collect(root, rows, say=lambda text: None)
    shapes = {"walk.layers.0.weight": (29, 8), "walk.layers.0.bias": (8,)}
    tensors = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    expert = root / "expert.safetensors"
    safetensors.numpy.save_file(tensors, expert, {"activation": "relu"})
    build = lambda: results_page.build(rows) if random.random() < 0.02 else None
    return [
        Place("row file", file, [lambda: row_files.load(file), build]),
        Place("expert", expert, [lambda: experts.load(expert, {"walk": (29, 8)})], "binary"),
    ]


def minari_places(root: Path) -> list[Place]:
    try:
        import gymnasium
        import h5py
        import minari
    except ImportError:
        return []
    data = root / "own" / "data"
    data.mkdir(parents=True)
    space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
    spell = minari.serialization.serialize_space
    facts = {
        "total_episodes": 2,
        "total_steps": 8,
        "data_format": "hdf5",
        "dataset_id": "own-v0",
        "minari_version": minari.__version__,
    }
    facts |= {"observation_space": spell(space), "action_space": spell(space)}
    (data / "metadata.json").write_text(json.dumps(facts))
    with h5py.File(data / "main_data.hdf5", "w") as file:
        for number in range(2):
            episode = file.create_group(f"episode_{number}")
            episode.attrs.update({"id": number, "total_steps": 4, "seed": 0})
            for name, shape in (("observations", (5, 2)), ("actions", (4, 2)), ("rewards", (4,))):
                episode[name] = np.zeros(shape, np.float32)
            for name in ("terminations", "truncations"):
                episode[name] = np.arange(4) == 3

    def bring() -> None:
        shutil.rmtree(root / "out", ignore_errors=True)
        importing.import_dataset(root / "own", root / "out")

    return [
        Place("Minari metadata", data / "metadata.json", [bring]),
        Place("Minari HDF5", data / "main_data.hdf5", [bring], "binary"),
    ]


# The attack -----------------------------------------------------------------------------------------------------------


class TooLong(BaseException):
    """Not an Exception: nothing may catch it."""


def attack(folder: Path, seed: int, only: int | None, names: list[str]) -> Iterator[Outcome]:
    """Damage one file after the other, for ever."""
    warnings.simplefilter("ignore")
    places = [place for place in make_places(folder) if not names or place.name in names]
    good = {place.name: place.file.read_bytes() for place in places}
    for place in places:
        for use in place.uses:
            use()  # what is not damaged must be readable, or nothing is tested
    number = -1 if only is None else only - 1
    while True:
        number += 1
        rng = random.Random(seed * 1_000_003 + number)
        random.seed(number)
        place = places[number % len(places)]
        damage = BY_KIND.get(place.kind, damaged_bytes) if rng.random() < 0.75 else damaged_bytes
        snapshot = keep(place.file.parent)
        content, how = damage(good[place.name], rng)
        place.file.write_bytes(content)
        place.seal()
        yield judge(place, number, how)
        restore(place.file.parent, snapshot)


def keep(folder: Path) -> dict[Path, tuple[bytes, tuple[int, int]]]:
    """All small files below a folder, and their times: readers may repair, cut or remove."""
    stats = {path: path.stat() for path in folder.rglob("*") if path.is_file()}
    return {path: (path.read_bytes(), (stat.st_atime_ns, stat.st_mtime_ns)) for path, stat in stats.items()}


def restore(folder: Path, snapshot: dict[Path, tuple[bytes, tuple[int, int]]]) -> None:
    for path in [p for p in folder.rglob("*") if p.is_file() and p not in snapshot]:
        path.unlink()
    for path, (content, times) in snapshot.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        os.utime(path, ns=times)


def judge(place: Place, number: int, how: str) -> Outcome:
    def rang(*_: object) -> None:
        raise TooLong

    before, results = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, []
    old = signal.signal(signal.SIGALRM, rang)
    failure = None
    for index, use in enumerate(place.uses):
        signal.alarm(LONGEST)
        try:
            found = use()
            results.append("accepted")
            if index == 0 and place.same is not None and not place.same(found):
                failure = "accepted, and what was read is not what was written"
        except UserError as problem:
            results.append("refused")
            failure = failure or ("more than one line" if "\n" in str(problem) else None)
        except TooLong:
            failure = f"no answer in {LONGEST} seconds"
        except BaseException as problem:
            failure = f"use {index}: {type(problem).__name__}: {str(problem)[:200]}"
        finally:
            signal.alarm(0)
    signal.signal(signal.SIGALRM, old)
    if (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 > MEMORY:
        failure = failure or "more than 1 GiB of memory"
    return Outcome(place.name, number, "refused" if "refused" in results else "accepted", failure, how)

"""What is damaged, and who reads it: every kind of file that the program reads, with everything that reads it."""

import contextlib
import dataclasses
import functools
import hashlib
import json
import os
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

import run_files
import tiny
from dualgoal.cli import train
from dualgoal.collect import experts, generate
from dualgoal.data import dataset, importing, info, npz, origin
from dualgoal.data.paths import DatasetFiles
from dualgoal.paper import pairwise, reproduce, results_page, row_files, settings, sweep
from dualgoal.report import distances, page, reader
from dualgoal.runs import checkpoint, directory, environment, export, measured, overview, policy
from dualgoal.runs.rows import Conditions

TABLE, CELL = "state_gcivl", {"tasks": ["cube-single-play-v0"], "reps": ["orig"], "seeds": [0], "steps": 10}


@dataclass
class Place:
    """Good files in a folder, and which of them is damaged. `seal` makes digests right again after the damage."""

    name: str
    file: Path
    uses: list[Callable[[], Any]]
    kind: str = "json"  # or "rows", "binary", "npz"
    seal: Callable[[], None] = lambda: None
    same: Callable[[Any], bool] | None = None  # whether the result of the first use is what it was


def make_places(folder: Path) -> list[Place]:
    places = [*run_places(folder / "run"), *data_places(folder / "data"), *other_places(folder / "other")]
    return places + minari_places(folder / "minari")


def run_places(root: Path) -> list[Place]:
    data = tiny.make_data(root / "data")
    run = root / "tiny"
    tiny.untrained(run, data)
    made = directory.read_run(run)
    run_files.write_rows(run / "eval.jsonl", [r for step in (20, 40) for r in run_files.rows(made, 5, steps=[step])])
    metrics = [{"step": s, "seed": 0, "split": "train", "algo/actor/loss": 1.5} for s in range(10, 41, 10)]
    run_files.write_rows(run / "metrics.jsonl", metrics)
    grid = np.zeros((2, 3)).tolist()
    kept = {"format": 1, "run": made.id, "task": made.task, "seed": 0, "step": 40, "kind": "maze", "correlation": 0.5}
    kept |= {"points": [[0.0, 1.0]] * 3, "goals": [0, 1], "learned": grid}
    (run / "distances.json").write_text(json.dumps(kept))
    assert distances.kept(run) is not None
    planned = reproduce.plan(TABLE, out=root / "runs", **CELL)[0]
    cell = planned.planned.run
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

    def seal_export() -> None:
        with contextlib.suppress(Exception):
            known = json.loads(beside.read_bytes())
            content = beside.with_suffix(".safetensors").read_bytes()
            beside.write_text(json.dumps(known | {"sha256": hashlib.sha256(content).hexdigest()}))

    report = lambda: page.build([run], title="t") if random.random() < 0.02 else None
    glance = lambda: overview.text([overview.look(run)]) + json.dumps(dataclasses.asdict(overview.look(run)))
    look = [lambda: directory.inspect(run), lambda: reader.read(run), lambda: policy.load(run), glance, resume, report]
    cells = [table, lambda: collect() if random.random() < 0.1 else None]
    beside = root / "policy.json"
    export.export_policy(run, beside.with_suffix(".safetensors"))
    send = lambda: export.export_policy(run, beside.with_suffix(".safetensors"))
    opened = lambda: policy.load(beside.with_suffix(".safetensors"))
    measured.write(run, run_files.rows(made, 5, steps=[40]), Conditions())
    contrast = lambda: pairwise.text(pairwise.compare([run, run], rows="eval"))
    noisy = run_files.rows(made, 5, steps=[20, 40], noise=0.2)
    run_files.write_rows(run / "noise.jsonl", noisy)
    run_files.write_rows(run / "timing.jsonl", [{"step": 10, "steps_per_second": 5.0, "time": 1.7e9}] * 3)
    here = {"token": "ab", "host": "elsewhere", "pid": 1}
    (run / "owner.json").write_text(json.dumps(here))
    (run / "status.json").write_text(json.dumps({**here, "time": 1.7e9, "every": 0.001, "rate": 5.0, "busy": "x"}))
    os.environ["DUALGOAL_HEARTBEAT"] = "0.001"  # an owner that is gone is watched for a while
    return [
        Place("config.json", run / "config.json", look),
        Place("config.json in reproduce", planned.out / "config.json", cells),
        Place("eval.jsonl", run / "eval.jsonl", look, "rows"),
        Place("eval.jsonl in reproduce", planned.out / "eval.jsonl", cells, "rows"),
        Place("metrics.jsonl", run / "metrics.jsonl", look, "rows"),
        Place("distances.json", run / "distances.json", [lambda: distances.kept(run), report]),
        Place("noise.jsonl", run / "noise.jsonl", look[:2], "rows"),
        Place("timing.jsonl", run / "timing.jsonl", [glance, resume], "rows"),
        Place("status.json", run / "status.json", [glance, resume]),
        Place("owner.json", run / "owner.json", [glance, resume]),
        Place("measured.jsonl", run / measured.FILE, [lambda: reader.read(run), contrast], "rows"),
        Place("exported JSON", beside, [opened, send]),
        Place("exported arrays", beside.with_suffix(".safetensors"), [opened], "safetensors", seal=seal_export),
        Place("checkpoint JSON", record, look, seal=seal),
        Place("checkpoint arrays", arrays, look, "safetensors", seal=seal),
    ]


def data_places(root: Path) -> list[Place]:
    data = tiny.make_data(root / "own")
    file = data / f"{tiny.TASK}.npz"
    files = DatasetFiles.holding(file)
    facts = {file.name: origin.FileFacts(episodes=12, rows=492, sha256=None, arrays={"observations": "ab"})}
    plan = generate._plan(tiny.TASK, 3, 0, 41, None, None, None)[0]
    bounds = origin.ActionRange((-1.0, -1.0), (1.0, 1.0))
    full = origin.Origin(
        task=tiny.TASK, source="generated", collector="oracle", seed=0, versions={"mujoco": "3.3.0"}, shadow_size=512,
        counts={"goals": 3}, imported_from="x", imported_sha256="ab", keys={"actions": "a"}, observation_keys=("p",),
        episode_files=3, files=facts, plan=plan, action_range=bounds,
    )  # fmt: skip
    origin.write(files, full)
    whole = dataset.load(file)

    def same(found: dataset.Dataset) -> bool:
        names = ("observations", "actions", "terminals")
        return all(np.array_equal(getattr(found, name), getattr(whole, name)) for name in names)

    def show() -> str:
        return info.text(info.summarize(data, task=tiny.TASK))

    def bring(scale: bool) -> None:
        shutil.rmtree(root / "imported", ignore_errors=True)
        importing.import_dataset(file, root / "imported", scale_actions=scale)

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
    load, known = (lambda: dataset.load(file)), (lambda: origin.read(files))
    intact = lambda found: np.array_equal(found.observations, pixels)
    return [
        Place("TASK.json", files.origin, [load, show, known]),
        Place("npz", file, [load, show, lambda: bring(False), lambda: bring(True)], "npz"),
        Place("npz, bytes", file, [load, lambda: bring(False)], "binary", same=same),
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
    build = lambda: results_page.build(rows, row_files.load_all(rows, say=str)) if random.random() < 0.02 else None
    grid = root / "grid.toml"
    grid.write_text(
        'tasks = ["cube-single-play-v0"]\nreps = ["orig", "dual"]\nalgos = ["gcivl"]\nseeds = [0, 1]\n[options]\n'
        'steps = 20\nbatch_size = 16\nlr = 1e-3\n"algo.hidden" = [8, 8]\n[grid]\ndiscount = [0.9, 0.99]\n'
        '"rep.dim" = [4, 8]\n'
    )
    chosen = root / "run.toml"
    chosen.write_text(
        'task = "cube-single-play-v0"\nseeds = [0, 1]\nsteps = 200\nout = "runs/cube"\nlr = 0.001\nworkers = 2\n[rep]\n'
        'name = "dual"\ndim = 64\nhidden = [8, 8]\n[algo]\nname = "gcivl"\nalpha = 3.0\n'
    )
    goals = {kind: root / f"goals.{kind}" for kind in ("npy", "json", "txt")}
    np.save(goals["npy"], np.ones((3, 2)))
    goals["json"].write_text("[[0.5, 1], [2, 3]]")
    goals["txt"].write_text("0.5, 1\n2 3\n")
    wish = lambda file: lambda: environment.read_goals(file, 2)
    return [
        Place("run TOML", chosen, [lambda: train.Train.defaults(["--config", str(chosen)])], "toml"),
        Place("sweep TOML", grid, [lambda: sweep.expand(sweep.read(grid), "here")], "toml"),
        *(
            Place(f"goals.{kind}", file, [wish(file)], kind if kind == "json" else "binary")
            for kind, file in goals.items()
        ),
        Place("row file", file, [lambda: row_files.load(file), build]),
        Place("expert", expert, [lambda: experts.load(expert, "walk", (29, 8))], "safetensors"),
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
    facts = {"total_episodes": 2, "total_steps": 8, "data_format": "hdf5", "dataset_id": "own-v0"}
    facts |= {"minari_version": minari.__version__, "observation_space": spell(space), "action_space": spell(space)}
    (data / "metadata.json").write_text(json.dumps(facts))
    with h5py.File(data / "main_data.hdf5", "w") as file:
        for number in range(2):
            episode = file.create_group(f"episode_{number}")
            episode.attrs.update({"id": number, "total_steps": 4, "seed": 0})
            for name, shape in (("observations", (5, 2)), ("actions", (4, 2)), ("rewards", (4,))):
                episode[name] = np.zeros(shape, np.float32)
            for name in ("terminations", "truncations"):
                episode[name] = np.arange(4) == 3

    def bring(source: Path, **options: Any) -> None:
        shutil.rmtree(root / "out", ignore_errors=True)
        importing.import_dataset(source, root / "out", **options)

    own = root / "own.hdf5"
    with h5py.File(own, "w") as file:
        file["observations"], file["actions"] = np.zeros((82, 3), np.float32), np.zeros((82, 2), np.float32)
        file["terminals"] = np.arange(82) % 41 == 40

    read = functools.partial(bring, root / "own")
    return [
        Place("HDF5", own, [functools.partial(bring, own, scale_actions=True)], "binary"),
        Place("Minari metadata", data / "metadata.json", [read]),
        Place("Minari HDF5", data / "main_data.hdf5", [read], "binary"),
    ]

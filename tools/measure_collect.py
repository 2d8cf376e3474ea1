"""Measure the collectors: what their data looks like, and what collecting costs beside the bare simulator.

Rates are compared as ratios within one run, the two sides taking turns, so that a busy machine slows both alike:

    python tools/measure_collect.py                 # everything, about ten minutes on two idle cores
    python tools/measure_collect.py --episodes 4    # quicker statistics
    python tools/measure_collect.py --only speed    # or: --only data, --only pixels
    python tools/measure_collect.py --only frames --workers 1 6 16    # where the time of image datasets goes
"""

import argparse
import contextlib
import json
import multiprocessing
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from dualgoal.collect import behaviours, generate
from dualgoal.data import npz
from dualgoal.data.paths import DatasetFiles
from dualgoal.envs import meshes, ogbench, registry
from dualgoal.envs.versions import QUICK, Quality

FAMILIES = (
    "pointmaze-medium-navigate-v0", "pointmaze-large-navigate-v0", "cube-single-play-v0", "cube-double-play-v0",
    "scene-play-v0", "puzzle-3x3-play-v0", "puzzle-4x4-play-v0",
)  # fmt: skip
ROWS = 1001
PARTS_OF_RENDERING = ("giving orders", "waiting for the GPU", "reading pixels")


def describe(task: str, episodes: int) -> dict[str, Any]:
    """Statistics of `episodes` full episodes against section 9 of the method."""
    collector, counts, seen = behaviours.make(task, None, {}), Counter[str](), []
    for k in range(episodes):
        episode, happened = collector(np.random.default_rng([0, 0, k]), ROWS)
        counts.update(happened)
        seen.append((episode, happened))
    plans = {key.removeprefix("plans/"): n for key, n in counts.items() if key.startswith("plans/")}
    row: dict[str, Any] = {"task": task, "episodes": episodes, "rows": len(seen[0][0]["actions"])}
    if plans:
        row["plans per episode"] = sum(plans.values()) / episodes
        row["oracle success"] = sum(counts[f"reached/{kind}"] for kind in plans) / sum(plans.values())
        row["success by kind"] = {kind: round(counts[f"reached/{kind}"] / n, 3) for kind, n in plans.items()}
        row["rejected"] = counts["rejected"]
    else:
        row["goals per episode"] = counts["goals"] / episodes
        row["episodes without a goal"] = sum(not happened["goals"] for _, happened in seen) / episodes
    if "cube" in task:
        row["cube moved"] = float(np.mean([_cube_moved(task, episode) for episode, _ in seen]))
    if "puzzle" in task or "scene" in task:
        row["presses of the rarest button"] = _rarest_press([episode for episode, _ in seen])
    row["actions at the limit"] = float(np.mean([np.abs(e["actions"]) >= 1 for e, _ in seen]))
    row["action std"] = float(np.std(np.concatenate([e["actions"] for e, _ in seen])))
    return row


def _cube_moved(task: str, episode: dict[str, np.ndarray]) -> bool:
    """Whether any cube has been carried 5 cm or farther."""
    cubes = episode["qpos"][:, 14:].reshape(ROWS, -1, 7)[:, :, :2]
    return bool(np.linalg.norm(cubes - cubes[:1], axis=-1).max() > 0.05)


def _rarest_press(episodes: list[dict[str, np.ndarray]]) -> int:
    """How often the least pressed button went below its switching point in all episodes together."""
    total: Any = 0
    for episode in episodes:
        count = episode["button_states"].shape[1]
        first = 14 + (7 if episode["qpos"].shape[1] == 25 else 0)  # the scene's cube comes before its buttons
        joints = episode["qpos"][:, first : first + count]
        total = total + ((joints[:-1] > -0.02) & (joints[1:] <= -0.02)).sum(axis=0)
    return int(np.min(total))


def collecting_against_stepping(task: str, rounds: int, rows: int, replay: bool) -> dict[str, Any]:
    """One collector beside the bare environment, resets included on both sides: with `replay` it steps through the very
    actions that the collector recorded, else through random ones."""
    collector = behaviours.make(task, None, {})
    env, spent = collector.env, []  # type: ignore[attr-defined]
    collector(np.random.default_rng(0), 10)  # the first reset compiles the model
    for k in range(rounds):
        begin = time.process_time()
        episode, _ = collector(np.random.default_rng([1, k]), rows)
        middle = time.process_time()
        ogbench.give_generator(env, np.random.default_rng([1, k]))
        env.reset(options=None if replay else {"task_id": 1})
        for action in episode["actions"]:
            env.step(action if replay else env.action_space.sample())
        spent.append((middle - begin, time.process_time() - middle))
    return _ratio(f"{task}: collecting / {'replaying its actions' if replay else 'random steps'}", spent, rows)


def _ratio(what: str, spent: list[tuple[float, float]], rows: int) -> dict[str, Any]:
    """The median over rounds, so that one disturbed round does not decide."""
    collecting, bare = np.array(spent).T
    return {
        "what": what, "ratio": float(np.median(bare / collecting)),
        "rows per CPU second": float(np.median(rows / collecting)),
    }  # fmt: skip


def _serve(task: str, rows: int, pipe: Any) -> None:
    collector = behaviours.make(task, None, {})
    collector(np.random.default_rng(0), 10)  # the first reset compiles the model
    pipe.send("ready")
    while (k := pipe.recv()) is not None:
        begin = time.process_time()
        collector(np.random.default_rng([3, k]), rows)
        pipe.send(time.process_time() - begin)


def two_workers_against_one(task: str, rounds: int, rows: int) -> dict[str, Any]:
    """Two collecting processes against one of them alone, taking turns.

    `ratio` compares wall time and needs two idle cores; `ratio of CPU time` counts only what the workers themselves
    used, so it shows what they cost each other even while something else runs beside them.
    """
    context = multiprocessing.get_context("spawn")
    pipes, processes = [], []
    for _ in range(2):
        here, there = context.Pipe()
        process = context.Process(target=_serve, args=(task, rows, there), daemon=True)
        process.start()
        pipes.append(here)
        processes.append(process)
    for pipe in pipes:
        pipe.recv()
    spent: Any = Counter()
    for k in range(rounds):
        for name, used in (("one", pipes[k % 2 : k % 2 + 1]), ("two", pipes)):
            wall, cpu = _timed(used, k)
            spent.update({name: wall, f"{name} cpu": cpu})
    for pipe, process in zip(pipes, processes, strict=True):
        pipe.send(None)
        process.join()
    return {
        "what": f"{task}: two workers / one", "ratio": 2 * spent["one"] / spent["two"],
        "ratio of CPU time": 4 * spent["one cpu"] / spent["two cpu"],
        "rows per second": 2 * rounds * rows / spent["two"],
    }  # fmt: skip


def _timed(pipes: list[Any], k: int) -> tuple[float, float]:
    """Wall time until all have collected an episode, and the CPU time they report."""
    begin = time.perf_counter()
    for pipe in pipes:
        pipe.send(k)
    cpu = sum(pipe.recv() for pipe in pipes)
    return time.perf_counter() - begin, cpu


def quality(task: str, images: int, chosen: Quality, beside: Quality) -> dict[str, Any]:
    """What a lower quality changes in the same images, and what it saves on this machine's renderer."""
    small, large = (registry.make(task, quality=quality) for quality in (chosen, beside))
    difference, spent = [], []
    for seed in range(images):
        pair = [env.reset(seed, 1)[0].astype(float) for env in (small, large)]
        difference.append(np.abs(pair[0] - pair[1]).mean())
        times = [time.process_time()]
        for env in (small, large):
            env.render()
            times.append(time.process_time())
        spent.append(np.diff(times))
    model, cells = getattr(small.raw, "_model", None) or small.raw.model, (chosen.mesh_cell, beside.mesh_cell)
    counts = [_triangles(model, cell) for cell in cells]
    for env in (small, large):
        env.close()
    return {
        "what": f"{task}: {chosen}, beside {beside}", "mean difference of 255": float(np.mean(difference)),
        "times faster": float(np.median([b / a for a, b in spent])),
        "milliseconds per image": [1e3 * float(median) for median in np.median(spent, axis=0)],
        "triangles of the meshes": counts,
    }  # fmt: skip


def _triangles(model: Any, cell: float) -> int:
    with meshes.coarse(model, cell) if cell else contextlib.nullcontext():
        return int(model.mesh_facenum.sum())


def _write_episodes(plan: Any, parts: Path, items: list[Any], start: Any, answers: Any) -> None:
    """Collect and store these episodes as `dualgoal data generate` does; report the seconds of each part."""
    import mujoco.renderer

    spent: Any = Counter()

    def timed(name: str, function: Any) -> Any:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            begin = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                spent[name] += time.perf_counter() - begin

        return wrapped

    def drawn(draw: Any) -> Any:
        """Drawing only gives orders to the GPU: wait until it has followed them, as reading would do otherwise."""
        draw, finish = timed("giving orders", draw), timed("waiting for the GPU", calls.mjr_finish)
        return lambda *args: (draw(*args), finish())

    # Where MuJoCo's renderer looks its functions up; a frame is one call of each.
    calls, functions = mujoco.renderer._render, mujoco.renderer._functions
    functions.mjv_updateScene = timed("updating the scene", functions.mjv_updateScene)
    calls.mjr_render, calls.mjr_readPixels = drawn(calls.mjr_render), timed("reading pixels", calls.mjr_readPixels)
    mujoco.Renderer.render = timed("rendering", mujoco.Renderer.render)
    npz.save, npz.packed = timed("storing", npz.save), timed("compressing", npz.packed)
    collect = generate._EpisodeWriter(plan, {}, parts)
    collect._play(np.random.default_rng(0), 10)  # the first reset compiles the model
    start.wait()
    spent.clear()
    begin = time.perf_counter()
    for item in items:
        collect(item)
    spent["everything"] = time.perf_counter() - begin
    ogbench._close_all()
    answers.put(dict(spent))


def frames(task: str, workers: int, rows: int, cell: float) -> dict[str, Any]:
    """Frames per second of `workers` processes that collect an image dataset, and the share of each part of it."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        plan, _ = generate._plan(task, 2 * workers, 0, rows, Quality(QUICK.shadow_size, cell), None, None)
        parts, files = Path(folder) / "parts", DatasetFiles(Path(folder), task)
        generate._resume(plan, parts)
        start, answers = context.Barrier(workers + 1), context.Queue()
        items = [list(plan.items[n::workers]) for n in range(workers)]
        arguments = [(plan, parts, own, start, answers) for own in items]
        processes = [context.Process(target=_write_episodes, args=a, daemon=True) for a in arguments]
        for process in processes:
            process.start()
        start.wait()
        begin = time.perf_counter()
        spent = sum((Counter(answers.get()) for _ in processes), Counter[str]())
        collected = time.perf_counter()
        generate._put_into_place(parts, files, generate._join(plan, parts, files))
        joined = time.perf_counter()
        size = files.train.stat().st_size
    count = len(plan.items) * rows
    collecting, joining = collected - begin, joined - collected
    names = ("updating the scene", "rendering", "compressing", "storing")
    of_worker = {name: spent[name] / spent["everything"] for name in names}
    of_worker["simulation"] = 1 - sum(of_worker.values())
    shares = {name: share * collecting / (collecting + joining) for name, share in of_worker.items()}
    per_frame = 1e3 * spent["everything"] / count
    return {
        "what": f"{task}: {workers} workers, mesh cells of {cell:g} mm",
        "frames per second": count / (collecting + joining),
        "milliseconds of a worker per frame": {n: per_frame * share for n, share in of_worker.items()},
        "milliseconds of rendering per frame": {name: 1e3 * spent[name] / count for name in PARTS_OF_RENDERING},
        "milliseconds of joining per frame": 1e3 * joining / count,
        "share of the time": {**shares, "joining": joining / (collecting + joining)},
        "bytes per frame on disk": size / (rows * plan.episodes),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=20, help="per family; ten times as many of point mazes")
    parser.add_argument("--rounds", type=int, default=6, help="per comparison of rates")
    parser.add_argument("--only", choices=("data", "speed", "pixels", "frames"))
    parser.add_argument("--task", default="visual-cube-single-play-v0", help="of --only frames")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2], help="of --only frames")
    parser.add_argument("--rows", type=int, default=ROWS, help="per episode of --only frames")
    parser.add_argument("--mesh-cell", type=float, default=QUICK.mesh_cell, help="of --only frames, in millimetres")
    options = parser.parse_args()
    if options.only == "frames":
        for workers in options.workers:
            show(frames(options.task, workers, options.rows, options.mesh_cell))
    if options.only in (None, "pixels"):
        for task in ("visual-cube-single-play-v0", "visual-scene-play-v0", "visual-antmaze-medium-navigate-v0"):
            small = Quality(shadow_size=QUICK.shadow_size)
            for chosen, beside in ((small, Quality()), (QUICK, small)):
                show(quality(task, options.rounds, chosen, beside))
    if options.only in (None, "speed"):
        point, cube = "pointmaze-medium-navigate-v0", "cube-single-play-v0"
        show(collecting_against_stepping(cube, 3 * options.rounds, 300, replay=True))
        show(collecting_against_stepping(point, 10 * options.rounds, ROWS, replay=False))
        show(two_workers_against_one(cube, options.rounds, 300))
        show(two_workers_against_one(point, 10 * options.rounds, ROWS))
    if options.only in (None, "data"):
        for task in FAMILIES:
            show(describe(task, options.episodes * (10 if "pointmaze" in task else 1)))


def show(row: dict[str, Any]) -> None:
    def rounded(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: rounded(inner) for key, inner in value.items()}
        return round(value, 3) if isinstance(value, float) else value

    print(json.dumps(rounded(row)), flush=True)


if __name__ == "__main__":
    main()

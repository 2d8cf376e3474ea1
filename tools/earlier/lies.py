"""Holes that let others in, and results that were not what they were said to be."""

import base64
import json
import os
import resource
import shutil
import signal
import time
from pathlib import Path

import numpy as np
from bench import TASK, TRAIN, Bench
from cases import case, refused

CELL = "reproduce state_gcivl --tasks cube-single-play-v0 --reps orig --seeds 0 --steps 10 --out HERE/runs"
CELL += " --dry-run --json"


for verb, module, line in (
    ("eval", "jax", "eval RUN --episodes 1 --workers 1"),
    ("doctor", "mujoco", "doctor"),
    ("data generate", "multiprocessing", f"data generate {TASK} --episodes 2 --rows 11 --workers 2 --out HERE/made"),
):

    @case(
        f"`{module}.py` in the current folder, `{verb}`",
        "test_hostile.py::test_workers_do_not_import_from_the_current_folder",
    )
    def _(bench: Bench, module: str = module, line: str = line) -> str | None:
        (bench.here / f"{module}.py").write_text("open('ran', 'w').close()\n")
        bench.call(line)
        return "the file was executed" if (bench.here / "ran").exists() else None


for file in ("lock", "eval.jsonl", "timing.jsonl"):

    @case(
        f"`{file}` of a run is a link, `train`",
        "test_hostile.py::test_a_link_in_a_run_directory_is_refused_and_its_target_untouched",
    )
    def _(bench: Bench, file: str = file) -> str | None:
        (bench.here / "precious").write_text("precious")
        (bench.run / file).unlink(missing_ok=True)
        (bench.run / file).symlink_to(bench.here / "precious")
        bench.call(TRAIN)
        return None if (bench.here / "precious").read_text() == "precious" else "the file behind it was changed"


@case("a film of a run is a link, `report`", "test_hostile.py::test_a_linked_film_is_not_shown")
def _(bench: Bench) -> str | None:
    secret = b"a secret of somebody else" * 3
    (bench.here / "secret").write_bytes(secret)
    (bench.run / "videos").mkdir()
    for word in ("task", "goal"):
        (bench.run / "videos" / f"step-000000040-seed-0-{word}-1.mp4").symlink_to(bench.here / "secret")
    problem = bench.call("report RUN --out HERE/r.html").done()
    shown = base64.b64encode(secret).decode() in (bench.here / "r.html").read_text()
    return problem or ("its target is in the page" if shown else None)


for kind in ("pipe", "device"):

    @case(
        f"`eval.jsonl` is a {kind}, `report`",
        "test_hostile.py::test_a_pipe_or_a_device_neither_blocks_nor_fills_the_memory",
    )
    def _(bench: Bench, kind: str = kind) -> str | None:
        (bench.run / "eval.jsonl").unlink(missing_ok=True)
        os.mkfifo(bench.run / "eval.jsonl") if kind == "pipe" else (bench.run / "eval.jsonl").symlink_to("/dev/zero")
        return bench.call("report RUN --out HERE/r.html", seconds=90, limits={resource.RLIMIT_AS: 4 << 30}).raw


@case("the output of `train` goes to `head -1`", "test_cli.py::test_a_closed_pipe_does_not_stop_training")
def _(bench: Bench) -> str | None:
    shutil.rmtree(bench.run)
    program = bench.start(TRAIN)
    program.stdout.readline()
    program.stdout.close()
    status = program.wait(120)
    saved = (bench.run / "checkpoints" / "step-000000040.json").exists()
    return None if saved or status else "status 0 without a checkpoint"


@case("Ctrl-C in the first seconds of `train`, ten times", "test_cli.py::test_ctrl_c_while_starting_ends_with_one_line")
def _(bench: Bench) -> str | None:
    swallowed = 0
    for number in range(10):
        shutil.rmtree(bench.run, ignore_errors=True)
        program = bench.start(TRAIN.replace("--steps 40", "--steps 400000"))
        time.sleep(0.5 + 0.25 * number)
        program.send_signal(signal.SIGINT)
        swallowed += bench.end(program, 20).status is None
    return f"swallowed {swallowed} times" if swallowed else None


def keep_checkpoints(bench: Bench, until: int, source: Path) -> None:
    """The run as if it had been stopped, with checkpoints from `source`."""
    kept = [f for f in sorted((source / "checkpoints").iterdir()) if int(f.name[5:14]) <= until]
    contents = {f.name: f.read_bytes() for f in kept}
    assert contents, "this checkout keeps no such checkpoint"
    shutil.rmtree(bench.run / "checkpoints")
    (bench.run / "checkpoints").mkdir()
    for name, content in contents.items():
        (bench.run / "checkpoints" / name).write_bytes(content)


OWN = "test_hostile.py::test_a_checkpoint_of_another_run_or_step_is_refused"
refused("a checkpoint of another run, `train`", OWN, TRAIN, lambda b: keep_checkpoints(b, 30, b.root / "other"))


def renamed(bench: Bench) -> None:
    keep_checkpoints(bench, 30, bench.run)
    for file in list((bench.run / "checkpoints").glob("step-000000030*")):
        file.rename(file.with_name(file.name.replace("030", "035")))


refused("a checkpoint under the name of another step, `train`", OWN, TRAIN, renamed)


def planned(bench: Bench, goals: int, **changes: object) -> str:
    """A run of a table by hand, whose last evaluation has this many of five goals; its state by `reproduce`."""
    listed = bench.call(CELL)
    (job,) = json.loads(listed.out)
    content = json.loads((bench.run / "config.json").read_text())
    out = Path(job["out"]) if Path(job["out"]).is_absolute() else bench.here / job["out"]
    out.mkdir(parents=True, exist_ok=True)
    content |= {"run": job["config"], "id": job["id"], "goals": 5} | changes
    (out / "config.json").write_text(json.dumps(content))
    row = {"seed": 0, "step": 10, "episodes": 20, "successes": 5, "length": 9.0, "goal_noise": 0.0, "action_noise": 0.0}
    rows = [json.dumps({**row, "goal": n, "task": n, "success": 0.25}) + "\n" for n in range(1, goals + 1)]
    (out / "eval.jsonl").write_text("".join(rows))
    again = bench.call(CELL)
    return again.raw or str(json.loads(again.out)[0]["status"])


@case(
    "the last evaluation lacks goals, `reproduce`",
    "test_reproduce.py::test_an_evaluation_that_lacks_a_goal_is_not_finished",
)
def _(bench: Bench) -> str | None:
    status = planned(bench, 1)
    return None if status == "unfinished" else status


@case("`import --scale-actions` of bytes", "test_importers.py::test_bytes_as_actions_are_scaled_too")
def _(bench: Bench) -> str | None:
    actions = np.arange(164, dtype=np.uint8).reshape(82, 2)
    bench.save(bench.here / "x.npz", np.zeros((82, 3)), np.zeros((82, 2)), actions=actions)
    problem = bench.call("data import HERE/x.npz --scale-actions --out HERE/made --task x").done()
    if problem:
        return problem
    with np.load(bench.here / "made" / "x.npz") as found:
        return None if np.abs(found["actions"].astype(float)).max() <= 1 else "actions outside [-1, 1], status 0"


for value in (np.nan, 0.5):
    refused(
        f"{value} in `terminals`, `data import`",
        "test_importers.py::test_what_cannot_be_imported_is_one_line_and_writes_nothing",
        "data import HERE/x.npz --out HERE/made --task x",
        lambda bench, value=value: bench.save(
            bench.here / "x.npz", np.zeros((82, 3)), np.zeros((82, 2)),
            terminals=np.where(np.arange(82) % 41 == 40, 1.0, np.where(np.arange(82) % 41 == 5, value, 0.0)),
        ),
    )  # fmt: skip


@case("`export --out RUN/config.safetensors`", "test_hostile.py::test_an_export_replaces_nothing_but_an_export")
def _(bench: Bench) -> str | None:
    before = (bench.run / "config.json").read_bytes()
    bench.call("export RUN --out RUN/config.safetensors")
    return None if (bench.run / "config.json").read_bytes() == before else "config.json was replaced"


for words in (
    "--rep.expectile -1", "--rep.expectile 2", "--algo.alpha -1", "--algo.alpha nan", "--goal-noise nan",
    "--rep.hidden 0", "--steps 99999999999999999999",
):  # fmt: skip
    refused(f"`train {words}`", "test_hostile.py::test_numbers_of_train_out_of_range", f"{TRAIN}2 {words}")
for words in (
    "eval RUN --episodes 1 --goal-noise nan",
    "eval RUN --episodes 1 --eval-seed -1",
    "theory --seed -1",
    "bench --widths 0",
):
    refused(f"`{words}`", "test_hostile.py::test_numbers_of_other_commands_out_of_range", words)

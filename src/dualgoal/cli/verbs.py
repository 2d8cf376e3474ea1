"""The verbs of the command line: flags with their meaning, and one library call each.

Heavy parts (JAX, MuJoCo, plots, video) are imported by the verb that needs them, so that help and errors come at once.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from dualgoal.errors import UserError
from dualgoal.runs.config import Precision


def show(value: Any, as_json: bool, text: Callable[[Any], str]) -> None:
    print(json.dumps(value, indent=1) if as_json else text(value))


def list_(what: Literal["reps", "algos", "tasks", "tables"], /, json: bool = False) -> None:
    """What there is: representations, algorithms, tasks or the paper's tables.

    Args:
        json: Print JSON.
    """
    from dualgoal.cli import listing

    show(listing.entries(what), json, listing.text)


def data_generate(
    task: str,
    /,
    episodes: int,
    out: Path,
    seed: int = 0,
    workers: int | None = None,
    rows: int | None = None,
    expert: Path | None = None,
    shadow_size: int = 512,
    quiet: bool = False,
) -> None:
    """Make TASK.npz and TASK-val.npz with the scripted collectors; run again after an interruption: resumes.

    Args:
        episodes: Training episodes; a tenth as many are made for validation.
        out: Folder for the files.
        seed: The same seed gives the same bytes, for any number of workers.
        workers: Processes; default: all cores.
        rows: Rows of an episode; default: the official number.
        expert: A walking policy (safetensors) for antmaze, humanoidmaze and antsoccer.
        shadow_size: Of the renderer's shadow map in images; official files have 4096, which is slower.
        quiet: No progress bar.
    """
    from dualgoal.collect import generate

    file = generate.generate_dataset(
        task, episodes, out, seed, workers, not quiet, rows=rows, expert=expert, shadow_size=shadow_size
    )
    print(file)


def data_fetch(task: str, /, out: Path | None = None, mirror: tuple[str, ...] = (), quiet: bool = False) -> None:
    """Download a dataset of the paper, resuming and checking.

    Args:
        out: Folder; default: the cache.
        mirror: Address to try first; may be given several.
        quiet: No progress bar.
    """
    from dualgoal.data import download

    print(download.fetch_dataset(task, out, mirrors=mirror or None, progress=not quiet))


def data_info(path: Path, /, json: bool = False, plot: Path | None = None, task: str | None = None) -> None:
    """Shapes, episodes, ranges and origin of a dataset.

    Args:
        json: Print JSON.
        plot: Draw the coverage of a maze into this PNG.
        task: Which dataset of a folder.
    """
    from dualgoal.data import info

    show(info.summarize(path, task=task, plot=plot), json, info.text)


def data_import(
    source: str,
    /,
    out: Path,
    task: str | None = None,
    key: tuple[str, ...] = (),
    observation_keys: tuple[str, ...] = (),
    scale_actions: bool = False,
) -> None:
    """Bring your own: an npz with other key names, a folder of per-episode npz files, or a Minari dataset (minari:ID).

    Args:
        out: Folder for the result.
        task: Name of the dataset; default: from the source.
        key: Names in the files that are not found by themselves, as observations=NAME.
        observation_keys: Parts of dict observations to join.
        scale_actions: Map the range of each action coordinate onto [-1, 1].
    """
    from dualgoal.data import importing

    print(
        importing.import_dataset(
            source, out, task=task, keys=key, observation_keys=observation_keys, scale_actions=scale_actions
        )
    )


def eval_(
    run: Path,
    /,
    step: int | None = None,
    episodes: int | None = None,
    goal_noise: float | None = None,
    action_noise: float | None = None,
    seeds: tuple[int, ...] = (),
    eval_seed: int = 0,
    workers: int | None = None,
    video: bool = False,
    random: bool = False,
    json: bool = False,
) -> None:
    """Evaluate a checkpoint of a run; the same checkpoint gives the same numbers.

    Args:
        step: Which checkpoint; default: the newest.
        episodes: Episodes per task; default: the run's.
        goal_noise: Standard deviation of noise on the goal, drawn once per episode.
        action_noise: Standard deviation of noise on every action.
        seeds: Which training seeds; default: all.
        eval_seed: Another one draws other starts and goals.
        workers: Processes; default: all cores.
        video: Film one more episode per task into RUN/videos.
        random: Act uniformly at random instead, for comparison.
        json: Print rows as JSON.
    """
    from dualgoal.runs import evaluation

    rows = evaluation.evaluate(
        run, step=step, episodes=episodes, goal_noise=goal_noise, action_noise=action_noise, seeds=seeds or None,
        eval_seed=eval_seed, workers=workers, video=video, random=random,
    )  # fmt: skip
    show([row.to_json() for row in rows] if json else rows, json, evaluation.text)


def report(runs: tuple[Path, ...], /, out: Path, data: Path | None = None) -> None:
    """One self-contained HTML file about one or several runs.

    Args:
        out: The file to write.
        data: Where the distance explorer finds states; default: the dataset that each run names.
    """
    from dualgoal.report import page as library

    print(library.report(runs, out, data_path=data))


def results(runs: tuple[Path, ...] = (), folder: Path = Path("results"), out: Path = Path("docs/results.md")) -> None:
    """Collect evaluation rows of runs into row files, and build the page of results from all of them.

    Args:
        runs: Folders with runs to collect; default: only build the page.
        folder: Where the row files and the paragraphs are.
        out: The page to write.
    """
    from dualgoal.paper import page as library

    print(library.results(folder, out, runs))


def reproduce(
    table: str,
    /,
    dry_run: bool = False,
    json: bool = False,
    out: Path = Path("runs"),
    data: Path | None = None,
    tasks: tuple[str, ...] = (),
    reps: tuple[str, ...] = (),
    seeds: tuple[int, ...] = (),
    steps: int | None = None,
    episodes: int | None = None,
    precision: Precision = "auto",
    workers: int | None = None,
    quiet: bool = False,
) -> None:
    """A table of the paper as runs: train what is missing, evaluate, print it beside the published numbers.

    Args:
        dry_run: Only list the runs.
        json: Print JSON.
        out: Folder that holds the runs.
        data: Folder with the datasets; default as for train.
        tasks: Only these rows.
        reps: Only these columns.
        seeds: Other seeds than the paper's number of them.
        steps: Fewer steps; evaluations keep their number.
        episodes: Fewer evaluation episodes per task.
        precision: Arithmetic of matrix products; auto: bf16 for vectors on a GPU that computes in it, else float32.
        workers: Evaluation processes.
        quiet: No progress display.
    """
    from dualgoal.paper import reproduce as library

    part: dict[str, Any] = {"tasks": tasks or None, "reps": reps or None, "seeds": seeds or None, "steps": steps}
    part |= {"precision": precision} | ({} if episodes is None else {"episodes": episodes})
    if dry_run:
        show(library.dry_run(table, out=out, **part), json, library.text)
        return
    done = library.reproduce(table, out=out, data=data, workers=workers, quiet=quiet, **part)
    print(done.json if json else done.text)
    if done.problems:
        raise UserError(f"{len(done.problems)} runs of {table} could not be done; the first: {done.problems[0]}")


def theory(json: bool = False, seed: int = 0, plot: Path | None = None) -> None:
    """Check the theorems exactly on finite processes.

    Args:
        json: Print JSON.
        seed: Seed of the random processes.
        plot: Draw the gallery of distance fields into this folder instead.
    """
    from dualgoal.theory import checks as library

    library.main(json=json, seed=seed, plot=plot)


def lightsout(
    out: Path,
    size: str = "4x5",
    rep: Literal["orig", "ideal", "dual"] = "ideal",
    seeds: tuple[int, ...] = (0, 1, 2, 3),
    steps: int = 1_000_000,
    batch_size: int = 1024,
    hidden: tuple[int, ...] = (1024, 1024, 1024, 1024),
    lr: float = 1e-4,
    tau: float = 0.005,
    eval_every: int | None = None,
    scaling: Literal["raw", "standardised"] = "raw",
    network: Literal["heads", "onehot"] = "heads",
    double: bool = False,
    loss: Literal["squared", "huber"] = "squared",
    reached_by: Literal["state", "row"] = "state",
    precision: Precision = "auto",
    trajectories: int = 40_000,
    length: int = 25,
    data_seed: int = 0,
    anchor_seed: int = 0,
    pairs: bool = False,
    quiet: bool = False,
) -> None:
    """DQN on Lights Out with bits, exact distances or a learned representation; run again: resumes.

    Args:
        out: The run directory.
        size: Board, rows x columns: 3x3, 4x5 or 4x6.
        rep: Bits (orig), exact distances from 64 boards (ideal, the paper's), or learned (dual).
        seeds: Training seeds.
        steps: Gradient steps.
        batch_size: Transitions per step.
        hidden: Hidden layers.
        lr: Learning rate.
        tau: Rate of the target network.
        eval_every: Steps between evaluations; default: a tenth of the steps.
        scaling: Distances as they are, or with mean 0 and variance 1.
        network: One output per action, or the action as an input.
        double: Double-DQN.
        loss: Squared or Huber error.
        reached_by: A goal is reached by an equal board, or only by the same row of the data.
        precision: Arithmetic of matrix products; auto: bf16 for vectors on a GPU that computes in it, else float32.
        trajectories: Episodes of random presses in the data.
        length: Presses per episode.
        data_seed: Seed of the data.
        anchor_seed: Seed of the 64 boards.
        pairs: Afterwards, try all pairs of boards (up to 12 buttons).
        quiet: No progress.
    """
    from dualgoal.paper import lightsout as library

    path = library.experiment(
        out, size, rep, seeds=seeds, steps=steps, batch_size=batch_size, hidden=hidden, lr=lr, tau=tau,
        eval_every=eval_every, scaling=scaling, network=network, double=double, loss=loss, reached_by=reached_by,
        precision=precision, trajectories=trajectories, length=length, data_seed=data_seed, anchor_seed=anchor_seed,
        quiet=quiet,
    )  # fmt: skip
    print(library.summary(path, pairs=pairs))


def export(run: Path, /, out: Path, seed: int | None = None, step: int | None = None) -> None:
    """Goal encoder and policy as safetensors with a JSON of the architecture beside it.

    Args:
        out: The .safetensors file to write.
        seed: Training seed; default: the run's first.
        step: Which checkpoint; default: the newest.
    """
    from dualgoal.runs.export import export_policy

    print(export_policy(run, out, seed=seed, step=step))


def doctor(json: bool = False) -> None:
    """Versions, devices, rendering, memory and disk; what is missing and the line that fixes it.

    Args:
        json: Print JSON.
    """
    from dualgoal.cli import doctor as library

    show(library.examine(), json, library.text)


def demo(out: Path = Path("demo"), workers: int | None = None) -> None:
    """Data, training, evaluation and a report on a small maze, in a few minutes.

    Args:
        out: Folder for everything.
        workers: Processes for data and evaluation; default: all cores.
    """
    from dualgoal.cli import demo as library

    library.demo(out, workers=workers)


def bench(
    task: str = "cube-single-play-v0",
    reps: tuple[str, ...] = ("dual",),
    algos: tuple[str, ...] = ("gcivl",),
    seeds: tuple[int, ...] = (1,),
    precisions: tuple[Precision, ...] = ("auto",),
    batches: tuple[int, ...] = (),
    widths: tuple[int, ...] = (512,),
    seconds: float = 2.0,
    baseline: bool = True,
    parts: bool = True,
    json: bool = False,
    trace: Path | None = None,
) -> None:
    """Speed as ratios, measured in one run: every combination of the lists, each against the stepwise baseline.

    Args:
        task: Sizes of observations, actions and data; the numbers in them are random.
        reps: Representations.
        algos: Algorithms.
        seeds: How many seeds train side by side.
        precisions: Arithmetics of matrix products.
        batches: Batch sizes; default: the task's.
        widths: Hidden widths.
        seconds: Time spent on each measurement, about.
        baseline: Also time the loop that samples on the host and dispatches every step.
        parts: Also time sampling, forward, backward, and optimiser with targets.
        json: Print JSON.
        trace: Write a profile of the first combination into this folder, for TensorBoard or Perfetto.
    """
    from dualgoal.bench import measure as library

    library.main(
        task=task, reps=reps, algos=algos, seeds=seeds, precisions=precisions, batches=batches, widths=widths,
        seconds=seconds, baseline=baseline, parts=parts, json=json, trace=trace,
    )  # fmt: skip

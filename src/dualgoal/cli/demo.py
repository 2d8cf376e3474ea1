"""`dualgoal demo`: the point of the paper on a puzzle, learned distances in a maze, and a report, within three minutes.

Lights Out with exact distances is the paper's proof of concept: nothing about distances is learned there, goals are
given either as distances or as bits. In the maze distances are learned, and shown; small networks and short training
do not make a contest of it. Where the learned representation wins, the networks have their full size and training is
longer than a demo, so that is a line from the row files. None of these settings are the paper's.
"""

import importlib.util
import operator
import os
import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent import futures
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dualgoal import imports, jsons
from dualgoal.cli.verb import Verb

BOARD = "4x5"
GAME: dict[str, Any] = {
    "seeds": (0, 1), "steps": 4_000, "batch_size": 256, "hidden": (256, 256, 256), "lr": 1e-3, "tau": 0.02,
    "eval_every": 500, "scaling": "standardised", "precision": "float32",
}  # fmt: skip
TASK = "pointmaze-medium-navigate-v0"
MAZE: dict[str, Any] = {
    "seeds": (0,), "steps": 10_000, "batch_size": 256, "lr": 2e-3, "tau": 0.05, "episodes": 0, "save_every": 10_000,
    "log_every": 500, "precision": "float32", "algo.hidden": [64, 64], "rep.hidden": [64, 64], "rep.dim": 32,
}  # fmt: skip
RESULTS = Path(__file__).parents[3] / "results"  # of a checkout
LEARNED = ("cube-single-play-v0", "scene-play-v0", "cube-double-play-v0")
TABLE = "state_gcivl"
TRY = f"dualgoal train {LEARNED[0]} --rep dual --algo gcivl --out runs/cube"
SECONDS = 6 * 3600.0  # before a part counts as hanging: a machine may be slow


Say = Callable[[str], None]


@dataclass(frozen=True)
class Demo(Verb):
    """Lights Out with exact distances against bits, then distances that are learned from recordings of a maze."""

    out: Path = Path("demo")
    """Folder for everything."""

    def run(self) -> None:
        run_demo(self.out)


@dataclass(frozen=True)
class Part:
    """One run of the demo: on Lights Out if `rep` is one of its representations, else in the maze."""

    name: str
    path: Path
    rep: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    data: Path | None = None
    episodes: int = 200

    def __call__(self) -> None:
        """Train it into its folder, or find it complete there."""
        if self.rep is not None:
            from dualgoal.paper import lightsout

            made = {**self.settings, "size": BOARD, "rep": self.rep, "trajectories": self.episodes}
            lightsout.Experiment(**made).train(self.path, quiet=True)
            return
        from dualgoal.collect import generate
        from dualgoal.paper import settings
        from dualgoal.report import distances
        from dualgoal.runs import training

        assert self.data is not None
        generate.generate_dataset(TASK, self.episodes, self.data, workers=1)
        run = settings.preset(TASK, "dual", "gcivl", **self.settings)
        training.train(run, self.path, data_path=self.data, quiet=True)
        if distances.kept(self.path) is None:
            distances.save(self.path, data=self.data)


def parts(out: Path, say: Say) -> list[Part]:
    """The three runs, or two where the simulator of the maze is not installed."""
    games = [("Lights Out, exact distances", "exact", "ideal"), ("Lights Out, bits", "bits", "orig")]
    todo = [Part(name, out / folder, rep, GAME, episodes=40_000) for name, folder, rep in games]
    if importlib.util.find_spec("ogbench") is None:
        say(f"without the maze, which needs OGBench: {imports.install('ogbench')}")
        return todo
    return [*todo, Part(f"{TASK}, Dual + GCIVL", out / "maze", None, MAZE, data=out / "data")]


def side_by_side(todo: Sequence[Part], say: Say, work: Callable[[Part], None] = operator.call) -> None:
    """Every part in a process of its own: one small network does not keep two cores busy. On the CPU, so that the
    numbers are the same with and without a GPU."""
    from dualgoal.runs.worker import ENVIRONMENT
    from dualgoal.workers import Pool

    told: set[tuple[str, int]] = set()
    with Pool(work, len(todo), environment=ENVIRONMENT, job_seconds=SECONDS) as pool:
        waiting = {pool.submit(part): part for part in todo}
        while waiting:
            done, _ = futures.wait(waiting, timeout=1.0, return_when=futures.FIRST_COMPLETED)
            for part in waiting.values():
                _tell_evaluations(part, told, say)
            for future in done:
                part = waiting.pop(future)
                future.result()
                say(f"{part.name}: done")


def _tell_evaluations(part: Part, told: set[tuple[str, int]], say: Say) -> None:
    """A line for every new evaluation; the file may be written to at this moment."""
    from dualgoal.runs import directory, rows

    found, _ = directory.usable_evaluations(part.path)
    for step in sorted({row.step for row in found} - {step for name, step in told if name == part.name}):
        here = rows.success_by_seed([row for row in found if row.step == step])
        told.add((part.name, step))
        say(f"{part.name}, step {step:,}: {sum(here.values()) / len(here):.0f} %")


def run_demo(out: Path, todo: Sequence[Part] | None = None, carry_out: Callable[..., None] = side_by_side) -> Path:
    """Do everything below `out` and return the report. `todo` and `carry_out` make it smaller, for tests."""
    from dualgoal.report import page

    began = time.monotonic()
    say = lambda text: print(f"[{time.monotonic() - began:4.0f} s] {text}", flush=True)
    todo = parts(out, say) if todo is None else todo
    say(f"training {len(todo)} runs at the same time: {'; '.join(part.name for part in todo)}")
    carry_out(todo, say)
    notes = [where_learned_distances_win(RESULTS), f"Train one of these: {TRY}"]
    marked = [notes[0], page.with_command("Train one of these:", TRY)]
    paths = [part.path for part in todo]
    command = f"dualgoal demo --out {out}"
    report = page.write_report(paths, out / "report.html", title="dualgoal demo", command=command, notes=marked)
    found = page.sentences(paths)
    print(summary([*found, *notes]))
    say(f"open {report}")
    record: dict[str, Any] = {"command": command, "sentences": found, "notes": notes, "game": GAME, "maze": MAZE}
    record |= {"seconds": round(time.monotonic() - began), "cpu_seconds": round(sum(os.times()[:4]))}
    jsons.write(out / "summary.json", record)
    return report


def summary(sentences: Sequence[str]) -> str:
    """What came out, in the words of the report."""
    return "\n".join(["", *(textwrap.fill(words, 110, break_on_hyphens=False) for words in sentences), ""])


def where_learned_distances_win(folder: Path) -> str:
    """The learned representation against raw goals at full size, from the row files of a checkout."""
    from dualgoal.paper import comparison, row_files

    filled = comparison.fill_table(TABLE, row_files.load_all(folder), LEARNED)
    scores = {line.name: line.finished() for line in filled.lines}
    compared = {difference.task for difference in filled.differences}
    words = []
    for task in (task for task in LEARNED if task in compared):
        dual, orig = (scores[task][column] for column in ("dual", "orig"))
        seeds = f"{dual.seeds} seeds" if dual.seeds == orig.seeds else f"{dual.seeds} and {orig.seeds} seeds"
        words.append(f"{task} {dual.mean:.0f} % against {orig.mean:.0f} % ({dual.steps:,} steps, {seeds})")
    listed = "; ".join(words) or "see docs/results.md of the repository"
    return (
        "Where learned distances win (Dual against raw goals, GCIVL, mean over seeds, 5 goals and the last 3 "
        f"evaluations): {listed}."
    )

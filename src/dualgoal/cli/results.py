"""Commands about runs that exist, and about the paper's tables: evaluate, report, export, reproduce, collect."""

from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import Positional, arg

from dualgoal.cli.cluster import ManyRuns
from dualgoal.cli.parsing import unset
from dualgoal.cli.verb import Verb, show
from dualgoal.errors import UserError
from dualgoal.machine import PrecisionOption
from dualgoal.options import FromZero, Range

RunPath = Annotated[Positional[Path], arg(name="run", metavar="RUN", help="Run directory.")]
Step = Annotated[int | None, unset("the newest", "INT", "Step of the checkpoint.")]
Seed = Annotated[int | None, unset("the run's first", "INT", "Training seed.")]


@dataclass(frozen=True)
class Eval(Verb):
    """The same checkpoint and options give the same numbers. They are also written to RUN/measured.jsonl, where report
    and compare find them."""

    run_path: RunPath
    step: Step = None
    episodes: Annotated[int | None, unset("as in the run, or 50 if it has none", "INT")] = None
    """Episodes per goal."""
    goal_noise: Annotated[float | None, unset("as in the run", "FLOAT")] = None
    """Standard deviation of noise on the goal, drawn once per episode."""
    action_noise: Annotated[float | None, unset("as in the run", "FLOAT")] = None
    """Standard deviation of noise on every action."""
    seeds: Annotated[tuple[int, ...], unset("all")] = ()
    """Training seeds to evaluate."""
    eval_seed: int = 0
    """Seed of the evaluation episodes: start states, goals and noise."""
    workers: Annotated[int | None, unset("all cores", "INT")] = None
    """Number of processes."""
    video: bool = False
    """Film one more episode per goal into RUN/videos."""
    random: bool = False
    """Act uniformly at random instead, for comparison."""
    env: Annotated[str | None, unset("the run's own", "ENV")] = None
    """Environment to evaluate in: FILE.py:NAME, module:NAME or a Gymnasium id."""
    eval_goals: Annotated[str | None, unset("as in the run", "STR")] = None
    """Evaluation goals: env (the environment's own), env:N (its tasks 1 to N), validation:N, or a file with a list."""
    success: Annotated[str | None, unset("as in the run", "STR")] = None
    """When a goal of your environment is reached: info (info["success"]), terminated, a distance or module:function."""
    max_steps: Annotated[int | None, unset("as in the run", "INT")] = None
    """Steps of an evaluation episode in your own environment."""
    record: bool = True
    """Write the rows to RUN/measured.jsonl, where report and compare find them."""
    json: bool = False
    """Print the rows as JSON."""

    def run(self) -> None:
        from dualgoal.runs import evaluation

        rows = evaluation.evaluate(self.run_path, **self.options("run_path", "json"))
        show(
            [row.to_json() for row in rows] if self.json else rows,
            self.json,
            partial(evaluation.text, random=self.random),
        )


@dataclass(frozen=True)
class Compare(Verb):
    """Success per goal and overall, with intervals over seeds, and how much each run differs from the first."""

    runs: Annotated[Positional[tuple[Path, ...]], arg(metavar="RUN RUN ...", help_behavior_hint="(required)")]
    """Run directories, of the same task."""
    rows: Literal["training", "eval"] = "training"
    """training: the mean of the last three evaluations during training. eval: the newest of dualgoal eval."""
    until: Annotated[int | None, unset("the end", "STEP")] = None
    """Leave out evaluations after this step, to compare a long run with a shorter one."""
    json: bool = False
    """Print JSON."""

    def run(self) -> None:
        from dualgoal.paper import pairwise

        found = pairwise.compare(self.runs, rows=self.rows, until=self.until)
        show(found.to_json() if self.json else found, self.json, pairwise.text)


@dataclass(frozen=True)
class Probe(Verb):
    """Prints how far the learned distance grows with each button that differs, whether it tells boards apart, and
    whether z says which buttons are lit. Needs a dataset of a puzzle, with images or without; nothing is simulated."""

    runs: Annotated[Positional[tuple[Path, ...]], arg(metavar="RUN ...", help_behavior_hint="(required)")]
    """Run directories."""
    data: Path
    """Dataset: a folder or an npz file."""
    split: Literal["train", "val"] = "val"
    """Which of its splits."""
    count: Annotated[int, Range(4, 20_000)] = 2000
    """Rows to look at."""
    seeds: Annotated[tuple[int, ...], unset("all")] = ()
    """Training seeds."""
    step: Step = None
    value: Annotated[Literal["rep", "algo"] | None, unset("the representation's, if it has one", "{rep,algo}")] = None
    """Whose learned value the distances are from: the representation's or the algorithm's."""
    draw: FromZero = 0
    """Seed of the choice of rows and pairs."""
    json: bool = False
    """Print JSON."""

    def run(self) -> None:
        from dualgoal.probes import trained

        if not self.runs:
            raise UserError("no run to probe; give one or more run directories")
        chosen = self.options("runs", "json")
        rows = [row for run in self.runs for row in trained.probe_run(run, **chosen)]
        show([asdict(row) for row in rows] if self.json else rows, self.json, trained.text)


@dataclass(frozen=True)
class Report(Verb):
    """The file can be sent to others: it needs neither a server nor the runs."""

    runs: Annotated[Positional[tuple[Path, ...]], arg(metavar="RUN ...", help_behavior_hint="(required)")]
    """Run directories, or folders that hold some."""
    out: Path
    """The file to write."""
    data: Annotated[Path | None, unset("the dataset that each run names", "PATH")] = None
    """Dataset whose states the distance explorer shows."""

    def run(self) -> None:
        from dualgoal.report import page

        print(page.write_report(self.runs, self.out, data_path=self.data))


@dataclass(frozen=True)
class Export(Verb):
    """A safetensors file comes with a JSON file that describes it. ONNX files are compared with the original policy
    before they are written. Both can be used without this package."""

    run_path: RunPath
    out: Path
    """The file to write: .safetensors, or .onnx (needs the extra onnx)."""
    seed: Seed = None
    step: Step = None

    def run(self) -> None:
        if self.out.suffix == ".onnx":
            from dualgoal.runs import onnx_export

            for line in onnx_export.export_onnx(self.run_path, self.out, seed=self.seed, step=self.step):
                print(line)
            return
        from dualgoal.runs.export import export_policy

        print(export_policy(self.run_path, self.out, seed=self.seed, step=self.step))


@dataclass(frozen=True)
class Label(Verb):
    """For filtering and weighting other training on these rows. A JSON file next to the result records its origin."""

    run_path: RunPath
    data: Path
    """The dataset: a file, or a folder that holds the run's."""
    out: Path
    """The file to write: .npz, or .parquet (needs the extra parquet)."""
    goal: Annotated[tuple[str, ...], unset("the end of each row's episode", "NUMBER ...")] = ()
    """A goal for all rows: its numbers, or a file with them (.npy, .json, or text)."""
    split: Annotated[Literal["train", "val"], arg(metavar="SPLIT")] = "train"
    """Which file of the dataset: train or val."""
    seed: Seed = None
    step: Step = None
    quiet: bool = False
    """Show no progress."""

    def run(self) -> None:
        from dualgoal.runs import labels

        goal = labels.parse_goal(self.goal)
        print(labels.write_labels(self.run_path, goal=goal, **self.options("run_path", "goal")))


@dataclass(frozen=True, kw_only=True)
class Reproduce(ManyRuns):
    """Trains missing runs, resumes unfinished ones, and prints the table next to the published numbers."""

    table: Annotated[Positional[str], arg(metavar="TABLE")]
    """Table (see: dualgoal list tables)."""
    tasks: Annotated[tuple[str, ...], unset("all")] = ()
    """Rows of the table."""
    reps: Annotated[tuple[str, ...], unset("all")] = ()
    """Columns of the table."""
    seeds: Annotated[tuple[int, ...], unset("as many as in the paper")] = ()
    """Training seeds."""
    steps: Annotated[int | None, unset("as in the paper", "INT")] = None
    """Gradient steps. With fewer, the number of evaluations stays the same."""
    episodes: Annotated[int | None, unset("as in the paper", "INT")] = None
    """Evaluation episodes per goal."""
    precision: PrecisionOption = "auto"
    """Precision of matrix products. auto: bf16 on a GPU that supports it, else float32."""

    def run(self) -> None:
        from dualgoal.paper import reproduce

        part: dict[str, Any] = {"tasks": self.tasks or None, "reps": self.reps or None, "seeds": self.seeds or None}
        part |= {"steps": self.steps, "precision": self.precision}
        part |= {} if self.episodes is None else {"episodes": self.episodes}
        plan = lambda: reproduce.plan(self.table, out=self.out, data=self.data, **part)
        self.carry_out(self.table, plan, partial(reproduce.carry_out, self.table, **part))


@dataclass(frozen=True)
class Results(Verb):
    """Evaluations go into one row file per run; the page shows all row files next to the published numbers."""

    runs: Annotated[tuple[Path, ...], unset("only build the page")] = ()
    """Folders with runs to collect."""
    folder: Path = Path("results")
    """Folder with the row files and the paragraphs of the page."""
    out: Path = Path("docs/results.md")
    """The page to write."""
    shared_device: bool = False
    """The collected runs shared one device: divide each second among those that were training."""

    def run(self) -> None:
        from dualgoal.paper import results_page

        print(results_page.write_page(self.folder, self.out, self.runs, shared_device=self.shared_device))

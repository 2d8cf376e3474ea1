"""Commands for many runs: carry out a sweep, and see how runs are getting on."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

from dualgoal.cli.parsing import unset
from dualgoal.cli.verb import Verb, show
from dualgoal.errors import Busy, UserError, number_of, require_known

if TYPE_CHECKING:
    from dualgoal.paper.jobs import Job


@dataclass(frozen=True, kw_only=True)
class ManyRuns(Verb):
    """The options of commands that carry out a plan of runs."""

    on: Annotated[str, arg(metavar="here|ray[:ADDRESS]|slurm")] = "here"
    """Where the runs are trained: here, ray, ray:HOST:PORT or slurm (see docs/cluster.md)."""
    dry_run: bool = False
    """Only list the runs."""
    json: bool = False
    """Print JSON."""
    out: Path = Path("runs")
    """Folder that holds the runs; on a cluster, one that all machines see."""
    data: Annotated[Path | None, unset("cached, else downloaded, else generated", "PATH")] = None
    """Folder with the datasets."""
    workers: Annotated[int | None, unset("half the cores; with an accelerator, all but one", "INT")] = None
    """Evaluation processes of each run."""
    gpus: Annotated[float | None, unset("one, if there are any", "FLOAT")] = None
    """GPUs of each run on a cluster; below 1, a share of one GPU and of its memory."""
    cpus: Annotated[int | None, unset("an even share of the machine; on Slurm 8", "INT")] = None
    """CPU cores of each run on a cluster, for training and evaluation."""
    slurm: Annotated[tuple[str, ...], unset("24 hours, the cluster's own defaults", "NAME=VALUE")] = ()
    """More options of sbatch, for instance partition=gpu time=600 (minutes)."""
    quiet: bool = False
    """Show no progress."""

    def carry_out(self, what: object, plan: Callable[[], "list[Job]"], do: Callable[..., Any]) -> None:
        """List the planned runs, or do them and print what came out; `what` names them in messages."""
        from dualgoal.engine.items import Placement
        from dualgoal.paper import jobs

        placement = Placement(self.gpus, self.cpus, self.slurm)
        execution = jobs.Execution(self.on, placement, self.data, self.workers, self.quiet)
        if self.dry_run:
            show([job.to_dict() for job in plan()], self.json, jobs.text)
            return
        done = do(out=self.out, execution=execution, say=(lambda text: None) if self.json else print)
        print(done.json if self.json else done.text)
        if done.problems:
            where = "'problems' in the JSON" if self.json else "'left out' above"
            raise UserError(f"{len(done.problems)} of the runs of {what} failed; see {where}")
        if done.elsewhere:  # 0 would say that all is done, and whoever repeats what is not would leave it at that
            raise Busy(f"{what}: another process trains {number_of(len(done.elsewhere), 'run')} of it", jobs.LATER)


@dataclass(frozen=True, kw_only=True)
class Sweep(ManyRuns):
    """Every combination of the lists in the file is a run. Finished runs are skipped and unfinished ones resumed, so
    the same command continues after an interruption, and may be given again after the file has been extended."""

    file: Annotated[Positional[Path], arg(metavar="FILE.toml")]
    """Lists of tasks, reps, algos and seeds, [options] of all runs, and a [grid] of options to combine."""

    def run(self) -> None:
        from dualgoal.paper import sweep

        plan = lambda: sweep.plan(self.file, self.out, data=self.data)
        self.carry_out(self.file, plan, partial(sweep.carry_out, self.file))


@dataclass(frozen=True)
class Runs(Verb):
    """Reads only what the runs write themselves, so it works from any terminal that sees the folder."""

    folder: Annotated[Positional[Path], arg(metavar="DIR", help_behavior_hint="(default: runs)")] = Path("runs")
    """Folder that holds runs, at any depth."""
    sort: Annotated[str, arg(metavar="COLUMN")] = "state"
    """Column to sort by: state, task, run, step, rate, left, success, node or path."""
    reverse: bool = False
    """Largest first."""
    state: Annotated[tuple[str, ...], unset("all")] = ()
    """Only runs in these states: running, lost, failed, interrupted, unfinished, finished."""
    json: bool = False
    """Print JSON."""
    watch: bool = False
    """Show the table again every few seconds, until Ctrl-C."""
    every: float = 5.0
    """Seconds between two looks of --watch."""

    def run(self) -> None:
        if not self.watch:
            from dualgoal.runs import overview

            show([asdict(line) for line in self._lines()] if self.json else self._lines(), self.json, overview.text)
            return
        self._watch()

    def _lines(self) -> list[Any]:
        from dualgoal.runs import overview

        for state in self.state:
            require_known("state", state, overview.STATES)
        lines = [overview.look(path) for path in overview.find(self.folder)]
        chosen = [line for line in lines if not self.state or line.state in self.state]
        return overview.ordered(chosen, self.sort, self.reverse)

    def _watch(self) -> None:
        from rich.live import Live

        from dualgoal.runs import overview

        if self.json:
            raise UserError("--watch is for people; give --json alone and repeat the command")
        with Live(overview.picture(self._lines()), auto_refresh=False) as live:
            while True:
                time.sleep(max(0.1, self.every))
                live.update(overview.picture(self._lines()), refresh=True)

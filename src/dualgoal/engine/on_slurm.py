"""Runs as Slurm jobs, submitted by submitit, which also puts a job back into the queue that is asked to leave."""

import shutil
import signal
import time
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from dualgoal import imports
from dualgoal.engine import sites
from dualgoal.engine.items import Item, Placement, Problem, Say, perform
from dualgoal.engine.sites import Site
from dualgoal.errors import Preempted, UserError, number_of
from dualgoal.runs import interruption

LOGS = ".slurm"  # in the folder of the runs
HOURS = 24
REQUEUES = 1000  # a run may be interrupted as often as it likes: it loses nothing
CPUS = 8
POLL_SECONDS = 2.0

OF_SUBMITIT = {  # parameters of submitit that are no options of sbatch
    "num_gpus", "setup", "teardown", "signal_delay_s", "array_parallelism", "stderr_to_stdout", "additional_parameters",
    "srun_args", "use_srun",
}  # fmt: skip
LOGGED = f"logs are in {LOGS}, in the folder of the runs"
READ = "it changes what sbatch answers, or when, and the answer is read here"
REQUEUED = "a job that is asked to leave is always put back into the queue"
REFUSED = {  # options of sbatch that are decided here, and how
    "array": "the runs are the array",
    "output": LOGGED,
    "error": LOGGED,
    "signal": "a job saves at the signal that is sent before its time is over, which is set here",
    "requeue": REQUEUED,
    "no-requeue": REQUEUED,
    "gpus": "give --gpus N instead, or gpus-per-node=KIND:N for a kind of GPU",
    **dict.fromkeys(("parsable", "quiet", "test-only", "wait", "wrap"), READ),
}
ONE = ("nodes", "ntasks", "ntasks-per-node", "tasks-per-node")  # a run is one process


class Task:
    """One run as a job. Asked to leave, it saves, and is put back into the queue as it is."""

    def __init__(self, planted: Path, driver: Site, workers: int | None):
        self._planted, self._driver, self._workers = planted, driver, workers

    def __call__(self, item: Item) -> Problem:
        import submitit

        try:
            sites.require_equal(sites.look(self._planted), self._driver, self._planted)
        except UserError as problem:
            return str(problem)
        # scancel sends SIGTERM, and a job that was cancelled must not come back; submitit ignores it.
        interruption.LEFT_TO_OTHERS.add(int(signal.SIGTERM))
        try:
            return perform(item, self._workers)
        except Preempted:
            signal.raise_signal(submitit.JobEnvironment()._usr_sig())  # to submitit's handler, which does not return
            raise

    def checkpoint(self, item: Item) -> Any:
        """Submitit asks: what is to be submitted instead?"""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self, item)


class OnSlurm:
    """Carries out runs as an array of Slurm jobs."""

    def __init__(self, placement: Placement, folder: Path, workers: int | None = None, cluster: str = "slurm"):
        submitit = imports.optional("submitit", "slurm", "--on slurm")
        for program in ("sbatch", "srun") if cluster == "slurm" else ():  # submitit asks for both
            if shutil.which(program) is None:
                where = "run this on a machine from which jobs are submitted"
                raise UserError(f"--on slurm: there is no {program} here; {where}")
        gpus = 1.0 if placement.gpus is None else placement.gpus
        if gpus != int(gpus):
            raise UserError(f"Slurm gives whole GPUs, not {gpus:g}; give --gpus 1, or use --on ray inside a job")
        options: dict[str, Any] = {"timeout_min": HOURS * 60, "gpus_per_node": int(gpus)}
        options |= {"cpus_per_task": placement.cpus or CPUS}
        options |= _given(placement.slurm, _known_to(submitit))
        self._submitit, self._cluster, self._options = submitit, cluster, options
        self._folder, self._workers = folder, workers

    def execute(self, items: Sequence[Item], say: Say) -> Iterator[tuple[Item, Problem]]:
        if not items:
            return
        planted = sites.plant(self._folder / LOGS)  # it stays: jobs start when this process may be gone
        jobs = self._submit(items, Task(planted, sites.look(planted), self._workers))
        say(f"slurm: {number_of(len(jobs), 'job')}, the first is {jobs[0].job_id}; logs in {self._folder / LOGS}")
        waiting = dict(zip(jobs, items, strict=True))
        while waiting:
            for job in [job for job in waiting if job.done()]:
                yield waiting.pop(job), self._result(job)
            time.sleep(POLL_SECONDS)

    def _submit(self, items: Sequence[Item], task: Task) -> list[Any]:
        limit = {f"{self._cluster}_max_num_timeout": REQUEUES}
        executor = self._submitit.AutoExecutor(folder=self._folder / LOGS / "%j", cluster=self._cluster, **limit)
        try:
            executor.update_parameters(name="dualgoal", **self._options)
            jobs: list[Any] = executor.map_array(task, items)
        except (self._submitit.core.utils.FailedJobError, NameError, TypeError, ValueError) as error:
            lines = str(error).strip().splitlines() or [type(error).__name__]
            sbatch = isinstance(error, self._submitit.core.utils.FailedJobError)  # which says why at the end
            raise UserError(f"Slurm refused the jobs: {lines[-1 if sbatch else 0]}") from error
        return jobs

    def _result(self, job: Any) -> Problem:
        errors = self._submitit.core.utils
        try:
            problem: Problem = job.result()
            return problem
        except errors.UncompletedJobError:
            return f"job {job.job_id} ended in state {job.state} without a result; its log is {job.paths.stderr}"
        except errors.FailedJobError as error:
            return f"job {job.job_id} failed with {str(error).strip().splitlines()[-1]}; its log is {job.paths.stderr}"


def _known_to(submitit: Any) -> set[str]:
    """Options of sbatch for which submitit has a parameter."""
    known: set[str] = submitit.SlurmExecutor._valid_parameters()
    return known - OF_SUBMITIT


def _given(words: Sequence[str], known: Collection[str]) -> dict[str, Any]:
    """NAME=VALUE as sbatch has them, for submitit: those that it knows by their names, `time` in minutes by one of its
    own, and all others in a dictionary that it hands on. NAME= is an option without a value."""
    options: dict[str, Any] = {}
    others: dict[str, Any] = {"requeue": True}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name.replace("-", "_").isidentifier():
            raise UserError(f"--slurm takes NAME=VALUE, for instance partition=gpu, not '{word}'")
        name = name.replace("_", "-")
        if name in REFUSED:
            raise UserError(f"--slurm {word}: {REFUSED[name]}")
        if name in ONE and value != "1":
            raise UserError(f"--slurm {word}: a run is one process; expected {name}=1")
        plain: Any = int(value) if value.isdecimal() else value or True
        if name == "time":
            if not value.isdecimal():
                raise UserError(f"--slurm {word}: expected minutes, for instance time=1440")
            options["timeout_min"] = plain
        elif (parameter := name.replace("-", "_")) in known:
            options[f"slurm_{parameter}"] = plain
        else:
            others[name] = plain
    return options | {"slurm_additional_parameters": others}

"""Success per task, measured by worker processes while the device trains on (section 7 of the method).

A worker holds environments and reads a checkpoint from the run directory, so an evaluation is a function of what is on
disk. A worker that dies is replaced and its episodes are run again; the numbers do not depend on how many there are.
"""

import contextlib
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dualgoal import machine
from dualgoal.envs.versions import Mismatch, mismatches
from dualgoal.errors import UserError
from dualgoal.runs import directory
from dualgoal.runs import worker as rollout
from dualgoal.runs.rows import EvalRow
from dualgoal.runs.worker import BLOCK, Episode, Job

_ATTEMPTS = 3


@dataclass
class Evaluation:
    """One checkpoint under evaluation: its jobs and the answers so far."""

    step: int
    jobs: list[Job]
    answers: dict[Job, list[Episode]] = field(default_factory=dict)
    problem: BaseException | None = None

    @property
    def done(self) -> bool:
        return self.problem is not None or len(self.answers) == len(self.jobs)

    def rows(self) -> list[EvalRow]:
        """One row per seed and goal, as in eval.jsonl."""
        if self.problem is not None:
            raise self.problem
        together: dict[tuple[int, int], list[Episode]] = {}
        for job in self.jobs:
            if job.video is None:
                together.setdefault((job.seed, job.goal), []).extend(self.answers[job])
        goal_noise, action_noise = self.jobs[0].goal_noise, self.jobs[0].action_noise
        return [
            EvalRow(
                seed,
                self.step,
                goal,
                episodes=len(played),
                successes=sum(e.success for e in played),
                length=sum(e.length for e in played) / len(played),
                goal_noise=goal_noise,
                action_noise=action_noise,
            )
            for (seed, goal), played in together.items()
        ]


def jobs_for(
    path: Path, step: int, seeds: Iterable[int], goals: int, count: int, video: bool = False, **options: Any
) -> list[Job]:
    """The blocks of one evaluation, and a film per goal of the first seed if wanted."""
    seeds, numbers = list(seeds), range(1, goals + 1)
    blocks = [(first, min(BLOCK, count - first)) for first in range(0, count, BLOCK)]
    run = str(Path(path).resolve())
    plain = [Job(run, step, s, g, first, n, **options) for s in seeds for g in numbers for first, n in blocks]
    if not video:
        return plain
    film = Path(run) / "videos"
    names = {g: str(film / f"step-{step:09d}-seed-{seeds[0]}-goal-{g}.mp4") for g in numbers}
    return plain + [
        Job(run, step, seeds[0], g, rollout.VIDEO_EPISODE, 1, video=name, **options) for g, name in names.items()
    ]


def count_goals(task: str) -> int:
    """How many evaluation goals the environment of a task has."""
    from dualgoal.envs import registry

    env = registry.make(task)
    try:
        return env.num_tasks
    finally:
        env.close()


class Pool:
    """Workers that answer evaluations in the order they were submitted."""

    def __init__(self, workers: int, cpus: Sequence[int] | None = None):
        self._queue: queue.Queue[tuple[Evaluation, Job] | None] = queue.Queue()
        self._changed = threading.Condition()
        self._waiting: list[Evaluation] = []
        self._workers = [_Worker(cpus) for _ in range(max(1, workers))]
        self._threads = [threading.Thread(target=self._serve, args=(w,), daemon=True) for w in self._workers]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pending(self) -> list[int]:
        """Steps whose evaluation has been submitted but not collected."""
        return [e.step for e in self._waiting]

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers that are running."""
        return [process.pid for w in self._workers if (process := w.process) is not None and process.poll() is None]

    def submit(self, step: int, jobs: list[Job]) -> None:
        """Start an evaluation and return at once."""
        evaluation = Evaluation(step, jobs)
        self._waiting.append(evaluation)
        for job in jobs:
            self._queue.put((evaluation, job))

    def collect(self, wait: bool = False) -> list[tuple[int, list[EvalRow]]]:
        """(step, rows) of the evaluations that are finished, oldest first; with `wait`, of all."""
        finished = []
        while self._waiting:
            with self._changed:
                while wait and not self._waiting[0].done:
                    self._changed.wait()
            if not self._waiting[0].done:
                break
            evaluation = self._waiting.pop(0)
            finished.append((evaluation.step, evaluation.rows()))
        return finished

    def close(self) -> None:
        """Stop the workers; evaluations that are not finished are given up."""
        for _ in self._threads:
            self._queue.put(None)
        for evaluation in self._waiting:
            evaluation.problem = UserError("the evaluation was given up")
        for worker in self._workers:
            worker.stop()

    def _serve(self, worker: "_Worker") -> None:
        while (item := self._queue.get()) is not None:
            evaluation, job = item
            if evaluation.problem is not None:
                continue
            try:
                answer: list[Episode] | BaseException = worker.ask(job)
            except Exception as problem:
                answer = problem
            with self._changed:
                if isinstance(answer, BaseException):
                    evaluation.problem = answer
                else:
                    evaluation.answers[job] = answer
                self._changed.notify_all()


class _Worker:
    """One process that plays episodes; started at the first job, and again when it has died."""

    def __init__(self, cpus: Sequence[int] | None):
        self.process: subprocess.Popen[str] | None = None
        self._cpus = cpus
        self._errors: Any = None
        self._stopped = False

    def ask(self, job: Job) -> list[Episode]:
        for _ in range(_ATTEMPTS):
            answer = self._answer(job)
            if answer is not None:
                break
        else:
            raise UserError(f"evaluation of goal {job.goal}: the worker died {_ATTEMPTS} times; {self._last_words()}")
        if "problem" in answer:
            raise UserError(answer["problem"])
        if "crash" in answer:
            raise RuntimeError(f"an evaluation worker failed\n{answer['crash']}")
        return [Episode(bool(success), int(length)) for success, length in answer["episodes"]]

    def _answer(self, job: Job) -> dict[str, Any] | None:
        """The answer, or None if the process died over the job."""
        if self._stopped:
            return {"problem": "the evaluation was given up"}
        if self.process is None:
            self._start()
        assert self.process is not None and self.process.stdin is not None and self.process.stdout is not None
        try:
            self.process.stdin.write(rollout.encode(job))
            self.process.stdin.flush()
            if line := self.process.stdout.readline():
                return json.loads(line)
        except (OSError, ValueError):
            pass  # the same as no answer
        self._bury()
        return None

    def _start(self) -> None:
        if self._errors is None:
            self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the worker)
        if self._cpus and sys.platform == "linux":
            os.sched_setaffinity(0, self._cpus)  # this thread, which only serves the worker; the worker inherits
        command = [sys.executable, "-m", "dualgoal.runs.worker"]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=self._errors, text=True, env=_environment()
        )

    def _last_words(self) -> str:
        if self._errors is None:
            return "it said nothing"
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return f"its last words: {lines[-1]}" if lines else "it said nothing"

    def _bury(self) -> None:
        """See that the process is gone and forget it: one that has closed its pipe may not have ended yet."""
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    with contextlib.suppress(OSError):
                        stream.close()

    def stop(self) -> None:
        self._stopped = True
        self._bury()


def _environment() -> dict[str, str]:
    """A worker computes on one CPU thread: cores are for more workers, and rounding must not depend on their number."""
    flags = "--xla_cpu_multi_thread_eigen=false"
    one = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
    return {**os.environ, **one, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}


def text(rows: Sequence[EvalRow]) -> str:
    """Rows for people: success in percent, a line per seed and a column per goal."""
    goals = sorted({row.goal for row in rows})
    cell = {(row.seed, row.goal): 100 * row.success for row in rows}
    lines = [" seed " + "".join(f"  goal {g}" for g in goals) + "    mean"]
    for seed in dict.fromkeys(row.seed for row in rows):
        values = [cell[seed, g] for g in goals]
        lines.append(f"{seed:>5} " + "".join(f"{v:>8.1f}" for v in [*values, sum(values) / len(values)]))
    return "\n".join([f"step {rows[0].step:,}, {rows[0].episodes} episodes per goal, success in %", *lines])


def evaluate(
    path: str | Path,
    *,
    step: int | None = None,
    episodes: int | None = None,
    goal_noise: float | None = None,
    action_noise: float | None = None,
    seeds: Sequence[int] | None = None,
    eval_seed: int = 0,
    workers: int | None = None,
    video: bool = False,
    random: bool = False,
) -> list[EvalRow]:
    """Evaluate a checkpoint of a run (default: the newest) and return rows like eval.jsonl's.

    `random` acts uniformly at random instead: what a score has to be compared with.
    """
    path = Path(path)
    recorded = directory.read(path)
    run, facts = recorded.run, recorded.facts
    if not run.has_policy:
        raise UserError(f"{path}: trained a representation alone, which has no policy to evaluate")
    for line in mismatches({"versions": facts.dataset.versions}):
        warnings.warn(f"{path}: dataset {line}", Mismatch, stacklevel=2)
    step, seeds = directory.choose_step(path, step), directory.choose_seeds(path, run, seeds)
    count = run.episodes if episodes is None else episodes
    if count < 1:
        raise UserError(f"episodes is {count}; give --episodes 1 or more")
    options = {
        "goal_noise": run.goal_noise if goal_noise is None else goal_noise,
        "action_noise": run.action_noise if action_noise is None else action_noise,
        "eval_seed": eval_seed,
        "random": random,
    }
    jobs = jobs_for(path, step, seeds, facts.goals or count_goals(run.task), count, video, **options)
    with Pool(min(workers or machine.cores(), len(jobs))) as pool:
        pool.submit(step, jobs)
        return pool.collect(wait=True)[0][1]

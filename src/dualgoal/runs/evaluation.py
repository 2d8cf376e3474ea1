"""Success per evaluation goal, measured by worker processes while the device keeps training (section 7 of the method).

A worker holds environments and reads a checkpoint from the run directory, so an evaluation is a function of what is on
disk. The numbers do not depend on how many workers there are, nor on whether some of them crash.
"""

import functools
import re
import warnings
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from dualgoal import imports, machine, texts
from dualgoal.envs.versions import Mismatch, mismatches
from dualgoal.errors import UserError, number_of
from dualgoal.options import FromZero, Range, as_option, check_options
from dualgoal.runs import directory, environment, measured
from dualgoal.runs.config import Run
from dualgoal.runs.episodes import BLOCK, VIDEO_EPISODE, Episode, encoder
from dualgoal.runs.facts import RunFacts
from dualgoal.runs.rows import Conditions, EvalRow
from dualgoal.runs.worker import ENVIRONMENT, EpisodeBlock, Player
from dualgoal.workers import InProcess, Pool


class NotRecorded(UserWarning):
    """An evaluation could not be written to its run directory."""


class NotChosen(UserWarning):
    """An evaluation has a setting that neither its run nor its user has chosen."""


@dataclass(frozen=True)
class Asked:
    """What an evaluation is asked for; None is as in the run."""

    step: Annotated[int | None, Range(0)]
    episodes: Annotated[int | None, Range(1)]
    goal_noise: Annotated[float | None, Range(0)]
    action_noise: Annotated[float | None, Range(0)]
    seeds: tuple[int, ...] | None
    eval_seed: FromZero
    workers: Annotated[int | None, Range(1)]
    random: bool
    success: str | None
    max_steps: Annotated[int | None, Range(1)]
    eval_goals: str | None

    def __post_init__(self) -> None:
        check_options(self)
        for name in ("success", "eval_goals"):
            if not isinstance(value := getattr(self, name), str | None):
                raise UserError(f"{name} is {value!r}; expected a text, as for training")


@dataclass(frozen=True)
class Plan:
    """What is played to evaluate a checkpoint."""

    seeds: tuple[int, ...]
    goals: int
    episodes: int  # per seed and goal
    conditions: Conditions = Conditions()
    video: bool = False  # film one more episode per goal of the first seed
    films: str = ""  # what the names of these films end with, so that they replace no others
    goal_list: environment.Goals | None = None  # those goals, where the conditions name a list

    @classmethod
    def of(cls, run: Run, goals: int, video: bool = False) -> "Plan":
        """How a run evaluates itself."""
        return cls(run.seeds, goals, run.episodes, Conditions(run.goal_noise, run.action_noise), video)

    def jobs(self, path: Path, step: int) -> list[EpisodeBlock]:
        """The evaluation of one checkpoint in blocks of episodes, films last."""
        path, goals = Path(path).resolve(), range(1, self.goals + 1)
        blocks = [(first, min(BLOCK, self.episodes - first)) for first in range(0, self.episodes, BLOCK)]
        job = functools.partial(EpisodeBlock, str(path), step, conditions=self.conditions, goals=self.goal_list)
        jobs = [job(s, g, first, count) for s in self.seeds for g in goals for first, count in blocks]
        if self.video:
            seed = self.seeds[0]
            names = {g: path / "videos" / f"step-{step:09d}-seed-{seed}-goal-{g}{self.films}.mp4" for g in goals}
            jobs += [job(seed, g, VIDEO_EPISODE, 1, video=str(file)) for g, file in names.items()]
        return jobs


class WorkerEvaluator(AbstractContextManager["WorkerEvaluator"]):
    """Evaluates checkpoints of a run in worker processes, in the order in which they were submitted.

    `env` takes the place of the run's environment. If no other process can make it (an object, or a function of a
    notebook, in place of a name), this process plays instead, before `submit` returns.
    """

    def __init__(self, plan: Plan, workers: int, cpus: Sequence[int] | None = None, env: Any = None):
        self.goals, self._plan = plan.goals, plan
        self._pool: Pool[EpisodeBlock, list[Episode]] | InProcess[EpisodeBlock, list[Episode]]
        if env is None or isinstance(env, str):
            self._pool = Pool(Player(env), workers, environment=ENVIRONMENT, cpus=cpus)
        else:
            self._pool = InProcess(Player(env))
        self._waiting: list[tuple[int, list[tuple[EpisodeBlock, Future[list[Episode]]]]]] = []

    def __exit__(self, *_: object) -> None:
        self._pool.close()

    @property
    def pending(self) -> list[int]:
        """Steps whose evaluation has been submitted but not collected."""
        return [step for step, _ in self._waiting]

    def submit(self, path: Path, step: int) -> None:
        """Start to evaluate the checkpoint of `step` in the run directory `path`, and return at once."""
        jobs = self._plan.jobs(path, step)
        self._waiting.append((step, [(job, self._pool.submit(job)) for job in jobs]))

    def collect(self, wait: bool = False) -> list[tuple[int, list[EvalRow]]]:
        """(step, rows) of the evaluations that are finished, oldest first; with `wait`, of all.

        The first block that failed raises its error, although others of the same evaluation are still being played.
        """
        finished = []
        while self._waiting:
            step, answers = self._waiting[0]
            if not wait and not all(future.done() for _, future in answers):
                failed = (future for _, future in answers if future.done() and future.exception())
                for future in failed:
                    future.result()
                break
            finished.append((step, _rows(step, [(job, future.result()) for job, future in answers])))
            self._waiting.pop(0)
        return finished


def require_sensible(conditions: Conditions, *, discrete: bool, pixels: bool) -> None:
    """Raise where noise means nothing: on discrete actions, and on goals that are images."""
    if conditions.action_noise and discrete:
        raise UserError("action noise is for actions that are numbers; these are discrete, evaluate without it")
    if conditions.goal_noise and pixels:
        raise UserError("goal noise is for vectors; evaluate image goals without it")


def _rows(step: int, answers: Sequence[tuple[EpisodeBlock, list[Episode]]]) -> list[EvalRow]:
    """One row per seed and goal, as in eval.jsonl."""
    played: dict[tuple[int, int], list[Episode]] = {}
    for job, episodes in answers:
        if job.video is None:
            played.setdefault((job.seed, job.goal), []).extend(episodes)
    job = answers[0][0]
    return [
        EvalRow(
            seed,
            step,
            goal,
            episodes=len(found),
            successes=sum(episode.success for episode in found),
            length=sum(episode.length for episode in found) / len(found),
            goal_noise=job.conditions.goal_noise,
            action_noise=job.conditions.action_noise,
            cpu_seconds=sum(episode.cpu_seconds for episode in found),
        )
        for (seed, goal), found in played.items()
    ]


def evaluate(
    path: str | Path,
    *,
    step: int | None = None,
    episodes: int | None = None,
    goal_noise: float | None = None,
    action_noise: float | None = None,
    seeds: Sequence[int] | int | None = None,
    eval_seed: int = 0,
    workers: int | None = None,
    video: bool = False,
    random: bool = False,
    record: bool = False,
    env: Any = None,
    success: str | float | None = None,
    max_steps: int | None = None,
    eval_goals: str | Path | None = None,
) -> list[EvalRow]:
    """Evaluate a checkpoint of a run (default: the newest) and return rows like those of its eval.jsonl.

    `random` acts uniformly at random instead: what a score has to be compared with. `record` also writes the rows to
    the run directory, where reports and comparisons find them, as `dualgoal eval` does. `env` takes the place of the
    run's environment: a name as of `dualgoal train --env`, or an object or a function that makes one, in which this
    process then plays. `success`, `max_steps` and `eval_goals` take the place of the run's own in the same way. Rows
    under what is not the run's own are recorded with its name.

    >>> rows = dualgoal.evaluate("runs/small", episodes=1, workers=1)
    >>> [(row.goal, row.episodes) for row in rows]
    [(1, 1), (2, 1), (3, 1), (4, 1), (5, 1)]
    """
    path = Path(path)
    given = {
        "step": step, "episodes": episodes, "goal_noise": goal_noise, "action_noise": action_noise, "seeds": seeds,
        "eval_seed": eval_seed, "workers": workers, "random": random, "success": success, "max_steps": max_steps,
        "eval_goals": eval_goals,
    }  # fmt: skip
    plain = {name: as_option(name, value) for name, value in given.items()}
    asked = Asked(**plain | {"seeds": (plain["seeds"],) if isinstance(plain["seeds"], int) else plain["seeds"]})
    run, facts = directory.read(path)
    env = imports.absolute(env) if isinstance(env, str) else env
    if not run.has_policy:
        raise UserError(f"{path}: trained a representation alone, which has no policy to evaluate")
    if env is None:
        environment.require_named(run, facts.dataset.maze is not None)  # before workers start, which takes seconds
    for line in mismatches({"versions": facts.dataset.versions}):
        warnings.warn(f"{path}: dataset {line}", Mismatch, stacklevel=2)
    chosen = directory.choose_step(path, asked.step)
    changed, goal_list = environment.asked(run, facts, asked.success, asked.max_steps, asked.eval_goals)
    conditions = Conditions(
        run.goal_noise if asked.goal_noise is None else asked.goal_noise,
        run.action_noise if asked.action_noise is None else asked.action_noise,
        asked.eval_seed,
        asked.random,
        **changed,
    )
    require_sensible(conditions, discrete=facts.sizes.discrete, pixels=facts.sizes.pixels)
    if video:
        encoder()  # which is an extra
    known = facts.goals if env is None and not changed and not video else None
    goals = known or environment.count_goals(*environment.under(run, facts, conditions, goal_list), env, video=video)
    episodes = _episodes(path, run) if asked.episodes is None else asked.episodes
    conditions = conditions._replace(env=_other(env, run, facts, goals))
    plan = Plan(
        directory.choose_seeds(path, run, asked.seeds),
        goals,
        episodes,
        conditions,
        video,
        films="" if conditions == Plan.of(run, goals).conditions else _slug(conditions.words or "no noise"),
        goal_list=goal_list,
    )
    try:
        rows = _play(plan, path, chosen, asked.workers, env)
    except UserError:
        newest = directory.choose_step(path, asked.step)
        if newest == chosen:
            raise
        rows = _play(plan, path, newest, asked.workers, env)  # training went on, and has replaced what was chosen
    if record:
        try:
            place = run.env if env is None else env
            measured.write(path, rows, conditions, imports.file_digest(place) if isinstance(place, str) else None)
        except UserError as problem:  # a folder of somebody else's: the numbers are worth more than their record
            warnings.warn(f"not recorded: {problem}", NotRecorded, stacklevel=2)
    return rows


def _episodes(path: Path, run: Run) -> int:
    """The episodes per goal of a run; those of runs by default, which is said, if it was trained without evaluation."""
    if not run.episodes:
        warnings.warn(
            f"{path}: was trained without evaluation; playing {Run.episodes} episodes per goal, give --episodes (in "
            "Python episodes) for another number",
            NotChosen,
            stacklevel=3,
        )
    return run.episodes or Run.episodes


def _other(env: Any, run: Run, facts: RunFacts, goals: int) -> str | None:
    """The name of an environment with so many goals if it is not the run's own. Nothing names that of a run which was
    trained with an object on a task of one's own, so there any object with as many goals is taken for it."""
    name = imports.name_of(env)
    nameless = not (isinstance(env, str) or environment.is_named(run, facts)) and goals == facts.goals
    if env is None or nameless or (name is not None and name == run.env):
        return None
    return name or getattr(env, "__name__", type(env).__name__)


def _slug(words: str) -> str:
    """Words as the end of the name of a file, which has to be short: then the last ones."""
    return f"-{re.sub(r'[^A-Za-z0-9.]+', '-', words).strip('-')[-100:]}"


def _play(plan: Plan, path: Path, step: int, workers: int | None, env: Any) -> list[EvalRow]:
    count = min(workers or machine.cores(), len(plan.jobs(path, step)))
    with WorkerEvaluator(plan, count, env=env) as evaluator:
        evaluator.submit(path, step)
        ((_, rows),) = evaluator.collect(wait=True)
    return rows


def text(rows: Sequence[EvalRow], random: bool = False) -> str:
    """Rows for people: success in percent, a line per seed and a column per goal. `random` actions had no policy."""
    goals = sorted({row.goal for row in rows})
    cell = {(row.seed, row.goal): 100 * row.success for row in rows}
    lines = [["seed", *(f"goal {g}" for g in goals), "mean"]]
    for seed in dict.fromkeys(row.seed for row in rows):
        values = [cell[seed, g] for g in goals]
        lines.append([str(seed), *(f"{v:.1f}" for v in [*values, sum(values) / len(values)])])
    aligned = texts.aligned(lines, right=range(len(lines[0])))
    what = "random actions" if random else f"step {rows[0].step:,}"
    return "\n".join([f"{what}, {number_of(rows[0].episodes, 'episode')} per goal, success in %", *aligned])

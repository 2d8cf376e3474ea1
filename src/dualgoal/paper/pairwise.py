"""`dualgoal compare`: runs of one task next to each other, per goal and overall, with intervals and differences.

With two seeds or more, intervals are Student's over seeds: they say what other seeds would give. With one seed, or with
seeds that agree, they are Wilson's over episodes, which say nothing about other seeds.
"""

import dataclasses
import string
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from dualgoal import texts
from dualgoal.errors import UserError, number_of
from dualgoal.paper import stats
from dualgoal.paper.stats import Gap, Interval
from dualgoal.runs import config, directory, environment, measured
from dualgoal.runs.facts import RunFacts
from dualgoal.runs.rows import CRITERIA, LAST, Conditions, EvalRow, complete, scores

FIELDS = ("env", "success", "max_steps", "goal_noise", "action_noise")  # of a run, about its evaluations
ENOUGH = 4  # seeds on each side for a bootstrap interval; of fewer it is too narrow to be printed

Source = Literal["training", "eval"]
Noise = config.Run | Conditions  # both say under which noise, and in which environment, evaluations were made


@dataclass(frozen=True)
class Score:
    """Success in percent, and a 95 % interval of it."""

    mean: float
    interval: Interval


@dataclass(frozen=True)
class Side:
    """One of the runs. `values` is (seeds, goals) in percent; `goals` are scores by number of the goal."""

    path: str
    run: str  # representation and algorithm
    id: str
    seeds: tuple[int, ...]
    steps: tuple[int, ...]  # of the evaluations that are averaged
    episodes: int  # per seed and goal, in all of them
    overall: Score
    goals: dict[int, Score]
    values: np.ndarray


@dataclass(frozen=True)
class RunDifference:
    """A run minus the first, in percentage points."""

    overall: Gap
    goals: dict[int, Gap]
    improvement: float  # probability that a seed of this run is better than one of the first
    improvement_interval: Interval | None
    otherwise: tuple[str, ...] = ()  # what differs in how the two were evaluated, as 'max_steps: 100 -> 200'
    other_data: bool = False  # whether they are known to have been trained on different data


@dataclass(frozen=True)
class Comparison:
    """Runs, and the difference of each but the first to the first."""

    task: str
    source: str  # where the numbers are from, in words
    sides: tuple[Side, ...]
    differences: tuple[RunDifference, ...]

    def to_json(self) -> dict[str, Any]:
        sides = [dataclasses.asdict(dataclasses.replace(side, values=side.values.tolist())) for side in self.sides]
        gap = lambda found: found._asdict()
        changes = [
            {
                "run": side.path, "minus": self.sides[0].path, "overall": gap(change.overall),
                "goals": {goal: gap(found) for goal, found in change.goals.items()},
                "improvement": change.improvement, "improvement_interval": change.improvement_interval,
                "otherwise": change.otherwise, "other_data": change.other_data,
            }
            for side, change in zip(self.sides[1:], self.differences, strict=True)
        ]  # fmt: skip
        return {"task": self.task, "source": self.source, "runs": sides, "differences": changes}


def compare(paths: Sequence[str | Path], *, rows: Source = "training", until: int | None = None) -> Comparison:
    """Compare two runs or more; `rows` says which of their evaluations, `until` leaves out those after a step."""
    if len(paths) < 2:
        raise UserError("compare needs two run directories or more")
    recorded = [directory.read(path) for path in paths]
    task = recorded[0].run.task
    for path, found in zip(paths, recorded, strict=True):
        if found.run.task != task:
            raise UserError(f"{path}: trained on '{found.run.task}', {paths[0]} on '{task}'; compare runs of one task")
    chosen: list[tuple[list[EvalRow], Noise]]
    if rows == "training":
        chosen = [(directory.evaluations(path), found.run) for path, found in zip(paths, recorded, strict=True)]
    else:
        conditions = _newest(Path(paths[0]), recorded[0], until)
        under = [_under(Path(path), found.run, conditions, until) for path, found in zip(paths, recorded, strict=True)]
        chosen = [(rows, conditions) for rows in under]
    sides = [
        _side(Path(path), found, evaluated, noise, until)
        for path, found, (evaluated, noise) in zip(paths, recorded, chosen, strict=True)
    ]
    if len(numbers := {tuple(side.goals) for side in sides}) > 1:
        counts = ", ".join(str(count) for count in sorted(map(len, numbers)))
        raise UserError(
            f"the runs have different numbers of goals ({counts}); evaluate them all with one --eval-goals, by "
            "dualgoal eval, and compare with --rows eval"
        )
    source = _during_training(sides)
    if rows != "training":
        source = f"the newest of dualgoal eval {_options(recorded[0].run, conditions)}".rstrip()
    later = None if rows == "training" else conditions
    files = [_env_file(rows) for rows, _ in chosen]
    changes = [
        dataclasses.replace(
            _difference(side, sides[0]),
            otherwise=during_training(recorded[0], found)
            if later is None
            else _with_file(_otherwise(recorded[0], found, later), files[0], file),
            other_data=other_data(recorded[0].facts, found.facts),
        )
        for side, found, file in zip(sides[1:], recorded[1:], files[1:], strict=True)
    ]
    return Comparison(task, source, tuple(sides), tuple(changes))


def _env_file(rows: Sequence[EvalRow]) -> str | None:
    """The SHA-256 of the file of the environment in which these rows were played, as far as it is known."""
    return next((row.env_sha256 for row in rows if isinstance(row, measured.Measured) and row.env_sha256), None)


def _with_file(otherwise: tuple[str, ...], first: str | None, other: str | None) -> tuple[str, ...]:
    """Also that the file of one environment was edited between the evaluations of two runs; these are its digests."""
    edited = None not in (first, other) and first != other and not any(text.startswith("env: ") for text in otherwise)
    return (*otherwise, "env: its file was edited in between") if edited else otherwise


def other_data(first: RunFacts, other: RunFacts) -> bool:
    """Whether two runs are known to have been trained on different data."""
    hashes = (first.dataset.sha256, other.dataset.sha256)
    return None not in hashes and hashes[0] != hashes[1]


def during_training(first: directory.Recorded, other: directory.Recorded) -> tuple[str, ...]:
    """What differs in how two runs were evaluated while they were trained."""
    return _with_file(_otherwise(first, other, None), first.facts.env_sha256, other.facts.env_sha256)


def _otherwise(first: directory.Recorded, other: directory.Recorded, later: Conditions | None) -> tuple[str, ...]:
    """What differs in how two runs were evaluated: during training, or `later` under the same conditions, where one
    name may stand for different goals."""
    changed = config.differences(first.run, other.run) if later is None else []
    named = lambda names: [text for text in changed if text.startswith(tuple(f"{name}: " for name in names))]
    found, alike = named(FIELDS), first.facts.goal_list == other.facts.goal_list  # a copy of a file has another name
    if alike or (later and any(_own(run)["eval_goals"] != later.eval_goals for run in (first.run, other.run))):
        return tuple(found)
    return (*found, *(named(["eval_goals"]) or [f"eval_goals: other goals of '{first.run.eval_goals}'"]))


def _during_training(sides: Sequence[Side]) -> str:
    """Of how many evaluations the numbers are means; a run may have had fewer than `LAST`."""
    counts = sorted({len(side.steps) for side in sides})
    if counts == [1]:
        return "one evaluation during training"
    between = f"{counts[0]} to " if len(counts) > 1 else ""
    return f"mean of the last {between}{counts[-1]} evaluations during training"


def _evaluations(path: Path, run: config.Run) -> dict[tuple[int, Conditions], list[EvalRow]]:
    """Rows by step and conditions, completed by what the run itself sets, so that they mean the same for all runs."""
    found, problem = measured.read(path)
    if problem is not None:
        raise UserError(f"{problem}; remove what is damaged, or the file, and evaluate again")
    own = _own(run)
    whole = lambda c: c._replace(**{name: value for name, value in own.items() if getattr(c, name) is None})
    return {(step, whole(c)): rows for (step, c), rows in measured.evaluations(found).items()}


def _own(run: config.Run) -> dict[str, Any]:
    """The settings that conditions leave out where they are the run's own."""
    own = {name: getattr(run, name) for name in ("env", *CRITERIA)}
    return own | {"eval_goals": environment.goals_name(run.eval_goals)}


def _options(run: config.Run, conditions: Conditions) -> str:
    """Conditions as options of `dualgoal eval` for this run, which needs none where they are its own."""
    own = _own(run)
    without: dict[str, Any] = {name: None for name in CRITERIA if getattr(conditions, name) == own[name]}
    return conditions._replace(**without).words


def _newest(path: Path, recorded: directory.Recorded, until: int | None) -> Conditions:
    """The conditions of the last evaluation of a policy."""
    every = [(step, conditions) for step, conditions in _evaluations(path, recorded.run) if not conditions.random]
    found = [conditions for step, conditions in every if until is None or step <= until]
    if not found:
        _refuse_later(path, until, [step for step, _ in every])
        other = ", or use its training's" if recorded.run.eval_steps else ""
        raise UserError(f"{path}: has no evaluation by dualgoal eval; run '{_command(path, recorded)}'{other}")
    return found[-1]


def _command(path: Path, recorded: directory.Recorded) -> str:
    """The command that evaluates a run; the user has to name an environment if the run names none."""
    return f"dualgoal eval {path}{'' if environment.is_named(recorded.run, recorded.facts) else ' --env ENV'}"


def _under(path: Path, run: config.Run, conditions: Conditions, until: int | None) -> list[EvalRow]:
    every = [(step, rows) for (step, c), rows in _evaluations(path, run).items() if c == conditions]
    found = [rows for step, rows in every if until is None or step <= until]
    if not found:
        _refuse_later(path, until, [step for step, _ in every])
        if run.env and not conditions.env:
            raise UserError(f"{path}: is evaluated in {run.env}; evaluate the first run there too, by --env {run.env}")
        if run.max_steps and not conditions.max_steps:
            raise UserError(
                f"{path}: is evaluated with --max-steps {run.max_steps}; evaluate the first run with that, too"
            )
        command = f"dualgoal eval {path} {_options(run, conditions)}".rstrip()
        raise UserError(f"{path}: has not been evaluated under the conditions of the first run; run '{command}'")
    return found[-1]


def _refuse_later(path: Path, until: int | None, steps: Sequence[int]) -> None:
    """Raise if there are evaluations, those of `steps`, and `until` leaves out all of them."""
    if until is not None and (later := [step for step in steps if step > max(until, 1)]):
        raise UserError(
            f"{path}: has no complete evaluation up to step {until:,}, the first is of step {min(later):,}; give a "
            "larger --until"
        )


def _side(path: Path, recorded: directory.Recorded, rows: list[EvalRow], under: Noise, until: int | None) -> Side:
    """`under` has noise and environment of the evaluations that count: a run, or the conditions of an evaluation."""
    alike = [r for r in rows if (r.goal_noise, r.action_noise) == (under.goal_noise, under.action_noise)]
    run = recorded.run
    asked, usual = map(environment.goals_name, (under.eval_goals or "env", run.eval_goals))
    own = under.env == run.env and asked == usual
    goals = recorded.facts.goals if own else None  # else there are as many as were played
    found = scores(alike, goals=goals, goal_noise=under.goal_noise, action_noise=under.action_noise, until=until)
    there = ~np.isnan(found.per_goal()).any(axis=1) if found.goals else np.zeros(len(found.seeds), bool)
    values = found.per_goal()[there]
    seeds = tuple(seed for seed, whole in zip(found.seeds, there, strict=True) if whole)
    if not seeds:
        _refuse_later(path, until, [step for _, step in complete(alike, goals or 1)])
        if not rows and not run.has_policy:
            raise UserError(f"{path}: trained a representation alone, which has no policy to compare")
        if not rows and not run.eval_steps:
            how = f"run '{_command(path, recorded)}', and compare with --rows eval"
            raise UserError(f"{path}: was trained without evaluation; {how}")
        raise UserError(f"{path}: has no complete evaluation to compare; train it further, or see 'dualgoal runs'")
    counted = found.counted()[-LAST:]
    used = [row for row in alike if row.step in counted and row.seed in seeds]
    return Side(
        path=str(path),
        run=" + ".join(run.names),
        id=run.id,
        seeds=seeds,
        steps=counted,
        episodes=sum(row.episodes for row in used if row.goal == 1) // len(seeds),
        overall=_score(values.mean(axis=1), used),
        goals={g: _score(values[:, i], [r for r in used if r.goal == g]) for i, g in enumerate(found.goals)},
        values=values,
    )


def _score(per_seed: np.ndarray, rows: Sequence[EvalRow]) -> Score:
    over_seeds = stats.success_interval(per_seed)
    if over_seeds is not None:
        return Score(float(per_seed.mean()), over_seeds)
    low, high = stats.wilson_interval(sum(row.successes for row in rows), sum(row.episodes for row in rows))
    return Score(float(per_seed.mean()), (100 * low, 100 * high))


def _difference(side: Side, first: Side) -> RunDifference:
    rng = np.random.default_rng(0)
    gap = lambda x, y: stats.difference(x, y, rng)
    x, y = side.values.mean(axis=1), first.values.mean(axis=1)
    return RunDifference(
        overall=gap(x, y),
        goals={goal: gap(side.values[:, i], first.values[:, i]) for i, goal in enumerate(side.goals)},
        improvement=float(stats.improvement([x], [y])),
        improvement_interval=stats.improvement_interval([x], [y], rng) if min(len(x), len(y)) >= ENOUGH else None,
    )


def text(found: Comparison) -> str:
    """A comparison for people: a column per run, then one per difference; a line per goal."""
    names = string.ascii_uppercase[: len(found.sides)] if len(found.sides) <= 26 else range(1, len(found.sides) + 1)
    letters = [str(name) for name in names]
    heads = ["", *(f"{n}: {s.run}" for n, s in zip(letters, found.sides, strict=True))]
    heads += [f"{n} - {letters[0]}" for n in letters[1:]]
    lines = [
        heads,
        ["overall", *(_shown(s.overall) for s in found.sides), *(_gap(d.overall) for d in found.differences)],
    ]
    for goal in found.sides[0].goals:
        scored = [_shown(side.goals[goal]) for side in found.sides]
        lines.append([f"goal {goal}", *scored, *(_gap(change.goals[goal]) for change in found.differences)])
    kind = "over seeds (of a single seed, or of seeds that agree, over episodes)"
    head = f"{found.task}: success in %, {found.source}; 95 % intervals {kind}"
    about = []
    for name, side in zip(letters, found.sides, strict=True):
        seeds, steps = " ".join(map(str, side.seeds)), ", ".join(f"{step:,}" for step in side.steps)
        episodes = f"{number_of(side.episodes, 'episode')} per seed and goal"
        about.append(f"{name}: {side.path}  seeds {seeds}  steps {steps}  {episodes}")
    return "\n".join([head, *texts.aligned(lines), *about, *_notes(found, letters)])


def _notes(found: Comparison, letters: Sequence[str]) -> list[str]:
    out = []
    for name, change in zip(letters[1:], found.differences, strict=True):
        if change.otherwise:
            out.append(f"{name} was evaluated otherwise than {letters[0]} ({'; '.join(change.otherwise)})")
        if change.other_data:
            out.append(f"{name} was trained on other data than {letters[0]}")
    for name, side, change in zip(letters[1:], found.sides[1:], found.differences, strict=True):
        if min(len(side.seeds), len(found.sides[0].seeds)) == 1:
            continue
        between, better = change.improvement_interval, f"a seed of {name} is better than one of {letters[0]}"
        words = f"[{between[0]:.2f}, {between[1]:.2f}]" if between else "(too few seeds for an interval)"
        out.append(f"{better} with probability {change.improvement:.2f} {words}")
    if len({side.steps[-1:] for side in found.sides}) > 1:
        out.append("the runs were trained for different numbers of steps; --until compares them at the same one")
    return out


def _shown(score: Score) -> str:
    return f"{score.mean:.1f} [{score.interval[0]:.1f}, {score.interval[1]:.1f}]"


def _gap(gap: Gap) -> str:
    """With Welch's interval, which is also valid for a few seeds, as far as percentages can differ."""
    if gap.welch is None:
        return f"{gap.mean:+.1f}"
    return f"{gap.mean:+.1f} [{max(gap.welch[0], -100.0):+.1f}, {min(gap.welch[1], 100.0):+.1f}]"

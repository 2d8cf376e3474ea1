"""From Python: train on whatever is at hand, and look at what came out, in a script or in a notebook."""

import dataclasses
import hashlib
import inspect
import os
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dualgoal import imports, registry
from dualgoal.data import dataset
from dualgoal.data.dataset import Dataset
from dualgoal.envs import tasks
from dualgoal.errors import UserError, did_you_mean, kind_of
from dualgoal.interface import Algorithm, Representation
from dualgoal.options import as_option
from dualgoal.paper import settings
from dualgoal.runs import config, continuing, directory, evaluation, measured, policy, training
from dualgoal.runs.config import Run
from dualgoal.runs.policy import Policy
from dualgoal.runs.rows import EvalRow, Scores, scores
from dualgoal.runs.session import OnEvaluation

OWN_TASK = "my-task"


def train(
    what: Run | Dataset | str | Path,
    out: str | Path | None = None,
    *,
    env: Any = None,
    rep: str | Representation = "dual",
    algo: str | Algorithm = "gcivl",
    steps: int | None = None,
    validation: Dataset | None = None,
    data_path: str | Path | None = None,
    on_evaluation: OnEvaluation | None = None,
    workers: int | None = None,
    track_with: Sequence[str] = (),
    video: bool = False,
    quiet: bool = False,
    **options: Any,
) -> "TrainedRun":
    """Train on a `Dataset`, a file or folder with one, or a task of the paper; or train a `Run`, which says it all.

    `rep` and `algo` are names or objects. `options` are fields of `Run` (`seeds=(0, 1)`), and those of the parts
    (`**{"rep.dim": 64}`). `env` is the name of an environment (`module:factory`, a Gymnasium id), in which worker
    processes evaluate; or an environment or a function that makes one, which this process then does itself.

    `on_evaluation` is called with each evaluation (`step`, `rows`, `success` in percent) and ends training by returning
    True. The same call continues a run that was interrupted, and extends it if it asks for more `steps`.

    >>> small = {"rep.dim": 4, "rep.hidden": [8], "algo.hidden": [8], "batch_size": 8, "episodes": 1, "eval_every": 20}
    >>> task = "pointmaze-medium-navigate-v0"
    >>> run = dualgoal.train(task, "runs/small", data_path="data", steps=20, workers=1, quiet=True, **small)
    >>> run
    TrainedRun('runs/small'): pointmaze-medium-navigate-v0, dual + gcivl, 20 of 20 steps, success ... %
    """
    for kind in registry.WORDS:
        if out in registry.names(kind):
            raise UserError(
                f"out is {out!r}, the name of a part; give {kind}={out!r}, or out='./{out}' for a folder of that name"
            )
    if not isinstance(validation, Dataset | None):
        raise UserError(
            f"validation is {kind_of(validation)}; expected a Dataset; Dataset.from_episodes makes one of episodes"
        )
    if validation is not None and not isinstance(what, Dataset):
        raise UserError("validation goes with a Dataset; a file or folder has its own next to it (NAME-val.npz)")
    if isinstance(what, Run):
        two = env is not None and what.env not in (None, imports.name_of(env))
        if two or options or steps is not None or (rep, algo) != ("dual", "gcivl"):
            raise UserError("a Run has all its options; change them with dataclasses.replace, and give none here")
        asked, datasets = what, None
        left_open: tuple[str, ...] = ()
    else:
        options |= {} if steps is None else {"steps": steps}
        asked, datasets = _configure(what, env, rep, algo, data_path, validation, options)
        left_open = tuple(name for name in config.SCHEDULE if name not in options)
    here = None if env is None or asked.env is not None else env
    run, path = continuing.find(asked, out, left_open)
    training.train(
        run, path, data_path=data_path, workers=workers, track_with=track_with, video=video, quiet=quiet,
        datasets=datasets, env=here, on_evaluation=on_evaluation,
    )  # fmt: skip
    return TrainedRun(path, env=here)


Datasets = tuple[Dataset, Dataset | None]


def _configure(
    what: Dataset | str | Path, env: Any, rep: Any, algo: Any, data_path: Any, validation: Any, options: dict[str, Any]
) -> tuple[Run, Datasets | None]:
    """The run that the words of `train` mean, and its data if they are in memory or in a file that has no task."""
    if not isinstance(what, Dataset | str | os.PathLike):
        raise UserError(
            f"train was given {kind_of(what)}; expected a Run, a Dataset, a path, or a task's "
            "name; Dataset.from_episodes makes a Dataset of episodes"
        )
    for kind, part in (("rep", rep), ("algo", algo)):
        if not isinstance(part, str | Representation | Algorithm):
            raise UserError(f"{kind} is {part!r}; expected a name, or an object such as dualgoal.REPS['dual'](dim=64)")
        dotted = [name for name in options if name.startswith(f"{kind}.")]
        if dotted and not isinstance(part, str):
            raise UserError(f"{kind} is an object, so '{dotted[0]}' is an option of it: give it there, not to train")
    _require_options(options)
    options = {name: as_option(name, value) for name, value in options.items()}
    datasets = None
    if isinstance(what, Dataset):
        datasets, task = (_known(what), validation and _known(validation)), what.task or OWN_TASK
    elif data_path is None and str(what) not in tasks.TASKS and Path(what).exists():
        datasets = dataset.load_splits(what)
        task = datasets[0].task or Path(what).stem
    else:
        task = str(what)
        if data_path is None and Path(what).suffix == ".npz":
            raise UserError(f"{what}: no such file; give a dataset, or the name of a task")
    named = {
        "rep": rep if isinstance(rep, str) else config.part_name("rep", rep),
        "algo": algo if isinstance(algo, str) else config.part_name("algo", algo),
    }
    where = {} if (name := imports.name_of(env)) is None else {"env": name}
    has_data = datasets is not None or data_path is not None
    run = settings.for_task(task, **named, has_data=has_data, has_env=env is not None, **where, **options)
    given = {kind: part for kind, part in (("rep", rep), ("algo", algo)) if not isinstance(part, str)}
    return dataclasses.replace(run, **given), datasets


def _require_options(names: Iterable[str]) -> None:
    """Raise if one of the names is neither an option of a run nor of `train`; options of parts, with a dot, are checked
    where the parts are known."""
    fields, words = (field.name for field in dataclasses.fields(Run)), inspect.signature(train).parameters
    known = sorted({*fields, *words, "source"} - {"task", "what", "options"})
    for name in names:
        if name not in known and "." not in name:
            raise UserError(f"{name} is not an option{did_you_mean(name, known)} (known: {', '.join(known)})")


def _known(data: Dataset) -> Dataset:
    """The same data, checked as those of a file are, with a digest by which a run sees that it is continued on them."""
    if data.provenance.get("sha256"):
        return data
    known, digest = dataset.checked(data.task or "dataset", data), hashlib.sha256()
    for array in (data.observations, data.actions, data.terminals, data.goals):
        if array is not None:
            digest.update(f"{array.shape}{array.dtype}".encode())
            digest.update(np.ascontiguousarray(array).data)
    return dataclasses.replace(known, provenance={**data.provenance, "sha256": digest.hexdigest()})


class TrainedRun(os.PathLike[str]):
    """A run directory, looked at from Python. It can be given wherever a path of a run is asked for.

    >>> run = dualgoal.TrainedRun("runs/small")
    >>> len(run.evaluations), run.policy.step
    (5, 20)
    >>> run.plot().svg[:4]
    '<svg'
    """

    def __init__(self, path: str | Path, env: Any = None) -> None:
        self.path = Path(path)
        self.run = directory.read_run(self.path)
        self._env = env  # which this process alone has, so that the run directory cannot name it

    def __fspath__(self) -> str:
        return str(self.path)

    @property
    def step(self) -> int:
        """Of the newest checkpoint."""
        return max(directory.steps(self.path), default=0)

    @property
    def evaluations(self) -> list[EvalRow]:
        """Success by seed, step and goal, as evaluated during training."""
        return directory.evaluations(self.path)

    @property
    def success(self) -> float | None:
        """In percent: the mean over seeds and goals of the last three evaluations. None without any."""
        found = self._scores().per_seed()
        return float(found.mean()) if len(found) else None

    @property
    def rows(self) -> Any:
        """The evaluations as a pandas data frame, or as a list of dictionaries where pandas is not installed."""
        return _frame([row.to_json() for row in self.evaluations])

    @property
    def metrics(self) -> Any:
        """The losses in the same form."""
        return _frame([dict(row) for row in directory.inspect(self.path).metrics])

    @property
    def measured(self) -> Any:
        """What was evaluated after training, by `dualgoal eval` or `evaluate(record=True)`, in the same form."""
        return _frame([row.to_json() for row in measured.read(self.path)[0]])

    @property
    def policy(self) -> Policy:
        """The policy of the first seed at the newest checkpoint; `dualgoal.load` gives the others."""
        return policy.load(self.path)

    def evaluate(self, **conditions: Any) -> list[EvalRow]:
        """`dualgoal.evaluate` of this run, recorded in its directory, in the environment it was trained with."""
        return evaluation.evaluate(self.path, **{"record": True, "env": self._env, **conditions})

    def report(self, out: str | Path | None = None) -> Path:
        """Write the HTML report (default: report.html next to the run directory) and return its path."""
        from dualgoal.report import page

        return page.write_report([self.path], self.path.with_name(f"{self.path.name}.html") if out is None else out)

    def plot(self, metric: str | None = None) -> Any:
        """The learning curve of each seed, or a loss such as "actor/loss", as a picture that a notebook shows."""
        from dualgoal.paper.figures import Curve, picture

        if metric is None:
            if self.success is None:
                raise UserError(f"{self.path}: has not been evaluated; give plot the name of a loss")
            found = self._scores()
            by_seed = zip(found.seeds, found.curve(), strict=True)
            curves = {f"seed {seed}": Curve(np.array(found.steps), success) for seed, success in by_seed}
            return picture(curves, title=self.title, y_label="success in %", y_range=(0.0, 100.0))
        rows = [row for row in directory.inspect(self.path).metrics if row.get("split", "train") == "train"]
        names = sorted({name for row in rows for name in row} - {"step", "seed", "split"})
        if metric not in names:
            raise UserError(f"{self.path}: has no metric '{metric}' (there are: {', '.join(names) or 'none'})")
        curves = {}
        for seed in self.run.seeds:
            mine = [(row["step"], row[metric]) for row in rows if row["seed"] == seed and row.get(metric) is not None]
            curves[f"seed {seed}"] = Curve(*np.array(mine, float).reshape(-1, 2).T)
        return picture(curves, title=self.title, y_label=metric)

    @property
    def title(self) -> str:
        """Task and parts."""
        return f"{self.run.task}, {' + '.join(self.run.names)}"

    def _scores(self) -> Scores:
        return scores(self.evaluations, goal_noise=self.run.goal_noise, action_noise=self.run.action_noise)

    def __repr__(self) -> str:
        score = "not evaluated" if self.success is None else f"success {self.success:.0f} %"
        return f"TrainedRun('{self.path}'): {self.title}, {self.step:,} of {self.run.steps:,} steps, {score}"

    def _repr_html_(self) -> str:
        from html import escape

        return f"<p>{escape(repr(self))}</p>{'' if self.success is None else self.plot().svg}"


def _frame(rows: list[dict[str, Any]]) -> Any:
    try:
        import pandas
    except ImportError:
        warnings.warn("this is a list of rows; for a data frame, pip install 'dualgoal[notebook]'", stacklevel=3)
        return rows
    return pandas.DataFrame(rows)

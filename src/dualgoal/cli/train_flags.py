"""The flags of `dualgoal train`: every field of a run and every option of the chosen parts, with the preset as default.

Which options there are depends on the task, the representation and the algorithm, so those three are looked for first;
the rest is a dataclass put together from `Run` and the two parts, which tyro turns into flags and help.
"""

import ast
import dataclasses
import inspect
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from dualgoal import registry
from dualgoal.envs import tasks
from dualgoal.errors import UserError
from dualgoal.paper import settings
from dualgoal.runs import config
from dualgoal.runs.config import Run

DEFAULTS = {"task": "cube-single-play-v0", "rep": "dual", "algo": "gcivl"}


@dataclass(frozen=True)
class Extra:
    """Flags of `train` that do not change the result."""

    data: Path | None = None
    """Folder with TASK.npz and TASK-val.npz, or the file; default: cached, else fetched, else generated."""
    out: Path | None = None
    """Run directory; default: runs/TASK/REP-ALGO-ID. An existing one goes on where it stopped."""
    workers: int | None = None
    """Evaluation processes; default: half the cores on a CPU, all but one beside an accelerator."""
    track: tuple[str, ...] = ()
    """Trackers beside the JSONL files: tensorboard, wandb (offline unless WANDB_MODE says otherwise)."""
    video: bool = False
    """Film one more episode per task at every evaluation, with the goal beside it."""
    pin: bool = False
    """Training and evaluation on different cores (Linux)."""
    quiet: bool = False
    """Print nothing but problems."""


@dataclass(frozen=True)
class Columns:
    """Columns of the paper's tables as one flag each."""

    direct: bool = False
    """Policy from dual's own value, f learned by IVL (section 4.8): --algo.direct --rep.learner ivl."""
    fusion: str | None = None
    """orig on images: early or late fusion, same as --rep.fusion."""
    source: typing.Literal["paper", "code"] = "paper"
    """Preset of the paper's table or of the released command list, where they differ."""


def parse_train(args: Sequence[str], parse: Any) -> tuple[Run, Extra]:
    """A run and the rest from the words after `dualgoal train`; `parse(cls, args)` is tyro or a test's stand-in."""
    chosen = _chosen(args)
    base = _base(chosen)
    args = _without_widths(args, base)
    values = parse(_flags(base, chosen), args)
    given = {f.name: getattr(values, f.name) for f in dataclasses.fields(Run) if f.name != "task"}
    run = Run(task=values.task, **given)
    if values.direct or values.fusion:
        run = _columns(run, values.direct, values.fusion, "--rep.learner" in " ".join(args))
    return run, Extra(**{f.name: getattr(values, f.name) for f in dataclasses.fields(Extra)})


def _chosen(args: Sequence[str]) -> dict[str, str]:
    """What decides the defaults: the task, which comes first, and a few flags."""
    chosen = dict(DEFAULTS)
    words = [part for word in args for part in (word.split("=", 1) if word.startswith("--") else [word])]
    if words and not words[0].startswith("-"):
        chosen["task"] = words[0]
    for flag, value in zip(words, words[1:], strict=False):
        if flag in ("--rep", "--algo", "--steps", "--source", "--frozen-rep", "--data"):
            chosen[flag.removeprefix("--").replace("-", "_")] = value
    return chosen


def _base(chosen: dict[str, str]) -> Run:
    """The preset; for a task outside the paper, the library's defaults, evaluated if there is an environment."""
    steps = {"steps": int(chosen["steps"])} if chosen.get("steps", "").isdigit() else {}
    rep = {}
    if "frozen_rep" in chosen:
        from dualgoal.runs import directory

        rep = config.to_dict(directory.read_run(Path(chosen["frozen_rep"])))["rep"]
        chosen["rep"] = rep.pop("name")
    options = {f"rep.{name}": value for name, value in rep.items()}
    source = chosen.get("source", "paper")
    if chosen["task"] in tasks.TASKS:
        return settings.preset(chosen["task"], chosen["rep"], chosen["algo"], source=source, **steps, **options)
    if "data" not in chosen:
        tasks.get(chosen["task"])  # says which task was meant
    values = {"task": chosen["task"], "rep": {"name": chosen["rep"], **rep}, "algo": {"name": chosen["algo"]}}
    every = max(1, steps.get("steps", 1_000_000) // 10)
    own = {"eval_every": every, "save_every": every, "log_every": min(5000, every), "episodes": 50 * _has_env(chosen)}
    return config.from_dict(values | steps | own)


def _has_env(chosen: dict[str, str]) -> bool:
    from dualgoal.envs import ogbench

    try:
        ogbench.build(chosen["task"])
    except UserError:
        return False
    return True


def _without_widths(args: Sequence[str], base: Run) -> list[str]:
    """Drop --rep.hidden and --algo.hidden for parts without networks, so that one command line can loop over all."""
    parts: dict[str, Any] = {"--rep.hidden": base.rep, "--algo.hidden": base.algo}
    useless = {flag for flag, part in parts.items() if "hidden" not in {f.name for f in dataclasses.fields(part)}}
    out, skipping = [], False
    for word in args:
        skipping = word.split("=")[0] in useless or (skipping and word.isdigit())
        if not skipping:
            out.append(word)
    return out


def _columns(run: Run, direct: bool, fusion: str | None, learner_given: bool) -> Run:
    rep: Any = run.rep
    algo: Any = run.algo
    if direct:
        if not hasattr(algo, "direct") or "direct" not in {f.name for f in dataclasses.fields(algo)}:
            raise UserError("--direct is for --algo gcivl, which takes its advantage from the representation then")
        algo = dataclasses.replace(algo, direct=True)
        if hasattr(rep, "learner") and not learner_given:
            rep = dataclasses.replace(rep, learner="ivl")
    if fusion:
        if "fusion" not in {f.name for f in dataclasses.fields(rep)}:
            raise UserError("--fusion is for --rep orig; every other representation fuses late")
        rep = dataclasses.replace(rep, fusion=fusion)
    return dataclasses.replace(run, rep=rep, algo=algo)


def _flags(base: Run, chosen: dict[str, str]) -> type:
    """A dataclass with one field per flag."""
    from tyro.conf import Positional, arg

    names = {kind: ", ".join(registry.names(kind)) for kind in ("rep", "algo")}
    task_help = "OGBench task (dualgoal list tasks), or any name with --data"
    fields: list[Any] = [("task", Annotated[Positional[str], arg(metavar="TASK", help=task_help)])]
    for kind, extra in (("rep", ""), ("algo", ", none: a representation alone")):
        text = f"{ {'rep': 'Goal representation', 'algo': 'Algorithm'}[kind] }: {names[kind]}{extra}."
        note = Annotated[str, arg(name=kind, metavar="NAME", help=text)]
        fields.append((f"{kind}_name", note, dataclasses.field(default=chosen[kind])))
    for cls, values in ((Run, base), (Extra, Extra()), (Columns, Columns())):
        types, texts = typing.get_type_hints(cls), field_docs(cls)
        for f in dataclasses.fields(cls):
            if f.name not in ("task", "rep", "algo"):
                typed: Any = Annotated[types[f.name], arg(help=texts[f.name])]
                fields.append((f.name, typed, dataclasses.field(default=getattr(values, f.name))))
    for kind, part in (("rep", base.rep), ("algo", base.algo)):
        fields.append((kind, type(part), dataclasses.field(default=part)))
    return dataclasses.make_dataclass("Train", fields, frozen=True)


def field_docs(cls: type) -> dict[str, str]:
    """The strings that follow a dataclass's fields."""
    (node,) = ast.parse(inspect.getsource(cls)).body
    assert isinstance(node, ast.ClassDef)
    docs = {}
    for field, after in zip(node.body, node.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(after, ast.Expr):
            docs[field.target.id] = ast.literal_eval(after.value)
    return docs

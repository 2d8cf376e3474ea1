"""What a run is: one frozen value that says everything that changes its result (sections 6 and 7 of the method).

`Run` goes to canonical JSON and back without loss, is hashed into an id, and can be compared with another one field by
field. A representation or an algorithm becomes its name and its options, and may itself hold another one. Nothing here
touches arrays, so a configuration can be read on a machine without an accelerator.
"""

import dataclasses
import hashlib
import json
import numbers
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from dualgoal import machine, registry
from dualgoal.errors import UserError, did_you_mean
from dualgoal.interface import Algorithm, Representation
from dualgoal.jsons import inside, required, typed_fields
from dualgoal.options import Discount, FromOne, FromZero, Positive, Range, Rate, Seeds, Share, check_options

Precision = machine.PrecisionOption
ReachedBy = Literal["row", "state"]

MOST_STOPS = 1_000_000
RECORDABLE = "options are numbers, texts, tuples, parts, and dataclasses of exactly the class that the field declares"

# Fields that decide how often something is written, not what is computed.
INERT = frozenset({"save_every"})
# More steps continue a run, they do not make another one of it: step n is computed in the same way whatever follows.
NOT_IN_ID = INERT | {"steps"}
# What a preset derives from the number of steps, unless the user says otherwise.
SCHEDULE = ("eval_every", "save_every", "log_every")


@dataclass(frozen=True)
class Run:
    """One task, one representation, one algorithm, several seeds.

    >>> from dualgoal.algos import GCIVL
    >>> from dualgoal.reps import Dual
    >>> Run("scene-play-v0", Dual(), GCIVL(), steps=300, eval_every=100).eval_steps
    (100, 200, 300)
    """

    task: str
    """OGBench dataset name, for instance cube-single-play-v0."""
    rep: Representation
    """The goal representation and its options."""
    algo: Algorithm
    """The algorithm and its options."""
    discount: Discount = 0.99
    """Discount gamma, also of geometric goals."""
    seeds: Seeds = (0,)
    """Training seeds; they train side by side in one program."""
    steps: FromOne = 1_000_000
    """Gradient steps."""
    batch_size: FromOne = 1024
    """Transitions per gradient step."""
    lr: Positive = 3e-4
    """Adam's learning rate."""
    tau: Rate = 0.005
    """How fast target networks follow: their share of the new parameters at every step."""
    ema_before_update: bool = True
    """Update target networks from the parameters before the gradient step, as the released code does."""
    augment: Share = 0.5
    """Probability that a batch of images is shifted; without effect on vectors."""
    eval_every: FromZero = 100_000
    """Steps between evaluations; 0: only after the last step."""
    save_every: FromOne = 100_000
    """Steps between checkpoints; every evaluation and the end save too."""
    log_every: FromOne = 5_000
    """Steps between rows of metrics.jsonl."""
    episodes: FromZero = 50
    """Evaluation episodes per goal; 0: no evaluation."""
    goal_noise: Annotated[float, Range(0)] = 0.0
    """Standard deviation of Gaussian noise on every coordinate of an evaluation goal, drawn once per episode."""
    action_noise: Annotated[float, Range(0)] = 0.0
    """Standard deviation of Gaussian noise on every evaluation action, which is clipped again afterwards."""
    precision: Precision = "auto"
    """Arithmetic of matrix products; auto: bf16 on a GPU that computes in it, else float32."""
    reached_by: ReachedBy = "row"
    """When a relabelled goal counts as reached: it is the same row (released code), or an equal state."""
    frozen_rep: str | None = None
    """A run directory whose trained representation is used here and kept frozen (two-stage training)."""
    env: str | None = None
    """Environment to evaluate in: module:factory, file.py:factory or a Gymnasium id."""
    eval_goals: str = "env"
    """Evaluation goals: env (the environment's own), env:N (its tasks 1 to N), validation:N, or a file with a list."""
    success: str = "info"
    """When a goal of your environment is reached: info (info["success"]), terminated, a distance or module:function."""
    max_steps: Annotated[int | None, Range(1)] = None
    """Steps of an evaluation episode in your own environment."""
    deterministic: bool = False
    """Ask the compiler for bit-reproducible operations on a GPU (slower)."""

    def __post_init__(self) -> None:
        if isinstance(self.seeds, list):  # which works as well
            object.__setattr__(self, "seeds", tuple(self.seeds))
        for kind, base in registry.BASES.items():
            if not isinstance(part := getattr(self, kind), base):
                raise UserError(
                    f"{kind} is {part!r}; expected an object such as dualgoal.REPS['dual'](), or use preset"
                )
        check_options(self)
        if self.steps // min(self.log_every, self.save_every, self.eval_every or self.steps) > MOST_STOPS:
            raise UserError(f"more than {MOST_STOPS:,} logs, checkpoints or evaluations; make them rarer")
        # The command line builds a run for its defaults before the task is known.
        if isinstance(self.task, str) and (self.task in ("", ".", "..") or {"/", "\\", "\0"} & set(self.task)):
            raise UserError(f"'{self.task}' cannot be the name of a task, which is also that of a folder")

    @property
    def id(self) -> str:
        """Twelve hexadecimal digits over everything that changes what is computed at a step. The number of steps is
        left out, so a run that is extended keeps its id."""
        return id_of(to_dict(self))

    @property
    def names(self) -> tuple[str, str]:
        """Of the representation and of the algorithm, under which any process finds them again."""
        return part_name("rep", self.rep), part_name("algo", self.algo)

    @property
    def has_policy(self) -> bool:
        """False for a representation trained alone."""
        return bool(self.algo.roles)

    @property
    def eval_steps(self) -> tuple[int, ...]:
        """The steps after which the policy is evaluated: multiples of `eval_every` and the last."""
        if not self.episodes or not self.has_policy:
            return ()
        every = self.eval_every or self.steps
        return tuple(sorted({*range(every, self.steps + 1, every), self.steps}))


def canonical(value: Any) -> str:
    """JSON with one spelling per value: sorted keys, no spaces, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def id_of(values: Mapping[str, Any]) -> str:
    """The id of a configuration given as JSON values."""
    return _digest(values, NOT_IN_ID)


def check_of(values: Mapping[str, Any]) -> str:
    """The same over the number of steps as well: whether config.json is still as it was written."""
    return _digest(values, INERT)


def _digest(values: Mapping[str, Any], without: frozenset[str]) -> str:
    fields = {k: v for k, v in values.items() if k not in without}
    return hashlib.sha256(canonical(fields).encode()).hexdigest()[:12]


def to_dict(run: Any) -> dict[str, Any]:
    """The fields of a run, or of any dataclass in it, as plain JSON values; a part becomes its name and its options."""
    return {f.name: plain(getattr(run, f.name), f.name) for f in dataclasses.fields(run) if f.init}


def from_dict(values: Any, where: str = "") -> Run:
    """The inverse of `to_dict`; whatever does not fit is refused with the field's name, behind `where`."""
    if not isinstance(values, dict):
        raise UserError(f"a run's configuration is a JSON object, not {type(values).__name__}")
    rest = {k: v for k, v in values.items() if k not in ("rep", "algo")}
    parts = {kind: _part_from_dict(kind, values.get(kind), inside(where, kind)) for kind in registry.BASES}
    return _build(Run, rest | parts, where)


def require_recordable(run: Run) -> None:
    """Refuse a run that its own configuration would not bring back: an option of a kind that JSON does not have, or a
    subclass where a file would say only the fields of the class that the option is declared with."""
    try:
        back = from_dict(to_dict(run))
    except UserError as problem:
        raise UserError(f"config.json would not be read again: {problem}; {RECORDABLE}") from problem
    if lost := _lost(run, back, ""):
        raise UserError(f"{lost} would come back from config.json as something else; {RECORDABLE}")


def _lost(value: Any, back: Any, where: str) -> str | None:
    """The first field that is not the same after a way through a file; sequences may change their kind."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        if type(back) is not type(value):
            return f"{where} ({type(value).__name__})"
        names = [f.name for f in dataclasses.fields(value) if f.init]
        pairs = [(getattr(value, n), getattr(back, n), f"{where}.{n}".lstrip(".")) for n in names]
    elif isinstance(value, tuple | list):
        if not isinstance(back, tuple | list) or len(back) != len(value):
            return where
        pairs = [(one, other, where) for one, other in zip(value, back, strict=True)]
    else:
        return None if value == back else where
    return next(filter(None, (_lost(*pair) for pair in pairs)), None)


def schedule(every: int) -> dict[str, int]:
    """How often a run is evaluated, saved and logged if it is evaluated every so many steps."""
    return {"eval_every": every, "save_every": every, "log_every": min(5_000, every)}


def differences(a: Run, b: Run) -> list[str]:
    """The fields in which two runs differ, as 'rep.dim: 64 -> 128'; inert fields are left out, and the options of parts
    that are not even of the same name."""
    left, right = flat(to_dict(a)), flat(to_dict(b))
    names = [n for n in sorted({*left, *right}) if n not in INERT and left.get(n) != right.get(n)]
    other = tuple(f"{kind}." for kind in registry.BASES if f"{kind}.name" in names)
    shown = [n for n in names if not n.startswith(other) or n.removesuffix("name") in other]
    return [f"{n}: {_shown(left, n)} -> {_shown(right, n)}" for n in shown]


def part_name(kind: registry.Kind, part: Any) -> str:
    """The name of a representation or an algorithm, under which any process finds it again."""
    return registry.name_of(kind, type(part))


def _part_from_dict(kind: registry.Kind, values: Any, where: str) -> Any:
    if not isinstance(values, dict) or not isinstance(values.get("name"), str):
        raise UserError(f"{where} is {values!r}; expected an object with a 'name'")
    options, cls = {k: v for k, v in values.items() if k != "name"}, registry.part(kind, values["name"])
    if missing := [f.name for f in dataclasses.fields(cls) if f.init and required(f) and f.name not in options]:
        raise UserError(f"{cls.__name__}.{missing[0]} has no default; give every option of a part one")
    return _build(cls, options, where)


def _build(cls: type, values: dict[str, Any], where: str) -> Any:
    known = [f.name for f in dataclasses.fields(cls) if f.init]
    if strange := sorted(set(values) - set(known)):
        hint = did_you_mean(strange[0], known)
        name = inside(where, strange[0])
        raise UserError(f"{name} is not an option of {cls.__name__}{hint} (known: {', '.join(known)})")
    return typed_fields(values, cls, where, _make)


def _make(values: dict[str, Any], cls: Any, where: str) -> Any:
    """A part, or any other dataclass that an option holds."""
    kind = registry.kind_of(cls)
    return _build(cls, values, where) if kind is None else _part_from_dict(kind, values, where)


def plain(value: Any, name: str) -> Any:
    """The value of the option `name` as JSON has it."""
    if (kind := registry.kind_of(type(value))) is not None:
        options = to_dict(value)
        if "name" in options:  # where the part's own name is written
            raise UserError(f"{type(value).__name__} has an option called 'name'; give the option another name")
        return {"name": part_name(kind, value), **options}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return to_dict(value)
    if isinstance(value, tuple | list):
        return [plain(v, name) for v in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, numbers.Integral | numbers.Real):  # NumPy's
        return int(value) if isinstance(value, numbers.Integral) else float(value)
    raise UserError(f"option {name} is {value!r}, which an option cannot be; {RECORDABLE}")


def flat(values: Mapping[str, Any]) -> dict[str, Any]:
    """Nested values by dotted name: {"rep": {"dim": 64}} as {"rep.dim": 64}."""
    out: dict[str, Any] = {}
    for key, value in values.items():
        inner = flat(value) if isinstance(value, Mapping) else {}
        out |= {f"{key}.{k}": v for k, v in inner.items()} if inner else {key: value}
    return out


def _shown(values: dict[str, Any], name: str) -> str:
    return json.dumps(values[name]) if name in values else "(absent)"

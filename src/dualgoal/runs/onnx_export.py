"""Export to ONNX: the policy as one file, and the goal encoder as another, compared with the original before they are
written (docs/export.md)."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import random

from dualgoal import files, imports, machine
from dualgoal.errors import UserError
from dualgoal.fast import activations
from dualgoal.runs import export, onnx_graph, policy

ROWS = 3  # compared
TOLERANCE = {"float32": 1e-4, "tf32": 0.02, "bf16": 0.1}  # of actions in [-1, 1], and of z in units of its size
Inputs = dict[str, tuple[tuple[int, ...], Any]]


class Part(NamedTuple):
    """One file: what it computes, from what, and what must come out."""

    file: Path
    output: str
    function: Callable[..., Any]  # of a key and the inputs
    inputs: Inputs
    original: Callable[..., np.ndarray]  # the same by the policy, with the draw's number last


@files.os_errors_in_one_line
def export_onnx(run: str | Path, out: str | Path, *, seed: int | None = None, step: int | None = None) -> list[str]:
    """Write `out` (.onnx), and next to it NAME-goal.onnx if goals are encoded; returns a line about each.

    Both are run by onnxruntime on random inputs and compared with the original; if they differ, nothing is written.
    """
    out = Path(out)
    runtime = imports.optional("onnxruntime", "onnx", "ONNX export")
    loaded = policy.load(run, seed, step)
    export.require_policy(loaded)
    parts = parts_of(loaded, out)
    for part in parts:
        _require_free(part.file)
    made = [checked(part, loaded, runtime) for part in parts]
    files.make_folder(out.parent)
    for part, (content, _) in zip(parts, made, strict=True):
        files.write_atomic(part.file, content)
    return [line for _, line in made]


def _require_free(file: Path) -> None:
    """Raise if writing would replace anything but an earlier export."""
    if not file.exists():
        return
    onnx = imports.optional("onnx", "onnx", "ONNX export")
    try:
        ours = onnx.load(str(file)).producer_name == "dualgoal"
    except Exception:  # whatever it is, it is no ONNX file
        ours = False
    if not ours:
        raise UserError(f"{file}: would be replaced, and it is not an export; choose another --out")


def parts_of(loaded: policy.Policy, out: Path) -> list[Part]:
    """The files to make of a policy."""
    agent, params = policy.in_float32(loaded)
    sizes, units, rep = loaded.facts.sizes, loaded.facts.dataset.action_range, loaded.run.rep
    kind = np.uint8 if sizes.pixels else np.float32
    both: Inputs = {"observation": (sizes.observation_shape, kind), "goal": (sizes.goal, kind)}

    state, goal = (standard or (lambda rows: rows) for standard in loaded.facts.dataset.standards)

    def act(key: Any, s: Any, g: Any) -> Any:
        action = agent.act(params, state(s), goal(g), key)
        if units is None:
            return action
        low, high = (jnp.array(bound, jnp.float32)[None] for bound in (units.low, units.high))
        return low + (action + 1) / 2 * (high - low)

    parts = [Part(out, "action", act, both, lambda s, g, draw: loaded.act(s, g, draw=draw))]
    if not rep.learned:
        return parts
    file = out.with_name(f"{out.stem}-goal.onnx")
    if rep.looks_at_state:
        see = lambda key, s, g: agent.encode(params, goal(g), key, state(s))
        return [*parts, Part(file, "z", see, both, lambda s, g, draw: loaded.encode(g, s, draw=draw))]
    alone = {"goal": both["goal"]}
    anywhere = jnp.zeros((1, *sizes.observation_shape), kind) if sizes.goal_shape else None  # it is not looked at
    blind = lambda key, g: agent.encode(params, goal(g), key, anywhere)
    return [*parts, Part(file, "z", blind, alone, lambda g, draw: loaded.encode(g, draw=draw))]


def checked(part: Part, loaded: policy.Policy, runtime: Any) -> tuple[bytes, str]:
    """The file's content, and what the comparison with the original gave."""
    trace = lambda key, rows: onnx_graph.translate(lambda *x: part.function(key, *x), part.inputs, rows)
    key = random.key(0)
    allowed = activations.KERNELS.set(False)
    try:
        graph, given, result = trace(key, None)
        rng = np.random.default_rng(0)
        values = {t.name: _random(rng, (ROWS, *t.shape[1:]), t.dtype) for t in given}
        standards = dict(zip(("observation", "goal"), loaded.facts.dataset.standards, strict=True))
        values = {n: v if (s := standards[n]) is None else s.inverse(v) for n, v in values.items()}  # as in the data
        # What is random in the original depends on the row: its noise is found by tracing one row at a time.
        draws = [trace(loaded.key(row, 0), 1)[0].drawn for row in range(ROWS)] if graph.noise else []
    finally:
        activations.KERNELS.reset(allowed)
    noise = {t.name: np.concatenate([row[n] for row in draws]) for n, t in enumerate(graph.noise)}
    made = onnx_graph.model(graph, given, result, part.output, _facts(loaded)).SerializeToString()
    session = runtime.InferenceSession(made, providers=["CPUExecutionProvider"])
    (found,) = session.run(None, values | noise)
    wanted = np.asarray(part.original(*values.values(), 0))
    (one,) = session.run(None, {name: rows[:1] for name, rows in (values | noise).items()})
    if found.shape != wanted.shape:
        raise UserError(f"{part.file}: not written; its {part.output} has shape {found.shape}, expected {wanted.shape}")
    largest = float(np.abs(np.concatenate([found, one]).astype(np.float64) - [*wanted, wanted[0]]).max())
    _require_equal(part, loaded, largest, float(np.abs(wanted).max()))
    names = ", ".join(f"{t.name} {_shape(t)}" for t in (*given, *graph.noise))
    return made, f"{part.file}: {names} -> {part.output} {_shape(result)}; largest difference {largest:.2g}"


def _require_equal(part: Part, loaded: policy.Policy, largest: float, size: float) -> None:
    limit = TOLERANCE[loaded.agent.spec.precision] * max(1.0, size)
    if loaded.facts.sizes.discrete and part.output == "action":
        limit = 0.0
    if not largest <= limit:
        raise UserError(
            f"{part.file}: not written, because onnxruntime's {part.output} differs from the original by "
            f"{largest:.2g}; export as safetensors instead"
        )


def _random(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    images = dtype == np.uint8
    return rng.integers(0, 256, shape, np.uint8) if images else rng.normal(size=shape).astype(dtype)


def _shape(tensor: onnx_graph.Tensor) -> str:
    return f"({', '.join(['rows', *map(str, tensor.shape[1:])])})"


def _facts(loaded: policy.Policy) -> dict[str, str]:
    units = loaded.facts.dataset.action_range
    rep, algo = loaded.run.names
    return {
        "task": loaded.run.task, "rep": rep, "algo": algo,
        "seed": str(loaded.seed), "step": str(loaded.step), "dualgoal": machine.version("dualgoal") or "",
        "action_low": "" if units is None else " ".join(map(str, units.low)),
        "action_high": "" if units is None else " ".join(map(str, units.high)),
    }  # fmt: skip

"""How much memory a run needs on its devices, computed from shapes alone: nothing is allocated and nothing compiled.

What a step holds is found by walking through its operations in order and adding up what is still needed. A compiler
fuses and reorders operations, so its own figure is another, by up to 41 % where it was compared
(docs/everyday.md).
"""

import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core
from jax.extend.core import jaxprs_in_params

from dualgoal import machine
from dualgoal.agent import Agent
from dualgoal.data.dataset import Dataset
from dualgoal.errors import UserError
from dualgoal.loop import TrainingLoop, devices_used, seeds_take_turns
from dualgoal.sampler import shapes

FRACTION = "XLA_PYTHON_CLIENT_MEM_FRACTION"  # of a GPU, which engines set for the runs that share it


@dataclass(frozen=True)
class Memory:
    """Bytes on one device, and how many parameters one seed has."""

    data: int
    state: int  # parameters, target networks and optimiser of the device's seeds
    step: int  # what a gradient step holds besides them, at most
    parameters: int
    devices: int  # that share the seeds; those of a CPU also share one memory

    @property
    def total(self) -> int:
        """Bytes that must be free: on each device of a GPU, in all on a CPU."""
        shared = jax.default_backend() == "cpu"
        return self.data + (self.state + self.step) * (self.devices if shared else 1)


def estimate(agent: Agent, seeds: int, data: Mapping[str, np.ndarray | jax.ShapeDtypeStruct], episodes: int) -> Memory:
    """The memory that training `agent` for so many seeds needs, on a dataset of these arrays (`observations`, `actions`
    and perhaps `goals`) and episodes, on this machine's devices."""
    rows = shapes(data["observations"], data["actions"], data.get("goals"), episodes)
    key = jax.eval_shape(jax.random.key, jax.ShapeDtypeStruct((), jnp.uint32))
    state = jax.eval_shape(agent.init, key)
    step = jax.make_jaxpr(agent.update)(state, rows, key)
    devices = devices_used(seeds, jax.local_device_count())
    each = seeds // devices
    at_once = 1 if seeds_take_turns(agent) else each
    held = peak(step.jaxpr) - _bytes(rows)  # with a second state: the loop holds that of before and that of after
    parameters = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(state.params))
    return Memory(_bytes(rows), each * _bytes(state), at_once * held, parameters, devices)


def room() -> int:
    """Bytes that a device has left, as far as it says so, else the machine."""
    found = jax.local_devices()[0].memory_stats() or {}
    if "bytes_limit" in found:
        return int(found["bytes_limit"]) - int(found.get("bytes_in_use", 0))
    return machine.free_memory()


@dataclass(frozen=True)
class Least:
    """Bytes that one device holds for certain: the data, and parameters, targets, optimiser and gradients by seed."""

    data: int
    seeds: int
    each: int

    @property
    def total(self) -> int:
        return self.data + self.seeds * self.each


def least(loop: TrainingLoop, *datasets: Dataset | None) -> Least:
    """What a device holds at least. On a CPU the data are in memory already, and its devices share one memory."""
    template, count = loop.template, len(loop.seeds)
    each = (_bytes(template) + _bytes(template.params)) // count  # gradients are as large as the parameters
    if jax.default_backend() == "cpu":
        return Least(0, count, each)
    arrays = [a for d in datasets if d is not None for a in (d.observations, d.actions, d.goals) if a is not None]
    return Least(sum(array.nbytes for array in arrays), count // loop.mesh.size, each)


def require(path: Path, loop: TrainingLoop, *datasets: Dataset | None) -> None:
    """Raise if the run of directory `path` cannot fit, with what it needs and what there is. What a step needs in
    between comes on top and depends on the compiler, so a run that passes may still turn out to be too large."""
    need, have = least(loop, *datasets), room()
    if need.total <= have:
        return
    share = os.environ.get(FRACTION)
    where = "of memory" if jax.default_backend() == "cpu" else f"in {share or 'the memory'} of a GPU"
    parts = f"{need.seeds} seeds of {_text(need.each)}" + (f", data of {_text(need.data)}" if need.data else "")
    cure = "take fewer seeds" + ("" if not need.data else ", more devices, a larger --gpus, or less data")
    raise UserError(f"{path}: needs at least {_text(need.total)} ({parts}) and has {_text(have)} {where}; {cure}")


def _text(size: int) -> str:
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size / 2**20:.1f} MiB"


def peak(jaxpr: Any) -> int:
    """The most bytes that are in use while these operations are done one after the other, arguments included."""
    last: dict[Any, int] = {}
    for i, operation in enumerate(jaxpr.eqns):
        last |= {x: i for x in operation.invars if isinstance(x, core.Var)}
    last |= {x: len(jaxpr.eqns) for x in (*jaxpr.invars, *jaxpr.constvars, *jaxpr.outvars) if isinstance(x, core.Var)}
    ends: dict[int, list[Any]] = {}
    for x, i in last.items():
        ends.setdefault(i, []).append(x)
    now = most = _size([*jaxpr.invars, *jaxpr.constvars])
    for i, operation in enumerate(jaxpr.eqns):
        programs = jaxprs_in_params(operation.params)  # of calls, branches and loops
        inner = [peak(program) - _size([*program.invars, *program.constvars]) for program in programs]
        most = max(most, now + max([_size(operation.outvars), *inner]))
        now += _size(x for x in operation.outvars if x in last)
        now -= _size(ends.get(i, ()))
    return most


def _size(variables: Iterable[Any]) -> int:
    return sum(_bytes(x.aval) for x in variables)


def _bytes(tree: Any) -> int:
    shapes = [leaf for leaf in jax.tree.leaves(tree) if hasattr(leaf, "shape") and hasattr(leaf, "dtype")]
    width = lambda leaf: leaf.dtype.itemsize if hasattr(leaf.dtype, "itemsize") else 8
    return sum(math.prod(leaf.shape) * width(leaf) for leaf in shapes)

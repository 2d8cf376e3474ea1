"""Small problems and agents that the tests of the core share."""

import dataclasses
import os

import jax.numpy as jnp
import numpy as np

from dualgoal import algos, reps
from dualgoal.agent import Agent
from dualgoal.interface import Spec
from dualgoal.streams import Transitions

WIDTH = (8,)
DIM = 8
IMAGE = (16, 16, 3)  # two by two places after the encoder's three stacks
# XLA's own defaults, as compiler options: the tests go without (see conftest.py) unless they ask.
OPTIMISED: dict = {"xla_backend_optimization_level": 3, "xla_llvm_disable_expensive_passes": False}
if "fusion_emitters" in os.environ.get("XLA_FLAGS", ""):
    OPTIMISED["xla_cpu_use_fusion_emitters"] = True


def rep(name: str, hidden=WIDTH, **options):
    return reps.REPS[name](**({} if name == "orig" else {"hidden": hidden, "dim": DIM}), **options)


def algo(name: str, hidden=WIDTH, **options):
    return algos.ALGOS[name](hidden=hidden, **({"latent": DIM} if name == "crl" else {}), **options)


def agent(rep_name: str, algo_name: str, hidden=WIDTH, *, shape=(3,), actions=2, frozen=False, **spec) -> Agent:
    part = algo(algo_name, hidden)
    spec = Spec(shape, actions, **{"batch_size": 4, "discrete": "continuous" not in part.actions, **spec})
    return Agent(rep(rep_name, hidden), part, spec, frozen=frozen)


def episodes(lengths) -> tuple[np.ndarray, np.ndarray]:
    """First and last rows of episodes of these numbers of rows."""
    ends = np.cumsum(lengths) - 1
    return ends - np.asarray(lengths) + 1, ends


def data(shape=(3,), actions=2, lengths=(12, 20, 9), discrete=False, seed=0) -> Transitions:
    """Random observations and actions; images where the shape is one."""
    rng, rows = np.random.default_rng(seed), sum(lengths)
    if len(shape) == 3:
        observations = rng.integers(0, 256, (rows, *shape), np.uint8)
    else:
        observations = rng.normal(size=(rows, *shape)).astype(np.float32)
    a = rng.integers(0, actions, rows, np.int32) if discrete else rng.uniform(-1, 1, (rows, actions)).astype(np.float32)
    return Transitions(jnp.asarray(observations), jnp.asarray(a), *index(lengths))


def index(lengths) -> tuple:
    return tuple(jnp.asarray(x, jnp.int32) for x in episodes(lengths))


def unobserved(lengths) -> Transitions:
    """A dataset of any number of rows that takes no memory: observations of width zero."""
    rows = sum(lengths)
    return Transitions(jnp.zeros((rows, 0)), jnp.zeros((rows, 0)), *index(lengths))


def unchecked(cls, **fields):
    """An instance whose fields may have any type: without the type checks that the tests switch on for `__init__`."""
    made = object.__new__(cls)
    for name, value in fields.items():
        object.__setattr__(made, name, value)
    return made


def chosen(cls, **options):
    """A part with these options, checked as outside of the tests: by the part itself."""
    defaults = {field.name: field.default for field in dataclasses.fields(cls)}
    part = unchecked(cls, **(defaults | options))
    part.__post_init__()
    return part

"""The description of an exported policy, held against the policy itself: what a reader would compute from the arrays is
computed in NumPy and compared with what the two parts do, before anybody relies on it (docs/export.md)."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import random

from dualgoal.agent import Agent
from dualgoal.compatibility import is_ours
from dualgoal.interface import Algorithm, Nets, Representation
from dualgoal.nets.heads import EPSILON
from dualgoal.runs import export_arrays, policy
from dualgoal.runs.checkpoint import Arrays
from dualgoal.runs.export_arrays import Kind

SIZES = np.geomspace(0.01, 10, 16)  # of the rows that are compared, so that not all actions are near 0, nor all clipped
TOLERANCE = 1e-4  # of a number, in units of the largest one of its row if that is above 1


Computed = tuple[np.ndarray, tuple[np.ndarray, ...]]  # rows, and the numbers with whose size their rounding grows


class Seen(NamedTuple):
    """What the parts compute of a few rows of states and goals."""

    states: Any  # as networks read them: features where image encoders are shared
    goals: Any
    z: Any
    actions: Any


def arrays_and_kinds(loaded: policy.Policy) -> tuple[Arrays, Kind, Kind]:
    """All arrays by name, and what the goal's and the policy's are: "other" where that is not all there is to it."""
    rep, algo = loaded.run.rep, loaded.run.algo
    arrays, goal, actor = export_arrays.flatten(rep, algo, loaded.params)
    if loaded.facts.sizes.discrete and actor["kind"] == "gaussian":
        actor["kind"] = "categorical"
    agent, params = policy.in_float32(loaded)
    key = random.key(0)
    net = getattr(params.algo, algo.policy_network or "", None)
    with jax.default_matmul_precision("float32"), policy.own_parts(loaded.run):
        seen = _ask(agent, params, key)
        agree = {
            "goal": _agree(rep, lambda: _goal(arrays, goal, seen, key), seen.z),
            "policy": _agree(algo, lambda: _policy(arrays, actor, seen, net, key), seen.actions),
        }
    if other := frozenset(part for part, yes in agree.items() if not yes):
        arrays, plain_goal, plain_actor = export_arrays.flatten(rep, algo, loaded.params, other)
        goal, actor = plain_goal if "goal" in other else goal, plain_actor if "policy" in other else actor
    return arrays, goal, actor


def _ask(agent: Agent, params: Any, key: jax.Array) -> Seen:
    """Rows from a fixed generator, of many sizes. The policy is asked without the networks that a description leaves
    out: their numbers become NaN."""
    rng, spec, name = np.random.default_rng(0), agent.spec, agent.algo.policy_network

    @jax.jit
    def ask(params: Any, s: jax.Array, g: jax.Array) -> Seen:
        states, goals = agent.features(params, s, g)
        z = agent.represent(params.rep, goals, states, key).z
        nets = params.algo if name is None else _alone(params.algo, name)
        return Seen(states, goals, z, agent.algo.act(nets, states, z, key, 0.0, agent.algo_spec))

    rows = (_rows(rng, shape, spec.pixels) for shape in (spec.observation_shape, spec.goal_shape))
    seen: Seen = jax.device_get(ask(params, *rows))
    return seen


def _rows(rng: np.random.Generator, shape: tuple[int, ...], images: bool) -> np.ndarray:
    if images:
        return rng.integers(0, 256, (len(SIZES), *shape), np.uint8)
    return (SIZES[:, None] * rng.normal(size=(len(SIZES), *shape))).astype(np.float32)


def _alone(nets: Nets, name: str) -> Nets:
    """The networks of a part, with NaN in all but one of them."""
    nothing = jax.tree.map(lambda leaf: jnp.full_like(leaf, jnp.nan), nets)
    return eqx.tree_at(lambda these: getattr(these, name), nothing, getattr(nets, name))


# What a reader computes -----------------------------------------------------------------------------------------------


def network(arrays: Arrays, name: str, x: np.ndarray) -> np.ndarray:
    """The layers of a network, one after the other."""
    n = 0
    while f"{name}/{n}/w" in arrays:
        x = _linear(arrays, f"{name}/{n}", x)
        if f"{name}/{n + 1}/w" in arrays:
            x = 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
            if f"{name}/{n}/scale" in arrays:
                x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6)
                x = x * arrays[f"{name}/{n}/scale"][..., None, :] + arrays[f"{name}/{n}/offset"][..., None, :]
        n += 1
    return x


def _linear(arrays: Arrays, name: str, x: np.ndarray) -> np.ndarray:
    y: np.ndarray = x @ arrays[f"{name}/w"] + arrays[f"{name}/b"][..., None, :]
    return y


def _goal(arrays: Arrays, kind: Kind, seen: Seen, key: jax.Array) -> Computed:
    """z by the description of the goal's network."""
    if kind["kind"] == "other":
        return seen.z, ()
    if kind["kind"] == "identity":
        return seen.goals, ()
    z = network(arrays, "goal", seen.goals)
    if kind["kind"] == "bottleneck":
        mean, log_std = (_linear(arrays, f"goal/{head}", z) for head in ("mean", "log_std"))
        return mean + np.exp(np.clip(log_std, -5, 2)) * _noise(key, mean.shape), (seen.goals,)
    z = z.mean(0) if kind["members"] else z
    if kind["sphere"]:
        z = z * np.sqrt(z.shape[-1]) / np.maximum(np.linalg.norm(z, axis=-1, keepdims=True), EPSILON)
    return z, (seen.goals,)


def _policy(arrays: Arrays, kind: Kind, seen: Seen, net: Any, key: jax.Array) -> Computed:
    """Actions by the description of the policy's network `net`, whose own image encoders have no description."""
    if kind["kind"] == "other":
        return seen.actions, ()
    inputs = np.concatenate(net.fuse(jnp.asarray(seen.states), jnp.asarray(seen.z)), -1)
    if kind["kind"] == "flow":
        out, steps = _noise(key, seen.actions.shape), kind["flow_steps"]
        for n in range(steps):
            t = np.full((len(out), 1), n / steps, np.float32)
            out = out + network(arrays, "policy", np.concatenate([inputs, out, t], -1)) / steps
    else:
        out = network(arrays, "policy", inputs)
    if kind["kind"] == "categorical":
        return out.argmax(-1), ()
    return np.clip(out, -1, 1), (inputs, out)


def _noise(key: jax.Array, shape: tuple[int, ...]) -> np.ndarray:
    return np.asarray(random.normal(key, shape, jnp.float32))


def _agree(part: Representation | Algorithm, compute: Callable[[], Computed], wanted: np.ndarray) -> bool:
    """Whether rows are equal but for rounding. NaN is equal to NaN."""
    try:
        found, sizes = compute()
    except (TypeError, ValueError):  # a network that reads something else than a description says
        if is_ours(part):
            raise
        return False
    if found.shape != wanted.shape:
        return False
    flat_rows = lambda x: np.asarray(x, np.float64).reshape(len(x), -1)
    numbers = np.concatenate([np.abs(flat_rows(x)) for x in (wanted, *sizes)], axis=-1)
    limit = TOLERANCE * numbers.max(axis=-1, keepdims=True, initial=1.0, where=np.isfinite(numbers))
    return np.allclose(flat_rows(found) / limit, flat_rows(wanted) / limit, rtol=0, atol=1, equal_nan=True)

"""Finite controlled Markov processes, where everything the paper proves can be computed (section 1 of the method).

A `Process` lists the successors of each state and action. Value iteration runs for all goals at once in float64, and an
episode ends when it reaches its goal. `d* = log_gamma V*` is the temporal distance, its columns are the dual
representations of the goals, and `dual_policy` is the policy of Theorem 1, which sees a goal only through its
representation. `theorems.py` checks them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any, Literal, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from dualgoal.errors import UserError

Result = TypeVar("Result")
Reward = Literal["zero_one", "negative"]

LINEAR_SOLVE_LIMIT = 300  # one S x S solve per goal: 300 goals of 300 states take seconds, 2,000 would take hours


@dataclass(frozen=True)
class Process:
    """p(s'|s,a) as lists: action a in state s leads to successors[s, a, k] with probabilities[s, a, k].

    Shapes (states, actions, K). A successor may be repeated; rows shorter than K are padded with probability 0.
    """

    successors: np.ndarray
    probabilities: np.ndarray

    def __post_init__(self) -> None:
        successors = np.asarray(self.successors, np.int32)
        probabilities = np.asarray(self.probabilities, np.float64)
        if successors.ndim != 3 or successors.shape != probabilities.shape or 0 in successors.shape:
            raise UserError(
                f"process: successors {successors.shape} and probabilities {probabilities.shape} must have one shape "
                "(states, actions, successors), none of them 0"
            )
        if successors.min() < 0 or successors.max() >= len(successors):
            raise UserError(f"process: successors must be states 0..{len(successors) - 1}; found {successors.max()}")
        if probabilities.min() < 0 or not np.allclose(probabilities.sum(-1), 1, rtol=0, atol=1e-12):
            raise UserError("process: the probabilities of each (state, action) must be at least 0 and sum to 1")
        object.__setattr__(self, "successors", successors)
        object.__setattr__(self, "probabilities", probabilities)

    @classmethod
    def from_dense(cls, kernel: np.ndarray) -> Process:
        """From p[s, a, s'], keeping only what is not 0."""
        kernel = np.asarray(kernel, np.float64)
        if kernel.ndim != 3 or kernel.shape[0] != kernel.shape[2]:
            raise UserError(f"process: a dense kernel has shape (states, actions, states); this one has {kernel.shape}")
        most = max(int((kernel > 0).sum(-1).max()), 1)
        successors = np.argsort(kernel <= 0, axis=-1, kind="stable")[..., :most]
        return cls(successors, np.take_along_axis(kernel, successors, axis=-1))

    @property
    def states(self) -> int:
        return self.successors.shape[0]

    @property
    def actions(self) -> int:
        return self.successors.shape[1]

    @property
    def deterministic(self) -> bool:
        return bool((self.probabilities.max(-1) == 1).all())

    def dense(self) -> np.ndarray:
        """p[s, a, s'] as one array."""
        kernel = np.zeros((self.states, self.actions, self.states))
        s, a = np.ogrid[: self.states, : self.actions]
        np.add.at(kernel, (s[..., None], a[..., None], self.successors), self.probabilities)
        return kernel

    def relabelled(self, order: np.ndarray) -> Process:
        """The same process with renumbered states: state order[i] gets the number i."""
        numbers = np.argsort(order)
        return Process(numbers[self.successors[order]], self.probabilities[order])


@dataclass(frozen=True)
class BlockProcess:
    """A latent process seen through observations; section 1.2. Observation s occurs only in latent state decoder[s].

    emission[s] is the probability of s given its latent. One decoder makes the supports disjoint by construction.
    """

    latent: Process
    decoder: np.ndarray
    emission: np.ndarray

    def __post_init__(self) -> None:
        totals = np.bincount(self.decoder, self.emission, minlength=self.latent.states)
        if len(totals) != self.latent.states or not np.allclose(totals, 1, rtol=0, atol=1e-12):
            raise UserError("block process: the emission probabilities of each latent state must sum to 1")

    def observed(self) -> Process:
        """The process over observations: p(s'|s,a) = sum_z' p(z'|decoder(s), a) emission(s'|z')."""
        shown = [np.flatnonzero(self.decoder == z) for z in range(self.latent.states)]
        most = max(len(s) for s in shown)
        members = np.array([np.resize(s, most) for s in shown])
        weights = np.array([np.pad(self.emission[s], (0, most - len(s))) for s in shown])
        latent, probabilities = self.latent.successors[self.decoder], self.latent.probabilities[self.decoder]
        shape = (len(self.decoder), self.latent.actions, -1)
        return Process(members[latent].reshape(shape), (probabilities[..., None] * weights[latent]).reshape(shape))

    def same_latent(self) -> np.ndarray:
        """[s, g]: whether observations s and g have the same latent state."""
        return self.decoder[:, None] == self.decoder[None, :]


def in_float64(function: Callable[..., Result]) -> Callable[..., Result]:
    """Compute in float64 inside this call only: training is in float32, so the global switch stays off."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Result:
        with jax.enable_x64(True):
            return function(*args, **kwargs)

    return call


def expectation(successors: jax.Array, probabilities: jax.Array, v: jax.Array) -> jax.Array:
    """sum_s' p(s'|s) v[s', g] for one action: (S, K), (S, K), (S, G) -> (S, G)."""
    # Without bounds checks each gather is a row copy that fuses with the sum: 20 times faster.
    row = lambda k: v.at[successors[:, k]].get(mode="promise_in_bounds", wrap_negative_indices=False)
    if successors.shape[1] <= 64:
        return sum((probabilities[:, k, None] * row(k) for k in range(successors.shape[1])), jnp.zeros_like(v))
    add = lambda k, total: total + probabilities[:, k, None] * row(k)
    return jax.lax.fori_loop(0, successors.shape[1], add, jnp.zeros_like(v))


def best_expectation(successors: jax.Array, probabilities: jax.Array, v: jax.Array) -> jax.Array:
    """max_a sum_s' p(s'|s,a) v[s', g]: (S, A, K), (S, A, K), (S, G) -> (S, G)."""
    better = lambda best, action: (jnp.maximum(best, expectation(action[0], action[1], v)), None)
    by_action = (successors.swapaxes(0, 1), probabilities.swapaxes(0, 1))
    return jax.lax.scan(better, jnp.full_like(v, -jnp.inf), by_action)[0]


@partial(jax.jit, static_argnames=("reward",))
def _iterate(
    successors: jax.Array, probabilities: jax.Array, goals: jax.Array, gamma: jax.Array, tol: jax.Array, reward: Reward
) -> jax.Array:
    shares = reward == "zero_one"
    step, hit, scale = (0.0, 1.0, 1.0) if shares else (-1.0, 0.0, 1 / (1 - gamma))
    # After n sweeps from the worst values the error is at most scale * gamma^n. Zero-one values need the same relative
    # precision however small they are, because distances are their logarithms.
    smallest = jnp.finfo(gamma.dtype).tiny
    most = jnp.ceil(jnp.log(smallest if shares else tol) / jnp.log(gamma))
    enough = tol * (1 - gamma) / gamma  # gamma / (1 - gamma) times the last change bounds the error as well

    def sweep(carry: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
        n, v, _ = carry
        new = jnp.where(goals, hit, step + gamma * best_expectation(successors, probabilities, v))
        unit = jnp.maximum(new, smallest) if shares else scale
        return n + 1, new, (jnp.abs(new - v) / unit).max()

    start = (jnp.zeros_like(gamma), jnp.where(goals, hit, step * scale * jnp.ones_like(gamma)), jnp.inf * gamma)
    return jax.lax.while_loop(lambda carry: (carry[0] < most) & (carry[2] > enough), sweep, start)[1]


def goal_states(process: Process, goals: np.ndarray | None) -> np.ndarray:
    """[s, g]: whether state s satisfies goal g. Without a mask, every state is the goal of itself alone."""
    goals = np.eye(process.states, dtype=bool) if goals is None else np.asarray(goals, bool)
    if goals.ndim != 2 or len(goals) != process.states:
        raise UserError(f"goals: the mask has shape {goals.shape}; expected ({process.states}, number of goals)")
    return goals


@in_float64
def optimal_values(
    process: Process, gamma: float, goals: np.ndarray | None = None, *, tol: float = 1e-13, reward: Reward = "zero_one"
) -> np.ndarray:
    """V*[s, g] to within `tol` times V* itself, however small it is; for the negative reward, times 1 / (1 - gamma).
    Section 1.1."""
    if not 0 < gamma < 1:
        raise UserError(f"gamma must be between 0 and 1 (exclusive); got {gamma}")
    mask = goal_states(process, goals)
    values = _iterate(process.successors, process.probabilities, mask, np.float64(gamma), np.float64(tol), reward)
    return np.asarray(values)


@jax.jit
def _expectations(successors: jax.Array, probabilities: jax.Array, v: jax.Array) -> jax.Array:
    by_action = (successors.swapaxes(0, 1), probabilities.swapaxes(0, 1))
    return jax.lax.map(lambda action: expectation(action[0], action[1], v), by_action)


@in_float64
def expectations(process: Process, values: np.ndarray) -> np.ndarray:
    """sum_s' p(s'|s,a) values[s', g] as [s, a, g]."""
    return np.asarray(_expectations(process.successors, process.probabilities, values)).swapaxes(0, 1)


def optimal_q(process: Process, gamma: float, values: np.ndarray) -> np.ndarray:
    """Q*[s, a, g] from V*[s, g], for states that are not the goal."""
    return gamma * expectations(process, values)


@jax.jit
def _levels(successors: jax.Array, goals: jax.Array) -> jax.Array:
    def level(carry: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
        n, steps, _ = carry
        column = lambda any_next, next_states: (any_next | (steps[next_states] < jnp.inf), None)
        near = jax.lax.scan(column, jnp.zeros(goals.shape, bool), successors.T)[0]
        new = near & jnp.isinf(steps)
        return n + 1, jnp.where(new, n + 1, steps), new.any()

    start = (jnp.int32(0), jnp.where(goals, 0.0, jnp.inf), jnp.bool_(True))
    return jax.lax.while_loop(lambda carry: carry[2], level, start)[1]


@in_float64
def shortest_paths(process: Process, goals: np.ndarray | None = None) -> np.ndarray:
    """The smallest number of steps [s, g] that can reach g, inf if none can, by breadth-first search from all goals."""
    possible = np.where(process.probabilities > 0, process.successors, np.arange(process.states)[:, None, None])
    return np.asarray(_levels(possible.reshape(process.states, -1), goal_states(process, goals)))


def to_distance(values: np.ndarray, gamma: float) -> np.ndarray:
    """d* = log_gamma V*, infinite where V* = 0."""
    with np.errstate(divide="ignore"):
        return np.log(values) / math.log(gamma) + 0.0


def distances(process: Process, gamma: float, goals: np.ndarray | None = None) -> np.ndarray:
    """d*[s, g]: by breadth-first search if the process is deterministic (gamma has no influence), else by value
    iteration."""
    if process.deterministic:
        return shortest_paths(process, goals)
    return to_distance(optimal_values(process, gamma, goals), gamma)


def dual_representation(process: Process, gamma: float, goals: np.ndarray | None = None) -> np.ndarray:
    """phi[g] = (d*(s_1, g), ..., d*(s_K, g)): one row per goal; section 1.3."""
    return distances(process, gamma, goals).T


def dual_policy(process: Process, phi: np.ndarray, gamma: float) -> np.ndarray:
    """Theorem 1's policy [s, g] = argmax_a sum_s' p(s'|s,a) gamma^F(s') for each functional F = phi[g]; section 1.4.

    Ties go to the smallest action, because the policy may depend on s and F only.
    """
    return expectations(process, gamma ** np.asarray(phi, np.float64).T).argmax(1)


@jax.jit
def _solve_each(kernel: jax.Array, policy: jax.Array, goals: jax.Array, gamma: jax.Array) -> jax.Array:
    def solve(goal: tuple[jax.Array, jax.Array]) -> jax.Array:
        actions, hit = goal
        moves = kernel[jnp.arange(len(kernel)), actions]
        return jnp.linalg.solve(jnp.eye(len(kernel)) - gamma * moves * ~hit[:, None], hit.astype(kernel.dtype))

    return jax.lax.map(solve, (policy.T, goals.T)).T


@in_float64
def policy_values(process: Process, policy: np.ndarray, gamma: float) -> np.ndarray:
    """V^pi[s, g] of a deterministic policy [s, g], exactly: (I - gamma P_pi off the goal) V = 1[goal], per goal."""
    if process.states > LINEAR_SOLVE_LIMIT:
        raise UserError(
            f"policy_values: {process.states} states; one dense solve per goal is possible up to {LINEAR_SOLVE_LIMIT} "
            "(optimal_values has no such limit)"
        )
    return np.asarray(_solve_each(process.dense(), policy, goal_states(process, None), np.float64(gamma)))

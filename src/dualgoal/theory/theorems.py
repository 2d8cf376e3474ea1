"""The paper's statements about finite processes as functions that return a certificate (section 1.6 of the method).

A certificate is the largest deviation from the statement: 0 in exact arithmetic, a rounding error in float64.
`fit_errors` measures the remark on universality: how well inner products and symmetric metrics can fit V*.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import optax

from dualgoal.theory.processes import (
    BlockProcess,
    Process,
    distances,
    dual_policy,
    dual_representation,
    in_float64,
    optimal_q,
    optimal_values,
    policy_values,
    shortest_paths,
    to_distance,
)


def gap(a: np.ndarray, b: np.ndarray) -> float:
    """max |a - b|; infinities of the same sign are equal, and an infinity is infinitely far from a number."""
    with np.errstate(invalid="ignore"):
        return float(np.where(a == b, 0.0, np.abs(a - b)).max(initial=0.0))


def bellman(process: Process, gamma: float) -> float:
    """V*(s,g) = max_a Q*(s,a,g) off the goal and 1 on it: the residual of the computed V*."""
    values = optimal_values(process, gamma)
    best = optimal_q(process, gamma, values).max(1)
    np.fill_diagonal(best, 1.0)
    return gap(values, best)


def sufficiency(process: Process, gamma: float) -> float:
    """Theorem 1: the policy that sees g only through phi(g) has the optimal value (evaluated by a linear solve)."""
    values = optimal_values(process, gamma)
    policy = dual_policy(process, to_distance(values, gamma).T, gamma)
    return gap(policy_values(process, policy, gamma), values)


def noise_invariance(block: BlockProcess, gamma: float, *, by_latent: bool = True) -> float:
    """Theorem 2: observations of one latent state have equal representations.

    With by_latent=False the reward is the naive 1[s=g], for which this fails.
    """
    process = block.observed()
    phi = dual_representation(process, gamma, block.same_latent() if by_latent else None)
    first = np.unique(block.decoder, return_index=True)[1]
    return gap(phi, phi[first[block.decoder]])


def latent_distances(block: BlockProcess, gamma: float) -> float:
    """A block process has the distances of its latent process: d*(s, g) = d*(z(s), z(g))."""
    observed = distances(block.observed(), gamma, block.same_latent())
    return gap(observed, distances(block.latent, gamma)[np.ix_(block.decoder, block.decoder)])


def affine_rewards(process: Process, gamma: float) -> float:
    """V* = 1 + (1 - gamma) V-*, the values under the rewards {0, 1} and {-1, 0}; section 1.1."""
    negative = optimal_values(process, gamma, reward="negative")
    return gap(optimal_values(process, gamma), 1 + (1 - gamma) * negative)


def shortest_path_distances(process: Process, gamma: float) -> float:
    """In a deterministic process log_gamma V* is the length of a shortest path, whatever gamma is."""
    return gap(to_distance(optimal_values(process, gamma), gamma), shortest_paths(process))


def reachability(process: Process, gamma: float) -> float:
    """d* is infinite exactly where no path leads: the number of (s, g) for which this fails."""
    return float((np.isinf(distances(process, gamma)) != np.isinf(shortest_paths(process))).sum())


def relabelling(process: Process, gamma: float, order: np.ndarray) -> float:
    """Renumbering the states permutes the entries of the representation and changes nothing else."""
    renamed = dual_representation(process.relabelled(order), gamma)
    return gap(renamed, dual_representation(process, gamma)[np.ix_(order, order)])


def injectivity(process: Process, gamma: float) -> float:
    """phi(g)(s) = 0 only at s = g, so no two goals have the same phi: counts the entries and goals that fail."""
    phi = dual_representation(process, gamma)
    shared = len(phi) - len(np.unique(phi, axis=0))
    return float(((phi == 0) != np.eye(len(phi), dtype=bool)).sum() + shared)


def triangle(process: Process, gamma: float) -> float:
    """d*(s,g) <= d*(s,w) + d*(w,g), as V(s,w) V(w,g) <= V(s,g): the largest excess."""
    values = optimal_values(process, gamma)
    return float(max(0.0, max((np.outer(values[:, w], values[w]) - values).max() for w in range(len(values)))))


@dataclass(frozen=True)
class FitErrors:
    """Root mean square errors of the best fits to V* in `dim` dimensions."""

    dim: int
    inner: float  # V ~ psi(s) . phi(g): exact optimum, by the singular value decomposition
    metric: float  # V ~ 1 - |x(s) - x(g)|: the best found, from classical scaling by gradient descent
    floor: float  # no symmetric function of (s, g), of whatever dimension, has a smaller error


def fit_errors(values: np.ndarray, dim: int) -> FitErrors:
    """How well V*[s, g] is fitted by an inner product and by a symmetric metric of one dimension; section 1.7.

    1 - V* = -(1 - gamma) V-* is what the symmetric parameterisation -|phi(s) - phi(g)| models, up to the scale.
    """
    rms = lambda x: float(np.sqrt(np.mean(np.square(x))))
    left, singular, right = np.linalg.svd(values)
    inner = rms((left[:, :dim] * singular[:dim]) @ right[:dim] - values)
    start = classical_scaling(1 - (values + values.T) / 2, dim)
    return FitErrors(dim, inner, float(_metric_error(start, values)), rms((values - values.T) / 2))


@in_float64
@jax.jit
def _metric_error(x: jax.Array, values: jax.Array) -> jax.Array:
    steps = 1500
    off_diagonal = ~np.eye(len(values), dtype=bool)

    def loss(x: jax.Array) -> jax.Array:
        squares = jnp.square(x[:, None] - x[None]).sum(-1)
        metric = jnp.where(off_diagonal, jnp.sqrt(jnp.where(off_diagonal, squares + 1e-12, 1.0)), 0.0)
        return jnp.mean(jnp.square(1 - metric - values))

    optimiser = optax.adam(optax.cosine_decay_schedule(0.03, steps))

    def step(carry: tuple[jax.Array, optax.OptState], _: None) -> tuple[tuple[jax.Array, optax.OptState], None]:
        x, state = carry
        updates, state = optimiser.update(jax.grad(loss)(x), state)
        return (x + updates, state), None

    found = jax.lax.scan(step, (x, optimiser.init(x)), None, steps)[0][0]
    return jnp.sqrt(jnp.minimum(loss(found), loss(x)))


def classical_scaling(distance: np.ndarray, dim: int) -> np.ndarray:
    """Points whose Euclidean distances approximate a symmetric distance matrix (classical MDS), (points, dim)."""
    centre = np.eye(len(distance)) - 1 / len(distance)
    spectrum, vectors = np.linalg.eigh(-centre @ np.square(distance) @ centre / 2)
    order = np.argsort(spectrum)[::-1][:dim]
    return vectors[:, order] * np.sqrt(np.maximum(spectrum[order], 0.0))

"""How much a network knows of a puzzle's lights: three numbers from its outputs for pairs of images."""

from collections.abc import Callable
from typing import Any

import numpy as np

AT_ONCE = 256  # rows that a network reads at once
RIDGE = 1e-3  # weight of the penalty of `linear_probe`, per row


def in_parts(function: Callable[[slice], Any], count: int) -> np.ndarray:
    """The results of a function for slices of `count` rows, joined."""
    return np.concatenate([function(slice(n, min(n + AT_ONCE, count))) for n in range(0, count, AT_ONCE)])


def slopes(learned: np.ndarray, *parts: np.ndarray) -> list[float]:
    """How much of each part of an exact distance is in a learned one: its coefficient in a least-squares fit of all
    parts together. 1 is right, 0 is ignorance."""
    columns = np.stack([*parts, np.ones_like(learned)], axis=-1).astype(np.float64)
    return [float(x) for x in np.linalg.lstsq(columns, learned.astype(np.float64), rcond=None)[0][:-1]]


def area_under_curve(same: np.ndarray, different: np.ndarray) -> float:
    """The probability that a network gives a pair of different boards a larger distance than a pair of equal ones; ties
    count half."""
    ordered = np.sort(same)
    below, not_above = (np.searchsorted(ordered, different, side) for side in ("left", "right"))
    return float((below + not_above).mean() / (2 * len(same)))


def linear_probe(z: np.ndarray, bits: np.ndarray) -> float:
    """How many of the bits a linear map reads from z: fitted by ridge regression on the first half of the rows, the
    share that is right on the second half. 0.5 is chance."""
    half = len(z) // 2
    z = z.astype(np.float64)
    mean, std = z[:half].mean(0), z[:half].std(0) + 1e-8
    x = np.concatenate([(z - mean) / std, np.ones((len(z), 1))], axis=-1)
    fit, target = x[:half], 2 * bits[:half].astype(np.float64) - 1
    w = np.linalg.solve(fit.T @ fit + RIDGE * half * np.eye(x.shape[-1]), fit.T @ target)
    return float(((x[half:] @ w > 0) == (bits[half:] > 0.5)).mean())

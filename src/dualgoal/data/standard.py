"""Vectors in units of their standard deviation, for networks that learn slowly from numbers far from 1."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from dualgoal.errors import UserError


@dataclass(frozen=True)
class Standard:
    """Mean and standard deviation of each coordinate. Networks read vectors in these units; files and users do not."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.mean) != len(self.std) or not all(0 < std < np.inf for std in self.std):
            raise UserError("a mean and a positive standard deviation are needed for each coordinate")

    def __call__(self, rows: Any) -> Any:
        """Rows (T, D) as networks read them, in float32, of NumPy or JAX."""
        mean, factor = (np.array(numbers, np.float32)[None] for numbers in (self.mean, 1.0 / np.array(self.std)))
        return (rows - mean) * factor

    def inverse(self, rows: np.ndarray) -> np.ndarray:
        """Such rows in the user's units again."""
        return (rows * np.array(self.std) + np.array(self.mean)).astype(np.float32)


@dataclass
class Moments:
    """Mean and variance of rows that come in parts, as they are stored."""

    count: int = 0
    mean: Any = 0.0
    squares: Any = 0.0  # sum of squared differences from the mean
    lowest: Any = np.inf
    highest: Any = -np.inf

    def add(self, rows: np.ndarray) -> None:
        rows = rows.astype(np.float32).astype(np.float64)
        self.lowest = np.minimum(self.lowest, rows.min(axis=0))
        self.highest = np.maximum(self.highest, rows.max(axis=0))
        total, away = self.count + len(rows), rows.mean(axis=0) - self.mean
        self.squares = self.squares + rows.var(axis=0) * len(rows) + away**2 * self.count * len(rows) / total
        self.mean, self.count = self.mean + away * len(rows) / total, total

    @property
    def standard(self) -> Standard:
        """A coordinate that never changes, or by no more than float32 rounds, stays in its own units: divided by its
        deviation, rounding errors would look like large changes."""
        std = np.sqrt(self.squares / self.count)
        rounding = 4 * np.finfo(np.float32).eps * np.maximum(np.abs(self.lowest), np.abs(self.highest))
        changes = (self.highest - self.lowest > rounding) & (std > 0)
        return Standard(tuple(self.mean.tolist()), tuple(np.where(changes, std, 1.0).tolist()))

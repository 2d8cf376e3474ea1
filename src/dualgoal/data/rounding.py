"""Whether numbers survive being stored in float32: a place in metres on a map, or a time in seconds since 1970, may
change from row to row by less than float32 can tell apart."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from dualgoal.errors import number_of

TOLERATED = 0.1  # of the usual change between rows
NOISE = 1e-12  # of a number; what changes by less was computed and is meant to stay the same


class Coarse(UserWarning):
    """Rows that differ are stored as equal ones, or nearly."""


@dataclass
class Rounding:
    """How much is lost of rows that come episode by episode, and by how much they change."""

    error: Any = 0.0  # the largest of each coordinate
    change: Any = 0.0  # sum over the rows that differ from the row before
    count: Any = 0  # of these

    def add(self, rows: np.ndarray) -> None:
        """The rows (T, D) of an episode; types that float32 holds without loss are passed over."""
        if rows.dtype.itemsize < 4 or rows.dtype == np.float32 or rows.ndim != 2:
            return
        exact = rows.astype(np.float64)
        change = np.abs(np.diff(exact, axis=0))
        change[change <= NOISE * np.abs(exact[1:])] = 0.0
        self.error = np.maximum(self.error, np.abs(exact - exact.astype(np.float32)).max(axis=0))
        self.change, self.count = self.change + change.sum(axis=0), self.count + (change > 0).sum(axis=0)

    def warning(self, name: str) -> str | None:
        """One line about the coordinate of which most is lost, if that is much; `name` is the array's."""
        if not np.any(self.count):
            return None
        change = self.change / np.maximum(self.count, 1)
        share = np.divide(self.error, change, out=np.zeros_like(change), where=change > 0)
        k, others = int(share.argmax()), int((share > TOLERATED).sum()) - 1
        if share[k] <= TOLERATED:
            return None
        more = f" (and {number_of(others, 'other')})" if others else ""
        return (
            f"{name}, coordinate {k}{more}: float32, in which it is stored, is off by up to {self.error[k]:.2g}, but "
            f"rows differ by only {change[k]:.2g} on average; subtract a constant from it before the import"
        )

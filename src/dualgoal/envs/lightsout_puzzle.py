"""Lights Out, the paper's proof of concept, with its exact distances (section 8 of the method).

A board is a vector of n bits; pressing a button flips it and its orthogonal neighbours, so presses commute, each
cancels itself, and a board is solved by linear algebra over GF(2). That gives d* three ways, which must agree: a search
over boards from any start, one search from the dark board with d*(s, g) = D[s xor g], and the weight of the presses
M^-1 (s xor g), the least over all press patterns with that effect where M is singular.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dualgoal.errors import UserError

Bits = jax.Array | np.ndarray  # (..., n) zeros and ones of any type

TABLE_LIMIT = 24  # buttons: a table of all boards holds 2^n bytes
PUZZLE_LIMIT = 1024  # buttons: the press matrix holds n^2 entries
PAIRS_LIMIT = 12  # buttons: a policy can be tried on all 4^n pairs of boards
UNREACHABLE = 255  # in tables of distances, which are bytes


@dataclass(frozen=True)
class Puzzle:
    """A board of rows x columns; light and button (row, column) have index row * columns + column."""

    rows: int
    columns: int

    def __post_init__(self) -> None:
        if self.rows < 1 or self.columns < 1:
            raise UserError(f"board size {self}: rows and columns must be at least 1, such as 4x5")
        if self.buttons > PUZZLE_LIMIT:
            raise UserError(f"board size {self}: {self.buttons} buttons; at most {PUZZLE_LIMIT} are supported")

    @classmethod
    def parse(cls, size: str) -> Puzzle:
        """From text such as "4x5"."""
        match = re.fullmatch(r"\s*(\d{1,6})\s*[xX]\s*(\d{1,6})\s*", size)
        if match is None:
            raise UserError(f"board size '{size}': expected two whole numbers ROWSxCOLUMNS, such as 4x5")
        return cls(int(match[1]), int(match[2]))

    def __str__(self) -> str:
        return f"{self.rows}x{self.columns}"

    @property
    def buttons(self) -> int:
        return self.rows * self.columns

    @cached_property
    def toggles(self) -> np.ndarray:
        """M[button, light] = 1 where the button flips the light, (n, n) uint8; symmetric."""
        row, column = np.divmod(np.arange(self.buttons), self.columns)
        apart = np.abs(row[:, None] - row) + np.abs(column[:, None] - column)
        return (apart <= 1).astype(np.uint8)

    @cached_property
    def _solved(self) -> tuple[np.ndarray, np.ndarray]:
        return eliminate(self.toggles)

    @property
    def inverse(self) -> np.ndarray:
        """presses = lights @ inverse mod 2 makes a reachable pattern of lights, (n, n) uint8."""
        return self._solved[0]

    @property
    def quiet(self) -> np.ndarray:
        """A basis of the press patterns that change nothing, (n - rank, n) uint8; empty where M is invertible."""
        return self._solved[1]

    @property
    def invertible(self) -> bool:
        return len(self.quiet) == 0

    @cached_property
    def quiet_patterns(self) -> np.ndarray:
        """All press patterns that change nothing, (2^(n - rank), n) uint8."""
        if len(self.quiet) > 16:
            raise UserError(
                f"board {self}: 2^{len(self.quiet)} press patterns change nothing; too many to try them all"
            )
        choices = np.arange(2 ** len(self.quiet))[:, None] >> np.arange(len(self.quiet)) & 1
        return (choices @ self.quiet % 2).astype(np.uint8)

    @cached_property
    def masks(self) -> np.ndarray:
        """What each button flips, as an integer with one bit per light, for boards that fit in a table."""
        return self.numbers(self.toggles)

    def numbers(self, boards: np.ndarray) -> np.ndarray:
        """Boards (..., n) as integers: light i is bit i."""
        self.require_table()
        return (np.asarray(boards, np.uint32) << np.arange(self.buttons, dtype=np.uint32)).sum(-1, dtype=np.uint32)

    def boards(self, numbers: np.ndarray) -> np.ndarray:
        """Integers as boards (..., n) uint8."""
        shifts = np.arange(self.buttons, dtype=np.uint32)
        return (np.asarray(numbers, np.uint32)[..., None] >> shifts & 1).astype(np.uint8)

    def solved_by(self, distances: np.ndarray, goals: np.ndarray) -> float:
        """The share of (board, goal) that is solved, within as many presses as there are buttons, by always pressing
        the button after which the goal is nearest. `distances` (G, 2^n) is from every board, numbered as in `numbers`,
        to each of the goals (G,)."""
        boards = np.arange(distances.shape[1])
        after = boards[:, None] ^ self.masks.astype(np.int64)  # by board and button
        solved = 0
        for goal, away in zip(goals, distances, strict=True):  # one by one: 4^n pairs and n buttons are many
            follow = np.take_along_axis(after, away[after].argmin(axis=-1, keepdims=True), axis=-1)[:, 0]
            follow[goal] = goal
            at = boards
            for _ in range(self.buttons):
                at = follow[at]
            solved += int((at == goal).sum())
        return solved / distances.size

    def require_table(self) -> None:
        if self.buttons > TABLE_LIMIT:
            raise UserError(
                f"board {self}: a table of its 2^{self.buttons} boards does not fit in memory; tables are offered up "
                f"to {TABLE_LIMIT} buttons (4x6), distance() needs none and takes any size"
            )

    def read(self, text: str) -> np.ndarray:
        """A board written as rows of 0 and 1 separated by "/", (n,) uint8."""
        rows = text.split("/")
        if len(rows) != self.rows or any(len(row) != self.columns or set(row) - set("01") for row in rows):
            raise UserError(
                f"board '{text}': expected {self.rows} rows of {self.columns} digits 0 or 1, separated by /"
            )
        return np.array([int(light) for light in "".join(rows)], np.uint8)


def eliminate(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Gauss-Jordan over GF(2): (inverse, kernel) of a square matrix.

    x = b @ inverse solves x @ matrix = b if anything does; rows of `kernel` are a basis of the x with x @ matrix = 0.
    """
    n = len(matrix)
    work = np.concatenate([matrix.T, np.eye(n, dtype=np.uint8)], axis=1)  # [A | I] -> [R | T] with T A = R
    pivots: list[int] = []
    for column in range(n):
        below = np.flatnonzero(work[len(pivots) :, column])
        if len(below) == 0:
            continue
        rank = len(pivots)
        work[[rank, rank + below[0]]] = work[[rank + below[0], rank]]
        others = np.flatnonzero(work[:, column])
        work[others[others != rank]] ^= work[rank]
        pivots.append(column)
    reduced, transform = work[:, :n], work[:, n:]
    inverse = np.zeros((n, n), np.uint8)
    inverse[:, pivots] = transform[: len(pivots)].T
    free = [column for column in range(n) if column not in set(pivots)]
    kernel = np.zeros((len(free), n), np.uint8)
    kernel[np.arange(len(free)), free] = 1
    kernel[:, pivots] = reduced[: len(pivots), free].T
    return inverse, kernel


# Pure functions of bit vectors (..., n), for any size, on any device --------------------------------------------------


def press(puzzle: Puzzle, board: jax.Array, button: Bits) -> jax.Array:
    """The board after pressing a button; shapes (..., n) and (...), the board's dtype is kept."""
    return (board + jnp.asarray(puzzle.toggles, board.dtype)[button]) % 2


def presses(puzzle: Puzzle, lights: Bits) -> jax.Array:
    """A press pattern that makes a (reachable) pattern of lights, (..., n) float32 of 0 and 1."""
    return jnp.asarray(lights, jnp.float32) @ jnp.asarray(puzzle.inverse, jnp.float32) % 2


def distance(puzzle: Puzzle, s: Bits, g: Bits) -> jax.Array:
    """d*(s, g), (...) float32: the weight of the lightest press pattern, infinite if there is none."""
    now, then = jnp.broadcast_arrays(jnp.asarray(s, jnp.float32), jnp.asarray(g, jnp.float32))
    difference = (now + then) % 2
    pattern = presses(puzzle, difference)
    if puzzle.invertible:
        return pattern.sum(-1)
    quiet = jnp.asarray(puzzle.quiet_patterns, jnp.float32)
    # |x xor k| = |x| + |k| - 2 x.k for every quiet pattern k, as one matrix product
    weights = pattern.sum(-1, keepdims=True) - 2 * pattern @ quiet.T + _lead(quiet.sum(-1), pattern.ndim)
    # M is symmetric: what presses can make is what is orthogonal to every quiet pattern.
    reachable = ((difference @ jnp.asarray(puzzle.quiet.T, jnp.float32)) % 2 == 0).all(-1)
    return jnp.where(reachable, weights.min(-1), jnp.inf)


def _lead(x: jax.Array, ndim: int) -> jax.Array:
    """A vector with leading axes of length one: silent promotion of ranks is an error under test."""
    return x.reshape((1,) * (ndim - 1) + x.shape)


def anchor_distances(puzzle: Puzzle, anchors: Bits, boards: Bits) -> jax.Array:
    """The ideal dual representation: d* from each of A anchor boards, (A, n), (..., n) -> (..., A) float32.

    In press coordinates x it is affine, |x_i| + sum_k (1 - 2 x_ik) x_k: one matrix product for any number of boards.
    """
    if not puzzle.invertible:
        raise UserError(
            f"board {puzzle} is singular (rank {puzzle.buttons - len(puzzle.quiet)} of {puzzle.buttons}): some boards "
            "are infinitely far from an anchor; choose an invertible board such as 3x3, 4x5 or 4x6"
        )
    x_anchor, x = presses(puzzle, anchors), presses(puzzle, boards)
    return _lead(x_anchor.sum(-1), x.ndim) + x @ (1 - 2 * x_anchor).T


# Tables of all 2^n boards, by integer operations ----------------------------------------------------------------------


def search(puzzle: Puzzle, start: int = 0) -> np.ndarray:
    """Breadth-first search over boards: presses from `start` to each of the 2^n boards, uint8, 255 if unreachable."""
    puzzle.require_table()
    table = np.full(2**puzzle.buttons, UNREACHABLE, np.uint8)
    table[start] = depth = 0
    frontier = np.array([start], np.uint32)
    while len(frontier):
        depth += 1
        for mask in puzzle.masks:
            near = frontier ^ mask
            table[near[table[near] == UNREACHABLE]] = depth
        frontier = np.flatnonzero(table == depth).astype(np.uint32)
    return table


def linear_table(puzzle: Puzzle) -> np.ndarray:
    """d* from the dark board to all 2^n boards by the GF(2) inverse and a population count; the same as `search`."""
    puzzle.require_table()
    pattern = doubled(puzzle.numbers(puzzle.inverse))
    quiet = puzzle.numbers(puzzle.quiet_patterns)
    table = np.bitwise_count(pattern)
    for nothing in quiet[1:]:
        np.minimum(table, np.bitwise_count(pattern ^ nothing), out=table)
    for parity in puzzle.numbers(puzzle.quiet):
        table[doubled(puzzle.boards(parity)) == 1] = UNREACHABLE
    return table


def doubled(images: np.ndarray) -> np.ndarray:
    """The GF(2)-linear map that sends bit i to images[i], applied to all 2^n integers: each bit doubles the table."""
    table = np.zeros(1, images.dtype)
    for image in images:
        table = np.concatenate([table, table ^ image])
    return table


# The experiment's ingredients -----------------------------------------------------------------------------------------


class PuzzleTask(NamedTuple):
    """An evaluation task: boards as text, and their distance as the method lists it."""

    start: str
    goal: str
    distance: int


TASKS: dict[str, tuple[PuzzleTask, ...]] = {
    "3x3": (
        PuzzleTask("000/000/000", "110/101/011", 2),
        PuzzleTask("111/111/111", "011/111/111", 5),
        PuzzleTask("010/111/010", "101/010/101", 8),
        PuzzleTask("010/101/010", "111/111/111", 9),
        PuzzleTask("111/111/111", "101/101/101", 7),
    ),
    "4x5": (
        PuzzleTask("11011/01010/01010/11011", "00000/00000/00000/00000", 4),
        PuzzleTask("00000/00000/00000/00000", "11111/11111/11111/11111", 10),
        PuzzleTask("00000/00100/00100/00000", "11111/10001/10001/11111", 14),
        PuzzleTask("00000/00000/00000/00000", "00000/00100/00100/00000", 16),
        PuzzleTask("00000/00000/00000/00000", "10001/01110/01110/10001", 20),
    ),
    "4x6": (
        PuzzleTask("110111/001010/010100/111011", "000000/000000/000000/000000", 6),
        PuzzleTask("111111/111111/111111/111111", "000000/000000/000000/000000", 8),
        PuzzleTask("000000/000000/000000/000000", "111110/110101/101011/011111", 12),
        PuzzleTask("010101/101010/010101/101010", "100001/000000/000000/100001", 16),
        PuzzleTask("000000/000000/000000/000000", "100001/011110/011110/100001", 24),
    ),
}


def task_boards(puzzle: Puzzle) -> tuple[np.ndarray, np.ndarray]:
    """Starts and goals of the evaluation tasks, (tasks, n) uint8 each."""
    if str(puzzle) not in TASKS:
        raise UserError(
            f"board {puzzle} has no evaluation tasks; boards with tasks: {', '.join(TASKS)}. All pairs are tried on "
            f"boards of up to {PAIRS_LIMIT} buttons"
        )
    tasks = TASKS[str(puzzle)]
    return np.stack([puzzle.read(task.start) for task in tasks]), np.stack([puzzle.read(task.goal) for task in tasks])


def random_boards(puzzle: Puzzle, count: int, rng: np.random.Generator) -> np.ndarray:
    """Uniform boards, (count, n) uint8; the 64 anchors are such boards (A4)."""
    return rng.integers(0, 2, size=(count, puzzle.buttons), dtype=np.uint8)

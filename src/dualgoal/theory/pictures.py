"""The dual representation in pictures, drawn by `dualgoal theory --plot DIR`.

A goal of a grid maze is represented by the distances to it from all cells (section 1.3 of the method). Two noisy
observations of one cell have the same representation (Theorem 2), unlike under the naive reward. Classical scaling of
the representations of all goals unfolds the maze.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from dualgoal.files import make_folder, replacing
from dualgoal.theory.processes import BlockProcess, Process, distances, dual_representation
from dualgoal.theory.theorems import classical_scaling

MAP = """\
#################
#.......#.......#
#.#####.#.#####.#
#.#...#.#.#...#.#
#.#.#.#...#.#.#.#
#...#.#####.#...#
###.#.......#.###
#...#####.###...#
#.###...#...###.#
#.....#...#.....#
#################"""
MOVES = np.array([[-1, 0], [1, 0], [0, -1], [0, 1]])
GAMMA = 0.95
SLIP = 0.1  # probability of a random move instead of the chosen one
NEAR_TO_FAR = "viridis"  # near is dark and far is bright, as in reports


@dataclass(frozen=True)
class Grid:
    """A maze of open cells, numbered in reading order."""

    walls: np.ndarray

    @classmethod
    def parse(cls, text: str) -> Grid:
        return cls(np.array([[cell == "#" for cell in row] for row in text.splitlines()]))

    @property
    def cells(self) -> np.ndarray:
        """(row, column) of each open cell."""
        return np.argwhere(~self.walls)

    def process(self, slip: float) -> Process:
        """Four moves; walls block. With probability `slip` the move is one of the four at random."""
        number = np.full(self.walls.shape, -1)
        number[tuple(self.cells.T)] = np.arange(len(self.cells))
        there = number[tuple(np.moveaxis(self.cells[:, None] + MOVES, -1, 0))]
        reached = np.where(there < 0, np.arange(len(self.cells))[:, None], there)
        weights = slip / 4 + (1 - slip) * np.eye(4)
        shape = (len(self.cells), 4, 4)
        return Process(np.broadcast_to(reached[:, None], shape), np.broadcast_to(weights, shape))

    def image(self, field: np.ndarray) -> np.ndarray:
        """One number per open cell as an image, NaN in walls."""
        picture = np.full(self.walls.shape, np.nan)
        picture[tuple(self.cells.T)] = field
        return picture


def draw_pictures(folder: Path) -> list[Path]:
    """Write the three pictures and return their paths."""
    folder = Path(folder)
    make_folder(folder)
    grid = Grid.parse(MAP)
    figures = {"fields.png": fields(grid), "noise.png": noise(grid), "goals.png": goals(grid)}
    for name, figure in figures.items():
        with replacing(folder / name) as temporary:
            figure.savefig(temporary, dpi=130, format="png")
    return [folder / name for name in figures]


def fields(grid: Grid) -> Figure:
    """The representation of a few goals: for each, its distances from all states."""
    phi = dual_representation(grid.process(slip=0.0), GAMMA)
    figure = Figure(figsize=(10, 6.4), layout="constrained")
    figure.suptitle("Dual representation of four goals: their distances d*(., g) from all states")
    chosen = np.linspace(0, len(phi) - 1, 4).round().astype(int)
    axes = figure.subplots(2, 2)
    for axis, goal in zip(axes.flat, chosen, strict=True):
        shown = _show(axis, grid, phi[goal], top=float(phi.max()))
        _star(axis, grid, goal)
    figure.colorbar(shown, ax=axes, label="steps to the goal", shrink=0.8)
    return figure


def noise(grid: Grid) -> Figure:
    """Two observations of one cell: equal representations under the latent reward, not under the naive one 1[s=g]."""
    rng = np.random.default_rng(0)
    latent = grid.process(SLIP)
    views = 3
    decoder = np.repeat(np.arange(latent.states), views)
    block = BlockProcess(latent, decoder, np.tile([0.6, 0.3, 0.1], latent.states))
    process, goal_cell = block.observed(), latent.states // 3
    first, second = goal_cell * views, goal_cell * views + 2
    by_latent = distances(process, GAMMA, block.same_latent()[:, [first, second]]).T
    naive = distances(process, GAMMA, np.eye(process.states, dtype=bool)[:, [first, second]]).T
    figure = Figure(figsize=(12, 6), layout="constrained")
    figure.suptitle("Two noisy observations of one state (top, bottom)")
    axes = figure.subplots(2, 3)
    pixels = rng.uniform(size=(2, *grid.walls.shape))
    top = float(naive.max())
    for row in range(2):
        _observation(axes[row, 0], grid, goal_cell, pixels[row])
        _show(axes[row, 1], grid, by_latent[row][::views], top)
        shown = _show(axes[row, 2], grid, naive[row][::views], top)
    same, apart = np.abs(np.diff(by_latent, axis=0)).max(), np.abs(np.diff(naive, axis=0)).max()
    axes[0, 0].set_title("observation g")
    axes[0, 1].set_title(f"d*(., g): largest difference {same:.3g}")
    axes[0, 2].set_title(f"naive reward 1[s=g]: difference {apart:.3g}")
    figure.colorbar(shown, ax=axes, label="d*", shrink=0.8)
    return figure


def goals(grid: Grid) -> Figure:
    """All goals by classical scaling of the distances between their representations, coloured as on the map."""
    phi = dual_representation(grid.process(SLIP), GAMMA)
    apart = np.linalg.norm(phi[:, None] - phi[None], axis=-1) / np.sqrt(len(phi))
    points = classical_scaling(apart, 2)
    row, column = (grid.cells / (np.array(grid.walls.shape) - 1)).T
    colours = np.stack([column, 0.35 + 0.3 * row * column, row], axis=1)
    figure = Figure(figsize=(11, 5), layout="constrained")
    map_axis, axis = figure.subplots(1, 2)
    picture = np.ones((*grid.walls.shape, 3)) * 0.15
    picture[tuple(grid.cells.T)] = colours
    map_axis.imshow(picture)
    map_axis.set_title("the maze, a colour for each cell")
    map_axis.set_axis_off()
    neighbours = np.abs(grid.cells[:, None] - grid.cells[None]).sum(-1) == 1
    for a, b in np.argwhere(np.triu(neighbours)):
        axis.plot(*points[[a, b]].T, color="0.8", lw=1, zorder=0)
    axis.scatter(*points.T, c=colours, s=42)
    title = "goals by classical scaling of their dual representations"
    axis.set(title=title, aspect="equal", xticks=[], yticks=[])
    return figure


def _show(axis: Axes, grid: Grid, field: np.ndarray, top: float) -> AxesImage:
    axis.set(facecolor="0.15", xticks=[], yticks=[])
    return axis.imshow(grid.image(field), cmap=NEAR_TO_FAR, vmin=0, vmax=top)


def _star(axis: Axes, grid: Grid, cell: int) -> None:
    row, column = grid.cells[cell]
    axis.plot(column, row, marker="*", color="crimson", markersize=14)


def _observation(axis: Axes, grid: Grid, cell: int, pixels: np.ndarray) -> None:
    """What an agent might see: the maze under noise that is independent of the state."""
    axis.imshow(np.where(grid.walls, 0.0, 0.75) * 0.6 + 0.4 * pixels, cmap="gray", vmin=0, vmax=1)
    axis.set(xticks=[], yticks=[])
    _star(axis, grid, cell)

"""Maze geometry: cells, their centres, and shortest paths between them (sections 7 and 9.1 of the method).

Cells are (row, column); the centre of cell (i, j) lies at x = 4j - 4, y = 4i - 4 metres. Shortest paths are one
breadth-first search per goal cell, kept for the life of the maze, because collectors ask for them at every step.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

Cell = tuple[int, int]
UNREACHABLE = -1
_NEIGHBOURS = ((-1, 0), (0, -1), (1, 0), (0, 1))


@dataclass(frozen=True, eq=False)
class Maze:
    """A grid of walls (True) and free cells (False), `unit` metres wide, cell (0, 0) centred at -`offset`."""

    walls: np.ndarray
    unit: float = 4.0
    offset: float = 4.0
    _tables: dict[Cell, np.ndarray] = field(default_factory=dict, repr=False)
    _steps: dict[Cell, dict[Cell, Cell]] = field(default_factory=dict, repr=False)

    @property
    def cells(self) -> list[Cell]:
        """Free cells in row order."""
        return [(int(i), int(j)) for i, j in np.argwhere(~self.walls)]

    @property
    def vertices(self) -> list[Cell]:
        """Free cells that are not straight pieces of corridor: the places worth walking to."""
        return [cell for cell in self.cells if not self._corridor(cell)]

    def _corridor(self, cell: Cell) -> bool:
        up, left, down, right = (self.free((cell[0] + di, cell[1] + dj)) for di, dj in _NEIGHBOURS)
        return (up and down and not left and not right) or (left and right and not up and not down)

    def free(self, cell: Cell) -> bool:
        rows, cols = self.walls.shape
        return 0 <= cell[0] < rows and 0 <= cell[1] < cols and not self.walls[cell]

    def centre(self, cell: Cell) -> tuple[float, float]:
        return cell[1] * self.unit - self.offset, cell[0] * self.unit - self.offset

    def cell(self, xy: Sequence[float] | np.ndarray) -> Cell:
        """The cell that holds a point."""
        half = self.offset + 0.5 * self.unit
        return int((xy[1] + half) / self.unit), int((xy[0] + half) / self.unit)

    def distances(self, goal: Cell) -> np.ndarray:
        """Steps from every cell to `goal` over free 4-neighbours; `UNREACHABLE` for walls and cut-off cells."""
        if goal not in self._tables:
            self._tables[goal] = self._search(goal)
        return self._tables[goal]

    def _search(self, goal: Cell) -> np.ndarray:
        table = np.full(self.walls.shape, UNREACHABLE, dtype=np.int64)
        table[goal] = 0
        queue = deque([goal])
        while queue:
            here = queue.popleft()
            for di, dj in _NEIGHBOURS:
                near = (here[0] + di, here[1] + dj)
                if self.free(near) and table[near] == UNREACHABLE:
                    table[near] = table[here] + 1
                    queue.append(near)
        table.setflags(write=False)
        return table

    def next_cell(self, here: Cell, goal: Cell) -> Cell:
        """The neighbour of `here` on a shortest path to `goal`; `here` itself at the goal or where no path leads."""
        if goal not in self._steps:
            self._steps[goal] = {cell: self._descend(cell, goal) for cell in np.ndindex(self.walls.shape)}
        return self._steps[goal].get(here, here)

    def _descend(self, here: Cell, goal: Cell) -> Cell:
        table = self.distances(goal)
        far = self.walls.size  # a point pressed into a wall counts as farther than any free cell
        best, steps = here, far if table[here] == UNREACHABLE else table[here]
        for di, dj in _NEIGHBOURS:
            near = (here[0] + di, here[1] + dj)
            if self.free(near) and table[near] != UNREACHABLE and table[near] < steps:
                best, steps = near, table[near]
        return best

"""A maze of one's own: read from a text file, with evaluation tasks that the file gives or that are chosen here.

    ########      # wall, . free. A small letter is where a task starts, its capital where it ends:
    #a.#..B#      task a here goes from the top left to the bottom right.
    #..#.#.#
    #b.....#
    #.#.##A#
    ########

Without letters, tasks are chosen so that their goals are far from each other and their ways long.
"""

import string
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dualgoal.envs.mazes import Cell, Maze
from dualgoal.errors import UserError
from dualgoal.files import read_bytes

LARGEST = 64  # cells on a side
CHOSEN = 5  # tasks, unless the file gives its own
WALLS, FREE = "#", "."


@dataclass(frozen=True)
class MazeMap:
    """Walls and free cells as lines of text, and tasks as (start row, start column, goal row, goal column)."""

    lines: tuple[str, ...]
    tasks: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        _check(self)

    def maze(self) -> Maze:
        """Its cells, their centres, and shortest paths, for free cells 4 metres wide as in OGBench's mazes."""
        walls = np.array([[character == WALLS for character in line] for line in self.lines])
        walls.setflags(write=False)
        return Maze(walls)


def read(path: Path) -> MazeMap:
    """The maze in a text file."""
    try:
        text = read_bytes(Path(path).expanduser(), LARGEST * (LARGEST + 2), follow=True).decode()
    except (FileNotFoundError, UnicodeDecodeError) as problem:
        raise UserError(f"{path}: no text file with a maze; see docs/experts.md for the format") from problem
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    letters = {c: (i, j) for i, line in enumerate(lines) for j, c in enumerate(line) if c in string.ascii_letters}
    for starts in string.ascii_lowercase:
        if (starts in letters) != (starts.upper() in letters):
            raise UserError(f"{path}: task '{starts}' needs both a start ({starts}) and a goal ({starts.upper()})")
    if sum(c in string.ascii_letters for line in lines for c in line) > len(letters):
        raise UserError(f"{path}: a letter occurs twice; every start and every goal has its own")
    plain = tuple("".join(FREE if c in string.ascii_letters else c for c in line) for line in lines)
    given = [(*letters[c], *letters[c.upper()]) for c in string.ascii_lowercase if c in letters]
    try:
        return MazeMap(plain, tuple(given or choose(MazeMap(plain, ()).maze())))
    except UserError as problem:
        raise UserError(f"{path}: {problem}") from problem


def recorded(provenance: Mapping[str, Any]) -> MazeMap | None:
    """The maze of a dataset of which this is recorded, if it has one of its own."""
    found = provenance.get("maze")
    return found and MazeMap(tuple(found["lines"]), tuple(tuple(task) for task in found["tasks"]))


def choose(maze: Maze) -> list[tuple[int, int, int, int]]:
    """Tasks whose goals are far from the goals before them, each from the free cell that is farthest from its goal."""
    places = maze.vertices or maze.cells
    farthest = lambda goal: max(maze.cells, key=lambda cell: (maze.distances(goal)[cell], cell))
    goals = [max(places, key=lambda goal: (maze.distances(goal).max(), goal))]
    while len(goals) < min(CHOSEN, len(places)):
        goals.append(max(places, key=lambda cell: (min(int(maze.distances(goal)[cell]) for goal in goals), cell)))
    return [(*farthest(goal), *goal) for goal in goals]


def _check(found: MazeMap) -> None:
    lines = found.lines
    if uneven := [row for row, line in enumerate(lines) if len(line) != len(lines[0])]:
        lengths = f"line {uneven[0] + 1} has {len(lines[uneven[0]])} cells, the first {len(lines[0])}"
        raise UserError(f"a maze is a rectangle, but {lengths}; make them equal")
    if not (3 <= len(lines) <= LARGEST and 3 <= len(lines[0]) <= LARGEST):
        raise UserError(f"a maze is a rectangle of {WALLS} and {FREE}, from 3 to {LARGEST} cells on a side")
    if strange := {c for line in lines for c in line} - {WALLS, FREE}:
        raise UserError(f"'{min(strange)}' is neither a wall ({WALLS}) nor free ({FREE}) nor a letter of a task")
    edge = lines[0] + lines[-1] + "".join(line[0] + line[-1] for line in lines)
    if FREE in edge:
        raise UserError("a maze must have walls all around")
    maze = found.maze()
    if len(maze.cells) < 2:
        raise UserError("a maze needs at least two free cells")
    cut_off: list[Cell] = [cell for cell in maze.cells if maze.distances(maze.cells[0])[cell] < 0]
    if cut_off:
        raise UserError(f"no way leads to the free cell in row {cut_off[0][0]}, column {cut_off[0][1]} (from 0)")
    for task in found.tasks:
        if len(task) != 4 or not (maze.free(task[:2]) and maze.free(task[2:])):
            raise UserError(f"task {task} does not lead from one free cell to another")

"""The gallery: its maze is a process with the distances one can count by hand, and three pictures are written."""

import numpy as np
import pytest

from dualgoal.errors import UserError
from dualgoal.theory import pictures
from dualgoal.theory.processes import distances


def test_maze_distances_by_hand():
    grid = pictures.Grid.parse("#####\n#...#\n#.#.#\n#####")
    process = grid.process(slip=0.0)
    assert process.deterministic and process.states == 5
    np.testing.assert_array_equal(distances(process, 0.9)[3], [1, 2, 3, 0, 4])


def test_slipping_costs_time():
    grid = pictures.Grid.parse(pictures.MAP)
    sure, slippery = distances(grid.process(0.0), 0.95), distances(grid.process(0.1), 0.95)
    assert (slippery >= sure - 1e-9).all() and slippery.max() > sure.max() + 1


def test_pictures_are_written(tmp_path):
    paths = pictures.draw_pictures(tmp_path / "new" / "folder")
    assert [path.name for path in paths] == ["fields.png", "noise.png", "goals.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)


def test_a_file_is_not_a_folder(tmp_path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(UserError, match="cannot be made a folder"):
        pictures.draw_pictures(tmp_path / "taken")

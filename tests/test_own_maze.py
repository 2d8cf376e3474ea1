"""A maze of one's own: read from a file, walked through by the collectors, evaluated in and drawn like the others."""

import json

import numpy as np
import pytest
from safetensors.numpy import save_file

from dualgoal.cli.main import main
from dualgoal.collect import generate
from dualgoal.data import dataset, info
from dualgoal.envs import own_maze, registry
from dualgoal.errors import UserError

TASK = "pointmaze-mine-navigate-v0"
TEXT = """
#######
#a..#B#
#.#.#.#
#.#...#
#b#..A#
#######
"""
SMALL = ["--rep.dim", "4", "--rep.hidden", "8", "--algo.hidden", "8", "--batch-size", "8", "--steps", "4"]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own")
    (folder / "map.txt").write_text(TEXT)
    words = ["data", "generate", TASK, "--maze", str(folder / "map.txt"), "--episodes", "2", "--rows", "120"]
    assert main([*words, "--out", str(folder / "data"), "--workers", "1", "--quiet"]) == 0
    return folder


def test_letters_are_tasks(made):
    found = own_maze.read(made / "map.txt")
    assert found.tasks == ((1, 1, 4, 5), (4, 1, 1, 5))
    assert found.maze().distances((4, 5))[1, 1] == 7
    assert not any(letter in line for line in found.lines for letter in "aAbB")


def test_tasks_are_chosen_far_apart(tmp_path):
    file = tmp_path / "map.txt"
    file.write_text(TEXT.translate(str.maketrans("aAbB", "....")))
    chosen = own_maze.read(file)
    maze = chosen.maze()
    assert len({task[2:] for task in chosen.tasks}) == len(chosen.tasks) == 5
    longest = max(maze.distances(cell).max() for cell in maze.cells)
    assert maze.distances(chosen.tasks[0][2:])[chosen.tasks[0][:2]] == longest
    assert chosen == own_maze.read(file)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("###\n#.#\n###", "at least two free cells"),
        ("####\n#..#\n#.##", "walls all around"),
        ("#####\n#.#.#\n#####", "no way leads to the free cell in row 1, column 3"),
        ("####\n#.?#\n####", "'.' is neither a wall"),
        ("####\n#.a#\n####", "task 'a' needs both"),
        ("#####\n#aAa#\n#####", "a letter occurs twice"),
        ("", "a rectangle of # and ., from 3 to 64"),
        ("####\n####", "a rectangle of # and ., from 3 to 64"),
        ("####\n#..#\n###", "a rectangle, but line 3 has 3 cells, the first 4"),
    ],
)
def test_what_is_no_maze_is_one_line(tmp_path, text, message):
    file = tmp_path / "map.txt"
    file.write_text(text)
    with pytest.raises(UserError, match=message) as caught:
        own_maze.read(file)
    assert str(file) in str(caught.value)
    with pytest.raises(UserError, match="no text file"):
        own_maze.read(tmp_path / "absent.txt")


def test_the_name_must_be_free(made, tmp_path):
    for name in ("pointmaze-medium-navigate-v0", "cube-mine-play-v0", "pointmaze-mine-v0"):
        with pytest.raises(UserError, match="cannot be the name of your own maze"):
            generate.generate_dataset(name, 1, tmp_path, maze=made / "map.txt")


def test_data_stay_inside_and_say_which_maze(made):
    data = dataset.load(made / "data")
    maze = own_maze.recorded(data.provenance)
    assert maze == own_maze.read(made / "map.txt")
    plan = maze.maze()
    assert all(plan.free(plan.cell(xy)) for xy in data.observations)
    assert len({plan.cell(xy) for xy in data.observations}) > 5  # it gets around
    assert info.draw_coverage(data, made / "plot.png").stat().st_size > 1000


def test_any_number_of_workers_gives_the_same_bytes_for_walkers_too(made, tmp_path):
    rng = np.random.default_rng(0)
    layers = {
        "walk.layers.0.weight": rng.normal(size=(29, 8)).astype(np.float32),
        "walk.layers.0.bias": np.zeros(8, "f4"),
    }
    save_file(layers, tmp_path / "walk.safetensors")
    name = "antmaze-mine-navigate-v0"
    for workers in (1, 2):
        generate.generate_dataset(
            name, 2, tmp_path / str(workers), workers=workers, quiet=True, rows=8, maze=made / "map.txt",
            expert=tmp_path / "walk.safetensors",
        )  # fmt: skip
    for file in (f"{name}.npz", f"{name}-val.npz"):
        assert (tmp_path / "1" / file).read_bytes() == (tmp_path / "2" / file).read_bytes()


def test_an_environment_has_the_tasks_of_the_file(made):
    env = registry.make(TASK, made_with=dataset.load(made / "data").provenance)
    assert env.num_tasks == 2
    start, found = env.reset(seed=0, task_id=2)
    maze = own_maze.read(made / "map.txt").maze()
    assert (maze.cell(start), maze.cell(found["goal"])) == ((4, 1), (1, 5))
    for _ in range(200):  # south, against the wall
        observation = env.step(np.array([0.0, 1.0]))[0]
    assert maze.cell(observation) == (4, 1)
    ant = registry.make("antmaze-mine-navigate-v0", own=own_maze.read(made / "map.txt"))
    assert ant.reset(seed=0, task_id=1)[0].shape == (29,)


def test_a_run_is_evaluated_there_and_its_report_shows_the_maze(made, monkeypatch, evaluated_here):
    run = made / "run"
    assert main(["train", TASK, "--data", str(made / "data"), "--out", str(run), *SMALL, "--episodes", "1",
                 "--workers", "1", "--max-steps", "5", "--quiet"]) == 0  # fmt: skip
    rows = [json.loads(line) for line in (run / "eval.jsonl").read_text().splitlines()]
    assert {row["goal"] for row in rows} == {1, 2}
    from dualgoal.report import distances, paths

    monkeypatch.setattr(paths, "STEPS", 3)
    table = distances.explore(run, data=made / "data", states=30, goals=4)
    assert table.kind == "maze"
    assert len(table.walls) == TEXT.count("#")
    assert len(table.paths) == 4


def test_without_a_maze_in_the_data_there_is_nowhere_to_evaluate(made, tmp_path, capsys):
    for path in (made / "data").glob("*.npz"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    assert main(["train", TASK, "--data", str(tmp_path), "--out", str(tmp_path / "run"), *SMALL, "--quiet"]) == 2
    assert "no environment for task" in capsys.readouterr().err

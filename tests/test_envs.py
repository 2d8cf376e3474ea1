"""(task, seed) fixes an episode: in one environment, in two, in two taking turns, in another process."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import mujoco  # on purpose before our package, as users do: the backend is then set late
import numpy as np
import pytest

from dualgoal.envs import meshes, ogbench, registry, rendering, tasks, versions
from dualgoal.errors import UserError

STATE = [
    "pointmaze-medium-navigate-v0",
    "antmaze-large-navigate-v0",
    "humanoidmaze-medium-navigate-v0",
    "antsoccer-arena-navigate-v0",
    "cube-double-play-v0",
    "scene-play-v0",
    "puzzle-3x3-play-v0",
]
PIXELS = ["visual-antmaze-medium-navigate-v0", "visual-cube-single-play-v0"]


def roll(env: ogbench.SeededEnv, seed: int, steps: int, task_id: int | None = None) -> list[np.ndarray]:
    """Every observation of an episode whose actions are a function of the seed, the goal first."""
    return list(rolling(env, seed, steps, task_id))


def rolling(env: ogbench.SeededEnv, seed: int, steps: int, task_id: int | None = None):
    rng = np.random.default_rng(seed + 1000)
    obs, info = env.reset(seed, task_id)
    yield info["goal"]
    yield obs
    for _ in range(steps):
        obs, _, terminated, truncated, _ = env.step(rng.uniform(-1, 1, env.action_dim))
        yield obs
        if terminated or truncated:
            return


def same(a: list[np.ndarray], b: list[np.ndarray]) -> bool:
    return len(a) == len(b) and all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("task", [*STATE, *PIXELS])
def test_an_episode_is_a_function_of_task_and_seed(task):
    if tasks.is_pixels(task) and (problems := rendering.missing()).keys() >= {"egl", "osmesa"}:
        pytest.skip(f"no headless rendering on this machine: {problems}")
    steps = 2 if tasks.is_pixels(task) else 8
    before = np.random.get_state()  # noqa: NPY002 (the point is that nobody moves it)
    fresh, used = registry.make(task, quality=versions.Quality(64)), registry.make(task, quality=versions.Quality(64))
    first, known = roll(fresh, 3, steps), tasks.TASKS[task]
    assert {obs.shape for obs in first} == {known.observation_shape} == {fresh.observation_shape}
    assert (fresh.action_dim, fresh.max_steps, fresh.num_tasks) == (known.action_dim, known.max_steps, 5)
    roll(used, 4, steps)
    roll(used, 5, 1, task_id=2)
    assert same(first, roll(used, 3, steps)), "after other episodes"
    turns = list(zip(rolling(fresh, 3, steps), rolling(used, 4, steps), strict=True))
    assert same(first, [a for a, _ in turns]), "taking turns with another"
    assert not same(first, [b for _, b in turns]), "another seed must give another episode"
    after = np.random.get_state()  # noqa: NPY002
    assert np.array_equal(before[1], after[1]) and before[2:] == after[2:], "the global generator moved"
    fresh.close()
    used.close()


def test_another_process_sees_the_same_episodes():
    code = (
        "import sys, json, hashlib, numpy as np\n"
        "sys.path.insert(0, sys.argv[1])\n"
        "from test_envs import roll\n"
        "from dualgoal.envs import registry\n"
        "np.random.seed(7)\n"
        "print(json.dumps({t: hashlib.sha256(b''.join(o.tobytes() for o in roll(registry.make(t), 3, 4))).hexdigest()"
        " for t in sys.argv[2:]}))\n"
    )
    here = {
        task: hashlib.sha256(b"".join(o.tobytes() for o in roll(registry.make(task), 3, 4))).hexdigest()
        for task in STATE
    }
    folder = str(Path(__file__).parent)
    there = subprocess.run([sys.executable, "-c", code, folder, *STATE], capture_output=True, text=True, check=True)
    assert json.loads(there.stdout) == here


def test_a_renderer_that_nobody_closed_is_closed_quietly_at_exit():
    if rendering.missing().keys() >= {"egl", "osmesa"}:
        pytest.skip("no headless rendering on this machine")
    code = (
        "from dualgoal.envs import registry, versions\n"
        "env = registry.make('visual-cube-single-play-v0', quality=versions.Quality(64, 4.0))\n"
        "print(env.reset(0, 1)[0].shape)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout == "(64, 64, 3)\n" and ended.stderr == ""


def test_tasks_differ_and_a_drawn_task_follows_the_seed():
    env = registry.make("pointmaze-large-navigate-v0")
    assert env.num_tasks == 5 and env.max_steps == 1000
    episodes = [env.reset(0, k) for k in range(1, 6)]
    assert len({(*obs, *info["goal"]) for obs, info in episodes}) == 5
    drawn = [env.reset(seed)[1]["task_id"] for seed in range(40)]
    assert set(drawn) == {1, 2, 3, 4, 5}
    assert drawn == [env.reset(seed)[1]["task_id"] for seed in range(40)]
    with pytest.raises(UserError, match="task id 6 does not exist"):
        env.reset(0, 6)


def test_start_and_goal_have_their_own_noise():
    env = registry.make("pointmaze-medium-navigate-v0")
    offsets = []
    for seed in range(30):
        obs, info = env.reset(seed, 1)
        start, goal = env.raw.ij_to_xy((1, 1)), env.raw.ij_to_xy((6, 6))
        offsets.append([*(obs - start), *(info["goal"] - goal)])
    spread = np.array(offsets)
    assert np.abs(spread).max() <= 1.0 + 1e-6
    assert spread.std(axis=0).min() > 0.35
    assert np.abs(np.corrcoef(spread.T) - np.eye(4)).max() < 0.6


def test_episodes_end_at_the_limit_and_at_the_goal():
    env = registry.make("cube-single-play-v0")
    env.reset(0, 1)
    flags = [env.step(np.zeros(5))[2:4] for _ in range(env.max_steps)]
    assert flags[-1] == (False, True) and not any(truncated for _, truncated in flags[:-1])
    maze = registry.make("pointmaze-medium-navigate-v0")
    maze.reset(0, 3)
    maze.raw.set_xy(maze.raw.cur_goal_xy)
    _, reward, terminated, _, info = maze.step(np.zeros(2))
    assert terminated and info["success"] is True and reward == 1.0


def test_shadow_size_reaches_the_renderer():
    if rendering.missing().keys() >= {"egl", "osmesa"}:
        pytest.skip("no headless rendering on this machine")
    maze = registry.make("visual-antmaze-medium-navigate-v0", quality=versions.Quality(256))
    assert maze.raw.model.vis.quality.shadowsize == 256
    obs, info = maze.reset(0, 1)
    assert obs.shape == (64, 64, 3) and obs.dtype == np.uint8 and obs.std() > 5
    assert maze.raw.custom_renderer._mjr_context.shadowSize == 256
    maze.close()


def test_coarse_meshes_are_drawn_and_not_simulated():
    if rendering.missing().keys() >= {"egl", "osmesa"}:
        pytest.skip("no headless rendering on this machine")
    fine, coarse = (
        registry.make("visual-puzzle-3x3-play-v0", quality=versions.Quality(64, cell)) for cell in (0.0, 4.0)
    )
    pair = [env.reset(1, 3) for env in (fine, coarse)]
    for a, b in ((pair[0][0], pair[1][0]), (pair[0][1]["goal"], pair[1][1]["goal"])):  # two boards of buttons
        difference = np.abs(a.astype(int) - b)
        assert 0 < difference.mean() < 1 and difference.max() < 100, "the buttons have the colours of their board"
    for name in ("mesh_facenum", "mesh_face", "mesh_facenormal", "mesh_facetexcoord"):
        assert np.array_equal(getattr(coarse.raw._model, name), getattr(fine.raw._model, name))
    infos = [env.step(np.ones(5))[4] for env in (fine, coarse)]
    assert np.array_equal(infos[0]["qpos"], infos[1]["qpos"]) and np.array_equal(infos[0]["qvel"], infos[1]["qvel"])
    fine.close()
    coarse.close()


def test_coarse_meshes_have_one_corner_per_cube():
    side = 24
    grid = np.stack(np.meshgrid(np.arange(side), np.arange(side), indexing="ij"), -1).reshape(-1, 2) / 1000
    vertices = np.column_stack([grid, 0.002 * np.sin(grid.sum(1) * 500)])  # a wavy sheet, a corner every millimetre
    corner = np.arange(side * side).reshape(side, side)
    squares = [corner[:-1, :-1], corner[1:, :-1], corner[1:, 1:], corner[:-1, 1:]]
    faces = np.concatenate([np.stack([squares[k] for k in pick], -1).reshape(-1, 3) for pick in ((0, 1, 2), (0, 2, 3))])
    text = lambda rows: " ".join(str(x) for x in rows.ravel())
    model = mujoco.MjModel.from_xml_string(
        f"<mujoco><asset><mesh name='sheet' inertia='shell' vertex='{text(vertices)}' face='{text(faces)}'/></asset>"
        "<worldbody><geom type='mesh' mesh='sheet'/></worldbody></mujoco>"
    )
    before = model.mesh_face.copy()
    with meshes.coarse(model, 4.0):
        kept = model.mesh_face[: model.mesh_facenum[0]]
        cubes = np.floor(model.mesh_vert[np.unique(kept)].astype(float) / 0.004)
        assert len(np.unique(cubes, axis=0)) == len(cubes), "one corner per cube"
        turned = {min((a, b, c), (b, c, a), (c, a, b)) for a, b, c in kept.tolist()}
        assert len(turned) == len(kept) < len(before) / 4, "each triangle once"
        assert all(len(set(face)) == 3 for face in kept.tolist())
        extents = [np.ptp(model.mesh_vert[rows], axis=0) for rows in (np.unique(before), np.unique(kept))]
        assert np.all(extents[1] > extents[0] - 0.008), "the sheet keeps its extent"
    assert model.mesh_facenum[0] == len(before) and np.array_equal(model.mesh_face, before)


@pytest.mark.parametrize(("values", "words"), [((0, 0.0), "shadow size 0"), ((512, float("nan")), "mesh cell nan")])
def test_impossible_quality_is_told(values, words):
    with pytest.raises(UserError, match=words):
        versions.Quality(*values)


def test_maze_geometry_and_paths():
    maze = ogbench.maze("antmaze-medium-navigate-v0")
    assert maze is ogbench.maze("antmaze-medium-navigate-v0")
    assert maze.centre((1, 1)) == (0.0, 0.0) and maze.centre((6, 3)) == (8.0, 20.0)
    assert all(maze.cell(np.add(maze.centre(c), (1.9, -1.9))) == c for c in maze.cells)
    table = maze.distances((6, 6))
    assert table[6, 6] == 0 and table[0, 0] == -1 and table[1, 1] == 10
    here, walked = (1, 1), 0
    while here != (6, 6):
        here, walked = maze.next_cell(here, (6, 6)), walked + 1
    assert walked == 10
    assert maze.next_cell((0, 1), (6, 6)) == (1, 1), "a point pressed into a wall walks back into the maze"
    straight = [c for c in maze.cells if c not in maze.vertices]
    assert (2, 1) not in straight and (3, 3) in straight
    assert ogbench.maze("scene-play-v0") is None
    assert not ogbench.maze("antsoccer-arena-navigate-v0").walls[1:-1, 1:-1].any()


def test_maze_steps_agree_with_ogbench():
    env = registry.make("pointmaze-large-navigate-v0").raw
    maze = ogbench.maze("pointmaze-large-navigate-v0")
    for goal in maze.vertices[::4]:
        for here in maze.cells:
            theirs, table = env.get_oracle_subgoal(maze.centre(here), maze.centre(goal))
            assert tuple(theirs) == maze.centre(maze.next_cell(here, goal))
            assert table[here] == maze.distances(goal)[here]


@pytest.mark.parametrize("name", ["cube-sinlge-play-v0", "cube-single-v0", "nonsense", "antmaze-teleport-navigate-v0"])
def test_unknown_tasks_are_named(name):
    with pytest.raises(UserError, match=f"unknown task '{name}'"):
        registry.make(name)


def test_mismatched_simulators_are_named():
    here = versions.simulators()
    made = {"versions": {"mujoco": "3.1.6", "ogbench": here["ogbench"]}, "shadow_size": 512}
    with pytest.warns(versions.Mismatch, match=rf"mujoco 3\.1\.6.*mujoco {here['mujoco']}"):
        registry.make("pointmaze-medium-navigate-v0", made_with=made)
    (line,) = versions.mismatches({"versions": here, "shadow_size": 512}, versions.Quality())
    assert "512" in line and "4096" in line
    assert versions.mismatches({"versions": here, "shadow_size": 512}) == versions.mismatches({}) == []
    assert here["mujoco"] == mujoco.__version__


def test_a_dataset_is_rendered_as_it_was_made():
    if rendering.missing().keys() >= {"egl", "osmesa"}:
        pytest.skip("no headless rendering on this machine")
    env = registry.make("visual-antmaze-medium-navigate-v0", made_with={"shadow_size": 128})
    assert env.raw.model.vis.quality.shadowsize == 128


def test_no_renderer_is_said_in_one_line(monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", "disable")
    monkeypatch.setattr(rendering, "missing", lambda: {"egl": "libEGL.so.1", "osmesa": "libOSMesa.so.8"})
    with pytest.raises(UserError, match=r"visual-cube-single-play-v0.*libEGL\.so\.1.*libOSMesa\.so\.8.*libosmesa6"):
        registry.make("visual-cube-single-play-v0")


def test_the_backend_is_chosen_but_never_overruled(monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", "glfw")
    assert rendering.choose() == "glfw"
    monkeypatch.delenv("MUJOCO_GL")
    monkeypatch.setattr(rendering.platform, "system", lambda: "Linux")
    for problems, expected in (({}, "egl"), ({"egl": "x"}, "osmesa"), ({"egl": "x", "osmesa": "y"}, "disable")):
        monkeypatch.delenv("MUJOCO_GL", raising=False)
        monkeypatch.setattr(rendering, "missing", lambda problems=problems: problems)
        assert rendering.choose() == expected

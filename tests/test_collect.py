"""Generated data: repeatable for any number of workers, resumable after a kill, and behaving as section 9 says."""

import errno
import inspect
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from dualgoal.collect import behaviours, generate
from dualgoal.data import dataset, origin
from dualgoal.data.paths import DatasetFiles
from dualgoal.envs import ogbench, rendering, versions
from dualgoal.envs.mazes import Maze
from dualgoal.errors import UserError

POINT, CUBE = "pointmaze-medium-navigate-v0", "cube-single-play-v0"


def contents(folder: Path) -> dict[str, bytes]:
    """All files; of the record without the time that it took."""
    found = {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
    record = json.loads(found[f"{POINT}.json"])
    assert record.pop("cpu_seconds") > 0
    return found | {f"{POINT}.json": json.dumps(record).encode()}


def still(_):
    """An expert that does nothing, by name, so that it can travel to worker processes."""
    return np.zeros(8)


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    generate.generate_dataset(POINT, 12, folder, seed=1, workers=1, quiet=True, rows=60)
    return folder


def test_the_files_are_in_the_official_format(made):
    train, val = dataset.load(made), dataset.load(made, split="val")
    assert (train.episodes, train.rows, val.episodes) == (12, 720, 1)
    assert train.task == POINT and train.observation_shape == (2,) and train.action_dim == 2
    with np.load(made / f"{POINT}.npz") as file:
        kinds = {key: (file[key].dtype.name, file[key].shape) for key in file}
    assert kinds == {
        "observations": ("float32", (720, 2)), "actions": ("float32", (720, 2)), "terminals": ("bool", (720,)),
        "qpos": ("float32", (720, 2)), "qvel": ("float32", (720, 2)),
    }  # fmt: skip
    assert np.array_equal(train.ends, np.arange(12) * 60 + 59)


def test_the_record_says_how_it_was_made(made):
    record = json.loads((made / f"{POINT}.json").read_text())
    assert record["seed"] == 1 and record["collector"] == "direction oracle" and record["counts"]["episodes"] == 13
    assert record["cpu_seconds"] > 0 and "cpu_ms" not in record["counts"]
    assert set(record["versions"]) == {"mujoco", "ogbench", "dualgoal", "numpy"}
    assert record["files"][f"{POINT}.npz"]["rows"] == 720
    train = dataset.load(made)
    assert train.provenance["sha256"] == record["files"][f"{POINT}.npz"]["sha256"]
    assert "shadow_size" not in train.provenance and versions.mismatches(train.provenance) == []


def test_another_mujoco_is_warned_about(made, tmp_path):
    here = versions.simulators()["mujoco"]
    for name, raw in contents(made).items():
        (tmp_path / name).write_bytes(raw.replace(here.encode(), b"3.1.6"))
    with pytest.warns(versions.Mismatch, match=rf"mujoco 3\.1\.6, evaluated with mujoco {here}"):
        dataset.load(tmp_path)


def test_any_number_of_workers_gives_the_same_bytes(made, tmp_path):
    generate.generate_dataset(POINT, 12, tmp_path, seed=1, workers=2, quiet=False, rows=60)
    assert contents(tmp_path) == contents(made)


def test_a_plain_script_may_use_workers(made, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "from dualgoal.collect.generate import generate_dataset\n"
        f"generate_dataset({POINT!r}, 12, {str(tmp_path / 'out')!r}, seed=1, workers=2, quiet=True, rows=60)\n"
    )
    subprocess.run([sys.executable, str(script)], check=True)
    assert contents(tmp_path / "out") == contents(made)


def test_two_processes_at_once_make_one_dataset(made, tmp_path):
    code = (
        "from dualgoal.collect.generate import generate_dataset\n"
        f"generate_dataset({POINT!r}, 12, {str(tmp_path)!r}, seed=1, workers=1, quiet=True, rows=60)\n"
    )
    processes = [subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True) for _ in range(2)]
    said = [process.communicate()[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0] and not any("Error" in line for line in said), said
    assert contents(tmp_path) == contents(made)


def test_a_full_disk_or_a_file_for_a_folder_is_one_line(tmp_path, monkeypatch):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(UserError, match="file: cannot be made a folder"):
        generate.generate_dataset(POINT, 2, tmp_path / "file", workers=1, quiet=True, rows=5)

    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match="not written .no space left on device."):
        generate.generate_dataset(POINT, 2, tmp_path / "out", workers=1, quiet=True, rows=5)


def test_seeds_differ_and_more_episodes_extend_fewer(made, tmp_path):
    generate.generate_dataset(POINT, 3, tmp_path / "more", seed=1, workers=1, quiet=True, rows=60)
    generate.generate_dataset(POINT, 3, tmp_path / "other", seed=2, workers=1, quiet=True, rows=60)
    base, more, other = dataset.load(made), dataset.load(tmp_path / "more"), dataset.load(tmp_path / "other")
    assert np.array_equal(base.observations[:180], more.observations)
    assert not np.array_equal(more.observations, other.observations)
    assert not np.array_equal(more.observations[:60], dataset.load(made, split="val").observations)


def test_manipulation_episodes_do_not_depend_on_what_came_before():
    before = np.random.get_state()  # noqa: NPY002
    for task in ("scene-play-v0", "cube-double-play-v0"):
        one, other = behaviours.make(task, None, {}), behaviours.make(task, None, {})
        first, _ = one(np.random.default_rng(5), 40)
        other(np.random.default_rng(6), 25)
        again, _ = other(np.random.default_rng(5), 40)
        assert all(np.array_equal(first[key], again[key]) for key in first), task
    after = np.random.get_state()  # noqa: NPY002
    assert np.array_equal(before[1], after[1]) and before[2:] == after[2:]


def test_recorded_actions_replay_the_episode():
    collector = behaviours.make(CUBE, None, {})
    episode, _ = collector(np.random.default_rng(0), 30)
    env = collector.env
    ogbench.give_generator(env, np.random.default_rng(0))
    obs, _ = env.reset()
    for expected, action in zip(episode["observations"], episode["actions"], strict=True):
        assert np.array_equal(obs.astype(np.float32), expected)
        obs = env.step(action)[0]


def test_a_killed_generation_resumes_to_the_same_files(made, tmp_path):
    code = (
        "import sys, time\nfrom dualgoal.collect import behaviours, generate\n"
        "slow = behaviours.NavigatePoint.__call__\n"
        "def call(self, rng, rows):\n    time.sleep(0.1)\n    return slow(self, rng, rows)\n"
        "behaviours.NavigatePoint.__call__ = call\n"
        f"generate.generate_dataset({POINT!r}, 12, sys.argv[1], seed=1, workers=1, quiet=True, rows=60)\n"
    )
    victim = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)])
    parts = tmp_path / f".{POINT}.parts"
    deadline = time.monotonic() + 60
    while len(list(parts.glob("train-*.npz"))) < 3:
        assert victim.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    victim.send_signal(signal.SIGKILL)
    victim.wait()
    survived = len(list(parts.glob("train-*.npz")))
    assert 3 <= survived < 12 and not (tmp_path / f"{POINT}.npz").exists()
    (parts / "train-000001.npz").write_bytes(b"half a file")  # as a power cut might leave it
    with pytest.raises(UserError, match="unfinished generation with other settings"):
        generate.generate_dataset(POINT, 12, tmp_path, seed=2, workers=1, quiet=True, rows=60)
    generate.generate_dataset(POINT, 12, tmp_path, seed=1, workers=1, quiet=True, rows=60)
    assert contents(tmp_path) == contents(made)


def test_a_finished_dataset_is_kept_and_another_is_not_overwritten(made, tmp_path):
    before = (made / f"{POINT}.npz").stat().st_mtime_ns
    generate.generate_dataset(POINT, 12, made, seed=1, workers=1, quiet=True, rows=60)
    assert (made / f"{POINT}.npz").stat().st_mtime_ns == before
    with pytest.raises(UserError, match=f"made in another way .*; remove it together with {POINT}-val.npz and"):
        generate.generate_dataset(POINT, 12, made, seed=3, workers=1, quiet=True, rows=60)


def fails(_):
    os._exit(3)


def test_a_dead_worker_is_one_line(tmp_path):
    with pytest.raises(UserError, match="a worker process crashed 3 times at the same job; exit code 3"):
        generate.generate_dataset(
            "antmaze-medium-navigate-v0", 2, tmp_path, workers=2, quiet=True, rows=5, expert={"walk": fails}
        )


@pytest.mark.parametrize(
    ("task", "options", "message"),
    [
        ("antmaze-medium-navigate-v0", {"expert": {}}, "needs a policy that walks .ant."),
        ("antsoccer-arena-navigate-v0", {"expert": {"walk": still}}, "needs a policy that walks .antball."),
        ("antmaze-medium-stitch-v0", {}, "only navigate and play"),
        ("pointmaze-tiny-navigate-v0", {}, "unknown task"),
        ("cube-triple-play-v0", {}, "only single and double can be generated"),
        (POINT, {"expert": "ant.safetensors"}, "is collected without a walking policy; leave --expert out"),
        (POINT, {"rows": 1}, "rows is 1"),
        (POINT, {"rows": 0}, "rows is 0"),
        (POINT, {"seed": -1}, "seed is -1"),
        (POINT, {"workers": 0}, "workers is 0"),
    ],
)
def test_what_cannot_be_made_is_said_before_anything_is_written(tmp_path, task, options, message):
    with pytest.raises(UserError, match=message):
        generate.generate_dataset(task, 2, tmp_path / "out", **{"workers": 1, "quiet": True, **options})
    assert not list(tmp_path.glob("out/*.npz"))


def test_point_actions_are_direction_plus_noise_clipped(monkeypatch):
    steered = []
    direction = behaviours._direction

    def spy(*args):
        steered.append(direction(*args))
        return steered[-1]

    monkeypatch.setattr(behaviours, "_direction", spy)
    episode, counts = behaviours.make(POINT, None, {})(np.random.default_rng(0), 1001)
    heading, actions = np.array(steered), episode["actions"]
    assert np.allclose(np.linalg.norm(heading, axis=1), 1, atol=1e-2)
    expected = np.clip(heading + np.random.default_rng(1).normal(0, 0.5, (50, *heading.shape)), -1, 1)
    for measure in (lambda a: np.abs(a) == 1, lambda a: (a - heading) ** 2, lambda a: a * heading):
        assert abs(measure(actions).mean() - measure(expected).mean()) < 0.03
    assert counts["goals"] >= 2
    assert np.array_equal(episode["observations"], episode["qpos"])


def test_paths_are_searched_once_per_goal_cell(monkeypatch):
    searched, search = [], Maze._search
    monkeypatch.setattr(Maze, "_search", lambda self, goal: (searched.append(goal), search(self, goal))[1])
    collector = behaviours.make(POINT, None, {})
    collector.maze = Maze(collector.maze.walls)
    for seed in range(3):
        collector(np.random.default_rng(seed), 300)
    assert 0 < len(searched) == len(set(searched)) <= len(collector.vertices)


def test_goals_change_when_reached(monkeypatch):
    monkeypatch.setattr(behaviours, "POINT_NOISE", 0.0)
    collector = behaviours.make(POINT, None, {})
    episode, counts = collector(np.random.default_rng(3), 400)
    visited = {collector.maze.cell(xy) for xy in episode["observations"]}
    assert counts["goals"] >= 2 and len(visited) >= 6
    speed = np.linalg.norm(np.diff(episode["observations"], axis=0), axis=1)
    assert 0.19 < np.median(speed) < 0.21


def test_cubes_move_and_plans_succeed():
    episode, counts = behaviours.make(CUBE, None, {})(np.random.default_rng(0), 220)
    cube = episode["qpos"][:, -7:-5]
    assert np.linalg.norm(cube - cube[0], axis=1).max() > 0.05
    assert counts["plans/cube"] >= 2 and counts["reached/cube"] >= counts["plans/cube"] - 1
    assert np.abs(episode["actions"]).max() <= 1 and episode["actions"].dtype == np.float32


def test_pressing_a_button_flips_it_and_its_neighbours():
    episode, counts = behaviours.make("puzzle-3x3-play-v0", None, {})(np.random.default_rng(2), 120)
    flips = np.abs(np.diff(episode["button_states"], axis=0)).sum(axis=1)
    assert episode["button_states"].dtype == np.int64 and counts["plans/button"] >= 2
    assert set(flips[flips > 0]) <= {3, 4, 5}
    assert (flips > 0).sum() >= counts["reached/button"]


@pytest.mark.parametrize(
    ("position", "kept"),
    [((0.4, 0.1, 0.02), True), ((0.4, 0.29, 0.02), False), ((0.3, -0.3, 0.07), True), ((0.3, -0.3, 0.02), False)],
)
def test_spoiled_scene_episodes_are_noticed(position, kept):
    info = {"privileged/block_0_pos": np.array(position)}
    assert behaviours.Play("scene-play-v0", None)._healthy(info) is kept
    assert behaviours.Play(CUBE, None)._healthy(info)


def test_a_spoiled_episode_is_collected_again(monkeypatch):
    attempts = iter([None, None, ({"observations": np.zeros(1)}, Counter(a=1))])
    play = behaviours.Play("scene-play-v0", None)
    monkeypatch.setattr(play, "_attempt", lambda rng, rows: next(attempts))
    _, counts = play(np.random.default_rng(0), 5)
    assert counts == {"a": 1, "rejected": 2}


def test_oracles_take_turns_with_their_own_generators():
    env = ogbench.build(CUBE, mode="data_collection")
    ogbench.give_generator(env, np.random.default_rng(0))
    ob, info = env.reset()

    def plan(seed):
        oracle = behaviours.Play(CUBE, env)._oracles(np.random.default_rng(seed))["cube"]
        return lambda: (oracle.reset(ob, info), oracle._plan.copy())[1]

    a, b, again = plan(0), plan(1), plan(0)
    first, second = a(), b()
    third = a()
    assert np.array_equal(first, again()) and np.array_equal(third, again())
    assert len({x.tobytes() for x in (first, second, third)}) == 3
    noise = np.concatenate([np.diff(plan(s)(), axis=0)[:, 3] for s in range(3)])
    assert noise.std() > 0


def test_ogbench_draws_where_own_generator_expects_it():
    """`own_generator` rebuilds three methods of OGBench's plan oracles (written for OGBench 1.2.1 and 1.2.2):
    all that is random in them must be drawn as `np.random`, by methods with no state in a closure."""
    assert metadata.version("ogbench").startswith("1.2."), "read the new oracles, then own_generator"
    env = ogbench.build("scene-play-v0", mode="data_collection")
    oracles = behaviours.Play("scene-play-v0", env)._oracles(np.random.default_rng(0))
    rebuilt = ("reset", "compute_keyframes", "compute_plan")
    for oracle in oracles.values():
        for cls in type(oracle).__mro__[:-1]:
            for name, method in vars(cls).items():
                if inspect.isfunction(method) and "random" in inspect.getsource(method):
                    assert name in rebuilt and method.__closure__ is None, f"{cls.__name__}.{name}"
                    source = inspect.getsource(method)
                    assert source.count("random.") == source.count("np.random."), f"{cls.__name__}.{name}"


def test_interpolation_is_scipys():
    from scipy.interpolate import interp1d

    rng = np.random.default_rng(0)
    knots = np.cumsum(rng.uniform(0.1, 1, 6)).tolist()
    for values in (rng.normal(size=6), rng.normal(size=(6, 3))):
        ours, theirs = behaviours._linear(knots, values, kind="linear", axis=0), interp1d(knots, values, axis=0)
        for t in [*np.linspace(knots[0], knots[-1], 41)[:-1], *knots]:
            assert np.allclose(ours(t), theirs(t), atol=1e-12)


def test_walkers_are_told_the_state_and_a_unit_direction():
    seen = []

    def expert(x):
        seen.append(x)
        return np.zeros(8)

    collector = behaviours.make("antmaze-medium-navigate-v0", None, {"walk": expert})
    episode, _ = collector(np.random.default_rng(0), 200)
    inputs = np.array(seen)
    assert inputs.shape == (200, 29) and inputs.dtype == np.float32
    assert np.allclose(inputs[:, :27], episode["observations"][:, 2:], atol=1e-6)
    assert np.allclose(np.linalg.norm(inputs[:, 27:], axis=1), 1, atol=1e-4)
    assert abs(episode["actions"].std() - 0.2) < 0.02
    assert episode["observations"].shape == (200, 29)


def test_humanoids_are_collected():
    collector = behaviours.make("humanoidmaze-medium-navigate-v0", None, {"walk": lambda x: np.zeros(21)})
    episode, _ = collector(np.random.default_rng(0), 20)
    assert episode["observations"].shape == (20, 69) and episode["actions"].shape == (20, 21)


def soccer(agent, ball, goal):
    env = SimpleNamespace(
        get_agent_ball_xy=lambda: (np.array(agent, float), np.array(ball, float)), cur_goal_xy=np.array(goal, float)
    )
    skills = {"walk": lambda x: ("walk", x), "dribble": lambda x: ("dribble", x)}
    return behaviours.Soccer(ogbench.maze("antsoccer-arena-navigate-v0"), env, skills)


def test_soccer_walks_to_a_far_ball_and_dribbles_a_near_one():
    ob = np.arange(42.0)
    skill, x = soccer((0, 0), (3, 4), (10, 10))._act(ob, None)
    assert skill == "walk" and x.shape == (29,) and np.allclose(x[-2:], (0.6, 0.8), atol=1e-5)
    assert np.array_equal(x[:27], np.r_[2:15, 22:36])
    skill, x = soccer((0, 0), (1, 0), (1, 30))._act(ob, None)
    assert skill == "dribble" and x.shape == (42,) and np.array_equal(x[:38], np.r_[2:15, 17:42])
    assert np.allclose(x[-4:], (1, 0, 0, 10)), "a far goal is replaced by a point 10 m from the ball"
    skill, x = soccer((0, 0), (1, 0), (1, 30))._act(ob, np.array([0.0, -5.0]))
    assert skill == "walk" and np.allclose(x[-2:], (0, -1), atol=1e-5)


def test_soccer_takes_a_detour_when_stuck_and_ends_it_when_there():
    play, rng, counts = soccer((0, 0), (1, 0), (5, 5)), np.random.default_rng(0), Counter()
    assert play._detour(np.zeros((150, 2)), None, rng, counts) is None, "not within the first 150 steps"
    moving = np.linspace(0, 2.1, 151)[:, None] * [1, 0]
    assert play._detour(np.vstack([np.zeros((50, 2)), moving]), None, rng, counts) is None
    detour = play._detour(np.zeros((151, 2)), None, rng, counts)
    assert detour is not None and counts["detours"] == 1
    assert play._detour(np.zeros((152, 2)), np.array([3.0, 0]), rng, counts) is not None
    assert play._detour(np.zeros((152, 2)), np.array([0.4, 0]), rng, counts) is None


def test_soccer_is_collected():
    experts = {"walk": lambda x: np.zeros(8), "dribble": lambda x: np.zeros(8)}
    episode, _ = behaviours.make("antsoccer-arena-navigate-v0", None, experts)(np.random.default_rng(0), 30)
    assert episode["observations"].shape == (30, 42)


def test_pixels_are_collected_with_the_recorded_quality(tmp_path):
    if rendering.missing().keys() >= {"egl", "osmesa"}:
        pytest.skip("no headless rendering on this machine")
    generate.generate_dataset("visual-cube-single-play-v0", 1, tmp_path, workers=1, quiet=True, rows=2)
    made = dataset.load(tmp_path)
    assert made.pixels and made.observations.dtype == np.uint8 and made.observation_shape == (64, 64, 3)
    assert made.provenance["shadow_size"] == 512 and made.provenance["mesh_cell"] == 4
    assert versions.mismatches(made.provenance, versions.Quality())
    assert not versions.mismatches(made.provenance, versions.QUICK)


def test_states_and_images_of_one_simulation_agree_row_for_row(tmp_path):
    """The file of states has the very bytes that making it alone gives, and both have the same actions and physics."""
    if rendering.missing().keys() >= {"egl", "osmesa"}:
        pytest.skip("no headless rendering on this machine")
    task, options = "cube-single-play-v0", {"workers": 1, "quiet": True, "rows": 3, "seed": 5}
    together, alone = tmp_path / "together", tmp_path / "alone"
    for _ in range(2):  # the second call finds both
        made = generate.generate_dataset(task, 1, together, **options, with_visual=True)
        assert made == together / f"{task}.npz"
    generate.generate_dataset(task, 1, alone, **options)
    for name in (f"{task}.npz", f"{task}-val.npz"):
        assert (together / name).read_bytes() == (alone / name).read_bytes()
        with np.load(together / name) as states, np.load(together / f"visual-{name}") as seen:
            assert list(states) == list(seen) and seen["observations"].shape == (3, 64, 64, 3)
            assert all(np.array_equal(states[key], seen[key]) for key in states if key != "observations")
    assert origin.read(DatasetFiles(together, task)).plan == origin.read(DatasetFiles(alone, task)).plan
    with pytest.raises(UserError, match="made in another way"):
        generate.generate_dataset(task, 2, alone, **options, with_visual=True)
    assert not list(alone.glob("visual-*")), "refused before anything is rendered"
    with pytest.raises(UserError, match="'pointmaze-medium-navigate-v0' has no version with images"):
        generate.generate_dataset("pointmaze-medium-navigate-v0", 1, together, with_visual=True)


def test_visual_walkers_act_on_states(tmp_path):
    if rendering.missing().keys() >= {"egl", "osmesa"}:
        pytest.skip("no headless rendering on this machine")
    seen = []
    expert = {"walk": lambda x: (seen.append(x.shape), np.zeros(8))[1]}
    generate.generate_dataset(
        "visual-antmaze-medium-navigate-v0", 1, tmp_path, workers=1, quiet=True, rows=2, expert=expert
    )
    assert set(seen) == {(29,)} and dataset.load(tmp_path).observation_shape == (64, 64, 3)

"""The bodies that learn to walk are OGBench's, step by step, however many are simulated at once."""

import types
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest

from dualgoal.experts.bodies import BODIES
from dualgoal.experts.simulations import Simulations

ogbench = pytest.importorskip("ogbench.online_locomotion")

from ogbench.online_locomotion import ant_ball, wrappers  # noqa: E402
from ogbench.online_locomotion.ant import AntEnv  # noqa: E402
from ogbench.online_locomotion.humanoid import HumanoidEnv  # noqa: E402


class Blind(ant_ball.AntBallEnv):
    """Its constructor draws a picture, which needs a display."""

    def render(self):
        camera = SimpleNamespace(lookat=[0, 0], distance=0, elevation=0)
        self.mujoco_renderer = SimpleNamespace(viewer=SimpleNamespace(cam=camera), close=lambda: None)


def official(name, rng, limit, monkeypatch):
    """The package's environment; its draws from NumPy's global generator come from `rng`, as do its own."""
    numpy = types.ModuleType("numpy")
    numpy.__dict__.update(vars(np), random=SimpleNamespace(randn=rng.standard_normal, uniform=rng.uniform))
    for module in (ant_ball, wrappers):
        monkeypatch.setattr(module, "np", numpy)
    env = {"ant": AntEnv, "antball": Blind, "humanoid": HumanoidEnv}[name]()
    env.np_random = rng
    env = gymnasium.wrappers.TimeLimit(env, limit)
    if name == "antball":
        return env
    return wrappers.GymXYWrapper(env, 100) if name == "ant" else wrappers.DMCHumanoidXYWrapper(env, 200)


@pytest.mark.parametrize(("name", "limit"), [("ant", 120), ("antball", 120), ("humanoid", 210)])
def test_a_body_is_the_packages_own_step_by_step(name, limit, monkeypatch):
    theirs, ours, actions = (np.random.default_rng(3) for _ in range(3))
    env = official(name, theirs, limit, monkeypatch)
    theirs.bit_generator.state = np.random.default_rng(3).bit_generator.state  # constructors have drawn
    body = BODIES[name]()
    simulations = Simulations(body, 1, 1, limit)
    simulations.start(ours)
    observation, _ = env.reset()
    ends = []
    for at in range(limit + 30):
        assert np.allclose(simulations.observation[0], observation, rtol=0, atol=1e-12)
        action = actions.uniform(-1, 1, body.action_size)
        if at == limit + 20:  # throw it up: an ant's torso leaves the range in which it counts as standing
            env.unwrapped.data.qvel[2] = simulations.datas[0].qvel[2] = 9.0
        observation, reward, terminated, truncated, _ = env.step(action)
        made = simulations.step(action[None], ours)
        assert np.allclose(made.observation[0], observation, rtol=0, atol=1e-12)
        assert np.allclose(made.reward[0], reward, rtol=0, atol=1e-12)
        assert (made.fallen[0], made.ended[0]) == (terminated, terminated or truncated)
        if terminated or truncated:
            ends.append(at)
            observation, _ = env.reset()
    assert observation.shape == (body.observation_size,)
    assert ends[0] == limit - 1
    assert len(ends) == (1 if name == "humanoid" else 2)
    simulations.close()


def test_episodes_are_as_long_as_the_packages():
    for name, body in BODIES.items():
        assert body.limit == gymnasium.spec(f"online-{name}-v0").max_episode_steps


def test_an_ant_on_its_back_is_seen():
    seen = np.zeros((3, 29))
    seen[:, 3:7] = (1, 0, 0, 0), (0.6, 0, 0, 0.8), (0.1, 0.9, 0.4, 0.1)  # upright, turned, over
    assert BODIES["ant"]().on_back(seen).tolist() == [False, False, True]


def test_the_models_are_the_same():
    assert {n: (b().model.nq, b().model.nv, b().model.nu) for n, b in BODIES.items()} == {
        "ant": (15, 14, 8), "antball": (22, 20, 8), "humanoid": (28, 27, 21),
    }  # fmt: skip


@pytest.mark.parametrize("name", BODIES)
def test_threads_change_nothing_and_restored_simulations_go_on(name):
    def play(threads, cut):
        body, rng = BODIES[name](), np.random.default_rng(0)
        simulations = Simulations(body, 3, threads)
        simulations.start(rng)
        out = []
        for at in range(12):
            if at == cut:
                saved = simulations.save()
                simulations.close()
                simulations = Simulations(body, 3, threads)
                simulations.restore(saved)
            out.append(simulations.step(rng.uniform(-1, 1, (3, body.action_size)), rng).observation)
        simulations.close()
        return np.array(out)

    once = play(1, None)
    assert np.array_equal(once, play(3, None))
    assert np.array_equal(once, play(2, 6))

"""A robot of your own: a two-link arm in NumPy, as a Gymnasium environment, and forty recorded episodes of it.

    python examples/two_link_arm.py recordings.npz   # record
    python examples/two_link_arm.py arm.onnx         # play an exported policy, by onnxruntime alone

docs/your_world.md shows what happens in between.
"""

import sys

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict

MAX_SPEED = 3.14  # of a joint, in radians per second


class Arm(gymnasium.Env):
    """Move the fingertip to a place; the state is the angles of two joints, an action their speeds."""

    max_steps, num_tasks = 60, 10

    def __init__(self):
        place = Box(-2.0, 2.0, (2,), np.float64)
        self.observation_space = Dict(observation=Box(-1, 1, (4,)), achieved_goal=place, desired_goal=place)
        self.action_space = Box(-MAX_SPEED, MAX_SPEED, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.angles = self.np_random.uniform(-np.pi, np.pi, 2)
        number = (options or {}).get("task_id", 1)  # ten goals on a circle
        turn = 2 * np.pi * number / self.num_tasks
        self.goal = np.array((options or {}).get("goal", [1.2 * np.cos(turn), 1.2 * np.sin(turn)]))
        return self.observe(), {}

    def step(self, action):
        self.angles = self.angles + 0.05 * np.clip(action, -MAX_SPEED, MAX_SPEED)
        near = bool(np.linalg.norm(self.fingertip() - self.goal) < 0.2)
        return self.observe(), float(near), near, False, {"success": near}

    def fingertip(self):
        first, both = self.angles[0], self.angles.sum()
        return np.array([np.cos(first) + np.cos(both), np.sin(first) + np.sin(both)])

    def observe(self):
        angles = np.concatenate([np.cos(self.angles), np.sin(self.angles)])
        return {"observation": angles, "achieved_goal": self.fingertip(), "desired_goal": self.goal}


def record(episodes=40, steps=200, seed=0):
    """Motions from one random posture to the next, with noise on every action."""
    env, rng, rows = Arm(), np.random.default_rng(seed), []
    for _ in range(episodes):
        seen, _ = env.reset(seed=int(rng.integers(2**31)))
        for step in range(steps):
            if step % 40 == 0:
                posture = env.angles + rng.uniform(-np.pi, np.pi, 2)
            action = np.clip(5 * (posture - env.angles) + rng.normal(size=2), -MAX_SPEED, MAX_SPEED)
            rows.append((seen["observation"], seen["achieved_goal"], action, step == steps - 1))
            seen, *_ = env.step(action)
    names = ("observation", "achieved_goal", "action", "terminals")
    return {name: np.array(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}


def play(file, seed=0):
    """How many of the ten goals an exported policy reaches. Its actions are speeds, in radians per second."""
    import onnxruntime

    session, env, reached = onnxruntime.InferenceSession(file), Arm(), 0
    for task in range(1, env.num_tasks + 1):
        seen, _ = env.reset(seed=seed, options={"task_id": task})
        for _ in range(env.max_steps):
            rows = {"observation": np.float32([seen["observation"]]), "goal": np.float32([seen["desired_goal"]])}
            (action,) = session.run(["action"], rows)
            seen, _, near, *_ = env.step(action[0])
            if near:
                break
        reached += near
    return reached


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python two_link_arm.py recordings.npz (to record), or POLICY.onnx (to play)")
    if sys.argv[1].endswith(".onnx"):
        print(f"{play(sys.argv[1])} of {Arm.num_tasks} goals reached")
    else:
        np.savez(sys.argv[1], **record())

"""Recordings of Gymnasium-Robotics' FetchReach, by a gripper that moves from one random place to another.

    pip install gymnasium-robotics
    python examples/gymnasium_robotics_fetch.py recordings.npz

docs/your_world.md shows how to import them, train and evaluate.
"""

import sys

import gymnasium
import gymnasium_robotics
import numpy as np

gymnasium.register_envs(gymnasium_robotics)


def record(episodes=40, steps=50, seed=0):
    """To a place within 15 cm of the first one, and to another every 15 steps, with noise on every action."""
    env = gymnasium.make("FetchReach-v4", max_episode_steps=10**6)
    rng, rows = np.random.default_rng(seed), []
    for _ in range(episodes):
        seen, _ = env.reset(seed=int(rng.integers(2**31)))
        home = seen["achieved_goal"].copy()
        target = home + rng.uniform(-0.15, 0.15, 3)
        for step in range(steps):
            place = seen["achieved_goal"]
            if step % 15 == 14:
                target = home + rng.uniform(-0.15, 0.15, 3)
            push = 10 * (target - place) + 0.3 * rng.normal(size=3)
            action = np.clip(np.append(push, 0.0), -1, 1)  # the last coordinate is the gripper's
            rows.append((seen["observation"], place, action, step == steps - 1))
            seen, *_ = env.step(action)
    names = ("observation", "achieved_goal", "action", "terminals")
    return {name: np.array(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}


if __name__ == "__main__":
    np.savez(sys.argv[1], **record())

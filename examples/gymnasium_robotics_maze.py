"""Recordings of Gymnasium-Robotics' PointMaze, by a ball that rolls from one cell of the U-shaped maze to another.

    pip install gymnasium-robotics
    python examples/gymnasium_robotics_maze.py recordings.npz

docs/your_world.md shows how to import them, train and evaluate.
"""

import sys

import gymnasium
import gymnasium_robotics
import numpy as np

gymnasium.register_envs(gymnasium_robotics)
CELLS = np.array([[-1, 1], [0, 1], [1, 1], [1, 0], [1, -1], [0, -1], [-1, -1]])  # from one end to the other, in metres


def record(episodes=40, steps=300, seed=0):
    """Along the corridor to a random cell, then to the next one, with noise on every action."""
    env = gymnasium.make("PointMaze_UMaze-v3", max_episode_steps=steps)
    rng, rows = np.random.default_rng(seed), []
    for _ in range(episodes):
        seen, _ = env.reset(seed=int(rng.integers(2**31)))
        at = end = int(np.argmin(np.linalg.norm(CELLS - seen["achieved_goal"], axis=1)))
        for step in range(steps):
            place, speed = seen["achieved_goal"], seen["observation"][2:]
            if np.linalg.norm(CELLS[at] - place) < 0.3:
                end = int(rng.integers(len(CELLS))) if at == end else end
                at += np.sign(end - at)
            push = 5 * (CELLS[at] - place) - speed
            action = np.clip(push + 0.5 * rng.normal(size=2), -1, 1)
            rows.append((seen["observation"], place, action, step == steps - 1))
            seen, *_ = env.step(action)
    names = ("observation", "achieved_goal", "action", "terminals")
    return {name: np.array(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}


if __name__ == "__main__":
    np.savez(sys.argv[1], **record())

"""Your own recordings, from Python: a drone in a plane, trained to reach places, without any environment.

    python examples/own_data.py

An observation is a position and a velocity, an action an acceleration within ±2, and a goal is a position alone.
"""

import numpy as np

import dualgoal


def move(state, action):
    """A tenth of a second; one drone or many."""
    velocity = state[..., 2:] + 0.1 * action
    return np.concatenate([state[..., :2] + 0.1 * velocity, velocity], axis=-1)


def fly(episodes=60, steps=100, seed=0):
    """Episodes as dictionaries of arrays: flights to one random place after the other, with noise."""
    rng, recorded = np.random.default_rng(seed), []
    for _ in range(episodes):
        state, rows = np.concatenate([rng.uniform(-5, 5, 2), np.zeros(2)]), []
        for step in range(steps):
            if step % 25 == 0:
                target = rng.uniform(-5, 5, 2)
            action = np.clip(target - state[:2] - 1.5 * state[2:] + rng.normal(size=2), -2, 2)
            rows.append((state, action))
            state = move(state, action)
        observations, actions = (np.array(column) for column in zip(*rows, strict=True))
        recorded.append({"observations": observations, "actions": actions})
    return recorded


def main(steps=3000, out="runs/drone", **sizes):
    """Train, and let the policy fly from 200 places to 200 others."""
    data = dualgoal.Dataset.from_episodes(fly(), "drone", goal_dims=(0, 1), scale_actions=True)
    sizes = {"batch_size": 256, "lr": 1e-3, "rep.dim": 32, "rep.hidden": (64, 64), "algo.hidden": (64, 64)} | sizes
    run = dualgoal.train(data, out, rep="dual", algo="gcivl", steps=steps, **sizes)
    policy, places = run.policy, np.random.default_rng(1).uniform(-4, 4, (2, 200, 2))
    state, nearest = np.concatenate([places[0], np.zeros((200, 2))], axis=1), np.inf
    for _ in range(100):
        state = move(state, policy.act(state, places[1]))
        nearest = np.minimum(nearest, np.linalg.norm(state[:, :2] - places[1], axis=1))
    print(f"came within 0.5 of {100 * np.mean(nearest < 0.5):.0f} % of 200 places")
    return run


if __name__ == "__main__":
    main()

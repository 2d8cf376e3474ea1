#!/usr/bin/env python3
"""Draw the picture of the README from the demo's run: one goal of a maze as distances from all states.

    python tools/readme_picture.py demo/maze docs/readme.png

The run is what `make demo` leaves.
"""

import sys

import matplotlib
import numpy as np

matplotlib.use("Agg")
import matplotlib.pyplot as plt

import dualgoal
from dualgoal.envs import ogbench
from dualgoal.theory.pictures import NEAR_TO_FAR

GOAL = (6, 6)  # the cell that task 1 of pointmaze-medium ends in
FINE = 10  # points per cell and axis


def main(run: str, out: str) -> None:
    policy = dualgoal.load(run)
    maze = ogbench.maze(policy.run.task)
    rows, columns = maze.walls.shape
    steps = (np.arange(FINE) + 0.5) / FINE - 0.5
    ys = np.concatenate([maze.centre((i, 0))[1] + maze.unit * steps for i in range(rows)])
    xs = np.concatenate([maze.centre((0, j))[0] + maze.unit * steps for j in range(columns)])
    points = np.stack(np.meshgrid(xs, ys), -1).reshape(-1, 2).astype(np.float32)
    learned = policy.distance(points, np.array(maze.centre(GOAL), np.float32)).reshape(rows * FINE, columns * FINE)
    exact = maze.distances(GOAL).astype(float)
    inside = np.kron(~maze.walls, np.ones((FINE, FINE), bool))
    fields = {
        "exact: cells through the maze": np.kron(exact, np.ones((FINE, FINE))),
        "learned: steps by f(ψ(s), φ(g))": learned,
    }
    figure, axes = plt.subplots(1, 2, figsize=(8, 4.7), constrained_layout=True)
    for axis, (title, field) in zip(axes, fields.items(), strict=True):
        shown = axis.imshow(np.where(inside, field, np.nan), origin="lower", cmap=NEAR_TO_FAR, vmin=0)
        scale = figure.colorbar(shown, ax=axis, orientation="horizontal", shrink=0.7, pad=0.02)
        scale.set_ticks([0, float(np.nanmax(np.where(inside, field, np.nan)))], labels=["near", "far"])
        axis.plot(GOAL[1] * FINE + FINE / 2, GOAL[0] * FINE + FINE / 2, "*", color="white", mec="black", ms=16)
        axis.set_title(f"distance to the star, {title}", fontsize=9.5)
        axis.set_xticks([])
        axis.set_yticks([])
        axis.set_facecolor("#444444")
    figure.savefig(out, dpi=110)


if __name__ == "__main__":
    main(*sys.argv[1:])

#!/usr/bin/env python3
"""Where the CPU time of an evaluation goes, in one process that works as an evaluation worker does.

    python tools/measure_evaluation.py RUN --steps 40

Plays a block of episodes with the newest checkpoint of a run and prints CPU milliseconds (of all threads) per step of
an episode: the simulation, its pictures (drawing and reading), and the policy. Beside the policy as it is evaluated
stands the same policy computed anew at every step, goal included, as it was once; their actions are compared. The clock
is in `waiting`: how much longer than their CPU time the pictures took. NPROC=16 starts as many threads of XLA.
"""

import argparse
import json
import os
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from dualgoal import workers
from dualgoal.runs import worker

os.environ.update({**worker.ENVIRONMENT, **workers.ONE_THREAD, **os.environ})  # before JAX starts its threads

import jax
import mujoco
import numpy as np

from dualgoal.runs import policy
from dualgoal.runs.episodes import BLOCK


class Clock:
    """CPU and other seconds by name; what is inside of something else counts for itself only."""

    def __init__(self) -> None:
        self.cpu, self.wall = defaultdict[str, float](float), defaultdict[str, float](float)
        self._inside = [np.zeros(2)]

    def __call__(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            began = np.array([time.process_time(), time.perf_counter()])
            self._inside.append(np.zeros(2))
            try:
                return function(*args, **kwargs)
            finally:
                took = np.array([time.process_time(), time.perf_counter()]) - began
                own = took - self._inside.pop()
                self._inside[-1] += took
                self.cpu[name] += own[0]
                self.wall[name] += own[1]

        return timed


def in_one_stage(player: policy.Policy) -> Callable[..., np.ndarray]:
    """Actions from observations, goals, ids and the step, all computed anew."""
    one = lambda params, obs, goal, i, step: player.agent.act(params, obs[None], goal[None], player.key(i, step))[0]
    act = jax.jit(jax.vmap(one, (None, 0, 0, 0, None)))
    of_obs, of_goal = (standard or np.asarray for standard in player.facts.dataset.standards)
    return lambda obs, goals, ids, step: np.asarray(
        act(player.params, of_obs(obs), of_goal(goals), ids, np.uint32(step))
    )


def measure(run: str, steps: int) -> dict[str, Any]:
    player, clock = policy.load(run), Clock()
    envs = [player.make_env() for _ in range(BLOCK)]
    starts = [env.reset(seed=n, task_id=1) for n, env in enumerate(envs)]  # makes the renderers
    for part in ("update_scene", "render"):
        setattr(mujoco.Renderer, part, clock("pictures", getattr(mujoco.Renderer, part)))
    obs, goals = np.stack([obs for obs, _ in starts]), np.stack([info["goal"] for _, info in starts])
    ids, equal, whole = np.arange(BLOCK, dtype=np.uint32), True, in_one_stage(player)
    player.towards(goals, ids)(obs, 0)  # compiles
    act = player.towards(goals, ids)
    whole(obs, goals, ids, 0)
    for step in range(steps):
        actions = clock("policy", act)(obs, step)
        equal &= np.array_equal(actions, clock("policy, computed anew", whole)(obs, goals, ids, step))
        for n, (env, action) in enumerate(zip(envs, actions, strict=True)):
            obs[n] = clock("simulation", env.step)(action)[0]
    per_step = 1e3 / (steps * BLOCK)
    return {
        "task": player.run.task,
        "pair": " + ".join(player.run.names),
        "precision": player.agent.spec.precision,
        "renderer": os.environ.get("MUJOCO_GL"),
        "threads": os.environ["NPROC"],
        "steps": steps * BLOCK,
        "actions equal": bool(equal),
        "cpu_ms": {name: round(seconds * per_step, 3) for name, seconds in clock.cpu.items()},
        "waiting_ms": round((clock.wall["pictures"] - clock.cpu["pictures"]) * per_step, 3),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", help="run directory")
    parser.add_argument("--steps", type=int, default=40, help="of each of the episodes of a block (default 40)")
    given = parser.parse_args()
    print(json.dumps(measure(given.run, given.steps)))

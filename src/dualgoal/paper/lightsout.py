"""`dualgoal lightsout`: DQN on Lights Out with bits or with exact distances (section 8 of the method, T8).

The experiment is an ordinary run: the same agent, sampler, trainer and store as everything else. Two parts are its own:
the data are made here, and success is measured on the device, where the puzzle is a few bit flips. Under `ideal` the
64-anchor map is applied to states and goals before the agent, which then sees `orig`; `dual` learns a representation.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random

from dualgoal import machine
from dualgoal.agent import Agent
from dualgoal.collect.lightsout import view_dataset
from dualgoal.envs import lightsout_puzzle
from dualgoal.envs.lightsout import View
from dualgoal.envs.lightsout_puzzle import Puzzle
from dualgoal.errors import UserError, unknown
from dualgoal.runs import config, directory, policy, training
from dualgoal.runs.facts import Sizes
from dualgoal.runs.rows import EvalRow

REPS = ("orig", "ideal", "dual")


def preset(
    size: str = "4x5",
    rep: str = "ideal",
    *,
    seeds: Sequence[int] = (0, 1, 2, 3),
    steps: int = 1_000_000,
    scaling: str = "raw",
    anchor_seed: int = 0,
    **overrides: Any,
) -> config.Run:
    """T8 as a run; `overrides` are fields of `Run`, or options of a part by dotted names such as "algo.double".

    Not stated in the paper: success by equal boards (A10), an evaluation every tenth of the steps (A9), and everything
    about `dual`, for which 64 dimensions and the expectile 0.9 are our choice.
    """
    if rep not in REPS:
        raise unknown("representation for Lights Out", rep, REPS)
    view = View(Puzzle.parse(size), rep == "ideal", scaling, anchor_seed)
    if overrides.get("episodes") != 0:
        lightsout_puzzle.task_boards(view.puzzle)  # says which boards have evaluation tasks
    hidden = [1024] * 4
    learned = {"name": "dual", "dim": 64, "expectile": 0.9, "hidden": hidden}
    every = max(1, steps // 10)
    values: dict[str, Any] = {
        "task": view.task,
        "rep": learned if rep == "dual" else {"name": "orig"},
        "algo": {"name": "dqn", "hidden": hidden},
        "seeds": list(seeds),
        "steps": steps,
        "discount": 0.95,
        "lr": 1e-4,
        "reached_by": "state",
        "episodes": 15,
        "augment": 0.0,
    }
    values |= {"eval_every": every, "save_every": every, "log_every": min(5_000, every)}
    for name, value in overrides.items():
        part, dot, option = name.partition(".")
        target, key = (values[part], option) if dot and part in ("rep", "algo") else (values, name)
        target[key] = value
    return config.from_dict(values)


def experiment(
    out: str | Path,
    size: str = "4x5",
    rep: str = "ideal",
    *,
    seeds: Sequence[int] = (0, 1, 2, 3),
    steps: int = 1_000_000,
    batch_size: int = 1024,
    hidden: Sequence[int] = (1024, 1024, 1024, 1024),
    lr: float = 1e-4,
    tau: float = 0.005,
    eval_every: int | None = None,
    scaling: str = "raw",
    network: str = "heads",
    double: bool = False,
    loss: str = "squared",
    reached_by: str = "state",
    precision: str = "auto",
    trajectories: int = 40_000,
    length: int = 25,
    data_seed: int = 0,
    anchor_seed: int = 0,
    quiet: bool = False,
) -> Path:
    """What `dualgoal lightsout` does: T8 with the choices that the paper leaves open as options (A1 to A4, A9, A10)."""
    options: dict[str, Any] = {"batch_size": batch_size, "lr": lr, "tau": tau, "reached_by": reached_by}
    options |= {"precision": precision, "eval_every": eval_every or max(1, steps // 10)}
    options |= {"algo.hidden": list(hidden), "algo.network": network, "algo.double": double, "algo.loss": loss}
    if rep == "dual":
        options["rep.hidden"] = list(hidden)
    chosen = preset(size, rep, seeds=seeds, steps=steps, scaling=scaling, anchor_seed=anchor_seed, **options)
    return lightsout_run(chosen, out, trajectories=trajectories, length=length, data_seed=data_seed, quiet=quiet)


def lightsout_run(
    run: config.Run,
    out: str | Path,
    *,
    trajectories: int = 40_000,
    length: int = 25,
    data_seed: int = 0,
    track_with: Sequence[str] = (),
    quiet: bool = False,
) -> Path:
    """Train a run made by `preset` into `out`, or go on with it. A3: one dataset, `length` presses per episode."""
    machine.a_device_per_core()  # before the board's arithmetic uses one
    view = View.parse(run.task)
    if run.goal_noise or run.action_noise:
        raise UserError("Lights Out is evaluated without noise: a board is right or wrong")
    if trajectories < 1 or length < 2:
        raise UserError(f"{trajectories} trajectories of {length} presses; expected at least 1 of at least 2")
    dataset = view_dataset(view, trajectories, length, data_seed)
    evaluator = OnDevice(run, view, policy.agent_for(run, dataclasses.asdict(Sizes.of(dataset))))
    return training.train(run, out, datasets=(dataset, None), evaluator=evaluator, track_with=track_with, quiet=quiet)


class OnDevice:
    """An evaluator for `train`: plays the five tasks greedily from a checkpoint, all seeds at once, on the device."""

    def __init__(self, run: config.Run, view: View, agent: Agent) -> None:
        self.run, self.view, self.agent = run, view, agent
        self._done: list[tuple[int, list[EvalRow]]] = []
        self._play = jax.jit(jax.vmap(lambda params, s, g: play(agent, view, params, s, g), in_axes=(0, None, None)))

    def __enter__(self) -> OnDevice:
        return self

    def __exit__(self, *_: object) -> None:
        self._done.clear()

    @property
    def goals(self) -> int:
        return len(lightsout_puzzle.task_boards(self.view.puzzle)[0])

    @property
    def pending(self) -> list[int]:
        return [step for step, _ in self._done]

    def submit(self, path: Path, step: int) -> None:
        """Evaluate now: a few milliseconds, against the seconds of a chunk of training."""
        file = directory.checkpoint_path(path, step)
        count = len(self.run.seeds)
        params = [policy.read_params(file, self.agent, i, count) for i in range(count)]
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *params)
        success, length = map(np.asarray, self._play(stacked, *lightsout_puzzle.task_boards(self.view.puzzle)))
        self._done.append((step, self._rows(step, success, length)))

    def collect(self) -> list[tuple[int, list[EvalRow]]]:
        done, self._done = self._done, []
        return done

    def _rows(self, step: int, success: np.ndarray, length: np.ndarray) -> list[EvalRow]:
        """As in eval.jsonl. Puzzle and greedy policy are deterministic: all episodes of a goal are the one played."""
        return [
            EvalRow(
                seed,
                step,
                goal + 1,
                episodes=self.run.episodes,
                successes=self.run.episodes * int(success[i, goal]),
                length=float(length[i, goal]),
            )
            for i, seed in enumerate(self.run.seeds)
            for goal in range(success.shape[1])
        ]


def play(
    agent: Agent, view: View, params: Any, start: lightsout_puzzle.Bits, goal: lightsout_puzzle.Bits
) -> tuple[jax.Array, jax.Array]:
    """Greedy episodes of at most n presses from (B, n) boards to (B, n) goals: solved (B,) bool and presses (B,)."""
    goal = jnp.asarray(goal, jnp.float32)
    seen_goal = view(goal)

    def step(carry: tuple[jax.Array, jax.Array], key: jax.Array) -> tuple[tuple[jax.Array, jax.Array], None]:
        board, length = carry
        done = (board == goal).all(-1)
        pressed = lightsout_puzzle.press(view.puzzle, board, agent.act(params, view(board), seen_goal, key))
        return (jnp.where(done[:, None], board, pressed), length + ~done), None

    begin = (jnp.asarray(start, jnp.float32), jnp.zeros(goal.shape[0], jnp.int32))
    (board, length), _ = jax.lax.scan(step, begin, random.split(random.key(0), view.puzzle.buttons))
    return (board == goal).all(-1), length


def all_pairs(path: str | Path, seed: int | None = None, *, batch: int = 16_384) -> float:
    """The share of all (start, goal) pairs of a small board that a trained run solves within n presses."""
    loaded = policy.load(path, seed)
    view = View.parse(loaded.run.task)
    if view.puzzle.buttons > 12:
        raise UserError(
            f"{path}: a {view.puzzle} board has 4^{view.puzzle.buttons} pairs; all are tried up to 12 buttons"
        )
    every = view.puzzle.boards(np.arange(2**view.puzzle.buttons))
    pairs = np.arange(len(every) ** 2)
    solve = jax.jit(lambda params, s, g: play(loaded.agent, view, params, s, g)[0].sum())
    blocks = np.split(pairs, range(batch, len(pairs), batch))
    solved = [solve(loaded.params, every[block // len(every)], every[block % len(every)]) for block in blocks]
    return float(sum(solved)) / len(pairs)


def summary(path: str | Path, *, pairs: bool = False) -> str:
    """The last evaluation of each seed in words and, for small boards, the share of all pairs that it solves."""
    loaded = policy.load(path)
    rows = [row for row in directory.evaluations(path) if row.step == loaded.step]
    lines = []
    for seed in loaded.run.seeds:
        solved = [str(row.goal) for row in rows if row.seed == seed and row.successes]
        text = f"seed {seed}, step {loaded.step:,}: solves goals {', '.join(solved) or 'none'}"
        lines.append(text + (f"; {all_pairs(path, seed):.4%} of all pairs" if pairs else ""))
    return "\n".join(lines)

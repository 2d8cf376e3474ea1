"""Success on Lights Out, measured on the device: the puzzle is a few bit flips, so no worker process is needed."""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random

from dualgoal.agent import Agent
from dualgoal.envs import lightsout_puzzle
from dualgoal.envs.lightsout import View
from dualgoal.errors import UserError
from dualgoal.paper.stats import rank_correlation
from dualgoal.runs import config, directory, policy
from dualgoal.runs.rows import EvalRow

AT_ONCE = 16_384  # pairs of boards that are played at once


class OnDevice(AbstractContextManager["OnDevice"]):
    """An evaluator for training: acts greedily towards the five goals from a checkpoint, all seeds at once."""

    def __init__(self, run: config.Run, view: View, agent: Agent) -> None:
        self.run, self.view, self.agent = run, view, agent
        self._done: list[tuple[int, list[EvalRow]]] = []
        self._play = jax.jit(jax.vmap(lambda params, s, g: play(agent, view, params, s, g), in_axes=(0, None, None)))

    def __exit__(self, *_: object) -> None:
        self._done.clear()

    @property
    def goals(self) -> int:
        return len(lightsout_puzzle.task_boards(self.view.puzzle)[0]) if self.run.episodes else 0

    @property
    def pending(self) -> list[int]:
        return [step for step, _ in self._done]

    def submit(self, path: Path, step: int) -> None:
        """Evaluate at once: it takes milliseconds, where the training between two evaluations takes seconds."""
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
        """One row per seed and goal. Puzzle and greedy policy are deterministic, so one episode stands for all."""
        count = self.run.episodes
        return [
            EvalRow(seed, step, goal + 1, count, count * int(success[i, goal]), float(length[i, goal]))
            for i, seed in enumerate(self.run.seeds)
            for goal in range(success.shape[1])
        ]


def play(
    agent: Agent,
    view: View,
    params: Any,
    start: lightsout_puzzle.Bits,
    goal: lightsout_puzzle.Bits,
    without: int | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Greedy episodes of at most n presses from (B, n) boards to (B, n) goals: solved (B,) bool and presses (B,). The
    light `without` may differ from the goal's."""
    goal = jnp.asarray(goal, jnp.float32)
    seen_goal = view.goal(goal)
    free = np.arange(view.puzzle.buttons) == (-1 if without is None else without)
    solved = lambda board: ((board == goal) | free[None]).all(axis=-1)

    def step(carry: tuple[jax.Array, jax.Array], key: jax.Array) -> tuple[tuple[jax.Array, jax.Array], None]:
        board, length = carry
        done = solved(board)
        pressed = lightsout_puzzle.press(view.puzzle, board, agent.act(params, view.state(board), seen_goal, key))
        return (jnp.where(done[:, None], board, pressed), length + ~done), None

    begin = (jnp.asarray(start, jnp.float32), jnp.zeros(goal.shape[0], jnp.int32))
    (board, length), _ = jax.lax.scan(step, begin, random.split(random.key(0), view.puzzle.buttons))
    return solved(board), length


def all_pairs(path: str | Path, seed: int, without: int | None = None) -> float:
    """The share of all (start, goal) pairs of a small board that a trained run solves within n presses, where the light
    `without` may differ from the goal's."""
    loaded = policy.load(path, seed)
    view = View.parse(loaded.run.task)
    every = _every_board(path, view.puzzle)
    pairs = np.arange(len(every) ** 2)
    solve = jax.jit(lambda params, s, g: play(loaded.agent, view, params, s, g, without)[0].sum())
    blocks = np.split(pairs, range(AT_ONCE, len(pairs), AT_ONCE))
    solved = [solve(loaded.params, every[block // len(every)], every[block % len(every)]) for block in blocks]
    return float(sum(solved)) / len(pairs)


def one_light_apart(path: str | Path, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The distance of boards that differ in one light, for each light: (n,) learned, a mean over all boards, and (n,)
    exact. A network that ignores a light has learned 0."""
    loaded = policy.load(path, seed)
    view = View.parse(loaded.run.task)
    every = _every_board(path, view.puzzle)
    goals = np.asarray(view.goal(every))
    others = [np.abs(every - light) for light in np.eye(view.puzzle.buttons)]
    learned = [loaded.distance(np.asarray(view.state(boards)), goals).mean() for boards in others]
    exact = [lightsout_puzzle.distance(view.puzzle, boards[0], every[0]) for boards in others]
    return np.array(learned), np.array(exact)


def learned_distance(path: str | Path, seed: int) -> tuple[float, float]:
    """How well the distance that a run has learned agrees with the exact one over all pairs of a small board: its rank
    correlation, and the share of pairs solved within n presses by always moving to where it is least."""
    loaded = policy.load(path, seed)
    view = View.parse(loaded.run.task)
    puzzle, every = view.puzzle, _every_board(path, view.puzzle)
    states, goals = np.asarray(view.state(every)), np.asarray(view.goal(every))
    learned = -np.stack([loaded.value(states, goal) for goal in goals])  # by goal and state
    numbers = np.arange(len(every))
    table = lightsout_puzzle.linear_table(puzzle)
    exact = np.where(table == lightsout_puzzle.UNREACHABLE, np.inf, table)[numbers[:, None] ^ numbers[None]]
    correlation = rank_correlation(learned, exact) or 0.0  # a constant has none
    return correlation, puzzle.solved_by(learned, numbers)


def _every_board(path: str | Path, puzzle: lightsout_puzzle.Puzzle) -> np.ndarray:
    require_pairs(path, puzzle)
    return puzzle.boards(np.arange(2**puzzle.buttons))


def require_pairs(path: str | Path, puzzle: lightsout_puzzle.Puzzle) -> None:
    """Raise if the board of a run has too many pairs to try them all."""
    if puzzle.buttons > (most := lightsout_puzzle.PAIRS_LIMIT):
        raise UserError(f"{path}: a {puzzle} board has 4^{puzzle.buttons} pairs; all are tried up to {most} buttons")


def summary(path: str | Path, *, pairs: bool = False) -> str:
    """The last evaluation of each seed in words and, with `pairs`, the share of all pairs of boards that it solves, the
    learned distances of boards that differ in one light, and how good its distances are over all pairs."""
    loaded = policy.load(path)
    rows = [row for row in directory.evaluations(path) if row.step == loaded.step]
    lines = []
    for seed in loaded.run.seeds:
        goals = ", ".join(str(row.goal) for row in rows if row.seed == seed and row.successes)
        solved = [f"goals {goals or 'none'}"] if rows else []
        further = []
        if pairs:
            learned, exact = (_numbers(*x) for x in zip(one_light_apart(path, seed), (1, 0), strict=True))
            solved.append(f"{all_pairs(path, seed):.4%} of all pairs")
            agreement, followed = learned_distance(path, seed)
            further = [
                f"  distance of boards that differ in one light: learned {learned}; exact {exact}",
                f"  learned and exact distances of all pairs: rank correlation {agreement:.2f}; "
                f"going where the learned one is least solves {followed:.1%}",
            ]
        found = f"solves {'; '.join(solved)}" if solved else "trained; this board has no evaluation goals, try --pairs"
        lines += [f"seed {seed}, step {loaded.step:,}: {found}", *further]
    return "\n".join(lines)


def _numbers(values: np.ndarray, digits: int) -> str:
    return " ".join(f"{value:.{digits}f}" for value in values)

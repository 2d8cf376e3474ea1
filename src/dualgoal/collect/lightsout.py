"""Lights Out data: random presses from random boards, seen through a `View` (section 8 of the method)."""

import hashlib

import jax
import numpy as np

from dualgoal.data.dataset import Dataset
from dualgoal.envs.lightsout import View
from dualgoal.envs.lightsout_puzzle import random_boards


def view_dataset(view: View, episodes: int, length: int, seed: int) -> Dataset:
    """Uniform presses from uniform boards. A3: `length` counts presses, so an episode has length + 1 boards."""
    puzzle, rng = view.puzzle, np.random.default_rng(seed)
    start = random_boards(puzzle, episodes, rng)[:, None]
    buttons = rng.integers(puzzle.buttons, size=(episodes, length), dtype=np.int32)
    boards = np.concatenate([start, puzzle.toggles[buttons]], axis=1)
    boards = np.bitwise_xor.accumulate(boards, axis=1).reshape(-1, puzzle.buttons)
    see = lambda what: np.asarray(jax.jit(what)(boards.astype(np.float32)))
    seen, goals = see(view.state), see(view.goal) if view.goals_only else None
    actions = np.pad(buttons, ((0, 0), (0, 1))).reshape(-1)  # the last board of an episode is left by no press
    terminals = np.tile(np.arange(length + 1) == length, episodes)
    content = seen.tobytes() + (b"" if goals is None else goals.tobytes())
    provenance = {
        "source": f"random presses on Lights Out {puzzle}",
        "view": view.task,
        "num_actions": puzzle.buttons,
        "episodes": episodes,
        "length": length,
        "seed": seed,
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    return Dataset(seen, actions, terminals, view.task, provenance, goals)

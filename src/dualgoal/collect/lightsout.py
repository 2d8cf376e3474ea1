"""Lights Out data: random presses from random boards, as bits or seen through a `View` (section 8 of the method)."""

import dataclasses
import hashlib

import jax
import numpy as np

from dualgoal.data.dataset import Dataset
from dualgoal.envs.lightsout import View
from dualgoal.envs.lightsout_puzzle import Puzzle, random_boards
from dualgoal.envs.tasks import LIGHTSOUT


def random_dataset(puzzle: Puzzle, episodes: int = 40_000, length: int = 25, *, seed: int = 0) -> Dataset:
    """Uniform presses from uniform boards. A3: `length` counts presses, so an episode has length + 1 boards."""
    rng = np.random.default_rng(seed)
    start = random_boards(puzzle, episodes, rng)[:, None]
    buttons = rng.integers(puzzle.buttons, size=(episodes, length), dtype=np.int32)
    boards = np.concatenate([start, puzzle.toggles[buttons]], axis=1)
    boards = np.bitwise_xor.accumulate(boards, axis=1).reshape(-1, puzzle.buttons)
    actions = np.pad(buttons, ((0, 0), (0, 1))).reshape(-1)  # the last board of an episode is left by no press
    terminals = np.tile(np.arange(length + 1) == length, episodes)
    provenance = {
        "source": f"random presses on Lights Out {puzzle}",
        "num_actions": puzzle.buttons,
        "episodes": episodes,
        "length": length,
        "seed": seed,
        "sha256": hashlib.sha256(boards.tobytes() + actions.tobytes()).hexdigest(),
    }
    return Dataset(boards.astype(np.float32), actions, terminals, f"{LIGHTSOUT}-{puzzle}", provenance)


def view_dataset(view: View, episodes: int, length: int, seed: int) -> Dataset:
    """Random presses, seen through a view."""
    bits = random_dataset(view.puzzle, episodes, length, seed=seed)
    seen = np.asarray(jax.jit(view)(bits.observations))
    facts = bits.provenance | {"view": view.task, "sha256": hashlib.sha256(seen.tobytes()).hexdigest()}
    return dataclasses.replace(bits, observations=seen, task=view.task, provenance=facts)

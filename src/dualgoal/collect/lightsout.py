"""Lights Out data: random presses from random boards, seen through a `View` (section 8 of the method)."""

import hashlib
from collections.abc import Callable

import jax
import numpy as np

from dualgoal.data.dataset import Dataset
from dualgoal.envs.lightsout import View
from dualgoal.envs.lightsout_puzzle import Bits, Puzzle, random_boards

BLOCK = 16_384  # boards that are turned into what an agent sees at once


def view_dataset(view: View, episodes: int, length: int, seed: int, corner_presses: float = 1.0) -> Dataset:
    """Random presses from uniform boards. A3: `length` counts presses, so an episode has length + 1 boards. A corner is
    pressed `corner_presses` times as often as any other button; the experiment's presses are uniform."""
    puzzle, rng = view.puzzle, np.random.default_rng(seed)
    start = random_boards(puzzle, episodes, rng)[:, None]
    buttons = rng.integers(puzzle.buttons, size=(episodes, length), dtype=np.int32)
    if corner_presses != 1:  # the uniform ones are drawn before, as they were for results/lightsout_presses.json
        buttons = rng.choice(puzzle.buttons, buttons.shape, p=chances(puzzle, corner_presses)).astype(np.int32)
    boards = np.concatenate([start, puzzle.toggles[buttons]], axis=1)
    boards = np.bitwise_xor.accumulate(boards, axis=1).reshape(-1, puzzle.buttons)
    seen, goals = seen_as(view.state, boards), seen_as(view.goal, boards) if view.goals_only else None
    actions = np.pad(buttons, ((0, 0), (0, 1))).reshape(-1)  # the last board of an episode is left by no press
    terminals = np.tile(np.arange(length + 1) == length, episodes)
    content = seen.tobytes() + (b"" if goals is None else goals.tobytes())
    often = "" if corner_presses == 1 else f", corners {corner_presses:g} times as often"
    provenance = {
        "source": f"random presses on Lights Out {puzzle}{often}",
        "view": view.task,
        "num_actions": puzzle.buttons,
        "episodes": episodes,
        "length": length,
        "seed": seed,
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    if corner_presses != 1:
        provenance["corner_presses"] = corner_presses
    return Dataset(seen, actions, terminals, view.task, provenance, goals)


def seen_as(what: Callable[[Bits], jax.Array], boards: np.ndarray) -> np.ndarray:
    """What an agent sees of these boards. A block of them at a time, because drawing takes more memory than images."""
    boards = boards.astype(np.float32)
    see, form = jax.jit(what), jax.eval_shape(what, boards)
    seen = np.empty(form.shape, form.dtype)
    for first in range(0, len(boards), BLOCK):
        seen[first : first + BLOCK] = see(boards[first : first + BLOCK])
    return seen


def chances(puzzle: Puzzle, corner_presses: float) -> np.ndarray:
    """How likely each button is to be pressed, (n,), if a corner is pressed `corner_presses` times as often."""
    row, column = np.divmod(np.arange(puzzle.buttons), puzzle.columns)
    corners = np.isin(row, (0, puzzle.rows - 1)) & np.isin(column, (0, puzzle.columns - 1))
    weights = np.where(corners, corner_presses, 1.0)
    return weights / weights.sum()

"""Lights Out in a report: boards to play, with exact distances, and the network of each run for its next press.

Every board and every way to solve it would be too many to store, so a page holds the network itself and its script
computes what the policy does: the same numbers that the run would give, from any board to each evaluation goal. Goals
are stored as the network reads them, so any representation that does not look at the state can play.
"""

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dualgoal.envs import lightsout_puzzle
from dualgoal.envs.lightsout import View
from dualgoal.errors import UserError
from dualgoal.runs.policy import load

NETWORK_LIMIT = 4 << 20  # bytes of one network in a page
LAYER_PARTS = ("w", "b", "scale", "offset")  # weights (inputs, outputs), bias, and LayerNorm's if it follows

Table = dict[str, Any]


def puzzle(view: View) -> Table:
    """The board, its evaluation tasks and how to solve it, as bit patterns; light and button i are bit i."""
    board = view.puzzle
    starts, goals = lightsout_puzzle.task_boards(board)
    numbers = lambda rows: [int(n) for n in board.numbers(rows)]
    return {
        "rows": board.rows,
        "columns": board.columns,
        "toggles": numbers(board.toggles),
        "inverse": numbers(board.inverse),
        "tasks": [list(pair) for pair in zip(numbers(starts), numbers(goals), strict=True)],
    }


def player(path: str | Path, view: View, label: str, style: int) -> Table:
    """The policy of a run's first seed: what its network reads and the network's layers."""
    if view.drawn:
        raise UserError(f"{path}: a page plays boards that are bits or distances, not images")
    policy = load(path)
    if getattr(policy.run.algo, "network", None) != "heads" or policy.run.rep.looks_at_state:
        raise UserError(f"{path}: boards are played by networks with one output per button and goals of their own")
    layers = [
        {name: np.asarray(getattr(layer, name), np.float32) for name in LAYER_PARTS if hasattr(layer, name)}
        for layer in policy.params.algo.critic.mlp.layers
    ]
    size = sum(array.nbytes for layer in layers for array in layer.values())
    if size > NETWORK_LIMIT:
        raise UserError(f"{path}: its network has {size >> 20} MB; a page holds networks of {NETWORK_LIMIT >> 20} MB")
    goals = np.asarray(view.goal(lightsout_puzzle.task_boards(view.puzzle)[1]))
    patterns = np.asarray(lightsout_puzzle.presses(view.puzzle, view.anchors)).astype(np.uint8)
    return {
        "label": label,
        "style": style,
        "seed": policy.seed,
        "step": policy.step,
        "anchors": [int(n) for n in view.puzzle.numbers(patterns)] if view.ideal and not view.goals_only else None,
        "scaled": view.scaling == "standardised",
        "goals": _packed(policy.encode(goals, draw=0)),
        "layers": [{name: _packed(array) for name, array in layer.items()} for layer in layers],
    }


def _packed(array: np.ndarray) -> str:
    """Little-endian float32 as base64, which the script turns back into numbers without loss."""
    return base64.b64encode(np.ascontiguousarray(array, "<f4").tobytes()).decode()


def games(found: Sequence[tuple[Any, View]], problems: list[str]) -> list[Table]:
    """A table for each puzzle, with all runs (`Shown`) that can play it; those that cannot are named in `problems`."""
    out: dict[str, Table] = {}
    for run, view in found:
        try:
            game = out.setdefault(run.view.task, puzzle(view) | {"task": run.view.task, "players": []})
            game["players"].append(player(run.view.path, view, run.label, run.style))
        except UserError as error:
            problems.append(f"{run.view.path}: no player: {str(error).removeprefix(f'{run.view.path}: ')}")
    return [game for game in out.values() if game["players"]]

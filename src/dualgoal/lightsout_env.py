"""Lights Out as a Gymnasium environment, for people who bring their own agent (section 8 of the method).

Observations and goals are float32 bit vectors as in `lightsout.random_dataset`; an episode ends at the goal or after as
many presses as there are buttons, which is the diameter of an invertible board.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from dualgoal.errors import UserError
from dualgoal.lightsout import Puzzle, distance, random_boards, task_boards

CELL = 16  # pixels per light


class LightsOut(gymnasium.Env[np.ndarray, np.int64]):
    """Reach a goal board. `reset(options={"task_id": 1})` starts an evaluation task, `start` and `goal` are boards.

    Without options both are random, the goal by random presses so that it can be reached. `info` holds the goal and
    d*(board, goal); the reward is 0 at the goal and -1 elsewhere.
    """

    metadata = {"render_modes": ["ansi", "rgb_array"], "render_fps": 4}

    def __init__(self, size: str = "4x5", render_mode: str | None = None) -> None:
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise UserError(f"render mode '{render_mode}': Lights Out offers ansi and rgb_array")
        self.puzzle = Puzzle.parse(size)
        self.render_mode = render_mode
        self.max_steps = self.puzzle.buttons
        self.observation_space = gymnasium.spaces.Box(0.0, 1.0, (self.puzzle.buttons,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(self.puzzle.buttons)
        self.board = self.goal = np.zeros(self.puzzle.buttons, np.uint8)
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        options = options or {}
        if "task_id" in options:
            self.board, self.goal = self._task(options["task_id"])
        else:
            board = random_boards(self.puzzle, 1, self.np_random)[0]
            presses = random_boards(self.puzzle, 1, self.np_random)[0]
            self.board = self._given(options, "start", board)
            self.goal = self._given(options, "goal", (self.board + presses @ self.puzzle.toggles) % 2)
        self.steps = 0
        return self.board.astype(np.float32), self._info()

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict]:
        if not self.action_space.contains(action):
            raise UserError(f"action {action}: expected a button 0 to {self.puzzle.buttons - 1}")
        self.board = self.board ^ self.puzzle.toggles[int(action)]
        self.steps += 1
        info = self._info()
        done = info["success"]
        return self.board.astype(np.float32), float(done) - 1, done, self.steps >= self.max_steps, info

    def render(self) -> Any:
        board, goal = (x.reshape(self.puzzle.rows, self.puzzle.columns) for x in (self.board, self.goal))
        if self.render_mode == "ansi":
            line = lambda row: "".join(".#"[light] for light in row)
            return "\n".join(f"{line(now)}   {line(then)}" for now, then in zip(board, goal, strict=True))
        if self.render_mode == "rgb_array":
            gap = np.full((self.puzzle.rows, 1), 2)
            cells = np.concatenate([board, gap, goal], axis=1)
            colours = np.array([[30, 40, 60], [250, 200, 60], [255, 255, 255]], np.uint8)
            return np.kron(colours[cells], np.ones((CELL, CELL, 1), np.uint8))
        return None

    def _task(self, task_id: Any) -> tuple[np.ndarray, np.ndarray]:
        starts, goals = task_boards(self.puzzle)
        if task_id not in range(1, len(starts) + 1):
            raise UserError(f"Lights Out {self.puzzle}: task id {task_id} does not exist; it has 1 to {len(starts)}")
        return starts[task_id - 1], goals[task_id - 1]

    def _given(self, options: dict[str, Any], name: str, default: np.ndarray) -> np.ndarray:
        board = np.asarray(options.get(name, default))
        if board.shape != (self.puzzle.buttons,) or not np.isin(board, (0, 1)).all():
            raise UserError(f"Lights Out {self.puzzle}: '{name}' must be {self.puzzle.buttons} values 0 or 1")
        return board.astype(np.uint8)

    def _info(self) -> dict[str, Any]:
        return {
            "goal": self.goal.astype(np.float32),
            "success": bool((self.board == self.goal).all()),
            "distance": float(distance(self.puzzle, self.board, self.goal)),
        }

"""Lights Out as a Gymnasium environment, and what an agent sees of its boards (section 8 of the method).

Observations and goals are boards as float32 vectors of bits; an episode ends at the goal or after as many presses as
there are buttons, which is the diameter of an invertible board. A `View` turns bits into what a run of the experiment
trains on (bits, distances or images), and `SeededLightsOut` is the environment of such a run.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from dualgoal.envs import lightsout_drawing
from dualgoal.envs.lightsout_puzzle import Bits, Puzzle, anchor_distances, distance, random_boards, task_boards
from dualgoal.envs.task_env import TaskEnv
from dualgoal.envs.tasks import LIGHTSOUT
from dualgoal.errors import UserError, require_known

CELL = 16  # pixels per light
ANCHORS = 64
SCALINGS = ("raw", "standardised")


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


@dataclass(frozen=True)
class View:
    """What an agent sees of a board: its bits, its distances from 64 random boards, or a picture of it. Its name is the
    run's task.

    The paper's experiment shows distances of states and of goals alike. With `goals_only` states stay bits, which is
    what a goal representation does everywhere else.
    """

    puzzle: Puzzle
    ideal: bool = False
    scaling: str = "raw"  # A2: distances as they are, or (d - n/2) / sqrt(n/4), which has mean 0 and variance 1
    anchor_seed: int = 0  # A4: one draw of anchors for all training seeds
    goals_only: bool = False
    drawn: bool = False

    def __post_init__(self) -> None:
        require_known("scaling", self.scaling, SCALINGS)
        if self.drawn and self.ideal:
            raise UserError("a board is shown as an image (drawn) or as exact distances (ideal), not as both")

    @property
    def task(self) -> str:
        options = [self.scaling] * (self.scaling != "raw") + [f"anchors{self.anchor_seed}"] * (self.anchor_seed != 0)
        ideal = ["ideal", *["goals"] * self.goals_only, *options] if self.ideal else []
        return "-".join([LIGHTSOUT, str(self.puzzle), *ideal, *["drawn"] * self.drawn])

    @classmethod
    def parse(cls, task: str) -> View:
        """The view whose name is `task`."""
        found = re.fullmatch(r"lightsout-([^-]+)(-ideal)?(-goals)?(-standardised)?(?:-anchors(\d+))?(-drawn)?", task)
        view = found and cls(
            puzzle=Puzzle.parse(found[1]),
            ideal=bool(found[2]),
            scaling="standardised" if found[4] else "raw",
            anchor_seed=int(found[5] or 0),
            goals_only=bool(found[3]),
            drawn=bool(found[6]),
        )
        if not view or view.task != task:
            names = "lightsout-ROWSxCOLUMNS[-drawn] or lightsout-ROWSxCOLUMNS-ideal[-goals][-standardised]"
            raise UserError(f"task '{task}': expected {names}, as lightsout-4x5-ideal")
        return view

    @cached_property
    def anchors(self) -> np.ndarray:
        return random_boards(self.puzzle, ANCHORS, np.random.default_rng([64, self.anchor_seed]))

    def state(self, boards: Bits) -> jax.Array:
        """States as the agent sees them: (..., n) zeros and ones -> (..., n) or (..., 64) float32, or (..., H, W, 3)
        bytes."""
        return jnp.asarray(boards, jnp.float32) if self.goals_only else self.goal(boards)

    def goal(self, boards: Bits) -> jax.Array:
        """Goals as the agent sees them, in the same forms."""
        if self.drawn:
            return lightsout_drawing.as_bytes(lightsout_drawing.draw(self.puzzle, boards))
        if not self.ideal:
            return jnp.asarray(boards, jnp.float32)
        d, n = anchor_distances(self.puzzle, self.anchors, boards), self.puzzle.buttons
        return d if self.scaling == "raw" else (d - n / 2) / (n / 4) ** 0.5


def exists(task: str) -> bool:
    """Whether `task` names a view of a board that has evaluation tasks."""
    try:
        task_boards(View.parse(task).puzzle)
    except UserError:
        return False
    return True


class SeededLightsOut(TaskEnv):
    """The puzzle as an `envs.registry.Env`: observations and goals as the task's view shows them."""

    def __init__(self, task: str) -> None:
        self.task, self.view = task, View.parse(task)
        self.raw = LightsOut(str(self.view.puzzle), render_mode="rgb_array")
        self.max_steps, self.action_dim = self.raw.max_steps, self.view.puzzle.buttons
        self.num_tasks = len(task_boards(self.view.puzzle)[0])
        self.action_space = self.raw.action_space
        low, high, kind = (0, 255, np.uint8) if self.view.drawn else (-np.inf, np.inf, np.float32)
        self.observation_space = gymnasium.spaces.Box(low, high, self.observation_shape, kind)
        self._state, self._goal = jax.jit(self.view.state), jax.jit(self.view.goal)

    @property
    def observation_shape(self) -> tuple[int, ...]:
        return jax.eval_shape(self.view.state, self.raw.board).shape

    def start(self, seed: int, task_id: int | None, options: dict[str, Any]) -> tuple[np.ndarray, dict[str, Any]]:
        task_id = self.draw_task(np.random.default_rng(seed), task_id)
        board, info = self.raw.reset(seed=seed, options={"task_id": task_id})
        return np.asarray(self._state(board)), info | {"goal": self._seen_goal(info), "task_id": task_id}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict]:
        board, reward, terminated, truncated, info = self.raw.step(action)
        return np.asarray(self._state(board)), reward, terminated, truncated, info | {"goal": self._seen_goal(info)}

    def render(self) -> Any:
        return self.raw.render()

    def close(self) -> None:
        self.raw.close()

    def _seen_goal(self, info: dict[str, Any]) -> np.ndarray:
        return np.asarray(self._goal(info["goal"]))

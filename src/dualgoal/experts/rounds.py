"""One round of simulation: every environment takes a few steps with the same policy, and what happened is a table.

Everything random in a round is a function of (seed, number of the round), so nothing but the simulations themselves and
the returns of unfinished episodes has to be kept between rounds.
"""

from typing import NamedTuple

import numpy as np

from dualgoal.collect.experts import NumpyMLP
from dualgoal.experts.bodies import Body
from dualgoal.experts.recipe import Recipe
from dualgoal.experts.sac import LARGEST_LOG_STD, SMALLEST_LOG_STD
from dualgoal.experts.simulations import Simulations


class Tally(NamedTuple):
    """Sums over control steps, as an array of five numbers."""

    steps: float
    metres: float
    falls: float
    episodes: float
    returns: float

    def row(self, seconds: float) -> dict[str, float | None]:
        """What they say about the policy; `seconds` is the time of one control step."""
        pace = self.metres / self.steps
        return {
            "return": self.returns / self.episodes if self.episodes else None,
            "metres_per_step": pace,
            "metres_per_second": pace / seconds,
            "falls_per_1000_steps": 1000 * self.falls / self.steps,
            "episodes": self.episodes,
        }


class Round(NamedTuple):
    """Transitions (round, row) float32 in the order in which they happened, and a tally of them."""

    rows: np.ndarray
    tally: np.ndarray


class Simulator:
    def __init__(self, recipe: Recipe, body: Body, threads: int):
        self.recipe, self.body = recipe, body
        limit = recipe.episode or None
        self.simulations = Simulations(body, recipe.envs, threads, limit, recipe.upright, recipe.falls_end)
        self.returns = np.zeros(recipe.envs)

    def play(self, number: int, policy: NumpyMLP) -> Round:
        """Round `number`, counted from 0. `policy` gives the mean and the log standard deviation before tanh."""
        recipe, simulations, size = self.recipe, self.simulations, self.body.action_size
        rng = np.random.default_rng([recipe.seed, number])
        if number == 0:
            simulations.start(rng)
            simulations.age[:] = rng.integers(
                simulations.limit, size=recipe.envs
            )  # else all of them would end at the same time
        at_random = number * recipe.round < recipe.random_steps and recipe.begins_with is None
        rows, ended, tally = [], [], np.zeros(len(Tally._fields))
        for _ in range(recipe.horizon):
            observation = simulations.observation.astype(np.float32)
            noise = rng.standard_normal((recipe.envs, size), np.float32)
            action = explore(policy, observation, noise)
            if at_random:
                action = rng.uniform(-1, 1, action.shape).astype(np.float32)
            made = simulations.step(action, rng)
            last = made.ended if recipe.end_is_terminal else made.fallen
            worth = self.body.lesson(made.reward, made.seen, made.progress, recipe.rise, recipe.pace)
            ends = np.stack([worth, ~last], axis=1)
            rows.append(np.concatenate([observation, made.observation, action, ends], axis=1, dtype=np.float32))
            ended.append(made.ended)
            self.returns += made.reward
            finished = self.returns[made.ended]
            tally += recipe.envs, made.progress.sum(), made.fallen.sum(), len(finished), finished.sum()
            self.returns[made.ended] = 0.0
        if recipe.look_ahead > 1:
            rows = look_ahead(rows, ended, observation.shape[1], recipe.look_ahead, recipe.discount)
        return Round(np.concatenate(rows), tally)

    def save(self) -> dict[str, np.ndarray]:
        """What the next round depends on."""
        return {**self.simulations.save(), "returns": self.returns.copy()}

    def restore(self, saved: dict[str, np.ndarray]) -> None:
        self.simulations.restore(saved)
        self.returns = saved["returns"].copy()


def look_ahead(
    rows: list[np.ndarray], ended: list[np.ndarray], size: int, most: int, discount: float
) -> list[np.ndarray]:
    """Transitions of up to `most` steps: to a later next state, with the discounted sum of the rewards on the way.

    Whether to bootstrap, the last column, becomes a factor: the discount of all steps but one. No transition goes
    beyond the end of its episode or the last of the rows.
    """
    longer = []
    for first, row in enumerate(rows):
        row, going, factor = row.copy(), ~ended[first], 1.0
        for later, end in list(zip(rows, ended, strict=True))[first + 1 : first + most]:
            factor *= discount
            row[going, size : 2 * size] = later[going, size : 2 * size]
            row[going, -2] += factor * later[going, -2]
            row[going, -1] = factor * later[going, -1]
            going = going & ~end
        longer.append(row)
    return longer


def explore(policy: NumpyMLP, observation: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Samples of the Gaussian policy, squashed."""
    mean, log_std = np.split(policy(observation), 2, axis=1)
    return np.tanh(mean + np.exp(np.clip(log_std, SMALLEST_LOG_STD, LARGEST_LOG_STD)) * noise)

"""Laws of relabelled goals against their GCDataset by a chi-square test, and their evaluation with our policy."""

import importlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jax import random
from scipy import stats

from dualgoal import sampler
from dualgoal.agent import Agent
from dualgoal.interface import Spec
from dualgoal.runs import episodes
from dualgoal.streams import GoalMix, Transitions

LENGTHS = (9, 14, 6)  # rows of the episodes; different, and short enough that every cell is filled
DRAWS = 400_000
FEW = 20  # cells with fewer draws than this, of both sides together, are counted as one
DISCOUNT = 0.9
LAWS = {  # shares of current, geometric future, uniform future and random goals
    "values (0.2, 0.5, 0, 0.3)": GoalMix(0.2, 0.5, 0.0, 0.3),
    "actors (0, 0, 1, 0)": GoalMix(0.0, 0.0, 1.0, 0.0),
    "CRL's critic (0, 1, 0, 0)": GoalMix(0.0, 1.0, 0.0, 0.0),
    "Lights Out (0.2, 0, 0.5, 0.3)": GoalMix(0.2, 0.0, 0.5, 0.3),
}
TASK = "pointmaze-medium-navigate-v0"
EPISODES = 3  # to each goal


class Test(NamedTuple):
    """A two-sample chi-square test."""

    statistic: float
    freedom: int
    p: float


def chi_square(a: np.ndarray, b: np.ndarray) -> Test:
    """Do two samples of equal size come from one distribution? `a` and `b` are the cells of their draws."""
    cells = 1 + max(int(a.max()), int(b.max()))
    counts = np.stack([np.bincount(x, minlength=cells) for x in (a, b)]).astype(float)
    rare = counts.sum(axis=0) < FEW
    counts = np.concatenate([counts[:, ~rare], counts[:, rare].sum(axis=1, keepdims=True)], axis=1)
    counts = counts[:, counts.sum(axis=0) > 0]
    statistic = float(((counts[0] - counts[1]) ** 2 / counts.sum(axis=0)).sum())
    freedom = counts.shape[1] - 1
    return Test(statistic, freedom, float(stats.chi2.sf(statistic, freedom)))


def cells(rows: Any, after: Any, goals: Any, success: Any) -> np.ndarray:
    """One number for everything that a draw decides: row, successor, goal, and whether the goal counts as reached."""
    row, following, goal = (np.rint(np.asarray(x).reshape(-1)).astype(int) for x in (rows, after, goals))
    total = sum(LENGTHS)
    return ((row * total + goal) * total + following) * 2 + np.rint(np.asarray(success)).astype(int)


def our_draws(mix: GoalMix, discount: float, seed: int) -> np.ndarray:
    ends = np.cumsum(LENGTHS) - 1
    starts = ends - np.asarray(LENGTHS) + 1
    rows = np.arange(sum(LENGTHS), dtype=np.float32)[:, None]
    spec = Spec((1,), 1, discount=discount, batch_size=DRAWS)
    with jax.enable_x64(False):  # as in training
        index = [jax.numpy.asarray(x, jax.numpy.int32) for x in (starts, ends)]
        data = Transitions(jax.numpy.asarray(rows), jax.numpy.asarray(rows), *index)
        batch = sampler.sample(data, random.key(seed), {"value": mix}, spec)
        goals = batch.draws["value"]
        return cells(batch.s, batch.next_s, goals.g, goals.success)


def their_draws(mix: GoalMix, discount: float) -> np.ndarray:
    """Through their `sample`, on the compact form of the same episodes (section 2.1). It uses NumPy's global state."""
    module = importlib.import_module("utils.datasets")
    last = np.zeros(sum(LENGTHS))
    last[np.cumsum(LENGTHS) - 1] = 1
    rows = np.arange(sum(LENGTHS), dtype=np.float32)[:, None]
    terminals = np.minimum(last + np.append(last[1:], 1), 1)
    data = module.Dataset.create(observations=rows, actions=rows.copy(), terminals=terminals, valids=1 - last)
    shares = (mix.current, mix.geometric + mix.uniform, mix.random, mix.geometric > 0)
    names = ("p_curgoal", "p_trajgoal", "p_randomgoal", "geom_sample")
    config = {f"{use}_{name}": share for use in ("value", "actor") for name, share in zip(names, shares, strict=True)}
    config |= {"discount": discount, "gc_negative": True, "p_aug": None, "frame_stack": None}
    config |= {"oraclerep": False, "norm": False}  # the release asks for these
    batch = module.GCDataset(data, config).sample(DRAWS)
    return cells(batch["observations"], batch["next_observations"], batch["value_goals"], 1 - batch["masks"])


def laws(seed: int = 0) -> Iterator[tuple[str, Test]]:
    """Every law; then one that differs by a little, which the test must notice."""
    np.random.seed(seed)  # noqa: NPY002  their sampler knows no other generator
    for name, mix in LAWS.items():
        yield name, chi_square(our_draws(mix, DISCOUNT, seed), their_draws(mix, DISCOUNT))
    values = LAWS["values (0.2, 0.5, 0, 0.3)"]
    yield "control: discount 0.89 against 0.9", chi_square(our_draws(values, 0.89, seed), their_draws(values, DISCOUNT))


# Evaluation -----------------------------------------------------------------------------------------------------------


class Recorded:
    """An environment of ours that keeps every observation. Their evaluation gives no seeds: it gets those that ours
    gave, in the same order."""

    def __init__(self, env: Any):
        self.env = self.unwrapped = env
        self.seen: list[np.ndarray] = []
        self.seeds: list[int] = []

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        if seed is None:
            seed = self.seeds.pop(0)
        else:
            self.seeds.append(seed)
        obs, info = self.env.reset(seed=seed, options=dict(options))
        self.seen.append(obs)
        return obs, info

    def step(self, action: np.ndarray) -> Any:
        result = self.env.step(action)
        self.seen.append(result[0])
        return result


class Evaluation(NamedTuple):
    """What both evaluations saw."""

    ours: float  # success rate
    theirs: float
    steps: int  # of all episodes, by our evaluation
    gap: float  # the largest difference between two observations at the same time


def straight_ahead(agent: Agent, params: Any) -> Any:
    """Weights with which a policy of one hidden layer heads straight for its goal: GELU(x) - GELU(-x) is x.

    It is simple, and unlike an untrained one it reaches some goals.
    """
    eye = np.eye(agent.spec.action_dim)
    towards = np.concatenate([-eye, eye])  # from states and goals, side by side, to g - s
    (layer,) = params.algo.actor.mlp.layers
    weights = [np.concatenate([towards, -towards], axis=1), np.concatenate([eye, -eye])]
    where = lambda p: [p.algo.actor.mlp.layers[0].w, p.algo.actor.head.w]
    assert layer.w.shape == weights[0].shape
    return eqx.tree_at(where, params, [jax.numpy.asarray(w, jax.numpy.float32) for w in weights])


def evaluate(agent: Agent, params: Any, env: Any, goal: int, count: int) -> Evaluation:
    """Play `count` episodes by our evaluation and by their `evaluation.py`, with the same policy and starts."""
    act = jax.jit(agent.act)
    row = lambda obs, target: np.asarray(act(params, obs[None], target[None], random.key(0)))
    env = Recorded(env)
    towards = lambda goals, ids: lambda obs, step: row(obs[0], goals[0])
    played = [episodes.play([env], towards, goal, first, 1)[0] for first in range(count)]
    ours, env.seen = env.seen, []

    class Policy:
        def sample_actions(self, observations: Any, goals: Any, seed: Any, temperature: float) -> Any:
            return row(observations, goals)[0]

    module = importlib.import_module("utils.evaluation")
    module.trange = range  # no progress bar
    found, _, _ = module.evaluate(Policy(), env, task_id=goal, config={}, num_eval_episodes=count)
    same = len(ours) == len(env.seen)
    gap = max(float(np.abs(x - y).max()) for x, y in zip(ours, env.seen, strict=True)) if same else float("inf")
    rate = float(np.mean([episode.success for episode in played]))
    return Evaluation(rate, float(found["success"]), sum(episode.length for episode in played), gap)

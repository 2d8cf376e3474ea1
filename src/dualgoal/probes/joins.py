"""Which join of two images lets a network see in what they differ: one network fitted to one drawn puzzle.

Each join is a representation of this package, or Orig with an algorithm's value. Its value V(s, g), or in two cases its
critic, is fitted to minus the exact distance by plain regression, without bootstrapping or a policy, so that nothing
but the join differs. What it has learned of the lights is measured on pairs that it was not trained on.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random
from jaxtyping import Array, PRNGKeyArray

from dualgoal.agent import Agent, Params, only
from dualgoal.algos import GCIVL, NoAlgorithm
from dualgoal.envs.lightsout_puzzle import Puzzle
from dualgoal.fast import adam
from dualgoal.interface import Representation, Spec
from dualgoal.probes import scores
from dualgoal.probes.options import JoinName, Options
from dualgoal.probes.worlds import Pairs, World
from dualgoal.reps import Dual, DualPair, DualSiamese, DualToken, Orig

MEASURED = 4  # times per training
PAIRS = 1024  # for the slopes and for the area under the curve
PROBED = 2048  # goals for the linear probe
GOALS = 32  # of Lights Out, each to be reached from all boards
HELD_OUT = 1 << 30  # what is folded into a key for pairs that are measured on; steps of training are fewer


@dataclass(frozen=True)
class Row:
    """What one join has learned with one seed."""

    join: str
    seed: int
    steps: tuple[int, ...]
    """When the slopes were measured."""
    lights: tuple[float, ...]
    """Slope of the learned distance on the part of the exact one that the lights make: 1 is right, 0 is ignorance."""
    arm: tuple[float, ...]
    """The same for the arm's part; zeros where there is no arm."""
    area: float
    """Probability that different boards get a larger distance than equal ones, arms in one place."""
    probe: float | None
    """Share of the goal's lights that a linear map reads from z(g); None for joins without z."""
    solved: float | None
    """Lights Out: share of boards and goals that following the learned distance solves."""


def world_of(options: Options) -> World:
    return World(options.world, Puzzle.parse(options.size))


class WithoutDifference(DualSiamese):
    """The Siamese dual with the critic of the paper's Dual, which reads states and goals side by side."""

    critic = Dual.critic


def agent_of(join: JoinName, options: Options) -> Agent:
    """The network as an agent. Its policy, where it has one, is left out by `fresh`."""
    size: dict[str, Any] = {"dim": options.dim, "hidden": options.hidden, "learner": "ivl"}  # ivl: without a critic
    reps: dict[JoinName, Callable[[], Representation]] = {
        "early": lambda: Orig(fusion="early"),
        "late": lambda: Orig(fusion="late"),
        "inner": lambda: Dual(**size),
        "symmetric": lambda: Dual(**size, aggregation="symmetric"),
        "asymmetric": lambda: Dual(**size, aggregation="asymmetric"),
        "one_inner": lambda: DualSiamese(**size, aggregation="inner"),
        "one_symmetric": lambda: DualSiamese(**size, aggregation="symmetric"),
        "one_asymmetric": lambda: DualSiamese(**size, aggregation="asymmetric"),
        "one_late": lambda: WithoutDifference(options.dim, hidden=options.hidden),
        "one_difference": lambda: DualSiamese(options.dim, hidden=options.hidden),
        "pair": lambda: DualPair(**size),
        "token": lambda: DualToken(**size),
    }
    rep = reps[join]()
    algo = NoAlgorithm() if rep.learns_value else GCIVL(hidden=options.hidden)
    world = world_of(options)
    return Agent(rep, algo, Spec(world.shape, world.puzzle.buttons, discrete=True))


def fresh(agent: Agent, key: PRNGKeyArray) -> Params:
    """New parameters of the networks that are fitted."""
    params = agent.init(key).params
    if has_critic(agent):
        return params._replace(rep=only(params.rep, ("critic",)))
    return params if agent.rep.learns_value else params._replace(algo=only(params.algo, ("value",)))


def has_critic(agent: Agent) -> bool:
    """Whether the join is that of a representation's critic, and not of its value."""
    return isinstance(agent.rep, Dual) and agent.rep.learner == "iql"


def claimed_distance(agent: Agent, params: Params, s: Array, g: Array) -> Array:
    """-V(s, g), or of a critic -Q(s, g, a) for no action."""
    if not has_critic(agent):
        return -agent.value(params, s, g, random.key(0))
    s, g = agent.features(params, s, g)
    no_action = jnp.zeros((len(s), agent.spec.action_dim), s.dtype)
    return -params.rep.critic(s, g, no_action).mean(axis=0)


class Fit:
    """One join in training."""

    def __init__(self, join: JoinName, seed: int, options: Options) -> None:
        self.join: JoinName = join
        self.seed, self.options, self.world = seed, options, world_of(options)
        self.agent, self.key = agent_of(join, options), random.key(seed)
        self._draw = jax.jit(lambda n: self.world.pairs(random.fold_in(self.key, n), options.batch_size))
        self._learn = jax.jit(self._step, donate_argnums=0)
        self._claimed = jax.jit(lambda params, s, g: claimed_distance(self.agent, params, s, g))
        self._z = jax.jit(lambda params, g, s: self.agent.encode(params, g, random.key(0), s))

    def run(self, tell: Callable[[str], None] = lambda line: None) -> Row:
        params = jax.jit(lambda key: fresh(self.agent, key))(self.key)
        state = params, adam.init(params)
        marks = [self.options.steps * (n + 1) // MEASURED for n in range(MEASURED)]
        pairs = self.world.pairs(held_out(0), PAIRS)
        parts = np.asarray(pairs.lights), np.asarray(pairs.arm)
        measured = []
        for first, last in zip([0, *marks[:-1]], marks, strict=True):
            for n in range(first, last):
                state = self._learn(state, self._draw(n))
            measured.append(scores.slopes(self.distances(state[0], pairs.s, pairs.g), *parts))
            tell(f"{self.join}, seed {self.seed}, step {last:,}: slope {measured[-1][0]:.2f}")
        lights, arm = (tuple(x) for x in zip(*measured, strict=True))
        params = state[0]
        return Row(
            self.join, self.seed, tuple(marks), lights, arm, self.area(params), self.probe(params), self.solved(params)
        )

    def _step(self, state: tuple[Params, Any], pairs: Pairs) -> tuple[Params, Any]:
        params, moments = state
        error = lambda params: ((claimed_distance(self.agent, params, pairs.s, pairs.g) - pairs.distance) ** 2).mean()
        return adam.step(jax.grad(error)(params), moments, params, self.options.lr)

    def distances(self, params: Params, s: Array, g: Array) -> np.ndarray:
        return scores.in_parts(lambda part: self._claimed(params, s[part], g[part]), len(s))

    def area(self, params: Params) -> float:
        pairs = self.world.same_or_not(held_out(1), PAIRS)
        return scores.area_under_curve(*np.split(self.distances(params, pairs.s, pairs.g), 2))

    def probe(self, params: Params) -> float | None:
        """Goals as seen from one and the same state, so that only the goal differs."""
        if not self.agent.rep.learned or has_critic(self.agent):
            return None
        pairs = self.world.pairs(held_out(2), PROBED)
        s = jnp.broadcast_to(pairs.s[:1], pairs.s.shape)
        z = scores.in_parts(lambda part: self._z(params, pairs.g[part], s[part]), PROBED)
        return scores.linear_probe(z, np.asarray(pairs.boards[1]))

    def solved(self, params: Params) -> float | None:
        if self.world.name != "lightsout":
            return None
        every = jnp.asarray(self.world.puzzle.boards(np.arange(2**self.world.puzzle.buttons)), jnp.float32)
        k_goals, k_draw = random.split(held_out(3))
        images = self.world.draw(k_draw, every, self.world.arms(k_draw, (len(every),)))
        goals = np.asarray(random.choice(k_goals, len(every), (min(GOALS, len(every)),), replace=False))
        to = lambda goal: self.distances(params, images, jnp.broadcast_to(images[goal], images.shape))
        return self.world.puzzle.solved_by(np.stack([to(goal) for goal in goals]), goals)


def held_out(number: int) -> PRNGKeyArray:
    """A key for pairs to measure on, the same for all joins and seeds."""
    return random.fold_in(random.key(0), HELD_OUT + number)

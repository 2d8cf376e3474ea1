"""What an evaluation worker does: it loads policies from checkpoints and plays blocks of episodes with them."""

import functools
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dualgoal import machine
from dualgoal.files import cache_folder
from dualgoal.runs import environment, episodes, policy
from dualgoal.runs.episodes import BLOCK, Episode
from dualgoal.runs.rows import CRITERIA, Conditions

# A worker computes on one CPU thread: cores are for more workers, and rounding must not depend on their number. XLA
# starts NPROC threads, and as many as there are cores without it; they divide small loops and wait for each other.
ENVIRONMENT = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false", "NPROC": "1"}


@dataclass(frozen=True)
class EpisodeBlock:
    """A block of episodes towards one evaluation goal, for one seed of one checkpoint."""

    run: str
    step: int
    seed: int
    goal: int
    first: int
    count: int
    conditions: Conditions = Conditions()
    goals: environment.Goals | None = None  # all of them, where the conditions name a list
    video: str | None = None


class Player:
    """Answers jobs, and keeps the environments and the last policy between them. `env` takes the place of the run's
    own environment: one object, which plays episodes one after the other, or a function that makes as many as needed
    or, if it always gives the same one, has that one play in the same way.
    """

    def __init__(self, env: Any = None) -> None:
        self._given = env
        self._policy: policy.Policy | None = None
        self._loaded: tuple[str, int, int] | None = None
        self._envs: list[Any] = []
        self._no_more = False  # environments than these can be made
        self._made_for: Any = None

    def __call__(self, job: EpisodeBlock) -> list[Episode]:
        began = time.process_time()
        player = self._load(job)
        sizes = player.facts.sizes
        film: list[np.ndarray] | None = [] if job.video else None
        envs = self._environments(player, job, 1 if job.video else BLOCK)
        play = functools.partial(
            episodes.play,
            envs,
            episodes.random_actions(sizes.action_dim, sizes.discrete) if job.conditions.random else player.towards,
            job.goal,
            conditions=job.conditions,
            units=player.facts.dataset.action_range,
            film=film,
        )
        blocks = range(job.first, job.first + job.count, len(envs))
        played = [e for first in blocks for e in play(first, min(len(envs), job.first + job.count - first))]
        if job.video and film:
            episodes.write_video(Path(job.video), film)
        share = (time.process_time() - began) / job.count
        return [episode._replace(cpu_seconds=share) for episode in played]

    def _load(self, job: EpisodeBlock) -> policy.Policy:
        wanted = (job.run, job.step, job.seed)
        if self._policy is None:
            machine.keep_compiled(cache_folder() / "compiled")
        if self._policy is None or self._loaded != wanted:
            # Not verified again: the parent has just written or verified this checkpoint.
            loaded = policy.load(job.run, job.seed, job.step, verify=False)
            if self._policy is not None and self._policy.run == loaded.run:
                self._policy.switch_to(loaded)
            else:
                self._policy = loaded
            self._loaded = wanted
        return self._policy

    def _environments(self, player: policy.Policy, job: EpisodeBlock, count: int) -> list[Any]:
        run, facts = environment.under(player.run, player.facts, job.conditions, job.goals)
        criteria = tuple(getattr(run, name) for name in CRITERIA)
        made_for = (run.task, facts.dataset.quality, run.env, criteria, facts.goal_list)
        if self._made_for != made_for:
            self._envs, self._no_more, self._made_for = [], False, made_for
        while len(self._envs) < count and not self._no_more:
            made = environment.make(run, facts, self._given)
            if any(_innermost(made) is _innermost(env) for env in self._envs):
                self._no_more = True  # two episodes at a time would disturb each other there
            else:
                self._envs.append(made)
        return self._envs[:count]


def _innermost(env: Any) -> Any:
    """What is simulated, without anything that is wrapped around it."""
    raw = getattr(env, "raw", env)
    return getattr(raw, "unwrapped", raw)

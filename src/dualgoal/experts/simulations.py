"""Many simulations of one body, stepped together: MuJoCo lets go of Python's lock, so threads use all cores.

Every simulation has its own `MjData`, and a thread only ever touches its own share of them, so results do not depend on
the number of threads. All randomness comes from the generator that the caller passes.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import mujoco
import numpy as np

from dualgoal.experts.bodies import Body

SURE = 20  # steps: more than the fall lasts that a humanoid's episode begins with
STATE = mujoco.mjtState.mjSTATE_INTEGRATION  # everything that the next step depends on


class Step(NamedTuple):
    """What one step of all simulations gave. `observation` is the one before any reset."""

    observation: np.ndarray  # (E, D)
    reward: np.ndarray  # (E,)
    progress: np.ndarray  # (E,) metres in the sense of the command
    fallen: np.ndarray  # (E,) the episode ended by a fall
    ended: np.ndarray  # (E,) it ended, by a fall or at the limit
    seen: np.ndarray  # (E, n) what the body read, before any reset


class Simulations:
    """`count` simulations. After the end of an episode the next one begins at once, as `observation` then shows."""

    def __init__(
        self, body: Body, count: int, threads: int, limit: int | None = None, upright: float = 0.0,
        falls_end: bool = False,
    ):  # fmt: skip
        self.body, self.count, self.limit = body, count, body.limit if limit is None else limit
        self.upright = upright  # share of episodes that begin standing
        # Also falls that the environment lets pass, as a humanoid's does. The next episode then begins where it lies:
        # to get up from its own falls is something else than from the poses in which episodes begin.
        self.falls_end = falls_end
        self.stood = np.zeros(count, np.int64)  # steps in a row, up to SURE, from where on it can fall
        self.datas = [mujoco.MjData(body.model) for _ in range(count)]
        self.age = np.zeros(count, np.int64)
        self.command = np.zeros((count, 2))
        self.seen = np.stack([body.read(data) for data in self.datas])
        bounds = np.linspace(0, count, min(threads, count) + 1).astype(int)
        self._shares = [range(a, b) for a, b in zip(bounds[:-1], bounds[1:], strict=True)]
        self._pool = ThreadPoolExecutor(len(self._shares))

    def close(self) -> None:
        self._pool.shutdown()

    @property
    def observation(self) -> np.ndarray:
        """What the policies see now, (E, D)."""
        return self.body.observe(self.seen, self.command)

    def start(self, rng: np.random.Generator) -> None:
        """Begin an episode everywhere."""
        for at in range(self.count):
            self._begin(at, rng)

    def _begin(self, at: int, rng: np.random.Generator, lying: bool = False) -> None:
        if not lying:
            begin = self.body.stand if self.upright and rng.random() < self.upright else self.body.reset
            begin(self.datas[at], rng)
            self.seen[at] = self.body.read(self.datas[at])
        self.command[at] = self.body.command(rng)
        self.age[at] = self.stood[at] = 0

    def step(self, actions: np.ndarray, rng: np.random.Generator) -> Step:
        """Move all simulations by one control step."""
        before, after, body = self.seen, np.empty_like(self.seen), self.body

        def move(at: int) -> None:
            body.step(self.datas[at], actions[at])
            after[at] = body.read(self.datas[at])

        self._everywhere(move)
        reward, progress = (f(before, after, self.command) for f in (body.reward, body.progress))
        self.age += 1
        if body.new_command_every is not None:
            for at in np.flatnonzero(self.age % body.new_command_every == 0):
                self.command[at] = body.command(rng)
        lying = self._lying(after)
        fallen = body.fallen(after) | lying
        ended = fallen | (self.age >= self.limit)
        made = Step(body.observe(after, self.command), reward, progress, fallen, ended, after)
        self.seen = after.copy()
        for at in np.flatnonzero(ended):
            self._begin(int(at), rng, bool(lying[at]))
        return made

    def _lying(self, seen: np.ndarray) -> np.ndarray:
        """Where (E,) a body that stood has fallen and that is to end its episode, although its environment goes on."""
        if not self.falls_end:
            return np.zeros(self.count, bool)
        self.stood = np.where(self.stood < SURE, (self.stood + 1) * self.body.on_feet(seen), SURE)
        return (self.stood == SURE) & self.body.down(seen) & ~self.body.fallen(seen)

    def _everywhere(self, action: Callable[[int], None]) -> None:
        def share(numbers: range) -> None:
            for at in numbers:
                action(at)

        for _ in self._pool.map(share, self._shares):
            pass

    def save(self) -> dict[str, np.ndarray]:
        """Everything the next step depends on."""
        states = np.empty((self.count, mujoco.mj_stateSize(self.body.model, STATE)))
        for row, data in zip(states, self.datas, strict=True):
            mujoco.mj_getState(self.body.model, data, row, STATE)
        return {"states": states, "age": self.age.copy(), "command": self.command.copy(), "stood": self.stood.copy()}

    def restore(self, saved: dict[str, np.ndarray]) -> None:
        """Go on from what `save` gave."""
        self.age, self.command = saved["age"].copy(), saved["command"].copy()
        self.stood = saved.get("stood", self.stood).copy()  # older checkpoints do not have it
        for at, data in enumerate(self.datas):
            mujoco.mj_setState(self.body.model, data, saved["states"][at], STATE)
            self.body.refresh(data)
            self.seen[at] = self.body.read(data)

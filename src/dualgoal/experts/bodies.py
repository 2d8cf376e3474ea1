"""The bodies that learn to walk: OGBench's `online-ant-xy-v0`, `online-antball-v0` and `online-humanoid-xy-v0`.

A body says how one simulation is reset and stepped, and computes observations, rewards and falls for many of them at
once from `read`, the row of numbers taken from each after a step. A command is what the policy is asked for: a unit
direction to walk in, or, with a ball, the point to bring it to.
"""

import abc
from pathlib import Path
from typing import ClassVar

import numpy as np

from dualgoal import imports

try:
    import mujoco
    import ogbench
except ImportError as problem:
    raise imports.missing("a body that walks", problem.name or "mujoco", "ogbench") from problem

BALL = """<body name="ball" pos="0 0 3"><freejoint name="ball_root"/>
<geom name="ball" size=".25" material="ball" priority="1" conaffinity="1" condim="6"/></body>"""
RESET_NOISE = 0.1
LOWEST, HIGHEST = 0.2, 1.0  # height of an ant's torso; outside of it the ant has fallen
BALL_REACHED = 0.5  # metres between ball and goal


class Body(abc.ABC):
    """One kind of body; holds the model, which all its simulations share."""

    name: ClassVar[str]
    asset: ClassVar[str]  # OGBench's file
    observation_size: ClassVar[int]
    seconds: ClassVar[float]  # per control step
    limit: ClassVar[int]  # steps of a training episode
    new_command_every: ClassVar[int | None]  # steps, besides the beginning of an episode
    turns: ClassVar[tuple[int, ...]] = ()  # where pairs of observed numbers begin that are in the world's frame
    trials: ClassVar[tuple[str, ...]] = ("walk", "targets")  # what `evaluation` measures of it, in this order
    slow: ClassVar[float | None] = 0.1  # metres per step; how many episodes are slower is measured, if not None

    def __init__(self) -> None:
        self.model = mujoco.MjModel.from_xml_string(self.xml())

    def xml(self) -> str:
        return (Path(ogbench.__file__).parent / "online_locomotion" / "assets" / self.asset).read_text()

    @property
    def action_size(self) -> int:
        return int(self.model.nu)

    @classmethod
    def settings(cls) -> frozenset[str]:
        """Those settings of `recipe.FOR_SOME`, which not every body has, that this one has."""
        return frozenset({"command_frame"} if cls.turns else ())

    @abc.abstractmethod
    def reset(self, data: mujoco.MjData, rng: np.random.Generator) -> None:
        """Begin an episode."""

    def stand(self, data: mujoco.MjData, rng: np.random.Generator) -> None:
        """Begin an episode on one's feet, as most bodies always do."""
        self.reset(data, rng)

    @abc.abstractmethod
    def step(self, data: mujoco.MjData, action: np.ndarray) -> None:
        """One control step."""

    def refresh(self, data: mujoco.MjData) -> None:  # noqa: B027 (most bodies need nothing)
        """Compute again what `step` expects of a simulation whose state was just restored."""

    def read(self, data: mujoco.MjData) -> np.ndarray:
        """What the functions below need of one simulation."""
        return np.concatenate([data.qpos, data.qvel])

    def command(self, rng: np.random.Generator) -> np.ndarray:
        """A new command."""
        direction = rng.standard_normal(2)
        return direction / np.linalg.norm(direction)

    def observe(self, seen: np.ndarray, command: np.ndarray) -> np.ndarray:
        """Observations (E, observation_size): what was read but for the place, and the command."""
        return np.concatenate([seen[:, 2:], command], axis=1)

    @abc.abstractmethod
    def reward(self, before: np.ndarray, after: np.ndarray, command: np.ndarray) -> np.ndarray:
        """Rewards (E,) of one step."""

    def lesson(
        self, reward: np.ndarray, seen: np.ndarray, progress: np.ndarray, rise: float, pace: float
    ) -> np.ndarray:
        """Rewards (E,) to learn from, of a step with this reward of the environment, after which this is seen. `rise`
        and `pace` are settings that a body without lessons of its own does not have."""
        return reward

    def progress(self, before: np.ndarray, after: np.ndarray, command: np.ndarray) -> np.ndarray:
        """Metres (E,) that one step made in the sense of the command."""
        return ((after[:, :2] - before[:, :2]) * command).sum(axis=1)

    def reached(self, seen: np.ndarray, command: np.ndarray) -> np.ndarray:
        """Where (E,) nothing is left to do for the command; a direction has no end."""
        return np.zeros(len(seen), bool)

    def scale(self) -> np.ndarray:
        """Factors (observation_size,) that bring observed numbers to about the same size."""
        return np.ones(self.observation_size, np.float32)

    @abc.abstractmethod
    def fallen(self, seen: np.ndarray) -> np.ndarray:
        """Where (E,) an episode ends because the body has fallen."""

    def on_feet(self, seen: np.ndarray) -> np.ndarray:
        """Where (E,) the body stands."""
        return ~self.fallen(seen)

    def down(self, seen: np.ndarray) -> np.ndarray:
        """Where (E,) a body that stood before has fallen, whether the environment ends its episode or not."""
        return self.fallen(seen)

    def unseen(self, seen: np.ndarray) -> dict[str, np.ndarray]:
        """What the environment's rule for a fall does not see, by name, and where (E,) it has happened."""
        return {}


class Ant(Body):
    """Four legs, eight motors, ten steps per second. The reward is the way made in the direction of the command."""

    name, asset, observation_size = "ant", "ant.xml", 29
    seconds, limit = 0.1, 1000
    new_command_every: ClassVar[int | None] = 100

    def reset(self, data: mujoco.MjData, rng: np.random.Generator) -> None:
        mujoco.mj_resetData(self.model, data)
        data.qpos += rng.uniform(-RESET_NOISE, RESET_NOISE, self.model.nq)
        data.qvel += RESET_NOISE * rng.standard_normal(self.model.nv)
        mujoco.mj_forward(self.model, data)

    def step(self, data: mujoco.MjData, action: np.ndarray) -> None:
        data.ctrl[:] = action
        mujoco.mj_step(self.model, data, 5)

    def reward(self, before: np.ndarray, after: np.ndarray, command: np.ndarray) -> np.ndarray:
        return self.progress(before, after, command)

    def fallen(self, seen: np.ndarray) -> np.ndarray:
        standing = (seen[:, 2] >= LOWEST) & (seen[:, 2] <= HIGHEST)
        return ~(standing & np.isfinite(seen).all(axis=1))

    def unseen(self, seen: np.ndarray) -> dict[str, np.ndarray]:
        return {"on its back": self.on_back(seen)}  # the rule looks at the height only

    def on_back(self, seen: np.ndarray) -> np.ndarray:
        """Where (E,) the torso's upper side looks down."""
        w, x, y, z = seen[:, 3:7].T  # a quaternion; MuJoCo keeps it of length 1, a reset with noise does not
        return w**2 + z**2 < x**2 + y**2


class AntBall(Ant):
    """The ant and a ball, which it is to bring to a point. The reward is the way made towards ball and goal."""

    name, observation_size, limit = "antball", 42, 200
    new_command_every = None
    trials = ("balls",)
    ant, ball = slice(0, 2), slice(15, 17)  # their places in `seen`

    def xml(self) -> str:
        return super().xml().replace("</worldbody>", f"{BALL}</worldbody>")

    def reset(self, data: mujoco.MjData, rng: np.random.Generator) -> None:
        super().reset(data, rng)
        data.qpos[self.ant] = rng.uniform(-1, 1, 2)
        data.qpos[self.ball] = rng.uniform(-2, 2, 2)
        mujoco.mj_forward(self.model, data)

    def command(self, rng: np.random.Generator) -> np.ndarray:
        return rng.uniform(-12, 12, 2)

    def observe(self, seen: np.ndarray, command: np.ndarray) -> np.ndarray:
        ant, ball = seen[:, self.ant], seen[:, self.ball]
        return np.concatenate([seen[:, 2:15], seen[:, 17:], ball - ant, command - ball], axis=1)

    def distances(self, seen: np.ndarray, command: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Metres between ant and ball, and between ball and goal."""
        ant, ball = seen[:, self.ant], seen[:, self.ball]
        return np.linalg.norm(ant - ball, axis=1), np.linalg.norm(ball - command, axis=1)

    def reward(self, before: np.ndarray, after: np.ndarray, command: np.ndarray) -> np.ndarray:
        (ant_before, ball_before), (ant, ball) = self.distances(before, command), self.distances(after, command)
        return 10 * (2.5 * (ball_before - ball) + (ant_before - ant))

    def progress(self, before: np.ndarray, after: np.ndarray, command: np.ndarray) -> np.ndarray:
        return self.distances(before, command)[1] - self.distances(after, command)[1]

    def reached(self, seen: np.ndarray, command: np.ndarray) -> np.ndarray:
        return self.distances(seen, command)[1] <= BALL_REACHED


class Humanoid(Body):
    """Twenty-one motors, forty steps per second. It begins lying down, so it has to learn to get up as well."""

    name, asset, observation_size = "humanoid", "humanoid.xml", 69
    seconds, limit, new_command_every = 0.025, 1000, 200
    trials, slow = ("stand up", "walk"), None  # it takes four steps while others take one
    torso, head, limbs = 1, 2, [16, 10, 13, 7]  # bodies: left hand, left foot, right hand, right foot
    turns = (37, 40)  # velocities of the centre of mass and of the torso
    ON_FEET = 1.3  # height of the torso with straight legs
    STAND = 1.4  # height of the head that is worth a full reward
    UPRIGHT, DOWN = 1.2, 0.8  # heights of the head: it stands, it has fallen

    @classmethod
    def settings(cls) -> frozenset[str]:
        return super().settings() | {"rise", "pace", "upright", "falls_end"}

    def reset(self, data: mujoco.MjData, rng: np.random.Generator) -> None:
        mujoco.mj_resetData(self.model, data)
        low, high = self.model.jnt_range[1:].T
        while True:  # until no two parts touch each other or the floor
            quaternion = rng.uniform(size=4)
            data.qpos[3:7] = quaternion / np.linalg.norm(quaternion)
            data.qpos[7:] = rng.uniform(low, high)
            mujoco.mj_forward(self.model, data)
            if data.ncon == 0:
                return

    def stand(self, data: mujoco.MjData, rng: np.random.Generator) -> None:
        mujoco.mj_resetData(self.model, data)
        turn = rng.uniform(-np.pi, np.pi) / 2
        data.qpos[2:7] = self.ON_FEET, np.cos(turn), 0.0, 0.0, np.sin(turn)
        data.qpos[7:] = np.clip(rng.uniform(-RESET_NOISE, RESET_NOISE, self.model.nu), *self.model.jnt_range[1:].T)
        data.qvel += RESET_NOISE * rng.standard_normal(self.model.nv)
        mujoco.mj_forward(self.model, data)

    def step(self, data: mujoco.MjData, action: np.ndarray) -> None:
        # As dm_control does it: positions and what is computed from them belong to the same time.
        data.ctrl[:] = action
        mujoco.mj_step2(self.model, data)
        mujoco.mj_step(self.model, data, 4)
        mujoco.mj_step1(self.model, data)

    def refresh(self, data: mujoco.MjData) -> None:
        mujoco.mj_step1(self.model, data)

    def read(self, data: mujoco.MjData) -> np.ndarray:
        places, frame = data.xpos, data.xmat[self.torso]
        limbs = (places[self.limbs] - places[self.torso]) @ frame.reshape(3, 3)
        height = places[self.head, 2:3]
        return np.concatenate(
            [data.qpos[:2], data.qpos[7:], height, limbs.ravel(), frame[6:], data.sensordata[:3], data.qvel]
        )

    def head_height(self, seen: np.ndarray) -> np.ndarray:
        return seen[:, 23]

    def standing(self, seen: np.ndarray) -> np.ndarray:
        """How much (E,) a humanoid stands, from 0 to 1: its head is high enough and its torso upright."""
        missing = np.maximum(self.STAND - self.head_height(seen), 0.0) / (self.STAND / 4)
        leaning = np.maximum(0.9 - seen[:, 38], 0.0) / 1.9
        return np.exp(missing**2 * np.log(0.1)) * np.maximum(1.0 - leaning, 0.0)

    def scale(self) -> np.ndarray:
        return np.repeat([1.0, 0.25, 0.1, 1.0], [43, 3, 21, 2]).astype(np.float32)  # spin of the torso, of the joints

    def reward(self, before: np.ndarray, after: np.ndarray, command: np.ndarray) -> np.ndarray:
        return self._reward(after, self.progress(before, after, command))

    def _reward(self, seen: np.ndarray, progress: np.ndarray) -> np.ndarray:
        return self.standing(seen) * (1 + 100 * progress)

    def lesson(
        self, reward: np.ndarray, seen: np.ndarray, progress: np.ndarray, rise: float, pace: float
    ) -> np.ndarray:
        """Rewards (E,) that are easier to learn from than those of the environment.

        Those are almost zero for all that lie, so `rise` is added for the height of the head, which tells lying from
        sitting and sitting from kneeling; and who falls in the right direction gets much of them for a moment, unless
        `pace`, in metres per second, bounds what speed is worth.
        """
        most = pace * self.seconds or np.inf
        risen = np.clip(self.head_height(seen) / self.STAND, 0.0, 1.0) ** 2
        return self._reward(seen, np.clip(progress, -most, most)) + rise * risen

    def fallen(self, seen: np.ndarray) -> np.ndarray:
        return np.zeros(len(seen), bool)

    def on_feet(self, seen: np.ndarray) -> np.ndarray:
        return self.head_height(seen) > self.UPRIGHT

    def down(self, seen: np.ndarray) -> np.ndarray:
        return self.head_height(seen) < self.DOWN


BODIES: dict[str, type[Body]] = {body.name: body for body in (Ant, AntBall, Humanoid)}

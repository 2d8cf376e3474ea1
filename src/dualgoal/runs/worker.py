"""Episodes in lockstep, and the worker process that runs them (section 7 of the method).

Everything random in an episode comes from (evaluation seed, goal, episode): the same for every training seed and for
any number of workers. Episodes are always grouped in the same blocks of rows, because the rounding of a matrix product
may depend on its shape; so a checkpoint has one score, not one per machine layout.
"""

import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dualgoal import machine
from dualgoal.errors import UserError
from dualgoal.files import cache_folder

BLOCK = 5  # episodes that share one call of the policy; part of the protocol, see above
VIDEO_EPISODE = 900_000  # the episode that is filmed; never one that counts
FRAMES = 300  # of a film at most, or nearly so: ten seconds

Act = Callable[[np.ndarray, np.ndarray, np.ndarray, int], np.ndarray]


class Episode(NamedTuple):
    """How one episode went. Success is the flag of its last step."""

    success: bool
    length: int


@dataclass(frozen=True)
class Job:
    """A block of episodes towards one evaluation goal for one seed of one checkpoint."""

    run: str
    step: int
    seed: int
    goal: int
    first: int
    count: int
    goal_noise: float = 0.0
    action_noise: float = 0.0
    eval_seed: int = 0
    random: bool = False  # uniformly random actions instead of the policy's, for comparison
    video: str | None = None


def episodes(
    envs: Sequence[Any],
    act: Act,
    goal: int,
    first: int,
    count: int,
    *,
    goal_noise: float = 0.0,
    action_noise: float = 0.0,
    eval_seed: int = 0,
    film: list[np.ndarray] | None = None,
) -> list[Episode]:
    """Run episodes `first`, `first + 1`, ... to evaluation goal number `goal`, one per environment; `film` collects
    pictures of the first."""
    numbers = range(first, first + count)
    rngs = [np.random.default_rng([eval_seed, goal, number]) for number in numbers]
    starts = [
        env.reset(int(rng.integers(2**31)), goal, **({"render_goal": True} if film is not None else {}))
        for env, rng in zip(envs, rngs, strict=False)
    ]
    shape = starts[0][0].shape
    obs = np.zeros((len(envs), *shape), starts[0][0].dtype)
    goals = np.zeros_like(obs)
    for i, (first_obs, info) in enumerate(starts):
        obs[i], goals[i] = first_obs, _noisy(info["goal"], goal_noise, rngs[i])
    ids = np.zeros(len(envs), np.uint32)  # what the policy's own randomness depends on
    ids[:count] = [rng.integers(2**32, dtype=np.uint32) for rng in rngs]
    results: list[Episode | None] = [None] * count
    if film is not None:
        film.append(beside(starts[0][1], envs[0].render()))
    step, every = 0, max(1, envs[0].max_steps // FRAMES)
    while None in results:
        actions = act(obs, goals, ids, step)
        step += 1
        for i in [i for i, result in enumerate(results) if result is None]:
            action = actions[i]
            if action_noise:
                action = np.clip(action + action_noise * rngs[i].standard_normal(action.shape), -1, 1)
            obs[i], _, terminated, truncated, info = envs[i].step(action)
            if terminated or truncated or step >= envs[i].max_steps:
                results[i] = Episode(bool(info["success"]), step)
        if film is not None and (step % every == 0 or results[0] is not None):
            film.append(beside(starts[0][1], envs[0].render()))
    return [result for result in results if result is not None]


def _noisy(goal: np.ndarray, std: float, rng: np.random.Generator) -> np.ndarray:
    if not std:
        return goal
    if goal.dtype == np.uint8:
        raise UserError("goal noise is for vectors; evaluate image goals without it")
    return (goal + std * rng.standard_normal(goal.shape)).astype(goal.dtype)


def beside(info: dict[str, Any], frame: np.ndarray) -> np.ndarray:
    """The goal on the left, the scene on the right, a white line between."""
    goal = np.asarray(info.get("goal_rendered", info["goal"]))
    if goal.shape != frame.shape:
        return frame
    return np.concatenate([goal, np.full_like(frame[:, :4], 255), frame], axis=1)


class Player:
    """What a worker keeps between jobs: environments and the last policy."""

    def __init__(self) -> None:
        self._policy: Any = None
        self._key: tuple[str, int, int] | None = None
        self._envs: list[Any] = []
        self._task: tuple[str, int | None] | None = None

    def play(self, job: Job) -> list[Episode]:
        from dualgoal.runs import policy

        if self._key != (job.run, job.step, job.seed):
            # Not verified again: the parent has just written or verified this checkpoint.
            loaded = policy.load(job.run, job.seed, job.step, verify=False)
            if self._policy is not None and self._policy.run == loaded.run:
                self._policy.params = loaded.params  # keep what is compiled
            else:
                self._policy = loaded
            self._key = (job.run, job.step, job.seed)
        task = (self._policy.run.task, self._policy.facts.dataset.shadow_size)
        if self._task != task:
            self._envs, self._task = [], task
        film: list[np.ndarray] | None = [] if job.video else None
        wanted = 1 if job.video else BLOCK
        while len(self._envs) < wanted:
            self._envs.append(self._policy.make_env())
        played = episodes(
            self._envs[:wanted],
            self._random if job.random else self._policy.act_block,
            job.goal,
            job.first,
            job.count,
            goal_noise=job.goal_noise,
            action_noise=job.action_noise,
            eval_seed=job.eval_seed,
            film=film,
        )
        if job.video and film:
            _write_video(Path(job.video), film)
        return played

    def _random(self, obs: np.ndarray, goal: np.ndarray, ids: np.ndarray, step: int) -> np.ndarray:
        rngs = [np.random.default_rng([int(number), step]) for number in ids]
        return np.stack([rng.uniform(-1, 1, self._policy.facts.sizes.action_dim) for rng in rngs])


def _write_video(path: Path, frames: list[np.ndarray]) -> None:
    """An mp4 of 30 frames a second. The encoder is started directly: imageio would fork a process full of threads."""
    import imageio_ffmpeg

    path.parent.mkdir(parents=True, exist_ok=True)
    height, width = (n - n % 2 for n in frames[0].shape[:2])  # the codec wants even sizes
    raw = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", "30", "-i", "-"]
    coded = ["-c:v", "libx264", "-pix_fmt", "yuv420p"]
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-y", "-loglevel", "error", *raw, *coded]
    pictures = [np.ascontiguousarray(f[:height, :width], np.uint8) for f in frames]
    content = b"".join(picture.tobytes() for picture in pictures)
    done = subprocess.run([*command, str(path)], input=content, capture_output=True)
    if done.returncode:
        raise UserError(f"{path}: not written ({done.stderr.decode(errors='replace').strip()[-200:]})")


def main() -> None:
    """Answer jobs, one JSON line each, until the parent closes the pipe. Anything libraries print goes to stderr."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    machine.keep_compiled(cache_folder() / "compiled")
    player = Player()
    for line in sys.stdin:
        try:
            answer: dict[str, Any] = {"episodes": player.play(Job(**json.loads(line)))}
        except UserError as error:
            answer = {"problem": str(error)}
        except Exception:
            answer = {"crash": traceback.format_exc()}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def encode(job: Job) -> str:
    """The line that asks a worker for a job."""
    return json.dumps(asdict(job)) + "\n"


if __name__ == "__main__":
    main()

"""Evaluation episodes, played in lockstep (section 7 of the method), and films of them.

Everything random in an episode comes from (evaluation seed, goal, episode): the same for every training seed and for
any number of workers. Episodes are always grouped in the same blocks of rows, because the rounding of a matrix product
may depend on its shape; so a checkpoint has one score, not one per machine layout.
"""

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dualgoal import imports
from dualgoal.data.origin import ActionRange
from dualgoal.errors import UserError
from dualgoal.files import replacing, require_no_link
from dualgoal.runs.rows import Conditions

BLOCK = 5  # episodes that share one call of the policy; part of the protocol, see above
VIDEO_EPISODE = 900_000  # the number of the filmed episode, which is never one that counts
POSTER = ".jpg"  # of a film: the same name with this ending
FRAMES = 300  # of a film at most, or nearly so: ten seconds

USUAL = Conditions()  # no noise, the policy's own actions

Act = Callable[[np.ndarray, int], np.ndarray]  # observations, step -> actions, a row per episode
Towards = Callable[[np.ndarray, np.ndarray], Act]  # goals, ids -> how these episodes act


class Episode(NamedTuple):
    """How one episode went. Success is the flag of its last step."""

    success: bool
    length: int
    cpu_seconds: float = 0.0  # its share of what its block took, if that was measured


def play(
    envs: Sequence[Any],
    towards: Towards,
    goal: int,
    first: int,
    count: int,
    *,
    conditions: Conditions = USUAL,
    units: ActionRange | None = None,
    film: list[np.ndarray] | None = None,
) -> list[Episode]:
    """Play episodes `first` to `first + count - 1` towards evaluation goal number `goal`, one per environment.

    `towards(goals, ids)` is asked once how to act, and that with the observations of each step. Both have a row per
    environment, used or not; what is drawn may depend on a row's id and on the step only. Actions are in [-1, 1], where
    noise is added; `units` turns that into what the environment takes. `film` collects pictures of the first episode.
    """
    rngs = [np.random.default_rng([conditions.eval_seed, goal, number]) for number in range(first, first + count)]
    options = {"task_id": goal} | ({"render_goal": True} if film is not None else {})
    pairs = zip(envs, rngs, strict=False)
    starts = [env.reset(seed=int(rng.integers(2**31)), options=dict(options)) for env, rng in pairs]
    obs = np.zeros((len(envs), *starts[0][0].shape), starts[0][0].dtype)
    goals = np.zeros((len(envs), *starts[0][1]["goal"].shape), starts[0][1]["goal"].dtype)
    for i, (first_obs, info) in enumerate(starts):
        obs[i], goals[i] = first_obs, _noisy(info["goal"], conditions.goal_noise, rngs[i])
    ids = np.zeros(len(envs), np.uint32)
    ids[:count] = [rng.integers(2**32, dtype=np.uint32) for rng in rngs]
    results: list[Episode | None] = [None] * count
    if film is not None:
        film.append(next_to_goal(starts[0][1], envs[0].render()))
    limits = [env.unwrapped.max_steps for env in envs]
    step, every = 0, max(1, limits[0] // FRAMES)
    act = towards(goals, ids)
    while None in results:
        actions = act(obs, step)
        step += 1
        for i in [i for i, result in enumerate(results) if result is None]:
            action = actions[i]
            if conditions.action_noise:
                action = np.clip(action + conditions.action_noise * rngs[i].standard_normal(action.shape), -1, 1)
            action = action if units is None else units.in_units(action)
            obs[i], _, terminated, truncated, info = envs[i].step(action)
            if terminated or truncated or step >= limits[i]:
                results[i] = Episode(bool(info["success"]), step)
        if film is not None and (step % every == 0 or results[0] is not None):
            film.append(next_to_goal(starts[0][1], envs[0].render()))
    return [result for result in results if result is not None]


def random_actions(action_dim: int, discrete: bool = False) -> Towards:
    """Actions that are uniformly random, for comparison with a policy."""

    def towards(goals: np.ndarray, ids: np.ndarray) -> Act:
        def act(obs: np.ndarray, step: int) -> np.ndarray:
            rngs = [np.random.default_rng([int(number), step]) for number in ids]
            if discrete:
                return np.stack([rng.integers(action_dim) for rng in rngs])
            return np.stack([rng.uniform(-1, 1, action_dim) for rng in rngs])

        return act

    return towards


def _noisy(goal: np.ndarray, std: float, rng: np.random.Generator) -> np.ndarray:
    if not std:
        return goal
    return (goal + std * rng.standard_normal(goal.shape)).astype(goal.dtype)


def next_to_goal(info: dict[str, Any], frame: np.ndarray) -> np.ndarray:
    """The goal on the left, the scene on the right, a white line between them."""
    goal = np.asarray(info.get("goal_rendered", info["goal"]))
    if goal.shape != frame.shape:
        return frame
    return np.concatenate([goal, np.full_like(frame[:, :4], 255), frame], axis=1)


def encoder() -> str:
    """The program that writes films, or one line that says how to install it."""
    return str(imports.optional("imageio_ffmpeg", "video", "a film").get_ffmpeg_exe())


def write_video(path: Path, frames: list[np.ndarray]) -> None:
    """An mp4 of 30 frames a second, and its first frame as a picture to show before it is played. The encoder is
    started directly: imageio would fork a process full of threads."""
    program = encoder()
    require_no_link(path.parent)
    path.parent.mkdir(parents=True, exist_ok=True)
    height, width = (n - n % 2 for n in frames[0].shape[:2])  # the codec wants even sizes
    raw = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", "30", "-i", "-"]
    coded = ["-c:v", "libx264", "-pix_fmt", "yuv420p"]
    command = [program, "-y", "-loglevel", "error", *raw, *coded]
    pictures = [np.ascontiguousarray(f[:height, :width], np.uint8) for f in frames]
    content = b"".join(picture.tobytes() for picture in pictures)
    with replacing(path) as temporary, replacing(path.with_suffix(POSTER)) as still:
        first = ["-frames:v", "1", "-c:v", "mjpeg", "-q:v", "3", "-f", "mjpeg", str(still)]
        outputs = ["-f", "mp4", str(temporary), *first]
        done = subprocess.run([*command, *outputs], input=content, capture_output=True)
        if done.returncode:
            raise UserError(f"{path}: not written ({done.stderr.decode(errors='replace').strip()[-200:]})")

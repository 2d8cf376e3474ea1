"""How well a policy walks: speed along the command, falls, targets reached, balls brought, time to stand up."""

from collections.abc import Callable
from typing import Any

import numpy as np

from dualgoal import texts
from dualgoal.collect.behaviours import WALK_NOISE
from dualgoal.experts.bodies import BODIES, Body
from dualgoal.experts.simulations import Simulations

Policy = Callable[[np.ndarray], np.ndarray]  # rows of observations to rows of actions
Measures = dict[str, float | None]

TARGET, TARGET_REACHED, TARGET_STEPS = 8.0, 0.5, 300  # metres, metres, steps
STAND_STEPS, STEADY = 300, 40  # steps to get up in; as many in a row are standing, not a jump or the fall at the start
BALL_LATE = 300  # steps, half as many again as an episode has
COMPASS = 8  # directions
ENDLESS = 1 << 30  # steps of an episode: only a fall ends it


def evaluate(body: str, policy: Policy, *, episodes: int, seed: int, threads: int) -> dict[str, Measures]:
    """Measures by noise on the actions: none, and as much as collectors add."""
    measure = lambda noise: _measure(BODIES[body](), policy, episodes, seed, threads, noise)
    return {f"{noise:g}": measure(noise) for noise in (0.0, WALK_NOISE)}


def _measure(body: Body, policy: Policy, episodes: int, seed: int, threads: int, noise: float) -> Measures:
    rng = np.random.default_rng(seed)
    simulations = Simulations(body, episodes, threads, ENDLESS)
    simulations.start(rng)

    def step() -> Any:
        actions = policy(simulations.observation.astype(np.float32))
        return simulations.step(np.clip(actions + noise * rng.standard_normal(actions.shape), -1.0, 1.0), rng)

    trials: dict[str, Callable[[], Measures]] = {
        "walk": lambda: _walk(body, simulations, step),
        "targets": lambda: _reach_targets(simulations, step, rng),
        "balls": lambda: _bring_balls(body, simulations, step),
        "stand up": lambda: _stand_up(body, simulations, step),
    }
    try:
        return {name: value for trial in body.trials for name, value in trials[trial]().items()}
    finally:
        simulations.close()


def _walk(body: Body, simulations: Simulations, step: Callable[[], Any]) -> Measures:
    """Half an ordinary episode in one direction each, by turns in those of the compass.

    A direction counts by the mean of its episodes: the slowest episode says more about bad luck than about a direction.
    """
    compass, steps = min(COMPASS, simulations.count), body.limit // 2
    chosen = np.arange(simulations.count) % compass
    angles = 2 * np.pi * chosen / compass
    directions = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    metres, falls = np.zeros(simulations.count), 0
    stood = np.zeros(simulations.count, bool)
    for _ in range(steps):
        simulations.command[:] = directions
        made = step()
        metres += made.progress
        down = body.down(made.seen)
        falls += int((made.fallen | (stood & down)).sum())
        stood = (stood | body.on_feet(made.seen)) & ~down
    pace, slow = metres / steps, {}
    if body.slow is not None:
        slow[f"episodes under {body.slow:g} m per step (%)"] = float(100 * (pace < body.slow).mean())
    unseen = body.unseen(simulations.seen).items()
    by_direction = [float(pace[chosen == k].mean()) for k in range(compass)]
    degrees = {f"metres per step at {360 * k / compass:g} degrees": speed for k, speed in enumerate(by_direction)}
    return {
        "metres per step": float(pace.mean()),
        "metres per second": float(pace.mean() / body.seconds),
        **degrees,
        "metres per step, slowest direction": min(by_direction),
        "metres per step, slowest episode": float(pace.min()),
        **slow,
        "falls per 1,000 steps": 1000 * falls / (steps * simulations.count),
        **{f"{name} at the end (%)": float(100 * where.mean()) for name, where in unseen},
    }


def _reach_targets(simulations: Simulations, step: Callable[[], Any], rng: np.random.Generator) -> Measures:
    """Targets all around, with the direction corrected at every step as collectors do."""
    simulations.start(rng)
    angles = rng.uniform(0, 2 * np.pi, simulations.count)
    targets = simulations.seen[:, :2] + TARGET * np.stack([np.cos(angles), np.sin(angles)], axis=1)

    def aim() -> None:
        way = targets - simulations.seen[:, :2]
        simulations.command[:] = way / (np.linalg.norm(way, axis=1, keepdims=True) + 1e-6)

    near = lambda seen: np.linalg.norm(seen[:, :2] - targets, axis=1) <= TARGET_REACHED
    share, time = _within(_until(simulations, step, near, TARGET_STEPS, aim), TARGET_STEPS)
    return {f"targets {TARGET:g} m away reached (%)": share, "steps to a target": time}


def _bring_balls(body: Body, simulations: Simulations, step: Callable[[], Any]) -> Measures:
    goals = simulations.command.copy()
    when = _until(simulations, step, lambda seen: body.reached(seen, goals), BALL_LATE)
    share, time = _within(when, body.limit)
    return {
        "balls brought to the goal (%)": share,
        "steps to the goal": time,
        f"balls brought within {BALL_LATE} steps (%)": _within(when, BALL_LATE)[0],
    }


def _stand_up(body: Body, simulations: Simulations, step: Callable[[], Any]) -> Measures:
    stood = np.zeros(simulations.count, int)  # steps in a row

    def upright(seen: np.ndarray) -> np.ndarray:
        stood[:] = np.where(body.on_feet(seen), stood + 1, 0)
        return stood >= STEADY

    share, time = _within(_until(simulations, step, upright, STAND_STEPS), STAND_STEPS)
    return {f"stood up within {STAND_STEPS} steps (%)": share, "steps until it has stood for a second": time}


def _until(
    simulations: Simulations, step: Callable[[], Any], reached: Callable[[np.ndarray], np.ndarray], limit: int,
    before: Callable[[], None] = lambda: None,
) -> np.ndarray:  # fmt: skip
    """In which step something happens first in each simulation; 0 if not within `limit` steps and before a fall."""
    when, alive = np.zeros(simulations.count, int), np.ones(simulations.count, bool)
    for at in range(1, limit + 1):
        before()
        made = step()
        alive &= ~made.fallen
        when[alive & (when == 0) & reached(made.seen)] = at
    return when


def _within(when: np.ndarray, limit: int) -> tuple[float, float | None]:
    """Percentage of simulations in which it happened within `limit` steps; mean steps to it."""
    done = when[(when > 0) & (when <= limit)]
    return 100.0 * len(done) / len(when), float(done.mean()) if len(done) else None


def table(found: dict[str, Measures]) -> str:
    """The measures as text, with a column for each noise."""
    heads = ["without noise" if noise == "0" else f"noise {noise}" for noise in found]
    rows = [["", *heads]]
    for name in next(iter(found.values())):
        values = [measures[name] for measures in found.values()]
        rows.append([name, *("never" if v is None else f"{v:.3f}" for v in values)])
    return "\n".join(texts.aligned(rows, right=range(1, len(rows[0]))))

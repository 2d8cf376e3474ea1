"""Every statement of section 1 of the method, checked on random processes of growing size by `dualgoal theory`.

The processes are stochastic, deterministic, with unreachable goals, block processes, or corridors, whose goals are far
away so that values are tiny. Each check compares one certificate of `theorems.py` with the bound that it must not
exceed; the negative control must exceed it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from json import dumps as json_of
from pathlib import Path

import numpy as np

from dualgoal.errors import UserError
from dualgoal.theory import theorems
from dualgoal.theory.processes import LINEAR_SOLVE_LIMIT, BlockProcess, Process, distances, optimal_values

GAMMA = 0.9
SIZES = (12, 40, 120, 300)
TOLERANCE = 1e-10  # V* is converged to 1e-13, and greedy policies lose at most 2 gamma / (1 - gamma) times that
CONTROL = 0.1  # in steps: the naive reward must separate observations of one state by at least this distance


@dataclass(frozen=True)
class CheckResult:
    """One check on one process (or the worst of several); `deviation` is the value of its certificate."""

    check: str
    process: str
    states: int
    deviation: float
    passed: bool


def random_stochastic(rng: np.random.Generator, states: int, actions: int = 3, successors: int = 3) -> Process:
    """Each action leads to `successors` random states with random probabilities."""
    shape = (states, actions, successors)
    return Process(rng.integers(states, size=shape), rng.dirichlet(np.ones(successors), shape[:2]))


def random_deterministic(rng: np.random.Generator, states: int) -> Process:
    """Each of three actions leads to one random state."""
    return Process(rng.integers(states, size=(states, 3, 1)), np.ones((states, 3, 1)))


def random_unreachable(rng: np.random.Generator, states: int) -> Process:
    """Two halves, and only the first can leave: goals of the first are unreachable from the second."""
    process = random_stochastic(rng, states)
    half = states // 2
    first, there = np.arange(states)[:, None, None] < half, process.successors
    return Process(np.where(first, there, half + there % (states - half)), process.probabilities)


def corridor(states: int) -> Process:
    """A row of states. Two actions move one place down or up with probability 1/2, and else stay; a move off an end
    stays too."""
    here = np.arange(states)[:, None, None]
    there = np.clip(here + np.array([-1, 1])[None, :, None], 0, states - 1)
    successors = np.concatenate([there, np.broadcast_to(here, there.shape)], axis=-1)
    return Process(successors, np.full(successors.shape, 0.5))


def corridor_distances(process: Process, gamma: float) -> float:
    """V* of a corridor is r^k at k places from the goal, with r = (gamma / 2) / (1 - gamma / 2)."""
    places = np.arange(process.states)
    each = np.log((gamma / 2) / (1 - gamma / 2)) / np.log(gamma)
    return theorems.gap(distances(process, gamma), each * np.abs(places[:, None] - places))


def random_block(rng: np.random.Generator, states: int) -> BlockProcess:
    """About `states` observations: each latent state of a random process shows one to five of them."""
    latents = max(states // 3, 2)
    decoder = np.repeat(np.arange(latents), rng.integers(1, 6, size=latents))
    weights = rng.uniform(0.1, 1.0, size=len(decoder))
    return BlockProcess(random_stochastic(rng, latents), decoder, weights / np.bincount(decoder, weights)[decoder])


def run_checks(sizes: Sequence[int] = SIZES, *, seed: int = 0, repeats: int = 100) -> Iterator[CheckResult]:
    """The results one by one; the first is the worst of `repeats` small stochastic processes."""
    if min(sizes, default=0) < 4 or max(sizes) > LINEAR_SOLVE_LIMIT:
        raise UserError(f"theory: sizes must be 4 to {LINEAR_SOLVE_LIMIT} states; got {tuple(sizes)}")
    rng = np.random.default_rng(seed)
    small = [random_stochastic(rng, 12) for _ in range(repeats)]
    worst = max((theorems.sufficiency(process, GAMMA) for process in small), default=0.0)
    yield within("sufficiency", f"stochastic x {repeats}", 12, worst)
    for states in sizes:
        yield from _on_process("stochastic", random_stochastic(rng, states), rng)
        deterministic = random_deterministic(rng, states)
        yield from _on_process("deterministic", deterministic, rng)
        for gamma in (0.5, 0.9):  # d* does not depend on it
            deviation = theorems.shortest_path_distances(deterministic, gamma)
            yield within(f"shortest paths, gamma {gamma}", "deterministic", states, deviation)
        yield from _on_process("unreachable", random_unreachable(rng, states), rng)
        yield from _on_block(random_block(rng, states))
        yield from _on_process("corridor", corridor(states), rng)
        yield within("distances by formula", "corridor", states, corridor_distances(corridor(states), GAMMA))
    yield from _universality(rng, states=60, dims=(2, 8, 32))


def within(check: str, process: str, states: int, deviation: float, bound: float = TOLERANCE) -> CheckResult:
    return CheckResult(check, process, states, deviation, bool(deviation <= bound))


def _on_process(name: str, process: Process, rng: np.random.Generator) -> Iterator[CheckResult]:
    certificates: dict[str, tuple[Callable[[Process, float], float], float]] = {
        "Bellman equation": (theorems.bellman, TOLERANCE),
        "sufficiency": (theorems.sufficiency, TOLERANCE),
        "affine rewards": (theorems.affine_rewards, TOLERANCE),
        "reachability": (theorems.reachability, 0.0),
        "injectivity": (theorems.injectivity, 0.0),
        "triangle inequality": (theorems.triangle, TOLERANCE),
    }
    for check, (certificate, bound) in certificates.items():
        yield within(check, name, process.states, certificate(process, GAMMA), bound)
    deviation = theorems.relabelling(process, GAMMA, rng.permutation(process.states))
    yield within("relabelling", name, process.states, deviation)


def _on_block(block: BlockProcess) -> Iterator[CheckResult]:
    states = len(block.decoder)
    yield within("noise invariance", "block", states, theorems.noise_invariance(block, GAMMA), bound=0.0)
    yield within("latent distances", "block", states, theorems.latent_distances(block, GAMMA))
    control = theorems.noise_invariance(block, GAMMA, by_latent=False)
    yield CheckResult("control: naive reward tells noise apart", "block", states, control, control > CONTROL)


def _universality(rng: np.random.Generator, states: int, dims: Sequence[int]) -> Iterator[CheckResult]:
    """The remark of section 1.7, measured: inner products improve with dimension, a metric stops at V*'s asymmetry."""
    values = optimal_values(random_stochastic(rng, states, actions=2, successors=2), GAMMA)
    for fit in [theorems.fit_errors(values, dim) for dim in dims]:
        size = f"{fit.dim} dim"
        yield CheckResult(f"fit of V*, inner product, {size}", "asymmetric", states, fit.inner, fit.inner < fit.metric)
        yield CheckResult(f"fit of V*, best metric, {size}", "asymmetric", states, fit.metric, fit.metric >= fit.floor)
    full = theorems.fit_errors(values, states)
    yield within("fit of V*, inner product, full rank", "asymmetric", states, full.inner)


def as_json(rows: Sequence[CheckResult]) -> str:
    """A list of rows with check, process, states, deviation, passed; an infinite deviation is null."""
    finite = lambda row: asdict(row) | {"deviation": row.deviation if np.isfinite(row.deviation) else None}
    return json_of([finite(row) for row in rows], indent=1)


def line(row: CheckResult) -> str:
    verdict = "ok" if row.passed else "FAILED"
    return f"{row.check:<40}  {row.process:<16}  {row.states:>6}  {row.deviation:>9.2e}  {verdict}"


def check_and_print(*, json: bool = False, seed: int = 0, plot: Path | None = None) -> None:
    """Run all checks and print them one by one, or draw the pictures. Exits with status 1 if a check failed."""
    if plot is not None:
        from dualgoal.theory import pictures

        for path in pictures.draw_pictures(plot):
            print(path)
        return
    rows = []
    if not json:
        print(f"{'check':<40}  {'process':<16}  {'states':>6}  deviation")
    for row in run_checks(seed=seed):
        rows.append(row)
        if not json:
            print(line(row), flush=True)
    failed = sum(not row.passed for row in rows)
    print(as_json(rows) if json else f"{len(rows) - failed} of {len(rows)} checks passed")
    if failed:
        raise SystemExit(1)

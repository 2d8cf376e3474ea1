"""How fast training is, as ratios that can be compared between machines.

Each row times the training loop of one combination against a baseline in the same process that works as the released
code does: it samples with NumPy on the host, copies a batch to the device and calls one compiled update per step, for
one seed. A row also has the time to compile the loop, the memory it needs, its share of the speed of a plain matrix
product, and the time of each part of a step. The data are random numbers of a task's sizes.
"""

import functools
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random

from dualgoal import machine
from dualgoal.agent import Agent, State
from dualgoal.bench.options import Options
from dualgoal.bench.trace import Cost, kernels_by_kind
from dualgoal.envs import tasks
from dualgoal.errors import UserError, kind_of
from dualgoal.interface import Batch, Frames, Goals, Spec, Stream
from dualgoal.loop import TrainingLoop, compile_loop, quick_compile_options
from dualgoal.paper import settings
from dualgoal.runs import duration
from dualgoal.sampler import shared_draws, to_device
from dualgoal.streams import GoalMix, Transitions, Window

ROWS_PIXELS = 20_000  # a full pixel set is 12 GB; drawing rows costs the same from a smaller one
TRACED_STEPS = 20
PARTS = ("sampling", "forward", "backward", "optimiser and targets")


@dataclass(frozen=True)
class Case:
    """What one row measures."""

    task: str = "cube-single-play-v0"
    rep: str = "dual"
    algo: str = "gcivl"
    seeds: int = 1
    precision: machine.Precision = "float32"
    batch: int | None = None
    width: int = 512

    def agent(self) -> Agent:
        """The paper's settings for this combination at this width."""
        run = settings.preset(self.task, self.rep, self.algo)
        task, hidden = tasks.get(self.task), {"hidden": (self.width,) * 3}
        rep = replace(run.rep, **hidden) if hasattr(run.rep, "hidden") else run.rep
        spec = Spec(
            task.observation_shape,
            task.action_dim,
            discount=run.discount,
            batch_size=self.batch or run.batch_size,
            precision=self.precision,
        )
        return Agent(rep, replace(run.algo, **hidden), spec)


@functools.cache
def rows_of(task: str) -> Transitions:
    """Random rows of a task's sizes, in memory."""
    facts, rng = tasks.get(task), np.random.default_rng(0)
    length = facts.rows_per_episode
    count = (ROWS_PIXELS // length if facts.pixels else facts.episodes) * length
    shape = (count, *facts.observation_shape)
    draw: Callable[[], np.ndarray] = lambda: rng.standard_normal(shape, dtype=np.float32)
    observations = rng.integers(0, 256, shape, dtype=np.uint8) if facts.pixels else draw()
    actions = rng.uniform(-1, 1, (count, facts.action_dim)).astype(np.float32)
    starts = np.arange(0, count, length)
    return Transitions(observations, actions, starts, starts + length - 1)  # type: ignore[arg-type]


def host_batch(host: Transitions, streams: dict[str, Stream], spec: Spec, rng: np.random.Generator) -> Batch:
    """A batch as the reference draws it: NumPy, one stream after the other, copies of the selected rows."""
    size, length = spec.batch_size, int(host.ends[0] + 1)

    def valid() -> Any:
        e = rng.integers(len(host.starts), size=size)
        return host.starts[e] + rng.integers(length - 1, size=size)

    rows = valid()
    fin = host.ends[rows // length] - 1

    def stream(kind: Stream) -> Goals | Frames:
        if isinstance(kind, Window):
            start, now = host.starts[rows // length], np.minimum(rows, fin)
            return Frames(*(host.observations[r] for r in (start, now, now + 1, fin + 1)))
        if not isinstance(kind, GoalMix):
            raise UserError(f"the baseline cannot draw {kind_of(kind)}; use --no-baseline")
        u = rng.random(size)
        future = np.minimum(rows + rng.geometric(1 - spec.discount, size), fin)
        if kind.uniform > 0:
            future = np.round(u * np.minimum(rows + 1, fin) + (1 - u) * fin).astype(int)
        share = (kind.geometric + kind.uniform) / (1 - kind.current) if kind.current < 1 else 0.0
        goal = np.where(rng.random(size) < share, future, valid())
        goal = np.where(rng.random(size) < kind.current, rows, goal)
        return Goals(host.observations[goal], (goal == rows).astype(np.float32))

    draws = {name: stream(streams[name]) for name in dict.fromkeys(shared_draws(streams).values())}
    return Batch(host.observations[rows], host.actions[rows], host.observations[rows + 1], draws)


Advance = Callable[[int], Any]  # takes this many steps and returns something to wait for


def per_step(loops: Mapping[str, Advance], seconds: float) -> dict[str, float]:
    """Seconds per step of each loop: the best of three rounds in which the loops take turns, so that a machine that
    slows down or speeds up does so for all of them."""

    def clock(advance: Advance, steps: int) -> float:
        began = time.perf_counter()
        jax.block_until_ready(advance(steps))
        return (time.perf_counter() - began) / steps

    for advance in loops.values():
        clock(advance, 2)
    steps = {name: max(2, int(seconds / 3 / clock(advance, 3))) for name, advance in loops.items()}
    rounds = [{name: clock(advance, steps[name]) for name, advance in loops.items()} for _ in range(3)]
    return {name: min(times[name] for times in rounds) for name in loops}


def baseline_of(agent: Agent, host: Transitions) -> Advance:
    """The loop of the released code, for one seed."""
    step = jax.jit(agent.update_on, donate_argnums=0)
    init = jax.jit(agent.init, compiler_options=quick_compile_options())
    state, key, rng = init(random.key(0)), random.key(0), np.random.default_rng(0)

    def advance(steps: int) -> State:
        nonlocal state
        for _ in range(steps):
            state, _ = step(state, host_batch(host, agent.streams, agent.spec, rng), key)
        return state

    return advance


def parts_of(program: TrainingLoop, data: Transitions) -> dict[str, Advance]:
    """Loops that each do one more part of a step than the one before, so that differences are the parts."""
    agent, state = program.agent, program.init()

    def sampled(state: State, data: Transitions, key, step):
        return agent.sample(data, key, step)

    def forward(state: State, data: Transitions, key, step):
        return agent.losses(state.params, state.targets, sampled(state, data, key, step), agent.keys(key, step)[1])[0]

    def backward(state: State, data: Transitions, key, step):
        return jax.grad(lambda params: forward(state._replace(params=params), data, key, step))(state.params)

    def loop(part, state, data, key, steps):
        def body(step, total):
            return total + sum(x.astype(jnp.float32).mean() for x in jax.tree.leaves(part(state, data, key, step)))

        return jax.lax.fori_loop(0, steps, body, jnp.float32(0))

    def compiled(part) -> Advance:
        whole = jax.jit(program.for_each_seed(functools.partial(loop, part)))
        go = compile_loop(whole.lower(state, data, program.keys, jnp.int32(1)))
        return lambda steps: go(state, data, program.keys, jnp.int32(steps))

    return {name: compiled(part) for name, part in zip(PARTS[:-1], (sampled, forward, backward), strict=True)}


@dataclass(frozen=True, kw_only=True)
class Row(Case):
    """A case and what was measured of it."""

    batch: int
    ms_per_step: float
    ms_per_step_per_seed: float
    steps_per_second: float
    baseline_ms: float | None
    ratio: float | None  # how many times as fast as the baseline, per seed
    compile_s: float
    peak_bytes: int
    tflops: float
    matmul_tflops: float
    share: float  # of the speed of a plain matrix product
    device: str
    devices: int
    parts_ms: dict[str, float] | None
    kernels: dict[str, Cost] | None

    def __str__(self) -> str:
        ratio = f"{self.ratio:6.1f}x of {self.baseline_ms:.3f} ms" if self.ratio else ""
        lines = [
            f"{f'{self.rep} + {self.algo}':15s} {self.seeds:2d} seeds {self.precision:8s} batch {self.batch:4d} "
            f"width {self.width:4d} {self.ms_per_step:9.3f} ms/step {self.ms_per_step_per_seed:8.3f} per seed {ratio} "
            f"{100 * self.share:5.1f} % of matmul, compile {self.compile_s:.1f} s, {self.peak_bytes / 1e6:.0f} MB"
        ]
        lines += [f"    {part:22s} {ms:8.3f} ms" for part, ms in (self.parts_ms or {}).items()]
        for kind, cost in (self.kernels or {}).items():
            lines.append(f"    {kind:26s} {cost.us:8.1f} us in {cost.launches:5.1f} launches")
        return "\n".join(lines)


def time_case(case: Case, options: Options, baseline: Advance | None, trace: Path | None) -> Row:
    """Compile and time one case, together with the baseline if there is one."""
    agent, data = case.agent(), to_device(rows_of(case.task))
    program = TrainingLoop(agent, tuple(range(case.seeds)))
    state, placed = program.init(), program.place_data(data)
    jax.block_until_ready(state)
    began = time.perf_counter()
    compiled = program.compile(state, placed)
    compile_s = time.perf_counter() - began
    memory = compiled.memory_analysis()

    def advance(steps: int) -> State:
        nonlocal state
        state, _ = program.advance(state, placed, steps)
        return state

    loops = {"step": advance, **({"baseline": baseline} if baseline else {})}
    if options.parts:
        loops |= parts_of(program, placed)
    times = per_step(loops, options.seconds)
    if trace is not None:
        traced = compile_loop(program.lower(state, placed), traced=True)
        state, _ = jax.block_until_ready(traced(state, placed, program.keys, jnp.int32(2)))
        with jax.profiler.trace(str(trace)):
            state, _ = jax.block_until_ready(traced(state, placed, program.keys, jnp.int32(TRACED_STEPS)))
    step, slow = times["step"], times.get("baseline")
    peak, flops = duration.product_speed(case.precision) / 1e12, duration.operations(agent, data) * case.seeds
    return Row(
        **{**vars(case), "batch": agent.spec.batch_size},
        ms_per_step=step * 1e3, ms_per_step_per_seed=step * 1e3 / case.seeds, steps_per_second=1 / step,
        baseline_ms=slow and slow * 1e3, ratio=slow and slow / (step / case.seeds), compile_s=compile_s,
        peak_bytes=memory.argument_size_in_bytes + memory.temp_size_in_bytes,
        tflops=flops / step / 1e12, matmul_tflops=peak, share=flops / step / 1e12 / peak,
        device=jax.devices()[0].device_kind, devices=program.mesh.size,
        parts_ms=_differences(times) if options.parts else None,
        kernels=None if trace is None else kernels_by_kind(trace, TRACED_STEPS),
    )  # fmt: skip


def _differences(times: Mapping[str, float]) -> dict[str, float]:
    """Milliseconds of each part of a step, from the loops of `parts_of`."""
    ends = [0.0, *(1e3 * times[name] for name in PARTS[:-1]), 1e3 * times["step"]]
    return {name: b - a for name, a, b in zip(PARTS, ends[:-1], ends[1:], strict=True)}


def cases_of(options: Options) -> list[Case]:
    """Every combination of the lists."""
    return [
        Case(options.task, rep, algo, seeds, machine.arithmetic(precision), batch, width)
        for rep in options.reps
        for algo in options.algos
        for width in options.widths
        for batch in (options.batches or (None,))
        for precision in options.precisions
        for seeds in options.seeds
    ]


def measured(options: Options) -> Iterator[Row]:
    """A row per case. A baseline is compiled once for all rows of equal agents, and timed with each."""

    @functools.cache
    def shared(case: Case) -> Advance:
        return baseline_of(case.agent(), rows_of(case.task))

    for n, case in enumerate(cases_of(options)):
        slow = shared(replace(case, seeds=1)) if options.baseline else None
        yield time_case(case, options, slow, options.trace if n == 0 else None)


def run_bench(options: Options) -> None:
    """Print each row as soon as it is measured, so that an interruption keeps the rows before it."""
    machine.a_device_per_core()
    if not options.json:
        for row in measured(options):
            print(row, flush=True)
        return
    for n, row in enumerate(measured(options)):
        print("," if n else "[", json.dumps(asdict(row), indent=1), flush=True)
    print("]")

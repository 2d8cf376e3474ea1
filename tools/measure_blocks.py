"""Time a training step on images with and without what `fast/blocks.py` and `fast/convolution.py` do on a CPU.

Both loops are compiled in one process and take turns, so that a machine that slows down does so for both. The images
are random. Printed are the medians of the milliseconds per step, and of the ratios of neighbouring measurements; with
`cpu`, of the seconds that all threads computed, which other processes of the machine disturb less.

    python tools/measure_blocks.py orig --side 64 --batch 256
"""

import argparse
import contextlib
import dataclasses
import statistics
import time
from collections.abc import Callable, Iterator
from unittest import mock

import jax
import numpy as np

from dualgoal import machine
from dualgoal.agent import Agent
from dualgoal.bench.measure import Case
from dualgoal.fast import convolution
from dualgoal.loop import TrainingLoop
from dualgoal.nets import encoders
from dualgoal.sampler import to_device
from dualgoal.streams import Transitions

LENGTH, EPISODES = 200, 20
Times = list[tuple[float, float]]  # milliseconds per step: by the clock, and of the processor


@contextlib.contextmanager
def whole_batches() -> Iterator[None]:
    """Whole batches, and each pixel of a convolution on its own."""
    with (
        mock.patch.object(encoders, "in_blocks", lambda function, images: function(images)),
        mock.patch.object(convolution, "at_once", lambda x, w: 1),
    ):
        yield


def rows(side: int) -> Transitions:
    rng, count = np.random.default_rng(0), EPISODES * LENGTH
    images = rng.integers(0, 256, (count, side, side, 3), dtype=np.uint8)
    actions = rng.uniform(-1, 1, (count, 5)).astype(np.float32)
    starts = np.arange(0, count, LENGTH)
    return to_device(Transitions(images, actions, starts, starts + LENGTH - 1))  # type: ignore[arg-type]


def compiled(agent: Agent, data: Transitions, seeds: int) -> Callable[[int], None]:
    jax.clear_caches()
    program = TrainingLoop(agent, tuple(range(seeds)))
    state, placed = program.init(), program.place_data(data)

    def advance(steps: int) -> None:
        nonlocal state
        state, _ = jax.block_until_ready(program.advance(state, placed, steps))

    advance(1)
    return advance


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("rep")
    for name, default in (("side", 64), ("batch", 256), ("seeds", 1), ("rounds", 5), ("steps", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--precision", default="float32")
    given = parser.parse_args()
    machine.a_device_per_core()
    case = Case("visual-cube-single-play-v0", given.rep, "gcivl", given.seeds, given.precision, given.batch)
    agent = case.agent()
    shape = (given.side, given.side, 3)
    spec = dataclasses.replace(agent.spec, observation_shape=shape, goal_shape=shape)
    agent, data = Agent(agent.rep, agent.algo, spec), rows(given.side)
    with whole_batches():
        before = compiled(agent, data, given.seeds)
    after = compiled(agent, data, given.seeds)
    times: dict[str, Times] = {"before": [], "after": []}
    for _ in range(given.rounds):
        for name, advance in (("before", before), ("after", after)):
            clock, cpu = time.perf_counter(), time.process_time()
            advance(given.steps)
            spent = time.perf_counter() - clock, time.process_time() - cpu
            times[name].append((spent[0] / given.steps * 1e3, spent[1] / given.steps * 1e3))
    for n, kind in enumerate(("clock", "cpu")):
        was, now = ([pair[n] for pair in times[name]] for name in ("before", "after"))
        ratio = statistics.median(a / b for a, b in zip(was, now, strict=True))
        print(f"{kind}: {statistics.median(was):.1f} ms before, {statistics.median(now):.1f} after, ratio {ratio:.2f}")


if __name__ == "__main__":
    main()

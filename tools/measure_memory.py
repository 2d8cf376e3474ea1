"""Compare the memory that `dualgoal train --dry-run` estimates with what the compiler reserves for the same loop.

    python tools/measure_memory.py

One seed and 100,000 rows; nothing is allocated.
"""

import jax
import jax.numpy as jnp

from dualgoal.loop import TrainingLoop
from dualgoal.paper import settings
from dualgoal.runs import memory, policy
from dualgoal.runs.facts import Sizes
from dualgoal.streams import Transitions

ROWS, EPISODES, MIB = 100_000, 100, 2**20
CASES = [
    ("cube-single-play-v0", (28,), "orig", "gcbc", {}),
    ("cube-single-play-v0", (28,), "dual", "gcivl", {}),
    ("scene-play-v0", (40,), "dual", "crl", {}),
    ("visual-scene-play-v0", (64, 64, 3), "dual", "gcivl", {"batch_size": 64}),
]

print("run, data and state, step estimated, step by the compiler (MiB)")
for task, shape, rep, algo, options in CASES:
    run = settings.preset(task, rep, algo, **options)
    agent = policy.agent_for(run, Sizes(shape, 5, discrete=False))
    kind = jnp.uint8 if len(shape) == 3 else jnp.float32
    observations = jax.ShapeDtypeStruct((ROWS, *shape), kind)
    actions = jax.ShapeDtypeStruct((ROWS, 5), jnp.float32)
    found = memory.estimate(agent, 1, {"observations": observations, "actions": actions}, EPISODES)
    ends = jax.ShapeDtypeStruct((EPISODES,), jnp.int32)
    loop = TrainingLoop(agent, (0,))
    data = Transitions(observations, actions, ends, ends, None)
    compiled = loop._chunk.lower(loop.template, data, loop.keys, jnp.int32(1)).compile().memory_analysis()
    sizes = (found.data + found.state, found.step, compiled.temp_size_in_bytes)
    print(task, f"{rep} + {algo}", *(f"{size / MIB:,.0f}" for size in sizes), flush=True)

"""Exports every pair of a representation and an algorithm to ONNX, untrained, and prints how far onnxruntime is from
the original.

    python tools/onnx_pairs.py [--only orig dual]

Vectors of 4 numbers and images of 16 x 16, continuous actions (scaled) and 3 discrete ones; images with every kind of
policy network.
"""

import argparse
from pathlib import Path

import jax
import numpy as np
import onnxruntime
from jax import random

from dualgoal.algos import ALGOS
from dualgoal.data.origin import ActionRange
from dualgoal.errors import UserError
from dualgoal.machine import Hardware
from dualgoal.reps import REPS
from dualgoal.runs import facts, onnx_export, policy
from dualgoal.runs.config import Run

UNITS = ActionRange((-3.0, -2.0, 0.0), (3.0, 2.0, 9.0))
ON_IMAGES = ("gcivl", "hiql", "gcfbc", "dqn")  # the others have networks of the same kinds


def untrained(rep: str, algo: str, shape: tuple[int, ...], discrete: bool) -> policy.Policy:
    """A policy with random weights; a `UserError` for what does not fit together."""
    small = {} if rep == "orig" else {"hidden": (16, 16), "dim": 8}
    run = Run(task="x", rep=REPS[rep](**small), algo=ALGOS[algo](hidden=(16, 16)))
    data = facts.DataFacts(1, 1, action_range=None if discrete else UNITS)
    about = facts.RunFacts(facts.Sizes(shape, 3, discrete), data, {}, Hardware.here("float32"))
    agent = policy.agent_for(run, about.sizes)
    rng = np.random.default_rng(0)
    shapes = jax.eval_shape(agent.init, random.key(0)).params
    params = jax.tree.map(lambda leaf: rng.normal(size=leaf.shape, scale=0.2).astype(np.float32), shapes)
    return policy.Policy(agent, params, run, about)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=list(REPS), help="representations")
    worst, count = 0.0, 0
    for rep in parser.parse_args().only:
        for algo in set(ALGOS) - {"none"}:
            for shape in ((4,), (16, 16, 3)):
                for discrete in (False, True):
                    if len(shape) == 3 and algo not in ON_IMAGES:
                        continue
                    try:
                        made = untrained(rep, algo, shape, discrete)
                    except UserError:
                        continue  # they do not fit together
                    parts = onnx_export.parts_of(made, Path("x.onnx"))
                    found = [onnx_export.checked(part, made, onnxruntime)[1].rsplit(" ", 1)[1] for part in parts]
                    worst, count = max(worst, *map(float, found)), count + 1
                    kind = "discrete" if discrete else "continuous"
                    print(f"{rep:<13} {algo:<6} {kind:<11} {shape!s:<12} {'  '.join(found)}", flush=True)
    print(f"{count} exports; largest difference {worst:.2g}")


if __name__ == "__main__":
    main()

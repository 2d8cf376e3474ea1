"""How long training takes on this machine, roughly: the operations of a step at the speed of a matrix product here."""

import functools
import math
import time
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import random
from jax.extend.core import jaxprs_in_params

from dualgoal.agent import Agent
from dualgoal.errors import number_of
from dualgoal.fast.matmul import product
from dualgoal.streams import Transitions

# By kind of device, from the rows on docs/speed.md: the share of that speed that training reaches at the paper's sizes,
# and the seconds of a step of the smallest networks.
SHARE, OVERHEAD = {"cpu": 0.65, "gpu": 0.25}, {"cpu": 8e-4, "gpu": 3e-4}
UNITS = {"day": 86_400, "hour": 3_600, "minute": 60}


def estimate(agent: Agent, seeds: int, steps: int, data: Transitions) -> float:
    """Seconds of so many steps for so many seeds. Evaluation is not counted."""
    device = "cpu" if jax.default_backend() == "cpu" else "gpu"
    speed = SHARE[device] * product_speed(agent.spec.precision)
    return steps * (OVERHEAD[device] + seeds * operations(agent, data) / speed)


def operations(agent: Agent, data: Transitions) -> float:
    """Floating-point operations in the matrix products and convolutions of one update for one seed, counted in its
    trace, which is before the compiler removes what is computed twice."""
    plain = replace(agent, spec=replace(agent.spec, precision="float32"))  # without kernels, which hide what they do
    state = jax.eval_shape(plain.init, random.key(0))
    return operations_in(jax.make_jaxpr(plain.update)(state, data, random.key(0)).jaxpr)


def operations_in(jaxpr: Any) -> float:
    """The same for any trace, those inside it included."""
    total = 0.0
    for equation in jaxpr.eqns:
        shape = equation.outvars[0].aval.shape
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            total += 2 * math.prod(shape) * math.prod(equation.invars[0].aval.shape[d] for d in contracted)
        elif equation.primitive.name == "conv_general_dilated":
            kernel, spec = equation.invars[1].aval.shape, equation.params["dimension_numbers"].rhs_spec
            total += 2 * math.prod(shape) * math.prod(kernel) / kernel[spec[0]]
        total += sum(operations_in(inner) for inner in jaxprs_in_params(equation.params))
    return total


@functools.cache
def product_speed(precision: str) -> float:
    """Operations per second of a large square matrix product in this precision: the best of three rounds."""
    size = 8192 if jax.default_backend() == "gpu" else 1024
    x = random.normal(random.key(0), (size, size), jnp.bfloat16 if precision == "bf16" else jnp.float32)
    with jax.default_matmul_precision("float32" if precision == "float32" else "tensorfloat32"):
        chain = jax.jit(lambda x, n: jax.lax.fori_loop(0, n, lambda i, y: product(y, x) * 0.01, x))

        def seconds(count: int) -> float:
            began = time.perf_counter()
            jax.block_until_ready(chain(x, jnp.int32(count)))
            return (time.perf_counter() - began) / count

        seconds(2)
        count = max(2, int(0.2 / seconds(3)))
        return 2 * size**3 / min(seconds(count) for _ in range(3))


def text(seconds: float) -> str:
    """A rough time to one digit, in the largest unit of which there are at least two."""
    if seconds < 90:
        return "about a minute or less"
    unit, size = next(((unit, size) for unit, size in UNITS.items() if seconds >= 2 * size), ("minute", 60))
    count = round(seconds / size)
    return f"roughly {number_of(round(count, 1 - len(str(count))), unit)}"

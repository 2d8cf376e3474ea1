"""The GPU kernels of `activations`, in Pallas. A program (Pallas' word for a thread block) handles some whole rows.

This module is imported only where the kernels are used: importing Pallas takes about half a second.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array

from dualgoal.fast.activation_formulas import (
    PORTABLE,
    Groups,
    Hidden,
    Intrinsics,
    Params,
    Scores,
    backward_rows,
    forward_rows,
    has_head,
    params_gradient,
)

WARPS = 4  # per program; a warp is 32 threads
NUMBERS = 16  # that a thread holds of an array at a time: more would not fit into its registers
BLOCK = WARPS * 32 * NUMBERS  # numbers that a program handles at a time
FORWARD_STEPS = 4  # blocks per program, at most. It loads the parameters once for all of them,
BACKWARD_STEPS = 8  # and writes one partial sum of the parameters' gradients.
PROGRAMS = 64  # of one seed at least, if there are as many blocks: half of a large GPU's multiprocessors


def can_handle(y: Hidden) -> bool:
    """Whether rows have a width that is a power of two, fill whole programs, and are of at most 32 bits."""
    width = y.shape[-1]
    is_power_of_two = 64 <= width <= BLOCK and width & (width - 1) == 0
    return is_power_of_two and y.shape[1] % (BACKWARD_STEPS * BLOCK // width) == 0 and y.dtype != jnp.float64


def steps_of(y: Hidden, most: int) -> int:
    """Blocks per program. Small batches have few blocks, which should run in parallel."""
    blocks = y.size // BLOCK
    return next(steps for steps in (most, most // 2, most // 4, 1) if steps == 1 or blocks // steps >= PROGRAMS)


def forward(out: jnp.dtype, y: Hidden, params: Params, interpret: bool = False) -> Hidden | Scores:
    ops, head = gpu_intrinsics(y, interpret), has_head(params)
    height, columns = BLOCK // y.shape[-1], column_groups(y)  # of a block
    steps = steps_of(y, FORWARD_STEPS)

    def kernel(y_ref: Any, params_ref: Any, out_ref: Any) -> None:
        params = [[params_ref[n, group][None] for group in columns] for n in range(params_ref.shape[0])]
        for step in range(steps):
            rows = pl.ds(step * height, height)
            x = forward_rows([y_ref[rows, group] for group in columns], params, ops)
            if head:
                out_ref[rows] = x[0][:, 0].astype(out_ref.dtype)
                continue
            for group, part in zip(columns, x, strict=True):
                out_ref[rows, group] = part.astype(out_ref.dtype)

    blocks = block_specs(y, params, steps)
    result = jax.ShapeDtypeStruct(y.shape[:2] if head else y.shape, out)
    of_result = blocks.scores if head else blocks.rows
    run = program(kernel, y, steps, [blocks.rows, blocks.params], of_result, result, "activate", interpret)
    return run(y, params)


def backward(y: Hidden, params: Params, dout: Hidden | Scores, interpret: bool = False) -> tuple[Hidden, Params]:
    """Gradients of y and of the params. Each program writes a partial sum of the latter; the last line adds them up."""
    ops, head = gpu_intrinsics(y, interpret), has_head(params)
    height, columns = BLOCK // y.shape[-1], column_groups(y)  # of a block
    steps = steps_of(y, BACKWARD_STEPS)

    def kernel(y_ref: Any, params_ref: Any, dout_ref: Any, dy_ref: Any, dparams_ref: Any) -> None:
        count = params_ref.shape[0]
        params = [[params_ref[n, group][None] for group in columns] for n in range(count)]
        shape = (height, columns[0].size)
        sums = [[jnp.zeros(shape, jnp.float32) for _ in columns] for _ in range(min(count, 3))]
        if head:  # there is one gradient per row, not one per number
            sums[2] = [jnp.zeros((height, 1), jnp.float32) for _ in columns]

        def body(step: Array, sums: list[Groups]) -> list[Groups]:
            rows = pl.ds(step * height, height)
            d = [dout_ref[rows][:, None]] if head else [dout_ref[rows, group] for group in columns]
            dy, sums = backward_rows([y_ref[rows, group] for group in columns], params, d, sums, ops)
            for group, part in zip(columns, dy, strict=True):
                dy_ref[rows, group] = part.astype(dy_ref.dtype)
            return sums

        sums = jax.lax.fori_loop(0, steps, body, sums)
        for g, group in enumerate(columns):
            again = [params_ref[n, group] for n in range(count)]  # loading twice frees registers during the loop
            for n, gradient in enumerate(params_gradient(again, [x[g].sum(axis=0) for x in sums])):
                dparams_ref[n, group] = gradient

    members, rows, _ = y.shape
    blocks = block_specs(y, params, steps)
    programs = rows // (steps * height)
    partial_sums = jax.ShapeDtypeStruct((members, programs, *params.shape[1:]), jnp.float32)
    of_sums = pl.BlockSpec((None, None, *params.shape[1:]), lambda e, i: (e, i, 0, 0))
    inputs, outputs = [blocks.rows, blocks.params, blocks.scores if head else blocks.rows], [blocks.rows, of_sums]
    run = program(kernel, y, steps, inputs, outputs, [y, partial_sums], "activate_back", interpret)
    dy, dparams = run(y, params, dout)
    return dy, dparams.sum(axis=1)


def gpu_intrinsics(y: Hidden, interpret: bool) -> Intrinsics:
    """Instructions that the compiler would not choose by itself. It does not join a product and a sum into one fused
    multiply-add. The GPU's own tanh is accurate to 2^-11, more than enough where y is rounded to bfloat16."""
    if interpret:
        return PORTABLE

    def fma(*arguments: Array) -> Array:
        a, b, c = jnp.broadcast_arrays(*arguments)
        out = [jax.ShapeDtypeStruct(a.shape, a.dtype)]
        return triton.elementwise_inline_asm(
            "fma.rn.f32 $0, $1, $2, $3;", args=[a, b, c], constraints="=f,f,f,f", pack=1, result_shape_dtypes=out
        )[0]

    return Intrinsics(triton.approx_tanh if y.dtype == jnp.bfloat16 else jnp.tanh, fma)


def column_groups(y: Hidden) -> list[Any]:
    """Slices of columns, chosen such that one warp holds whole rows as long as NUMBERS per thread suffice, where each
    thread loads 16 bytes at a time. Then sums over rows need neither shared memory nor synchronisation of warps."""
    per_load = 16 // y.dtype.itemsize
    count = max(1, min(y.shape[-1] // (32 * per_load), NUMBERS // per_load))
    width = y.shape[-1] // count
    return [pl.ds(n * width, width) for n in range(count)]


class BlockSpecs(NamedTuple):
    """The parts of the arrays that program i of member e sees."""

    rows: Any  # its rows of y
    params: Any  # its member's params
    scores: Any  # one number for each of its rows


def block_specs(y: Hidden, params: Params, steps: int) -> BlockSpecs:
    height = steps * BLOCK // y.shape[-1]
    return BlockSpecs(
        pl.BlockSpec((None, height, y.shape[-1]), lambda e, i: (e, i, 0)),
        pl.BlockSpec((None, *params.shape[1:]), lambda e, i: (e, 0, 0)),
        pl.BlockSpec((None, height), lambda e, i: (e, i)),
    )


def program(
    kernel: Callable, y: Hidden, steps: int, in_specs: Any, out_specs: Any, out: Any, name: str, interpret: bool
) -> Callable:
    """The kernel over all members and rows. The name is what profiles show."""
    return pl.pallas_call(
        kernel,
        out_shape=jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), out),
        grid=(y.shape[0], y.shape[1] * y.shape[2] // (steps * BLOCK)),
        in_specs=in_specs,
        out_specs=out_specs,
        compiler_params=triton.CompilerParams(num_warps=WARPS),
        interpret=interpret,
        name=name,
    )

"""Matrix products of a batch with a layer's weights, for one network or for an ensemble.

`product` differs from its plain twin `plain` in four ways, none of which changes the mathematics:

- Under bfloat16 a raw observation (float32) enters as the sum of two bfloat16 numbers, because one is too coarse.
- The gradient of the weights leaves the product in the weights' own layout and type. JAX's own gradient would be
  transposed, and under bfloat16 also converted, in additional passes over memory.
- On a CPU, bfloat16 products take the forms for which XLA uses the processor's bfloat16 instructions.
- Inputs that consist of several parts (a state and a goal) may have different types, and each gets its own gradient.
"""

import functools
import itertools

import jax
import jax.numpy as jnp
from jax.experimental.layout import Layout, with_layout_constraint
from jax.typing import DTypeLike
from jaxtyping import Array, Float

Input = Float[Array, "*M B i"]  # M is E, or nothing where the members share an input
Weights = Float[Array, "*E i o"]
Output = Float[Array, "*E B o"]
Parts = tuple[Float[Array, "*M B _"], ...]  # arrays whose columns stand next to each other in one input


def plain(x: Input, w: Weights) -> Output:
    return jnp.matmul(x if x.ndim == w.ndim else x[None], w)


def product(x: Input | Parts, w: Weights, dtype: DTypeLike | None = None, out: DTypeLike | None = None) -> Output:
    """x w, where x may be a tuple of parts. Factors are rounded to `dtype` (default: the type of x), the result has the
    type `out` (default: `dtype`).

    Weights (E, i, o) are those of an ensemble. If its members share an input, each gets a copy: a batched product whose
    factors all have the members in front needs no transposition.
    """
    parts = x if isinstance(x, tuple) else (x,)
    if w.ndim == 3 and parts[0].ndim == 2:
        parts = tuple(jnp.broadcast_to(part[None], (w.shape[0], *part.shape)) for part in parts)
    return multiply(dtype or parts[0].dtype, out or dtype or parts[0].dtype, parts, w)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def multiply(dtype: DTypeLike, out: DTypeLike, parts: Parts, w: Weights) -> Output:
    """[high low] [w; w] for a part that enters in two halves, x w for any other."""
    terms = [terms_in(dtype, part) for part in parts]
    w_of_parts = split_rows(w.astype(dtype), parts)
    w_of_terms = [rows for part_terms, rows in zip(terms, w_of_parts, strict=True) for _ in part_terms]
    equation = "bi,io->bo" if w.ndim == 2 else "ebi,eio->ebo"
    x, w = side_by_side(terms), jnp.concatenate(w_of_terms, axis=-2)
    return einsum(equation, x, w, out)


def multiply_forward(
    dtype: DTypeLike, out: DTypeLike, parts: Parts, w: Weights
) -> tuple[Output, tuple[Parts, Weights]]:
    return multiply(dtype, out, parts, w), (parts, w)


def multiply_backward(
    dtype: DTypeLike, out: DTypeLike, saved: tuple[Parts, Weights], dy: Output
) -> tuple[Parts, Weights]:
    """dx = dy w^T for each part, and dw = x^T dy, where the gradients from a part's two halves are added."""
    parts, w = saved
    e = "" if w.ndim == 2 else "e"
    dy = dy.astype(dtype)
    dx = [
        einsum(f"{e}bo,{e}io->{e}bi", dy, rows, part.dtype)
        for part, rows in zip(parts, split_rows(w.astype(dtype), parts), strict=True)
    ]
    terms = [terms_in(dtype, part) for part in parts]
    dw = of_weights(side_by_side(terms), dy, w.dtype)
    dw_of_terms = iter(split_rows(dw, tuple(itertools.chain(*terms))))
    dw_of_parts = [sum(next(dw_of_terms) for _ in part_terms) for part_terms in terms]
    return tuple(dx), jnp.concatenate(dw_of_parts, axis=-2)


multiply.defvjp(multiply_forward, multiply_backward)


def einsum(equation: str, x: Array, y: Array, out: DTypeLike) -> Array:
    """A matrix product with a result of type `out`. On a CPU, XLA's fast bfloat16 product returns float32 only, which
    is then rounded."""
    result = jnp.float32 if is_bf16_on_cpu(x) else out
    return jnp.einsum(equation, x, y, preferred_element_type=result).astype(out)


def of_weights(x: Input, dy: Output, out: DTypeLike) -> Weights:
    """x^T dy. XLA's fast product for CPUs also wants x to be transposed in memory."""
    e = "" if x.ndim == 2 else "e"
    if not is_bf16_on_cpu(x):
        return jnp.einsum(f"{e}bi,{e}bo->{e}io", x, dy, preferred_element_type=out)
    transposed = with_layout_constraint(x.swapaxes(-1, -2), Layout(tuple(range(x.ndim))))
    return einsum(f"{e}ib,{e}bo->{e}io", transposed, dy, out)


def is_bf16_on_cpu(x: Array) -> bool:
    return x.dtype == jnp.bfloat16 and jax.default_backend() == "cpu"


def terms_in(dtype: DTypeLike, x: Input) -> tuple[Array, ...]:
    """Arrays of type `dtype` whose sum is x: one, or for float32 under bfloat16 two.

    The second is the remainder after rounding to bfloat16, so that 16 bits of each number survive instead of 8.
    Observations need them: with 8 bits a coordinate of 20 m is known to the nearest 0.1 m only.
    """
    if x.dtype != jnp.float32 or dtype != jnp.bfloat16:
        return (x.astype(dtype),)
    high = jax.lax.reduce_precision(x, exponent_bits=8, mantissa_bits=7)
    return high.astype(dtype), (x - high).astype(dtype)


def split_rows(w: Weights, parts: Parts) -> list[Array]:
    """The rows of w that belong to each part's columns."""
    return jnp.split(w, list(itertools.accumulate(part.shape[-1] for part in parts[:-1])), axis=-2)


def side_by_side(terms: list[tuple[Array, ...]]) -> Array:
    return jnp.concatenate(list(itertools.chain(*terms)), axis=-1)

"""Matrix products with well-placed results: members in front, gradients in the weights' own order and type.

Under bfloat16 a raw input enters as two halves, so that nothing of a coordinate is lost that matters.
"""

import functools
import itertools

import jax
import jax.numpy as jnp
from jaxtyping import Array

Parts = tuple[Array, ...]


def product(x: Array | Parts, w: Array, dtype=None, out=None) -> Array:
    """x w: (B, i) or (E, B, i) -> (B, o) or (E, B, o), factors in `dtype`, result in `out`; parts of x side by side.

    Members that share an input get copies of it: a batched product with members in front needs no transposition.
    """
    parts = x if isinstance(x, tuple) else (x,)
    if w.ndim == 3 and parts[0].ndim == 2:
        parts = tuple(jnp.broadcast_to(x[None], (w.shape[0], *x.shape)) for x in parts)
    return multiply(dtype or parts[0].dtype, out or dtype or parts[0].dtype, parts, w)


def columns(x: Array, dtype) -> tuple[Array, ...]:
    """x as columns of a factor in `dtype`; each takes the same rows of the other factor.

    Float32 columns enter a bfloat16 product as two halves, the rounded values and what rounding left: 16 bits of each
    number. Raw observations need them: 8 bits would place a coordinate of 20 m to the nearest 0.1 m.
    """
    if x.dtype != jnp.float32 or dtype != jnp.bfloat16:
        return (x.astype(dtype),)
    high = jax.lax.reduce_precision(x, exponent_bits=8, mantissa_bits=7)
    return high.astype(dtype), (x - high).astype(dtype)


def rows_of(parts: Parts, w: Array) -> list[Array]:
    """The rows of w that belong to each part's columns."""
    return jnp.split(w, list(itertools.accumulate(x.shape[-1] for x in parts[:-1])), axis=-2)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def multiply(dtype, out, parts: Parts, w: Array) -> Array:
    split = [columns(x, dtype) for x in parts]
    rows = [rows for x, rows in zip(split, rows_of(parts, w.astype(dtype)), strict=True) for _ in x]
    equation = "bi,io->bo" if w.ndim == 2 else "ebi,eio->ebo"
    return jnp.einsum(equation, side_by_side(split), jnp.concatenate(rows, axis=-2), preferred_element_type=out)


def side_by_side(split: list[tuple[Array, ...]]) -> Array:
    return jnp.concatenate(list(itertools.chain(*split)), axis=-1)


def multiply_forward(dtype, out, parts, w):
    return multiply(dtype, out, parts, w), (parts, w)


def multiply_backward(dtype, out, saved, dy):
    """The weights' gradient leaves the product in the weights' own order and type: nothing to transpose or convert."""
    parts, w = saved
    e = "" if w.ndim == 2 else "e"
    dy = dy.astype(dtype)
    dx = [
        jnp.einsum(f"{e}bo,{e}io->{e}bi", dy, rows, preferred_element_type=x.dtype)
        for x, rows in zip(parts, rows_of(parts, w.astype(dtype)), strict=True)
    ]
    split = [columns(x, dtype) for x in parts]
    dw = jnp.einsum(f"{e}bi,{e}bo->{e}io", side_by_side(split), dy, preferred_element_type=w.dtype)
    pieces = iter(rows_of(tuple(itertools.chain(*split)), dw))
    return tuple(dx), jnp.concatenate([sum(next(pieces) for _ in x) for x in split], axis=-2)


multiply.defvjp(multiply_forward, multiply_backward)

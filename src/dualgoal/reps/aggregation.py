"""How two embeddings (..., N) become a value (...): section 3.3. Every metric form is the negative of a distance."""

import math

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

GROUP = 8  # coordinates per IQE component

Embedded = Float[Array, "*B N"]


def inner(psi: Embedded, phi: Embedded) -> Float[Array, "*B"]:
    return (psi * phi).sum(axis=-1) / math.sqrt(phi.shape[-1])


def symmetric(psi: Embedded, phi: Embedded) -> Float[Array, "*B"]:
    """Also serves "asymmetric": the difference is whether psi and phi are one network."""
    return -jnp.sqrt(jnp.maximum(((psi - phi) ** 2).sum(axis=-1), 1e-6))


def mrn(psi: Embedded, phi: Embedded) -> Float[Array, "*B"]:
    """A symmetric half plus an asymmetric one."""
    difference = psi - phi
    half = phi.shape[-1] // 2
    u, w = difference[..., :half], difference[..., half:]
    return -(jnp.sqrt(jnp.maximum((u**2).sum(axis=-1), 1e-12)) + jnp.maximum(w.max(axis=-1), 0.0))


def iqe(psi: Embedded, phi: Embedded, alpha: Float[Array, ""]) -> Float[Array, "*B"]:
    """Interval quasimetric: `alpha` weighs the mean against the largest of the components."""
    c = union_lengths(psi, phi)
    return -(alpha * c.mean(axis=-1) + (1 - alpha) * c.max(axis=-1))


def union_lengths(psi: Embedded, phi: Embedded) -> Float[Array, "*B K"]:
    """Per group of coordinates, the length of the union of the intervals [psi_j, max(psi_j, phi_j)].

    Swept from left to right: an interval adds what lies beyond everything before it.
    """
    grouped = (*phi.shape[:-1], phi.shape[-1] // GROUP, GROUP)
    left, right = psi.reshape(grouped), jnp.maximum(psi, phi).reshape(grouped)
    order = jnp.argsort(left, axis=-1)
    left, right = jnp.take_along_axis(left, order, axis=-1), jnp.take_along_axis(right, order, axis=-1)
    reached = lax.cummax(right, axis=right.ndim - 1)[..., :-1]
    added = jnp.maximum(right[..., 1:] - jnp.maximum(left[..., 1:], reached), 0.0)
    return (right - left)[..., 0] + added.sum(axis=-1)


def each_pair(form: str, psi: Float[Array, "E n N"], phi: Float[Array, "E B N"]) -> Float[Array, "E n B"]:
    """The value of every state and every goal, by one matrix product: `inner` or, for any other `form`, `symmetric`."""
    # In full precision: where squares almost cancel, tf32 would change which goals are nearest.
    products = jnp.einsum("ein,ejn->eij", psi, phi, precision="highest")
    if form == "inner":
        return products / math.sqrt(phi.shape[-1])
    squares = (psi**2).sum(axis=-1)[:, :, None] + (phi**2).sum(axis=-1)[:, None, :]
    return -jnp.sqrt(jnp.maximum(squares - 2 * products, 1e-6))


BY_PRODUCTS = ("inner", "symmetric", "asymmetric")  # forms that `each_pair` computes
SHARED = ("symmetric", "mrn", "iqe")  # one network embeds states and goals

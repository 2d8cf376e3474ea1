"""Trials of representations from other packages with numbers, before a run begins: what shapes cannot show."""

import jax
import jax.numpy as jnp
import numpy as np

from dualgoal.compatibility import checked_factors
from dualgoal.errors import UserError
from dualgoal.interface import Nets, Representation, Spec, from_factors


def check_factors(rep: Representation, nets: Nets, spec: Spec) -> None:
    """Refuse factors whose inner product is not the value: an algorithm would follow another value than is learned."""
    if rep.factor_shape is None:
        return
    rng = np.random.default_rng(0)
    s, g = (jnp.asarray(rng.normal(size=(4, *n)), jnp.float32) for n in (spec.observation_shape, spec.goal_shape))
    psi, phi = checked_factors(rep, rep.factors(nets, s, g), 4)
    if not jnp.allclose(from_factors(psi, phi), rep.value(nets, s, g, spec), rtol=1e-2, atol=1e-3):
        what = f"the inner product of its factors is not what {type(rep).__name__}.value gives"
        raise UserError(f"{type(rep).__name__}: {what}; override both, or set factor_shape = None")


def check_rows_alone(rep: Representation, nets: Nets, spec: Spec) -> None:
    """Refuse a representation whose z of one goal depends on the other goals of a batch: a policy encodes goals one by
    one, and would be given another z than in training."""
    rng, kind = np.random.default_rng(0), np.uint8 if spec.pixels else np.float32
    rows = lambda shape: rng.uniform(0, 100, (2, *shape)).astype(kind)
    s, g, other = rows(spec.observation_shape), rows(spec.goal_shape), rows(spec.goal_shape)
    other[0] = g[0]
    z, changed = (rep.encode(nets, jnp.asarray(goals), jnp.asarray(s), jax.random.key(0)).z[0] for goals in (g, other))
    if not jnp.array_equal(z, changed, equal_nan=True):
        raise UserError(
            f"{type(rep).__name__}.encode: z of one goal depends on the other goals of the batch, but policies encode "
            "goals one by one; use numbers that were learned in place of those of the batch"
        )

"""VIB (section 4.3): a variational information bottleneck, z ~ N(mu(g), sigma(g)).

It has no loss of its own: the value loss trains it (the policy loss under an algorithm without one), plus beta * KL. A
fresh latent is drawn at every use, at evaluation too (D16).
"""

from dataclasses import dataclass

import equinox as eqx
import jax.numpy as jnp
from jax import random
from jaxtyping import Array, PRNGKeyArray

from dualgoal.interface import Encoded, Representation, Routes, Size, Sizes, Spec, Weight
from dualgoal.losses import gaussian_kl
from dualgoal.nets.heads import Bottleneck


class VIBNets(eqx.Module):
    phi: Bottleneck


@dataclass(frozen=True)
class VIB(Representation):
    """Variational information bottleneck: z ~ N(mu(g), sigma(g)), trained by the value loss plus beta * KL."""

    dim: Size = 256
    """Size of the latent."""
    beta: Weight = 0.001
    """Weight of the KL term."""
    hidden: Sizes = (512, 512, 512)
    """Hidden layer sizes."""
    pixel_actor_gradient: bool = True
    """Images only: let the policy loss train the bottleneck too, as the released code does; off in the paper."""

    set_per_task = {"dim": "dim", "beta": "beta"}
    goal_network = "phi"

    def init(self, key: PRNGKeyArray, spec: Spec) -> VIBNets:
        return VIBNets(Bottleneck(key, spec, self.hidden, self.dim))

    def z_shape(self, spec: Spec) -> tuple[int, ...]:
        return (self.dim,)

    def encode(self, nets: VIBNets, g: Array, s: Array, key: PRNGKeyArray) -> Encoded:
        mean, log_std = nets.phi(g)
        z = mean + jnp.exp(log_std) * random.normal(key, mean.shape, mean.dtype)
        return Encoded(z, self.beta * gaussian_kl(mean, log_std))

    def routes(self, spec: Spec, value_loss: bool) -> Routes:
        """The value loss trains it, or without one the policy loss; on images the policy loss may train it too (D7)."""
        trained_by = frozenset({"value" if value_loss else "actor"})
        head = trained_by | {"actor"} if spec.pixels and self.pixel_actor_gradient else trained_by
        return Routes(head=head, features=trained_by)

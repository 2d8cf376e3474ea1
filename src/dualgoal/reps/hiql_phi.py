"""HIQL's own goal representation (section 14.2): phi([s; g]) on a sphere, trained by the value that reads it.

State and goal enter one network together, images stacked along their channels, so phi can see at once what differs.
"""

from dataclasses import dataclass

import equinox as eqx
from jaxtyping import Array, PRNGKeyArray

from dualgoal.interface import Encoded, Representation, Routes, Size, Sizes, Spec
from dualgoal.nets.heads import PairEmbedding, to_sphere


class HIQLPhiNets(eqx.Module):
    phi: PairEmbedding


@dataclass(frozen=True)
class HIQLPhi(Representation):
    """HIQL's phi([s; g]): state and goal read together, of fixed length, trained by the value loss."""

    dim: Size = 10
    """Size of the embedding."""
    hidden: Sizes = (512, 512, 512)
    """Hidden layer sizes."""
    pixel_actor_gradient: bool = True
    """Images only: let the policy losses train phi too, as OGBench does for the low policy."""

    looks_at_state = True
    on_sphere = True
    fusion = "early"

    def init(self, key: PRNGKeyArray, spec: Spec) -> HIQLPhiNets:
        return HIQLPhiNets(PairEmbedding(key, spec, self.dim, self.hidden, members=None))

    def z_shape(self, spec: Spec) -> tuple[int, ...]:
        return (self.dim,)

    def encode(self, nets: HIQLPhiNets, g: Array, s: Array, key: PRNGKeyArray) -> Encoded:
        return Encoded(to_sphere(nets.phi(s, g)))

    def routes(self, spec: Spec, value_loss: bool) -> Routes:
        """The value loss trains it, or without one the policy loss; on images the policy losses may train it too."""
        trained_by = frozenset({"value" if value_loss else "actor"})
        head = trained_by | {"actor"} if spec.pixels and self.pixel_actor_gradient else trained_by
        return Routes(head=head, features=head)

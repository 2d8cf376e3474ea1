"""Orig (section 4.1): the goal itself. On images, a network may read state and goal together."""

from dataclasses import dataclass
from typing import Literal

import equinox as eqx
from jaxtyping import Array, PRNGKeyArray

from dualgoal.interface import Encoded, Representation, Routes, Spec


class NoNets(eqx.Module):
    """A representation without networks."""


@dataclass(frozen=True)
class Orig(Representation):
    """The original goal, unchanged."""

    fusion: Literal["early", "late"] = "early"
    """Images only. early: one encoder reads state and goal stacked; late: every network has an encoder for each."""

    learned = False

    def init(self, key: PRNGKeyArray, spec: Spec) -> NoNets:
        return NoNets()

    def z_shape(self, spec: Spec) -> tuple[int, ...]:
        return spec.goal_shape

    def encode(self, nets: NoNets, g: Array, s: Array, key: PRNGKeyArray) -> Encoded:
        return Encoded(g)

    def routes(self, spec: Spec, value_loss: bool) -> Routes:
        return Routes(head=frozenset(), features=frozenset({"value", "actor"}))

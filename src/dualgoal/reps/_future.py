"""What TRA and BYOL-gamma share: a two-member phi that learns from a state's own future (sections 4.5 and 4.6)."""

import abc
from dataclasses import dataclass, replace
from typing import Any, Literal

from jaxtyping import Array, PRNGKeyArray

from dualgoal.interface import ALL_LOSSES, Encoded, Representation, Routes, Size, Sizes, Spec
from dualgoal.streams import FUTURE_GOALS, GoalMix


@dataclass(frozen=True)
class Future(Representation, abc.ABC):
    """Everything but the networks and the loss. The networks have a field `phi`, the goal's embedding."""

    dim: Size = 256
    """Size of the embedding."""
    hidden: Sizes = (512, 512, 512)
    """Hidden layer sizes."""
    flow_gradient: bool = True
    """On states, under gcfbc and gcbc: let the policy's loss train phi too (paper: yes; released code: no)."""
    augment: Literal["batch", "independent"] = "independent"
    """Shift of its own goal images: independent (always, as in the released code) or with the batch (--augment)."""

    set_per_task = {"dim": "dim"}
    goal_network = "phi"

    @property
    def stream(self) -> GoalMix:
        return replace(FUTURE_GOALS, shared=False, augment=self.augment)

    def z_shape(self, spec: Spec) -> tuple[int, ...]:
        return (self.dim,)

    def encode(self, nets: Any, g: Array, s: Array, key: PRNGKeyArray) -> Encoded:
        return Encoded(nets.phi.mean(g))

    def routes(self, spec: Spec, value_loss: bool) -> Routes:
        """Its own loss trains it, and without a value loss perhaps the policy loss (D5). On images the policy loss
        never does: its gradient passes through the networks to the encoder only, as that of every loss does (D8)."""
        head = {"rep", "actor"} if self.flow_gradient and not value_loss and not spec.pixels else {"rep"}
        return Routes(head=frozenset(head), features=ALL_LOSSES)

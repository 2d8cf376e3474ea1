"""VIP (section 4.4): an embedding whose Euclidean distance to the last frame of a window is its value."""

from dataclasses import dataclass
from typing import Literal

import equinox as eqx
from jaxtyping import Array, PRNGKeyArray

from dualgoal.interface import ALL_LOSSES, Batch, Encoded, Frames, Loss, Representation, Routes, Size, Sizes, Spec
from dualgoal.losses import vip
from dualgoal.nets.heads import Embedding
from dualgoal.reps.aggregation import symmetric
from dualgoal.streams import Window


class VIPNets(eqx.Module):
    phi: Embedding


@dataclass(frozen=True)
class VIP(Representation):
    """Value-implicit pre-training: an embedding in which the negative Euclidean distance to the goal is a value."""

    dim: Size = 256
    """Size of the embedding."""
    hidden: Sizes = (512, 512, 512)
    """Hidden layer sizes."""
    windows: Literal["aligned", "reference"] = "aligned"
    """How training windows are cut: aligned with episodes, or shifted by one row per episode (released code)."""

    set_per_task = {"dim": "dim"}
    learns_value = True
    embeds_both = True
    goal_network = "phi"

    @property
    def stream(self) -> Window:
        return Window(aligned=self.windows == "aligned")

    def init(self, key: PRNGKeyArray, spec: Spec) -> VIPNets:
        return VIPNets(Embedding(key, spec.goal_shape, self.dim, self.hidden, spec, members=None))

    def z_shape(self, spec: Spec) -> tuple[int, ...]:
        return (self.dim,)

    def encode(self, nets: VIPNets, g: Array, s: Array, key: PRNGKeyArray) -> Encoded:
        return Encoded(nets.phi(g))

    def routes(self, spec: Spec, value_loss: bool) -> Routes:
        return Routes(head=frozenset({"rep"}), features=ALL_LOSSES)

    def loss(self, nets: VIPNets, targets: VIPNets, batch: Batch, drawn: Frames, key: PRNGKeyArray, spec: Spec) -> Loss:
        goal = nets.phi(drawn.last)
        v_first, v_now, v_after = (symmetric(nets.phi(o), goal) for o in (drawn.first, drawn.now, drawn.after))
        return vip(v_first, v_now, v_after, spec.discount), {"v": v_now.mean()}

    def value(self, nets: VIPNets, s: Array, g: Array, spec: Spec) -> Array:
        return symmetric(nets.phi(s), nets.phi(g))

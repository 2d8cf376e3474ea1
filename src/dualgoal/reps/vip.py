"""VIP (section 4.4): an embedding whose Euclidean distance to the last frame of a window is its value."""

from dataclasses import dataclass

from dualgoal.errors import UserError
from dualgoal.interface import Encoded, Representation, Routes, Window
from dualgoal.losses import vip
from dualgoal.nets.heads import Embedding
from dualgoal.reps.aggregation import symmetric


@dataclass(frozen=True)
class VIP(Representation):
    dim: int = 256  # N, size of the embedding
    hidden: tuple[int, ...] = (512, 512, 512)
    windows: str = "aligned"  # D11: "aligned" with episodes, or the "reference"'s, shifted by a row per window

    ema = ()
    has_value = True

    def __post_init__(self):
        if self.windows not in ("aligned", "reference"):
            raise UserError(f"windows '{self.windows}' is neither 'aligned' nor 'reference'")

    def init(self, key, spec):
        return {"phi": Embedding(key, spec.goals, self.dim, self.hidden, spec, members=None)}

    def shape(self, spec):
        return (self.dim,)

    def encode(self, nets, g, s, key):
        return Encoded(nets["phi"](g), 0.0)

    def stream(self):
        return Window(aligned=self.windows == "aligned")

    def routes(self, spec, has_value):
        return Routes(frozenset({"own"}), frozenset({"own", "value", "actor"}))

    def loss(self, nets, targets, batch, key, spec):
        frames, phi = batch.streams["rep"], nets["phi"]
        goal = phi(frames.last)
        v_first, v_now, v_after = (symmetric(phi(o), goal) for o in (frames.first, frames.now, frames.after))
        return vip(v_first, v_now, v_after, spec.discount), {"v": v_now.mean()}

    def value(self, nets, s, g, spec):
        return symmetric(nets["phi"](s), nets["phi"](g))

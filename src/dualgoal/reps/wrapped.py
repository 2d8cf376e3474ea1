"""A representation that holds another one and behaves like it: the base of those that change one thing in it."""

from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from jaxtyping import Array, PRNGKeyArray

from dualgoal.interface import Batch, Encoded, Loss, Nets, Representation, Routes, Spec
from dualgoal.reps.dual import Dual


@dataclass(frozen=True)
class Wrapped(Representation):
    """Another representation, unchanged. A subclass overrides what it varies, for instance `encode`, and each property
    that then no longer holds, for instance `on_sphere`. Exports describe no network of it, since a subclass may compute
    z in any way."""

    inner: Representation = field(default_factory=Dual)
    """The representation that is varied."""

    @property
    def learned(self) -> bool:
        return self.inner.learned or type(self).encode is not Wrapped.encode

    def init(self, key: PRNGKeyArray, spec: Spec) -> Nets:
        return self.inner.init(key, spec)

    def z_shape(self, spec: Spec) -> tuple[int, ...]:
        return self.inner.z_shape(spec)

    def encode(self, nets: Nets, g: Array, s: Array, key: PRNGKeyArray) -> Encoded:
        return self.inner.encode(nets, g, s, key)

    def routes(self, spec: Spec, value_loss: bool) -> Routes:
        return self.inner.routes(spec, value_loss)

    def loss(self, nets: Nets, targets: Nets, batch: Batch, drawn: Any, key: PRNGKeyArray, spec: Spec) -> Loss:
        return self.inner.loss(nets, targets, batch, drawn, key, spec)

    def value(self, nets: Nets, s: Array, g: Array, spec: Spec) -> Array:
        return self.inner.value(nets, s, g, spec)

    def factors(self, nets: Nets, s: Array, g: Array) -> tuple[Array, Array]:
        return self.inner.factors(nets, s, g)


# `Wrapped` takes these from the representation inside. Not `goal_network`: a subclass may compute z in another way.
FORWARDED = (
    "ema", "stream", "learns_value", "factor_shape", "looks_at_state", "on_sphere", "embeds_both", "compares_both",
    "fusion",
)  # fmt: skip
for _name in FORWARDED:
    setattr(Wrapped, _name, property(attrgetter(f"inner.{_name}")))

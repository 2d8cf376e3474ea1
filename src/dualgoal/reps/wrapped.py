"""A representation that holds another one and is the same: the base of those that vary one thing of another."""

from dataclasses import dataclass, field
from typing import Any, Literal

from jaxtyping import Array, PRNGKeyArray

from dualgoal.interface import Batch, Encoded, Loss, Nets, Representation, Routes, Spec, Stream
from dualgoal.reps.dual import Dual


@dataclass(frozen=True)
class Wrapped(Representation):
    """Another representation as it is. A subclass overrides what it varies, for instance `encode`, and declares what no
    longer holds then, for instance `on_sphere`. Exports describe no network of it, since z may be anything."""

    inner: Representation = field(default_factory=Dual)
    """The representation that is varied."""

    @property
    def ema(self) -> tuple[str, ...]:
        return self.inner.ema

    @property
    def stream(self) -> Stream | None:
        return self.inner.stream

    @property
    def learns_value(self) -> bool:
        return self.inner.learns_value

    @property
    def looks_at_state(self) -> bool:
        return self.inner.looks_at_state

    @property
    def on_sphere(self) -> bool:
        return self.inner.on_sphere

    @property
    def embeds_both(self) -> bool:
        return self.inner.embeds_both

    @property
    def compares_both(self) -> bool:
        return self.inner.compares_both

    @property
    def fusion(self) -> Literal["shared", "one", "early", "late"]:
        return self.inner.fusion

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

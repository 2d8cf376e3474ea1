"""Parts as a package of somebody else would hold them; the tests put this folder on the path.

`Seen` looks at the state: z is the goal relative to a learned embedding of the state. `Planner` is an algorithm whose
roles have names of their own. `Scaled` is a representation that holds another one. More parts do something with their
networks that an export cannot describe, or break their word.
"""

from dataclasses import dataclass, replace
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax.lax import stop_gradient

from dualgoal.algos import GCBC, GCFBC
from dualgoal.algos.gcbc import GCBCNets
from dualgoal.algos.gcfbc import GCFBCNets
from dualgoal.interface import ALL_LOSSES, Algorithm, Encoded, Representation, Role, Routes, Size, Sizes, rewards
from dualgoal.nets.heads import Actor, Embedding, Flow, Value
from dualgoal.reps import Dual, Orig, Wrapped
from dualgoal.streams import ACTOR_GOALS, VALUE_GOALS, Waypoint


class SeenNets(eqx.Module):
    phi: Embedding


@dataclass(frozen=True)
class Seen(Representation):
    """The goal minus the state, embedded."""

    dim: Size = 8
    """Size of the embedding."""
    hidden: Sizes = (8,)
    """Hidden layer sizes."""

    looks_at_state = True

    def init(self, key: Any, spec: Any) -> SeenNets:
        return SeenNets(Embedding(key, spec.goal_shape, self.dim, self.hidden, spec, members=None))

    def z_shape(self, spec: Any) -> tuple[int, ...]:
        return (self.dim,)

    def encode(self, nets: SeenNets, g: Any, s: Any, key: Any) -> Encoded:
        return Encoded(nets.phi(g - s))

    def routes(self, spec: Any, value_loss: bool) -> Routes:
        return Routes(head=frozenset({"value" if value_loss else "actor"}), features=ALL_LOSSES)


@dataclass(frozen=True)
class Scaled(Wrapped):
    """Another representation, scaled: a part that holds a part."""

    factor: float = 2.0
    """What z is multiplied by."""

    def encode(self, nets: Any, g: Any, s: Any, key: Any) -> Encoded:
        return Encoded(self.factor * super().encode(nets, g, s, key).z)


class PlannerNets(eqx.Module):
    judge: Value
    near: Actor


@dataclass(frozen=True)
class Planner(Algorithm):
    """A value of goals and a policy towards waypoints, under role names that nobody else uses."""

    hidden: Sizes = (8,)
    """Hidden layer sizes."""

    actions = frozenset({"continuous"})
    ema = ("judge",)
    roles = {
        "judge": Role(VALUE_GOALS, "value"),
        "far": Role(ACTOR_GOALS, "actor"),
        "near": Role(Waypoint(3, towards="far"), "actor"),
    }

    def init(self, key: Any, spec: Any) -> PlannerNets:
        return PlannerNets(Value(key, spec, self.hidden, members=None), Actor(key, spec, self.hidden))

    def losses(self, nets: Any, targets: Any, batch: Any, goals: Any, key: Any, spec: Any) -> Any:
        goal, far, near = goals["judge"], goals["far"], goals["near"]
        r, m = rewards(goal.success)
        next_s, way = stop_gradient((batch.next_s, near.as_state))
        target = r + spec.discount * m * stop_gradient(targets.judge(next_s, goal(next_s)))
        value = ((nets.judge(batch.s, goal(batch.s)) - target) ** 2).mean()
        gain = stop_gradient(nets.judge(way, far(way))).mean()  # the waypoint as a state of the value
        actor = ((nets.near(batch.s, near(batch.s)) - batch.a) ** 2).mean()
        return {"judge": (value, {"gain": gain}), "near": (actor, {})}

    def act(self, nets: Any, s: Any, z: Any, key: Any, temperature: float, spec: Any) -> Any:
        return nets.near(s, z)


# Parts that do more with a network than its kind says ----------------------------------------------------------------


@dataclass(frozen=True)
class Squashed(GCBC):
    """Actions are tanh of what the network gives."""

    def act(self, nets: Any, s: Any, z: Any, key: Any, temperature: float, spec: Any) -> Any:
        return jnp.tanh(nets.actor(s, z))


class JudgedNets(eqx.Module):
    actor: Actor
    judge: Value


@dataclass(frozen=True)
class Judged(GCBC):
    """A value has a word in what is done."""

    def init(self, key: Any, spec: Any) -> Any:
        return JudgedNets(Actor(key, spec, self.hidden), Value(key, spec, self.hidden, members=None))

    def act(self, nets: Any, s: Any, z: Any, key: Any, temperature: float, spec: Any) -> Any:
        return jnp.where(nets.judge(s, z)[:, None] > -1e9, jnp.clip(nets.actor(s, z), -1, 1), 0)


@dataclass(frozen=True)
class Pieces(GCBC):
    """The network reads a half of z."""

    def init(self, key: Any, spec: Any) -> Any:
        return GCBCNets(Actor(key, replace(spec, goal_shape=(spec.goal_shape[0] // 2,)), self.hidden))

    def losses(self, nets: Any, targets: Any, batch: Any, goals: Any, key: Any, spec: Any) -> Any:
        actions = self.act(nets, batch.s, goals["actor"](batch.s), key, 0.0, spec)
        return {"actor": (((actions - batch.a) ** 2).mean(), {})}

    def act(self, nets: Any, s: Any, z: Any, key: Any, temperature: float, spec: Any) -> Any:
        return jnp.clip(nets.actor(s, z[:, : z.shape[1] // 2]), -1, 1)


class Swift(Flow):
    """A velocity that is twice as fast."""

    def __call__(self, s: Any, z: Any, x: Any, t: Any) -> Any:
        return 2 * super().__call__(s, z, x, t)


@dataclass(frozen=True)
class Brisk(GCFBC):
    """A flow whose network is not only its layers."""

    def init(self, key: Any, spec: Any) -> Any:
        return GCFBCNets(Swift(key, spec, self.hidden))


@dataclass(frozen=True)
class Streaming(Algorithm):
    """A flow policy whose option has a name of its own."""

    strides: int = 3
    """Euler steps from noise to action."""
    hidden: tuple[int, ...] = (8,)
    """Hidden layer sizes."""

    policy_network = "actor"
    actions = GCFBC.actions
    roles = GCFBC.roles

    def init(self, key: Any, spec: Any) -> Any:
        return GCFBCNets(Flow(key, spec, self.hidden))

    def losses(self, nets: Any, targets: Any, batch: Any, goals: Any, key: Any, spec: Any) -> Any:
        return GCFBC.losses(self, nets, targets, batch, goals, key, spec)

    def act(self, nets: Any, s: Any, z: Any, key: Any, temperature: float, spec: Any) -> Any:
        return GCFBC(flow_steps=self.strides).act(nets, s, z, key, temperature, spec)


@dataclass(frozen=True)
class Doubled(Dual):
    """z is twice what the network gives."""

    def encode(self, nets: Any, g: Any, s: Any, key: Any) -> Encoded:
        return Encoded(2 * nets.phi.mean(g))


@dataclass(frozen=True)
class Short(Dual):
    """z is on a sphere, but not on the one of `on_sphere`."""

    def encode(self, nets: Any, g: Any, s: Any, key: Any) -> Encoded:
        z = nets.phi.mean(g)
        return Encoded(z / jnp.linalg.norm(z, axis=-1, keepdims=True))


@dataclass(frozen=True)
class Unlearned(Orig):
    """The goal in other units."""

    def encode(self, nets: Any, g: Any, s: Any, key: Any) -> Encoded:
        return Encoded(g / 10)


# Parts that break their word ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Peeking(Seen):
    """Does not say that it looks at the state."""

    looks_at_state = False


@dataclass(frozen=True)
class Wider(Seen):
    """z is not as long as it says."""

    def z_shape(self, spec: Any) -> tuple[int, ...]:
        return (self.dim + 1,)


@dataclass(frozen=True)
class Bare(Seen):
    """z without `Encoded` around it."""

    def encode(self, nets: SeenNets, g: Any, s: Any, key: Any) -> Any:
        return nets.phi(g - s)


@dataclass(frozen=True)
class Faulty(Seen):
    """Raises an exception."""

    def encode(self, nets: SeenNets, g: Any, s: Any, key: Any) -> Any:
        return nets.psi(g - s)


@dataclass(frozen=True)
class Unborn(Seen):
    """Reads a file that is not there when its networks are made."""

    def init(self, key: Any, spec: Any) -> SeenNets:
        return SeenNets(open("/no/such/weights"))


@dataclass(frozen=True)
class Shapeless(Seen):
    """Raises an exception before there are any networks."""

    def z_shape(self, spec: Any) -> tuple[int, ...]:
        return (self.dim // 0,)


@dataclass(frozen=True)
class Lossy(Seen):
    """Has goals of its own, and a loss that raises an exception."""

    stream = VALUE_GOALS

    def loss(self, nets: Any, targets: Any, batch: Any, drawn: Any, key: Any, spec: Any) -> Any:
        raise NotImplementedError("not yet")


class Undecorated(Seen):
    """No dataclass of its own."""


@dataclass(frozen=True)
class Aimless(Representation):
    """Says nothing of routes."""

    init, z_shape, encode = Seen.init, Seen.z_shape, Seen.encode

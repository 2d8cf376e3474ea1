"""Duals that look at the state (section 14.4): three ways for z to express how the goal differs from the state.

On images the paper's Dual reads states and goals by two encoders that never meet before the inner product. Each form
here lets them meet: by one encoder and a difference, by a pair of images read together, or place by place.
"""

import abc
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax import random
from jaxtyping import Array, Float, PRNGKeyArray

from dualgoal.errors import UserError
from dualgoal.interface import Encoded, Spec
from dualgoal.nets.heads import ComparingValue, Embedding, PairEmbedding, Value
from dualgoal.nets.tokens import Join, Tokens
from dualgoal.reps import aggregation
from dualgoal.reps.dual import Dual, DualNets

Members = Float[Array, "E B N"]
CLOSED = -5.0  # a new gate lets 0.7 % through, so that a gated form starts with a z that hardly looks at the state


class SiameseNets(DualNets):
    gate: Float[Array, ""] | None


@dataclass(frozen=True)
class DualSiamese(Dual):
    """Dual with one image encoder for states and goals: z = [phi(g), phi(s) - phi(g)]."""

    aggregation: Literal["inner", "symmetric", "asymmetric", "mrn", "iqe"] = "symmetric"
    """The form of f: inner product, negative distance with one or two networks, or a quasimetric (mrn, iqe)."""
    relative: bool = True
    """Whether z looks at the state; if not, z = phi(g) and only the encoder is shared."""
    gated: bool = False
    """z = phi(g) + sigmoid(a) (phi(s) - phi(g)) with a learned a; needs --rep.trained-by all, which alone moves a."""

    fusion = "one"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.gated and not self.relative:
            raise UserError("gated weighs the difference from the state; it needs relative")
        if self.gated and self.trained_by != "all":
            raise UserError("gated needs trained_by 'all': the loss of the representation itself does not see the gate")

    @property
    def looks_at_state(self) -> bool:
        return self.relative

    @property
    def goal_network(self) -> str | None:
        return None if self.relative else "phi"

    def init(self, key: PRNGKeyArray, spec: Spec) -> SiameseNets:
        nets = super().init(key, spec)
        gate = jnp.full((), CLOSED) if self.gated else None
        return SiameseNets(nets.phi, nets.psi, nets.critic, nets.mean_weight, gate)

    def critic(self, key: PRNGKeyArray, spec: Spec) -> Value | None:
        """V learns from the critic alone, so the critic must see the difference that V is to learn."""
        if self.learner == "iql" and spec.goals_as_states:
            return ComparingValue(key, spec, self.hidden, extra=spec.action_dim)
        return super().critic(key, spec)

    def z_shape(self, spec: Spec) -> tuple[int, ...]:
        return (2 * self.dim if self.relative and not self.gated else self.dim,)

    def encode(self, nets: Any, g: Array, s: Array, key: PRNGKeyArray) -> Encoded:
        if not self.relative:
            return super().encode(nets, g, s, key)
        at, goal = (x.mean(axis=0) for x in self.embed(nets, s, g))
        if nets.gate is not None:
            return self.scaled(goal + jax.nn.sigmoid(nets.gate) * (at - goal))
        return self.scaled(jnp.concatenate([goal, at - goal], axis=-1))


@dataclass(frozen=True)
class StateAware(Dual, abc.ABC):
    """f(psi(s), phi(s, g)) with z = phi(s, g); gated, phi(s, g) = phi(g) + sigmoid(a) delta(s, g)."""

    gated: bool = False
    """phi(s, g) = phi(g) + sigmoid(a) delta(s, g), where a starts at -5, so that at first phi hardly looks at s."""

    looks_at_state = True
    factor_shape = None  # phi changes with the state, so that V(s', g) - V(s, g) is no inner product with one phi
    fusion = "early"
    goal_network = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.hard_goals:
            raise UserError("hard_goals compares a state with all goals of a batch, which a phi that reads both cannot")
        if self.aggregation in aggregation.SHARED:
            raise UserError(
                f"aggregation '{self.aggregation}' embeds states and goals by one network, but here phi reads both; "
                f"choose inner or asymmetric"
            )

    @abc.abstractmethod
    def parts(self, nets: Any, s: Array, g: Array) -> tuple[Members, Members, Members | None]:
        """psi(s), the embedding of both, and (if gated) the embedding of the goal alone."""

    def embed(self, nets: Any, s: Array, g: Array) -> tuple[Members, Members]:
        psi, both, alone = self.parts(nets, s, g)
        return psi, both if alone is None else alone + jax.nn.sigmoid(nets.gate) * both

    def encode(self, nets: Any, g: Array, s: Array, key: PRNGKeyArray) -> Encoded:
        return self.scaled(self.embed(nets, s, g)[1].mean(axis=0))


class PairNets(DualNets):
    phi: Any  # a PairEmbedding
    psi: Embedding
    alone: Embedding | None  # phi(g), where a gate weighs the embedding of both
    gate: Float[Array, ""] | None


@dataclass(frozen=True)
class DualPair(StateAware):
    """Dual whose phi reads state and goal together (images stacked): f(psi(s), phi(s, g)), z = phi(s, g)."""

    @property
    def ema(self) -> tuple[str, ...]:
        return ("critic",) if self.learner == "iql" else ("phi", "psi", "alone", "gate")

    def init(self, key: PRNGKeyArray, spec: Spec) -> PairNets:
        k1, k2, k3, k4 = random.split(key, 4)
        return PairNets(
            PairEmbedding(k1, spec, self.dim, self.hidden),
            Embedding(k2, spec.observation_shape, self.dim, self.hidden, spec),
            self.critic(k3, spec),
            None,
            Embedding(k4, spec.goal_shape, self.dim, self.hidden, spec) if self.gated else None,
            jnp.full((), CLOSED) if self.gated else None,
        )

    def parts(self, nets: PairNets, s: Array, g: Array) -> tuple[Members, Members, Members | None]:
        return nets.psi(s), nets.phi(s, g), None if nets.alone is None else nets.alone(g)


class TokenNets(PairNets):
    tokens: Tokens  # states and goals alike
    join: Join


@dataclass(frozen=True)
class DualToken(StateAware):
    """Dual whose phi compares state and goal place by place in the feature maps of one encoder."""

    embeds_both = True

    @property
    def ema(self) -> tuple[str, ...]:
        return ("critic",) if self.learner == "iql" else ("phi", "psi", "alone", "gate", "tokens", "join")

    def init(self, key: PRNGKeyArray, spec: Spec) -> TokenNets:
        k1, k2, k3, k4, k5, k6 = random.split(key, 6)
        tokens = Tokens(k1, spec, self.hidden[0])
        embedding = lambda k: Embedding(k, (tokens.size,), self.dim, self.hidden, spec)
        return TokenNets(
            embedding(k2),
            embedding(k3),
            self.critic(k4, spec),
            None,
            embedding(k5) if self.gated else None,
            jnp.full((), CLOSED) if self.gated else None,
            tokens,
            Join(k6, tokens),
        )

    def parts(self, nets: TokenNets, s: Array, g: Array) -> tuple[Members, Members, Members | None]:
        h_s, h_g = nets.tokens(s), nets.tokens(g)
        flat = lambda h: h.reshape(h.shape[0], -1)
        alone = None if nets.alone is None else nets.alone(flat(h_g))
        return nets.psi(flat(h_s)), nets.phi(nets.join(h_s, h_g)), alone

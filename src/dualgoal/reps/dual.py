"""Dual (section 4.2): a goal is described by its temporal distances from all states.

V(s, g) = f(psi(s), phi(g)) is learned by goal-conditioned IQL, with a critic of state, goal and action. phi(g), the
average of two ensemble members, is the representation. Only the critic has a target network, unless f itself is learned
by IVL (section 4.8).
"""

from dataclasses import dataclass
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import random
from jax.lax import stop_gradient
from jaxtyping import Array, Float, PRNGKeyArray

from dualgoal import losses
from dualgoal.errors import UserError
from dualgoal.interface import (
    ALL_LOSSES,
    Batch,
    Encoded,
    Expectile,
    Goals,
    Loss,
    Representation,
    Routes,
    Share,
    Size,
    Sizes,
    Spec,
    Weight,
    rewards,
)
from dualgoal.nets.heads import MEMBERS, Embedding, Towers, Value, to_sphere
from dualgoal.reps import aggregation
from dualgoal.streams import VALUE_GOALS, GoalMix


class DualNets(eqx.Module):
    phi: Embedding
    psi: Embedding | None  # None: phi embeds states as well
    critic: Value | None  # None: f is learned by IVL, which needs no critic
    mean_weight: Float[Array, ""] | None  # IQE's one scalar, shared by both members


@dataclass(frozen=True)
class Dual(Representation):
    """Dual goal representation: phi(g) of a value V(s, g) = f(psi(s), phi(g)), learned by goal-conditioned IQL."""

    dim: Size = 256
    """Size of the embedding."""
    expectile: Expectile = 0.7
    """Expectile of the value. The paper: 0.9 on navigate datasets, 0.7 on play datasets."""
    aggregation: Literal["inner", "symmetric", "asymmetric", "mrn", "iqe"] = "inner"
    """The form of f: inner product, negative distance with one or two networks, or a quasimetric (mrn, iqe)."""
    learner: Literal["iql", "ivl"] = "iql"
    """How f is learned: iql with a critic, or ivl with a target network of f."""
    reward: Literal["negative", "zero_one"] = "negative"
    """negative: -1 until the goal is reached; zero_one: 1 at the goal (the paper found it worse)."""
    hidden: Sizes = (512, 512, 512)
    """Hidden layer sizes."""
    goals: GoalMix = VALUE_GOALS
    """Where the goals of its own loss come from."""
    continuity: Weight = 0.0
    """Weight of a penalty on values that change by more than one step's worth along a transition."""
    normalize: bool = False
    """Scale every z of N numbers to the length sqrt(N)."""
    trained_by: Literal["rep", "all"] = "rep"
    """rep: its own loss alone trains it; all: the algorithm's value and policy losses too."""
    hard_goals: Share = 0.0
    """Share of the goals of its own loss replaced by the goal of the batch that it takes to be nearest to the state."""

    set_per_task = {"dim": "dim", "expectile": "expectile"}
    learns_value = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.continuity and self.reward == "zero_one":
            raise UserError("continuity compares values in steps; it needs the reward 'negative', not 'zero_one'")
        multiple = {"mrn": 2, "iqe": aggregation.GROUP}.get(self.aggregation, 1)
        if self.dim % multiple:
            raise UserError(f"dim {self.dim}: aggregation '{self.aggregation}' needs a multiple of {multiple}")
        if self.hard_goals and self.aggregation not in aggregation.BY_PRODUCTS:
            forms = ", ".join(aggregation.BY_PRODUCTS)
            raise UserError(f"hard_goals needs one of the aggregations {forms}, not '{self.aggregation}'")

    @property
    def stream(self) -> GoalMix:
        return self.goals

    @property
    def goal_network(self) -> str | None:  # a property, so that subclasses may compute theirs
        return "phi"

    @property
    def on_sphere(self) -> bool:
        return self.normalize

    @property
    def ema(self) -> tuple[str, ...]:
        return ("critic",) if self.learner == "iql" else ("phi", "psi", "mean_weight")

    @property
    def factor_shape(self) -> tuple[int, int] | None:
        return (MEMBERS, self.dim) if self.aggregation == "inner" and self.reward == "negative" else None

    @property
    def embeds_both(self) -> bool:
        return self.aggregation in aggregation.SHARED

    @property
    def compares_both(self) -> bool:
        return self.hard_goals > 0

    def init(self, key: PRNGKeyArray, spec: Spec) -> DualNets:
        k1, k2 = random.split(key)
        if self.embeds_both:
            phi, psi = Embedding(k1, spec.goal_shape, self.dim, self.hidden, spec), None
        else:
            towers = Towers(k1, spec, self.dim, self.hidden)
            phi, psi = towers.phi, towers.psi
        return DualNets(phi, psi, self.critic(k2, spec), jnp.zeros(()) if self.aggregation == "iqe" else None)

    def critic(self, key: PRNGKeyArray, spec: Spec) -> Value | None:
        return Value(key, spec, self.hidden, extra=spec.action_dim) if self.learner == "iql" else None

    def z_shape(self, spec: Spec) -> tuple[int, ...]:
        return (self.dim,)

    def encode(self, nets: DualNets, g: Array, s: Array, key: PRNGKeyArray) -> Encoded:
        return self.scaled(nets.phi.mean(g))

    def scaled(self, z: Float[Array, "B N"]) -> Encoded:
        return Encoded(to_sphere(z) if self.normalize else z)

    def routes(self, spec: Spec, value_loss: bool) -> Routes:
        return Routes(head=ALL_LOSSES if self.trained_by == "all" else frozenset({"rep"}), features=ALL_LOSSES)

    def embed(self, nets: DualNets, s: Array, g: Array) -> tuple[Float[Array, "E B N"], Float[Array, "E B N"]]:
        """psi(s) and phi(g) of every ensemble member."""
        return (nets.psi or nets.phi)(s), nets.phi(g)

    def factors(self, nets: DualNets, s: Array, g: Array) -> tuple[Float[Array, "E B N"], Float[Array, "E B N"]]:
        return self.embed(nets, s, g)

    def f(self, nets: DualNets, s: Array, g: Array) -> Float[Array, "E B"]:
        """V(s, g) of every ensemble member."""
        psi, phi = self.embed(nets, s, g)
        if self.aggregation == "iqe":
            assert nets.mean_weight is not None
            return aggregation.iqe(psi, phi, jax.nn.sigmoid(nets.mean_weight))
        forms = {"inner": aggregation.inner, "mrn": aggregation.mrn}
        return forms.get(self.aggregation, aggregation.symmetric)(psi, phi)

    def loss(
        self, nets: DualNets, targets: DualNets, batch: Batch, drawn: Goals, key: PRNGKeyArray, spec: Spec
    ) -> Loss:
        drawn = self.with_hard_goals(nets, batch, drawn, spec) if self.hard_goals else drawn
        loss, info = self.value_loss(nets, targets, batch, drawn, spec)
        if not self.continuity:
            return loss, info
        v, v_next = self.f(nets, batch.s, drawn.g), self.f(nets, stop_gradient(batch.next_s), drawn.g)
        penalty = losses.continuity(v, v_next, spec.discount)
        return loss + self.continuity * penalty, info | {"continuity": penalty}

    def with_hard_goals(self, nets: DualNets, batch: Batch, drawn: Goals, spec: Spec) -> Goals:
        """Replace each of the first goals by the goal of the batch that f rates nearest to their state, among those not
        reached there. If f confuses two different states, only such pairs reveal it, and random goals hardly ever form
        one."""
        rows = drawn.success.shape[0]
        count = round(self.hard_goals * rows)
        psi, phi = stop_gradient(self.embed(nets, batch.s, drawn.g))
        v = aggregation.each_pair(self.aggregation, psi[:, :count], phi).mean(axis=0)
        reached = jnp.eye(count, rows, dtype=bool)  # its own goal may be the state itself
        if spec.goals_as_states:  # features of two image encoders are never equal
            reached |= (batch.s[:count, None] == drawn.g[None]).all(axis=-1)
        none = reached.all(axis=-1)  # only in very small batches; the goal then stays as it was drawn
        nearest = jnp.where(none, jnp.arange(count), jnp.where(reached, -jnp.inf, v).argmax(axis=-1))
        g = jnp.concatenate([drawn.g[nearest], drawn.g[count:]])
        success = jnp.concatenate([jnp.where(none, drawn.success[:count], 0), drawn.success[count:]])
        return drawn._replace(g=g, success=success)

    def value_loss(self, nets: DualNets, targets: DualNets, batch: Batch, drawn: Goals, spec: Spec) -> Loss:
        """IQL or IVL of f."""
        s, next_s, g = stop_gradient((batch.s, batch.next_s, drawn.g))
        r, m = rewards(drawn.success)
        r = drawn.success if self.reward == "zero_one" else r
        v = self.f(nets, batch.s, drawn.g)
        if nets.critic is None:
            v_target, v_target_next = self.f(targets, s, g), self.f(targets, next_s, g)
            loss = losses.ivl(v, v_target, v_target_next, r, m, spec.discount, self.expectile)
            return loss, {"v": v.mean()}
        v_next = self.f(stop_gradient(nets), next_s, g)
        assert targets.critic is not None
        q, q_target = nets.critic(batch.s, drawn.g, batch.a), targets.critic(s, g, batch.a)
        l_v, l_q = losses.iql(v, v_next, q, q_target, r, m, spec.discount, self.expectile)
        return l_v + l_q, {"value_loss": l_v, "critic_loss": l_q, "v": v.mean(), "q": q.mean()}

    def value(self, nets: DualNets, s: Array, g: Array, spec: Spec) -> Float[Array, " B"]:
        f = self.f(nets, s, g).mean(axis=0)
        return (f - 1) / (1 - spec.discount) if self.reward == "zero_one" else f

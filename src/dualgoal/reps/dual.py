"""Dual (section 4.2): a goal is described by its temporal distances from all states.

V(s, g) = f(psi(s), phi(g)) is learned by goal-conditioned IQL with a monolithic critic on the raw goal; phi(g), the
average of two members, is the representation. Only the critic has a slow copy, unless f itself is learned by IVL
(section 4.8).
"""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import random
from jax.lax import stop_gradient
from jaxtyping import Array

from dualgoal import losses
from dualgoal.errors import UserError, unknown
from dualgoal.interface import VALUE_GOALS, Encoded, Representation, Routes, rewards
from dualgoal.nets.heads import Embedding, Value, two_towers
from dualgoal.reps import aggregation as agg


class Weight(eqx.Module):
    """IQE's one scalar, shared by both members."""

    logit: Array


@dataclass(frozen=True)
class Dual(Representation):
    dim: int = 256  # N, size of the embedding
    expectile: float = 0.7  # kappa of f; the paper: 0.9 on navigate, 0.7 on play datasets
    aggregation: str = "inner"  # inner, symmetric, asymmetric, mrn or iqe
    learner: str = "iql"  # how f is learned: "iql" (with a critic) or "ivl" (with a slow copy of f)
    reward: str = "negative"  # "negative" (-1 until the goal) or "zero_one" (1 at the goal; the paper found it worse)
    hidden: tuple[int, ...] = (512, 512, 512)

    has_value = True

    def __post_init__(self):
        if self.aggregation not in agg.AGGREGATIONS:
            raise unknown("aggregation", self.aggregation, agg.AGGREGATIONS)
        if self.learner not in ("iql", "ivl"):
            raise UserError(f"learner '{self.learner}' is neither 'iql' nor 'ivl'")
        if self.reward not in ("negative", "zero_one"):
            raise UserError(f"reward '{self.reward}' is neither 'negative' nor 'zero_one'")
        multiple = {"mrn": 2, "iqe": agg.GROUP}.get(self.aggregation, 1)
        if self.dim % multiple:
            raise UserError(f"dim {self.dim}: aggregation '{self.aggregation}' needs a multiple of {multiple}")

    @property
    def ema(self):
        return ("critic",) if self.learner == "iql" else ("model",)

    def init(self, key, spec):
        k1, k2 = random.split(key)
        if self.aggregation in agg.SHARED:
            model: dict = {"phi": Embedding(k1, spec.goals, self.dim, self.hidden, spec)}
        else:
            model = two_towers(k1, spec, self.dim, self.hidden)
        if self.aggregation == "iqe":
            model["weight"] = Weight(jnp.zeros(()))
        critic = {"critic": Value(k2, spec, self.hidden, extra=spec.action_dim)} if self.learner == "iql" else {}
        return {"model": model, **critic}

    def shape(self, spec):
        return (self.dim,)

    def encode(self, nets, g, s, key):
        return Encoded(nets["model"]["phi"].mean(g), 0.0)

    def stream(self):
        return VALUE_GOALS

    def routes(self, spec, has_value):
        return Routes(frozenset({"own"}), frozenset({"own", "value", "actor"}))

    def aggregate(self, model, psi, phi):
        """f(psi, phi), per member: (E, B)."""
        if self.aggregation == "iqe":
            return agg.iqe(psi, phi, jax.nn.sigmoid(model["weight"].logit))
        return {"inner": agg.inner, "mrn": agg.mrn}.get(self.aggregation, agg.symmetric)(psi, phi)

    def f(self, model, s, g):
        return self.aggregate(model, model.get("psi", model["phi"])(s), model["phi"](g))

    def loss(self, nets, targets, batch, key, spec):
        goals, model = batch.streams["rep"], nets["model"]
        r, m = rewards(goals.success)
        r = goals.success if self.reward == "zero_one" else r
        if self.learner == "ivl":
            slow, g = targets["model"], stop_gradient(goals.g)
            v, v_slow = self.f(model, batch.s, goals.g), self.f(slow, stop_gradient(batch.s), g)
            loss = losses.ivl(v, v_slow, self.f(slow, batch.next_s, g), r, m, spec.discount, self.expectile)
            return loss, {"v": v.mean()}
        v, v_next = self.f(model, batch.s, goals.g), self.f(stop_gradient(model), batch.next_s, stop_gradient(goals.g))
        q = nets["critic"](batch.s, goals.g, batch.a)
        q_slow = targets["critic"](stop_gradient(batch.s), stop_gradient(goals.g), batch.a)
        l_v, l_q = losses.iql(v, v_next, q, q_slow, r, m, spec.discount, self.expectile)
        return l_v + l_q, {"value_loss": l_v, "critic_loss": l_q, "v": v.mean(), "q": q.mean()}

    def value(self, nets, s, g, spec):
        f = self.f(nets["model"], s, g).mean(axis=0)
        return (f - 1) / (1 - spec.discount) if self.reward == "zero_one" else f

"""Goal-conditioned DQN (section 5.5): Q-learning on relabelled goals, acting greedily, for Lights Out.

The paper leaves the form of the network, Double-DQN and the loss open (A1); they are options here. The defaults are one
network with an output per action, no second network and the squared error.
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
from dualgoal.interface import Algorithm, Batch, GoalsByRole, Loss, Role, Sizes, Spec, rewards
from dualgoal.nets.heads import Value
from dualgoal.streams import GoalMix

GOALS = GoalMix(0.2, 0.0, 0.5, 0.3)


class DQNNets(eqx.Module):
    critic: Value


@dataclass(frozen=True)
class DQN(Algorithm):
    """Goal-conditioned DQN for discrete actions."""

    network: Literal["heads", "onehot"] = "heads"
    """heads: one output per action; onehot: the action is an input."""
    double: bool = False
    """Double-DQN: the online network chooses the next action, the target network rates it."""
    loss: Literal["squared", "huber"] = "squared"
    """The error that is minimised."""
    hidden: Sizes = (1024, 1024, 1024, 1024)
    """Hidden layer sizes."""

    actions = frozenset({"discrete"})
    ema = ("critic",)
    learns_value = True
    roles = {"value": Role(GOALS, "value")}

    def init(self, key: PRNGKeyArray, spec: Spec) -> DQNNets:
        if self.network == "heads":
            return DQNNets(Value(key, spec, self.hidden, members=None, outputs=spec.action_dim))
        return DQNNets(Value(key, spec, self.hidden, extra=spec.action_dim, members=None))

    def all_actions(self, critic: Value, s: Array, z: Array, spec: Spec) -> Float[Array, "B A"]:
        """Q of every action."""
        if self.network == "heads":
            return critic(s, z).reshape(-1, spec.action_dim)
        one = lambda a: critic(s, z, jnp.broadcast_to(a[None], (z.shape[0], spec.action_dim)))
        return jax.vmap(one, out_axes=1)(jnp.eye(spec.action_dim))

    def losses(
        self, nets: DQNNets, targets: DQNNets, batch: Batch, goals: GoalsByRole, key: PRNGKeyArray, spec: Spec
    ) -> dict[str, Loss]:
        goal = goals["value"]
        r, m = rewards(goal.success)
        z, next_s = goal(batch.s), stop_gradient(batch.next_s)
        next_z = stop_gradient(goal(next_s))
        if self.network == "heads":
            q = (self.all_actions(nets.critic, batch.s, z, spec) * batch.a).sum(axis=-1)
        else:
            q = nets.critic(batch.s, z, batch.a)
        slow = self.all_actions(targets.critic, next_s, next_z, spec)
        chooser = self.all_actions(stop_gradient(nets.critic), next_s, next_z, spec) if self.double else slow
        q_next = jnp.take_along_axis(slow, chooser.argmax(axis=-1, keepdims=True), axis=-1)[:, 0]
        loss = losses.dqn(q, q_next, r, m, spec.discount, self.loss == "huber")
        return {"value": (loss, {"q": q.mean(), "q_next": q_next.mean()})}

    def act(self, nets: DQNNets, s: Array, z: Array, key: PRNGKeyArray, temperature: float, spec: Spec) -> Array:
        q = self.all_actions(nets.critic, s, z, spec)
        return q.argmax(axis=-1) if temperature == 0 else random.categorical(key, q / max(1e-6, temperature))

    def value(self, nets: DQNNets, s: Array, z: Array, spec: Spec) -> Array:
        return self.all_actions(nets.critic, s, z, spec).max(axis=-1)

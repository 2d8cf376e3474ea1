"""Goal-conditioned DQN (section 5.5): Q-learning on relabelled goals, acting greedily. The Lights Out experiment's.

The paper leaves the form of the network, Double-DQN and the loss open (A1); they are options here. The defaults are one
network with an output per action, no second network and the squared error.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import random
from jax.lax import stop_gradient
from jaxtyping import Array, Float

from dualgoal import losses
from dualgoal.errors import UserError
from dualgoal.interface import Algorithm, GoalMix, rewards
from dualgoal.nets.heads import Value

GOALS = GoalMix(0.2, 0.0, 0.5, 0.3)


@dataclass(frozen=True)
class DQN(Algorithm):
    network: str = "heads"  # "heads": one output per action; "onehot": the action is an input
    double: bool = False  # Double-DQN: the online network chooses the next action, the slow one rates it
    loss: str = "squared"  # "squared" or "huber"
    hidden: tuple[int, ...] = (1024, 1024, 1024, 1024)

    actions = frozenset({"discrete"})
    ema = ("critic",)
    streams = {"value": GOALS}

    def __post_init__(self):
        if self.network not in ("heads", "onehot"):
            raise UserError(f"network '{self.network}' is neither 'heads' nor 'onehot'")
        if self.loss not in ("squared", "huber"):
            raise UserError(f"loss '{self.loss}' is neither 'squared' nor 'huber'")

    def init(self, key, spec):
        if self.network == "heads":
            return {"critic": Value(key, spec, self.hidden, members=None, outputs=spec.action_dim)}
        return {"critic": Value(key, spec, self.hidden, extra=spec.action_dim, members=None)}

    def all_actions(self, critic, s, z, count: int) -> Float[Array, "B A"]:
        """Q of every action."""
        if self.network == "heads":
            return critic(s, z).reshape(-1, count)
        one = lambda a: critic(s, z, jnp.broadcast_to(a[None], (z.shape[0], count)))
        return jax.vmap(one, out_axes=1)(jnp.eye(count))

    def losses(self, nets, targets, batch, goals, key, spec):
        goal, count = goals["value"], spec.action_dim
        (r, m), z = rewards(goal.success), stop_gradient(goal.z)
        if self.network == "heads":
            q = (self.all_actions(nets["critic"], batch.s, goal.z, count) * batch.a).sum(axis=-1)
        else:
            q = nets["critic"](batch.s, goal.z, batch.a)
        slow = self.all_actions(targets["critic"], batch.next_s, z, count)
        chooser = self.all_actions(stop_gradient(nets["critic"]), batch.next_s, z, count) if self.double else slow
        q_next = jnp.take_along_axis(slow, chooser.argmax(axis=-1, keepdims=True), axis=-1)[:, 0]
        loss = losses.dqn(q, q_next, r, m, spec.discount, self.loss == "huber")
        return {"value": (loss, {"q": q.mean(), "q_next": q_next.mean()})}

    def act(self, nets, s, z, key, temperature, spec):
        q = self.all_actions(nets["critic"], s, z, spec.action_dim)
        return q.argmax(axis=-1) if temperature == 0 else random.categorical(key, q / max(1e-6, temperature))

    def value(self, nets, s, z):
        critic = nets["critic"]
        first, last = critic.mlp.layers[0].w.shape[0], critic.mlp.layers[-1].w.shape[1]
        count = last if self.network == "heads" else first - critic.fuse.size
        return self.all_actions(critic, s, z, count).max(axis=-1)

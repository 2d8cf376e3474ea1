"""One agent from any representation and any algorithm.

    sample   draw transitions and the goal streams that the two parts ask for
    losses   images -> features, goals -> z with the gradients that the representation lets through, sum of all losses
    update   one Adam over everything, slow copies of the networks that have one
    act      the policy; encode and distance: what else a user asks of a trained agent

Gradients are stopped unless a representation's `routes` lets a loss through (section 4.7). The state is one pytree, and
step t of a run uses nothing random but fold_in(key, t), so resuming is exact and `vmap` over seeds just works.
"""

import dataclasses
import functools
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import random
from jax.lax import stop_gradient
from jaxtyping import Array, PRNGKeyArray

from dualgoal import sampler
from dualgoal.errors import UserError
from dualgoal.fast import adam
from dualgoal.interface import Algorithm, Batch, Condition, Frames, Goals, Info, Representation, Routes, Spec, Stream
from dualgoal.losses import temporal_distance
from dualgoal.nets.encoders import FEATURES, Impala

# Products in bf16 are asked for by name (nets.py); what is left under "bf16" may be tf32.
PRODUCTS = {"float32": "float32", "tf32": "tensorfloat32", "bf16": "tensorfloat32"}


def in_precision(method):
    """Run an agent's method, and trace what it differentiates, with matrix products in its spec's precision."""

    @functools.wraps(method)
    def wrapped(self, *args, **kwargs):
        with jax.default_matmul_precision(PRODUCTS[self.spec.precision]):
            return method(self, *args, **kwargs)

    return wrapped


def check_pair(rep: Representation, algo: Algorithm) -> None:
    """Refuse what cannot work together, whatever the data."""
    if algo.direct and not rep.has_value:
        name = type(rep).__name__
        raise UserError(f"direct extraction needs a representation with a value, such as dual; {name} has none")


class State(NamedTuple):
    """Everything that training changes."""

    params: dict[str, Any]  # {"rep": nets, "algo": nets, "encoders": {"state", "goal"} or {}}
    targets: dict[str, Any]  # slow copies {"rep": nets, "algo": nets}
    opt_state: Any
    step: Array  # number of updates done


@dataclass(frozen=True)
class Agent:
    rep: Representation
    algo: Algorithm
    spec: Spec
    frozen: bool = False  # stage two: representation and goal encoder came from another run and stay as they are

    def __post_init__(self):
        algo = type(self.algo).__name__
        kind = "discrete" if self.spec.discrete else "continuous"
        if kind not in self.algo.actions:
            usable = " and ".join(sorted(self.algo.actions))
            raise UserError(f"{algo} cannot use {kind} actions; it can use {usable} ones")
        check_pair(self.rep, self.algo)

    # What the parts see -----------------------------------------------------------------------------------------------

    @cached_property
    def shared(self) -> bool:
        """Whether one state and one goal encoder serve all heads (late fusion of images)."""
        return self.spec.pixels and self.rep.shares_encoders

    @cached_property
    def rep_spec(self) -> Spec:
        if self.shared:
            return dataclasses.replace(self.spec, observation_shape=(FEATURES,), goal_shape=(FEATURES,))
        return (
            dataclasses.replace(self.spec, fusion=getattr(self.rep, "fusion", "concat"))
            if self.spec.pixels
            else self.spec
        )

    @cached_property
    def algo_spec(self) -> Spec:
        return dataclasses.replace(self.rep_spec, goal_shape=self.rep.shape(self.rep_spec))

    @cached_property
    def streams(self) -> dict[str, Stream]:
        """Every goal stream that is drawn, by consumer."""
        own = None if self.frozen else self.rep.stream()
        return {**self.algo.streams, **({} if own is None else {"rep": own})}

    @cached_property
    def routes(self) -> Routes:
        routes = self.rep.routes(self.spec, "value" in self.algo.streams)
        return Routes(frozenset(), frozenset()) if self.frozen else routes

    # Training ---------------------------------------------------------------------------------------------------------

    def init(self, key: PRNGKeyArray) -> State:
        k_rep, k_algo, k_state, k_goal = random.split(key, 4)
        encoders = {}
        if self.shared:
            shape = self.spec.observation_shape
            encoders = {"state": Impala(k_state, shape, self.spec), "goal": Impala(k_goal, shape, self.spec)}
        params = {
            "rep": self.rep.init(k_rep, self.rep_spec),
            "algo": self.algo.init(k_algo, self.algo_spec),
            "encoders": encoders,
        }
        targets = jax.tree.map(jnp.copy, self.slow(params))  # a copy: donated buffers must not be shared
        return State(params, targets, adam.init(params), jnp.zeros((), jnp.int32))

    def slow(self, params) -> dict[str, Any]:
        """The networks that have a slow copy."""
        parts: dict[str, Representation | Algorithm] = {"rep": self.rep, "algo": self.algo}
        return {name: {net: params[name][net] for net in part.ema} for name, part in parts.items()}

    def sample(self, data: sampler.Data, key: PRNGKeyArray, step) -> Batch:
        """The batch of one step of the run with this key."""
        return sampler.sample(data, random.split(random.fold_in(key, step))[0], self.streams, self.spec)

    def update(self, state: State, data: sampler.Data, key: PRNGKeyArray) -> tuple[State, Info]:
        """One gradient step on a batch of its own; `key` is the run's key, the same at every step."""
        return self.learn(state, self.sample(data, key, state.step), key)

    @in_precision
    def learn(self, state: State, batch: Batch, key: PRNGKeyArray) -> tuple[State, Info]:
        """One gradient step on this batch."""
        k_loss = random.split(random.fold_in(key, state.step))[1]
        gradients, info = jax.grad(self.losses, has_aux=True)(state.params, state.targets, batch, k_loss)
        return self.move(state, gradients), info

    def move(self, state: State, gradients) -> State:
        """The optimiser's step along these gradients; slow copies follow."""
        params, opt_state = adam.step(gradients, state.opt_state, state.params, self.spec.lr)
        source = self.slow(state.params if self.spec.ema_before_update else params)
        tau = self.spec.tau
        targets = jax.tree.map(lambda fast, slow: tau * fast + (1 - tau) * slow, source, state.targets)
        return State(params, targets, opt_state, state.step + 1)

    @in_precision
    def losses(self, params, targets, batch: Batch, key: PRNGKeyArray) -> tuple[Array, Info]:
        """The sum of all losses and everything worth logging, as "part/name"."""
        k_rep, k_algo, k_encode = random.split(key, 3)
        batch = self.features(params, batch)
        terms: dict[str, tuple[Any, Info]] = {}
        if "rep" in self.streams:
            terms["rep"] = self.rep.loss(params["rep"], targets["rep"], batch, k_rep, self.rep_spec)
        goals = {}
        for n, role in enumerate(self.algo.streams):
            goals[role], penalty = self.condition(params, batch, role, random.fold_in(k_encode, n))
            if role == ("value" if "value" in self.algo.streams else "actor") and not isinstance(penalty, float):
                terms["penalty"] = penalty.mean(), {}
        terms |= self.algo.losses(params["algo"], targets["algo"], batch, goals, k_algo, self.algo_spec)
        info = {f"{part}/{name}": x for part, (_, values) in terms.items() for name, x in values.items()}
        info |= {f"{part}/loss": loss for part, (loss, _) in terms.items()}
        return sum((loss for loss, _ in terms.values()), jnp.zeros(())), jax.tree.map(stop_gradient, info)

    def features(self, params, batch: Batch) -> Batch:
        """Images to features, each image once; next states are only ever bootstrapped from, so they are stopped."""
        if not self.shared:
            return batch
        state, goal = params["encoders"]["state"], params["encoders"]["goal"]
        goal = stop_gradient(goal) if self.frozen else goal

        def encode(stream: Goals | Frames):
            if isinstance(stream, Frames):
                return Frames(state(stream.first), state(stream.now), state(stream.after), goal(stream.last))
            return stream._replace(g=goal(stream.g))

        encoded = {name: encode(batch.streams[name]) for name in dict.fromkeys(sampler.draws(self.streams).values())}
        streams = sampler.by_consumer(encoded, self.streams)
        return Batch(state(batch.s), batch.a, stop_gradient(state(batch.next_s)), streams)

    def condition(self, params, batch: Batch, role: str, key: PRNGKeyArray) -> tuple[Condition, Any]:
        """A goal stream as the algorithm sees it, with gradients only where the representation's routes allow."""
        goals = batch.streams[role]
        assert isinstance(goals, Goals)
        nets = params["rep"] if role in self.routes.head else stop_gradient(params["rep"])
        g = goals.g if role in self.routes.features else stop_gradient(goals.g)
        encoded = self.rep.encode(nets, g, stop_gradient(batch.s), key)
        advantage = None
        if self.algo.direct:
            own, s, g = stop_gradient(params["rep"]), stop_gradient(batch.s), stop_gradient(goals.g)
            advantage = self.rep.value(own, batch.next_s, g, self.rep_spec) - self.rep.value(own, s, g, self.rep_spec)
        return Condition(self.seen(nets, encoded.z), goals.success, advantage), encoded.penalty

    def seen(self, nets, z: Array) -> Array:
        """z as algorithms see it: a learned one in the precision of their products, a raw goal as it is."""
        return z.astype(jnp.bfloat16) if nets and self.spec.precision == "bf16" else z

    # Use --------------------------------------------------------------------------------------------------------------

    def observe(self, params, s: Array, g: Array) -> tuple[Array, Array]:
        return (params["encoders"]["state"](s), params["encoders"]["goal"](g)) if self.shared else (s, g)

    @in_precision
    def act(self, params, s: Array, g: Array, key: PRNGKeyArray, temperature: float = 0.0) -> Array:
        """Actions for rows of states and goals."""
        k_encode, k_act = random.split(key)
        s, g = self.observe(params, s, g)
        z = self.seen(params["rep"], self.rep.encode(params["rep"], g, s, k_encode).z)
        return self.algo.act(params["algo"], s, z, k_act, temperature, self.algo_spec)

    @in_precision
    def encode(self, params, g: Array, key: PRNGKeyArray, s: Array | None = None) -> Array:
        """What the algorithm sees of rows of goals."""
        s, g = self.observe(params, g if s is None else s, g)
        return self.rep.encode(params["rep"], g, s, key).z

    @in_precision
    def distance(self, params, s: Array, g: Array, key: PRNGKeyArray) -> Array:
        """Learned temporal distance: by the representation's own value where it has one, else by the algorithm's."""
        s, g = self.observe(params, s, g)
        value = self.rep.value(params["rep"], s, g, self.rep_spec)
        if value is None:
            z = self.seen(params["rep"], self.rep.encode(params["rep"], g, s, key).z)
            value = self.algo.value(params["algo"], s, z)
        if value is None:
            names = f"{type(self.rep).__name__} nor {type(self.algo).__name__}"
            raise UserError(f"neither {names} learns a value to measure distance with")
        return temporal_distance(value, self.spec.discount)

"""One agent from any representation and any algorithm.

    sample   draw transitions, and for every loss what its stream describes
    losses   images -> features, goals -> z with the gradients that the representation lets through, sum of all losses
    update   one Adam step over everything, then the target networks follow
    act      the policy's actions; encode and distance are the other uses of a trained agent

Gradients into a representation are stopped unless its `routes` let a loss through (section 4.7). The state is one
pytree, and step t of a run uses nothing random but fold_in(key, t), so resuming is exact and `vmap` over seeds works.
"""

import dataclasses
import functools
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import random
from jax.lax import stop_gradient
from jaxtyping import Array, PRNGKeyArray

from dualgoal import compatibility, sampler
from dualgoal.errors import UserError
from dualgoal.fast import adam
from dualgoal.interface import (
    Algorithm,
    Batch,
    Encoded,
    Goal,
    Goals,
    Info,
    Loss,
    Nets,
    Representation,
    Role,
    Routes,
    Spec,
    Stream,
)
from dualgoal.losses import temporal_distance
from dualgoal.nets.encoders import FEATURES, Encoders, Impala, Together
from dualgoal.streams import Transitions

# Under "bf16" the networks themselves round factors to bfloat16; all other products may be tf32.
MATMUL_PRECISION = {"float32": "float32", "tf32": "tensorfloat32", "bf16": "tensorfloat32"}

F = TypeVar("F", bound=Callable[..., Any])


def in_precision(method: F) -> F:
    """Run a method of an agent, and trace the gradients in it, with matrix products in the precision of its spec."""

    @functools.wraps(method)
    def wrapped(self: "Agent", *args: Any, **kwargs: Any) -> Any:
        with jax.default_matmul_precision(MATMUL_PRECISION[self.spec.precision]):
            return method(self, *args, **kwargs)

    return wrapped  # type: ignore[return-value]


class Params(NamedTuple):
    """Everything that gradients change."""

    rep: Nets
    algo: Nets
    encoders: Encoders | None  # None: vectors, or networks that encode images themselves


class Targets(NamedTuple):
    """Target networks: moving averages of the parts' networks, with only the fields that their `ema` names."""

    rep: Nets
    algo: Nets


class State(NamedTuple):
    """Everything that training changes."""

    params: Params
    targets: Targets
    opt_state: Any
    step: Array  # number of updates done


@dataclass(frozen=True)
class Agent:
    """A representation and an algorithm on a problem.

    >>> from dualgoal.algos import GCIVL
    >>> from dualgoal.reps import Dual
    >>> agent = Agent(Dual(dim=8, hidden=(16,)), GCIVL(hidden=(16,)), Spec((4,), 2, batch_size=8))
    >>> state = agent.init(jax.random.key(0))
    >>> agent.act(state.params, jnp.zeros((3, 4)), jnp.ones((3, 4)), jax.random.key(1)).shape
    (3, 2)
    """

    rep: Representation
    algo: Algorithm
    spec: Spec
    frozen: bool = False  # two-stage training: representation and goal encoder came from another run and stay fixed

    def __post_init__(self) -> None:
        compatibility.check_actions(self.algo, self.spec)
        compatibility.check_pair(self.rep, self.algo, self.frozen)
        compatibility.check_vector(self.rep, self.algo, self.algo_spec.goal_shape)
        compatibility.check_goals(self.rep, self.spec)
        compatibility.check_state_encoder(self.rep, self.algo, self.lost_state_encoder)

    # What the parts see -----------------------------------------------------------------------------------------------

    @cached_property
    def shares_encoders(self) -> bool:
        """Whether one state and one goal encoder, or a single one, serve all networks."""
        return self.spec.pixels and self.rep.fusion in ("shared", "one")

    @cached_property
    def lost_state_encoder(self) -> bool:
        """Whether a frozen representation was trained with a state encoder that is missing here: of two shared
        encoders, only the goal's is loaded with it."""
        return self.frozen and self.shares_encoders and self.rep.fusion == "shared"

    @cached_property
    def has_rep_value(self) -> bool:
        """Whether the representation has a value that can be computed here."""
        return self.rep.learns_value and not self.lost_state_encoder

    @cached_property
    def rep_spec(self) -> Spec:
        """What the representation's networks read: features of images where encoders are shared."""
        if self.shares_encoders:
            alike = self.spec.goals_as_states and self.rep.fusion == "one"  # two encoders make features of two kinds
            return dataclasses.replace(
                self.spec, observation_shape=(FEATURES,), goal_shape=(FEATURES,), goals_as_states=alike
            )
        if self.spec.pixels and self.rep.fusion in ("early", "late"):
            return dataclasses.replace(self.spec, fusion=self.rep.fusion)
        return self.spec

    @cached_property
    def algo_spec(self) -> Spec:
        """What the algorithm's networks read: z instead of goals."""
        shape, spec = compatibility.checked_shape(self.rep, self.rep_spec), self.rep_spec
        raw = not self.rep.learned and spec.goals_as_states  # z is the goal itself, and the goal is a state
        sphere, factors = self.rep.on_sphere, self.rep.factor_shape
        return dataclasses.replace(
            spec, goal_shape=shape, goals_on_sphere=sphere, factor_shape=factors, goals_as_states=raw
        )

    @cached_property
    def streams(self) -> dict[str, Stream]:
        """What every loss draws: the algorithm's roles by their names, the representation's own loss as "rep"."""
        streams = {name: role.goals for name, role in self.algo.roles.items()}
        return streams if self.rep.stream is None or self.frozen else {**streams, "rep": self.rep.stream}

    @cached_property
    def draw_of(self) -> dict[str, str]:
        """Which entry of `Batch.draws` each loss uses."""
        return sampler.shared_draws(self.streams)

    @cached_property
    def routes(self) -> Routes:
        if self.frozen:
            return Routes(frozenset(), frozenset())
        value_loss = any(role.trains == "value" for role in self.algo.roles.values())
        return compatibility.checked_routes(self.rep, self.rep.routes(self.spec, value_loss))

    @cached_property
    def penalised(self) -> str | None:
        """The role whose encodings get the representation's penalty: the first that trains a value, else the first."""
        values = [name for name, role in self.algo.roles.items() if role.trains == "value"]
        return next(iter([*values, *self.algo.roles]), None)

    # Training ---------------------------------------------------------------------------------------------------------

    def init(self, key: PRNGKeyArray) -> State:
        """New parameters, targets equal to them, and a new optimiser state."""
        k_rep, k_algo, k_state, k_goal = random.split(key, 4)
        encoders = None
        if self.shares_encoders:
            shape = self.spec.observation_shape
            goal = None if self.rep.fusion == "one" else Impala(k_goal, shape, self.spec)
            encoders = Encoders(Impala(k_state, shape, self.spec), goal)
        params = Params(self.rep.init(k_rep, self.rep_spec), self.algo.init(k_algo, self.algo_spec), encoders)
        compatibility.check_networks(self.rep, params.rep, self.rep.goal_network)
        compatibility.check_networks(self.algo, params.algo, self.algo.policy_network)
        compatibility.check_trainable(self.rep, self.algo, params)
        compatibility.check_encoding(self.rep, params.rep, self.rep_spec)
        targets = jax.tree.map(jnp.copy, self.with_ema(params))  # a copy: donated buffers must not be shared
        return State(params, targets, adam.init(params), jnp.zeros((), jnp.int32))

    def with_ema(self, params: Params) -> Targets:
        """The networks among these parameters that have a target copy."""
        return Targets(only(params.rep, self.rep.ema), only(params.algo, self.algo.ema))

    @staticmethod
    def keys(key: PRNGKeyArray, step: Array | int) -> tuple[PRNGKeyArray, PRNGKeyArray]:
        """The keys of one step of the run with this key: for its batch and for its losses."""
        k_batch, k_losses = random.split(random.fold_in(key, step))
        return k_batch, k_losses

    def sample(self, data: Transitions, key: PRNGKeyArray, step: Array | int) -> Batch:
        """The batch of one step of the run with this key."""
        return sampler.sample(data, self.keys(key, step)[0], self.streams, self.spec)

    def update(self, state: State, data: Transitions, key: PRNGKeyArray) -> tuple[State, Info]:
        """One gradient step on a new batch; `key` is the run's key, the same at every step."""
        return self.update_on(state, self.sample(data, key, state.step), key)

    @in_precision
    def update_on(self, state: State, batch: Batch, key: PRNGKeyArray) -> tuple[State, Info]:
        """One gradient step on this batch."""
        k_losses = self.keys(key, state.step)[1]
        gradients, info = jax.grad(self.losses, has_aux=True)(state.params, state.targets, batch, k_losses)
        return self.apply_gradients(state, gradients), info

    def apply_gradients(self, state: State, gradients: Params) -> State:
        """One optimiser step; the target networks follow."""
        params, opt_state = adam.step(gradients, state.opt_state, state.params, self.spec.lr)
        source = self.with_ema(state.params if self.spec.ema_before_update else params)
        tau = self.spec.tau
        targets = jax.tree.map(lambda fast, slow: tau * fast + (1 - tau) * slow, source, state.targets)
        return State(params, targets, opt_state, state.step + 1)

    @in_precision
    def losses(self, params: Params, targets: Targets, batch: Batch, key: PRNGKeyArray) -> tuple[Array, Info]:
        """The sum of all losses, and everything worth logging, as "part/name"."""
        k_rep, k_algo, k_encode = random.split(key, 3)
        params = self.fixed(params) if self.frozen else params
        raw, batch = batch, self.encode_images(params, batch)
        terms: dict[str, Loss] = {}
        if "rep" in self.streams:
            nets = params.rep if "rep" in self.routes.head else stop_gradient(params.rep)
            seen = batch if "rep" in self.routes.features else stop_gradient(batch)
            drawn = seen.draws[self.draw_of["rep"]]
            own = self.rep.loss(nets, targets.rep, seen, drawn, k_rep, self.rep_spec)
            terms["rep"] = compatibility.checked_loss(f"{type(self.rep).__name__}.loss", own)
        goals, penalties = {}, {}
        for n, name in enumerate(self.algo.roles):
            goals[name], penalties[name] = self.goal(params, raw, batch, name, random.fold_in(k_encode, n))
        found = self.algo.losses(params.algo, targets.algo, batch, goals, k_algo, self.algo_spec)
        if self.penalised is not None and (penalty := penalties[self.penalised]) is not None:
            terms["penalty"] = penalty.mean(), {}
        terms |= compatibility.checked_losses(self.algo, found)
        info = {f"{part}/{name}": x for part, (_, values) in terms.items() for name, x in values.items()}
        info |= {f"{part}/loss": loss for part, (loss, _) in terms.items()}
        return sum((loss for loss, _ in terms.values()), jnp.zeros(())), jax.tree.map(stop_gradient, info)

    @staticmethod
    def fixed(params: Params) -> Params:
        """The parameters, with gradients stopped for what comes from another run: the representation and the encoder of
        goals."""
        encoders = params.encoders and params.encoders.with_fixed_goals()
        return Params(stop_gradient(params.rep), params.algo, encoders)

    def encode_images(self, params: Params, batch: Batch) -> Batch:
        """Replace images by features if encoders are shared: each image once, all images of an encoder together."""
        encoders = params.encoders
        if encoders is None:
            return batch
        by_state = Together(encoders.state)
        by_goal = by_state if encoders.goal is None else Together(encoders.goal)

        def all_through(state: Callable[[Array], Array], goal: Callable[[Array], Array]) -> Batch:
            s = state(batch.s)
            draws = {name: self.streams[name].encode(drawn, state, goal) for name, drawn in batch.draws.items()}
            return Batch(s, batch.a, state(batch.next_s), draws)  # next_s last: it hardly ever needs a gradient

        all_through(by_state.ask, by_goal.ask)  # collects the images; the second pass returns their features
        return all_through(by_state.answer, by_goal.answer)

    def goal(self, params: Params, raw: Batch, batch: Batch, name: str, key: PRNGKeyArray) -> tuple[Goal, Array | None]:
        """The goals of a role as the algorithm receives them, and the penalty of each as seen from the state of its
        transition, if there is one. `batch` is `raw` with features in place of images."""
        role: Role = self.algo.roles[name]
        drawn = batch.draws[self.draw_of[name]]
        if not isinstance(drawn, Goals):
            what = f"{type(self.algo).__name__}: the stream of '{name}' draws {type(drawn).__name__}"
            raise UserError(f"{what}; an algorithm's roles need goals, such as those of GoalMix")
        passes = role.trains in self.routes.features
        nets = params.rep if role.trains in self.routes.head else stop_gradient(params.rep)
        g = drawn.g if passes else stop_gradient(drawn.g)

        def seen_from(s: Array) -> Encoded:
            return self.represent(nets, g, s if passes and self.rep.looks_at_state else stop_gradient(s), key)

        def as_state() -> Array:
            there = raw.draws[self.draw_of[name]]
            assert isinstance(there, Goals)
            states = there.g if there.state is None else there.state
            return states if params.encoders is None else params.encoders.state(states)

        fixed = lambda s: stop_gradient((params.rep, s, drawn.g))
        value = lambda s: self.rep.value(*fixed(s), self.rep_spec)
        factors = lambda s: compatibility.checked_factors(self.rep, self.rep.factors(*fixed(s)), len(s))
        here = seen_from(batch.s)
        z = self.cast_for_heads(here.z)
        view = (lambda s: self.cast_for_heads(seen_from(s).z)) if self.rep.looks_at_state else (lambda s: z)
        return Goal(drawn.success, view, as_state, value, factors, drawn.passed, drawn.extra), here.penalty

    def represent(self, nets: Nets, g: Array, s: Array, key: PRNGKeyArray) -> Encoded:
        """The representation of goals as seen from the states `s`."""
        return compatibility.checked_encoding(self.rep, self.rep.encode(nets, g, s, key), g.shape[0], self.rep_spec)

    def cast_for_heads(self, z: Array) -> Array:
        """z as networks read it: a learned z in the precision of their products, a raw goal unchanged."""
        return z.astype(jnp.bfloat16) if self.rep.learned and self.spec.precision == "bf16" else z

    # Use --------------------------------------------------------------------------------------------------------------

    def features(self, params: Params, s: Array, g: Array) -> tuple[Array, Array]:
        """States and goals as networks read them."""
        return (s, g) if params.encoders is None else (params.encoders.state(s), params.encoders.of_goals(g))

    @in_precision
    def act(self, params: Params, s: Array, g: Array, key: PRNGKeyArray, temperature: float = 0.0) -> Array:
        """Actions for rows of states and goals."""
        k_encode, k_act = random.split(key)
        s, g = self.features(params, s, g)
        z = self.cast_for_heads(self.represent(params.rep, g, s, k_encode).z)
        actions = self.algo.act(params.algo, s, z, k_act, temperature, self.algo_spec)
        return compatibility.checked_actions(self.algo, actions, s.shape[0], self.spec)

    @in_precision
    def encode(self, params: Params, g: Array, key: PRNGKeyArray, s: Array | None = None) -> Array:
        """z for rows of goals, as the algorithm reads it; seen from `s` if the representation looks at the state."""
        if s is None and self.rep.looks_at_state:
            raise UserError(f"{type(self.rep).__name__} looks at the state; give the states from which goals are seen")
        s, g = self.features(params, g if s is None else s, g)
        return self.represent(params.rep, g, s, key).z

    @in_precision
    def distance(self, params: Params, s: Array, g: Array, key: PRNGKeyArray, of: str | None = None) -> Array:
        """Learned temporal distance in steps, by the value of that part."""
        return temporal_distance(self.value(params, s, g, key, of), self.spec.discount)

    @in_precision
    def value(self, params: Params, s: Array, g: Array, key: PRNGKeyArray, of: str | None = None) -> Array:
        """V(s, g) under the -1/0 reward: of the part "rep" or "algo", or of the first of them that has one."""
        have = {"rep": self.has_rep_value, "algo": self.algo.learns_value}
        chosen = compatibility.checked_owner(self.rep, self.algo, have, of)
        s, g = self.features(params, s, g)
        if chosen == "rep":
            return compatibility.checked_values(self.rep, self.rep.value(params.rep, s, g, self.rep_spec), len(s))
        z = self.cast_for_heads(self.represent(params.rep, g, s, key).z)
        return compatibility.checked_values(self.algo, self.algo.value(params.algo, s, z, self.algo_spec), len(s))


def only(nets: Nets, names: tuple[str, ...]) -> Nets:
    """The same module with every field but `names` emptied."""
    have = compatibility.require_networks(nets, names)
    others = [name for name in have if name not in names]
    if not others:
        return nets
    fields = lambda module: [getattr(module, name) for name in others]
    return eqx.tree_at(fields, nets, [None] * len(others), is_leaf=lambda x: x is None)

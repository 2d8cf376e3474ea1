"""Checks before anything is trained: they refuse a representation, an algorithm and a problem that cannot work
together, and outputs of a part whose form is not what it declares. Outputs are checked by their shapes while a program
is traced, which costs no time in training.

Functions named `check_...` only raise; those named `checked_...` also return what they have checked."""

import dataclasses
import inspect
import typing
from collections.abc import Mapping, Set
from numbers import Integral
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from dualgoal.errors import UserError, kind_of, unknown
from dualgoal.interface import (
    ALL_LOSSES,
    Algorithm,
    Encoded,
    Loss,
    Nets,
    Representation,
    Routes,
    Spec,
    Stream,
    Trains,
)

STATE = "the state"
NOT_OF_ALGORITHMS = frozenset({"rep", "penalty", "total"})  # names under which other losses are logged


def check_pair(rep: Representation, algo: Algorithm, frozen: bool = False) -> None:
    """Refuse parts that cannot work together, whatever the data; a `frozen` representation is not trained."""
    if not algo.roles and (frozen or rep.stream is None):
        why = "is frozen" if frozen else "has no loss of its own"
        raise UserError(f"{type(rep).__name__} {why} and {type(algo).__name__} adds no loss; choose another algorithm")
    # A property of the class may return None because the part that it wraps has no loss; any other None is a mistake.
    without = rep.stream is None and inspect.getattr_static(rep, "stream") in (None, Representation.stream)
    if without and type(rep).loss is not Representation.loss:
        raise UserError(f"{type(rep).__name__} has a loss but draws no goals for it; give it a stream, see streams.py")
    refused = f"{type(algo).__name__} cannot use {type(rep).__name__}"
    if algo.needs_factors and rep.factor_shape is None:
        what = "a value that is an inner product of psi(s) and phi(g)"
        raise UserError(f"{refused}: it needs {what}, such as that of dual with aggregation inner and reward negative")
    if algo.needs_rep_value and not rep.learns_value:
        raise UserError(f"{refused}: direct extraction needs a representation that learns a value, such as dual")
    if algo.needs_blind and rep.looks_at_state:
        raise UserError(f"{refused}: it pairs every state with every goal, so z must not depend on the state")
    if "rep" in algo.roles:
        raise UserError(f"{type(algo).__name__}: a role cannot be called 'rep'; that is the representation's own loss")
    for name, role in algo.roles.items():
        if role.trains not in (words := typing.get_args(Trains)):
            raise unknown(f"kind of loss in role '{name}' of {type(algo).__name__}", role.trains, words)
    streams: dict[str, tuple[Representation | Algorithm, Any]]
    streams = {name: (algo, role.goals) for name, role in algo.roles.items()}
    if not (frozen or rep.stream is None):
        streams["rep"] = rep, rep.stream
    _check_streams(streams)


def _check_streams(streams: Mapping[str, tuple[Representation | Algorithm, Any]]) -> None:
    """Refuse objects that are no streams, and streams towards goals that are not drawn first, or not ahead where they
    must be. `streams` maps each role, and "rep" for the representation's own loss, to the part and its stream."""
    reader = {name: "its own loss" if name == "rep" else f"role '{name}'" for name in streams}
    for name, (part, stream) in streams.items():
        where = f"{type(part).__name__}: the stream of {reader[name]}"
        if not isinstance(stream, Stream):
            raise UserError(f"{where} is {_kind(stream)}; expected a stream, see streams.py")
        if type(stream).__hash__ is None:
            raise UserError(f"{where} is not hashable; decorate {type(stream).__name__} with @dataclass(frozen=True)")
    independent = [name for name, (_, stream) in streams.items() if stream.towards is None and name != "rep"]
    for name, (part, stream) in streams.items():
        where = f"{type(part).__name__}: the goals of {reader[name]} are drawn towards those of '{stream.towards}'"
        if stream.towards not in (None, *independent):
            known = ", ".join(independent) or "none here"
            raise UserError(f"{where}; expected a role whose goals depend on no other ({known})")
        if stream.needs_ahead and stream.towards is None:
            raise UserError(
                f"{type(part).__name__}: the stream of {reader[name]} names no role towards whose goals it draws"
            )
        if stream.needs_ahead and not streams[stream.towards][1].ahead:
            raise UserError(f"{where}, which may lie anywhere; {type(stream).__name__} needs goals ahead")


def check_actions(algo: Algorithm, spec: Spec) -> None:
    """Refuse actions of a kind that an algorithm cannot use."""
    kind = "discrete" if spec.discrete else "continuous"
    if kind not in algo.actions:
        usable = " and ".join(sorted(algo.actions))
        hint = f"; give {option}" if (option := _option_for(algo, kind)) else ""
        raise UserError(f"{type(algo).__name__} cannot use {kind} actions; it can use {usable} ones{hint}")


def _option_for(algo: Algorithm, kind: str) -> str | None:
    """The option with which an algorithm can use actions of this kind, if there is one."""
    hints = typing.get_type_hints(type(algo))
    words = [(f.name, word) for f in dataclasses.fields(algo) for word in typing.get_args(hints[f.name])]
    for name, word in words:
        if isinstance(word, str) and kind in dataclasses.replace(algo, **{name: word}).actions:
            return f"--algo.{name} {word}"
    return None


def check_goals(rep: Representation, spec: Spec) -> None:
    """Refuse goals that a representation or its image encoders cannot read."""
    goal, observation = spec.goal_shape, spec.observation_shape
    if goal != observation and (spec.pixels or len(goal) == 3):
        raise UserError(
            f"goals are {goal} but observations {observation}; where one is an image, both must be of the same shape"
        )
    if spec.goals_as_states:
        return
    name, kind = type(rep).__name__, goal if goal != observation else "something else of that shape"
    what = f"but observations are {observation} and goals {kind}"
    if rep.embeds_both:
        raise UserError(
            f"{name} reads states and goals with one network, {what}; use one with two networks, such as dual with "
            "aggregation inner"
        )
    if rep.compares_both:
        raise UserError(f"{name} asks which goals a state has reached (hard_goals), {what}; leave hard_goals out")


def check_state_encoder(rep: Representation, algo: Algorithm, lost: bool) -> None:
    """Refuse uses of the state encoder that a frozen representation has `lost`: its own value needs it, and z does if
    it looks at the state."""
    if lost and (algo.needs_rep_value or rep.looks_at_state):
        of_value = algo.needs_rep_value and not rep.looks_at_state
        what = "the value of a frozen" if of_value else "a frozen"
        raise UserError(
            f"{type(algo).__name__} cannot use {what} {type(rep).__name__} on images: its state encoder does not come "
            f"along; {'leave direct extraction out, or ' * of_value}train both in one run"
        )


def checked_routes(rep: Representation, found: Any) -> Routes:
    """The routes that a representation declares; raise unless they are about losses that exist."""
    name = type(rep).__name__
    if not isinstance(found, Routes):
        raise UserError(f"{name}.routes gives {_kind(found)}; expected Routes(head, features)")
    for field, losses in found._asdict().items():
        if not isinstance(losses, Set):
            raise UserError(f"{name}.routes gives {_kind(losses)} as {field}; expected a set, such as {{'rep'}}")
    if strange := sorted({*found.head, *found.features} - ALL_LOSSES):
        raise unknown(f"loss in the routes of {name}", strange[0], sorted(ALL_LOSSES))
    return found


def check_networks(part: Representation | Algorithm, nets: Any, named: str | None) -> None:
    """Refuse networks that are no module, have no field of the name `named`, or hold something that cannot be trained:
    every leaf of a module is."""
    where = f"{type(part).__name__}.init"
    if not dataclasses.is_dataclass(nets):
        raise UserError(f"{where} gives {_kind(nets)}; expected an eqx.Module, a field per network")
    require_networks(nets, (named,) if named else ())
    for path, leaf in jax.tree_util.tree_leaves_with_path(nets):
        if not isinstance(leaf, jax.Array) or leaf.dtype != jnp.float32:
            kind = f"an array of {leaf.dtype}" if hasattr(leaf, "dtype") else _kind(leaf)
            raise UserError(
                f"{where}: {jax.tree_util.keystr(path).lstrip('.')} is {kind}, but all that networks hold is trained, "
                "as JAX arrays of float32; mark what is none as eqx.field(static=True), or make it an option"
            )


def check_trainable(rep: Representation, algo: Algorithm, params: Any) -> None:
    """Refuse a pair without anything to train."""
    if not jax.tree.leaves(params):
        names = f"{type(rep).__name__} nor {type(algo).__name__}"
        raise UserError(f"neither {names} has anything to train; give one of them networks")


def require_networks(nets: Nets, names: tuple[str, ...]) -> list[str]:
    """The fields of a module that hold networks; raise if one of `names` is not among them."""
    have = [field.name for field in dataclasses.fields(nets) if not field.metadata.get("static")]
    if strange := [name for name in names if name not in have]:
        raise unknown(f"network of {type(nets).__name__}", strange[0], have)
    return have


def check_vector(rep: Representation, algo: Algorithm, z_shape: tuple[int, ...]) -> None:
    """Refuse a z that an algorithm would have to predict but is no vector, such as an image."""
    if algo.needs_vector and len(z_shape) != 1:
        raise UserError(
            f"{type(algo).__name__} cannot use {type(rep).__name__}: it predicts z, which must be a vector but has the "
            f"shape {z_shape} here; choose another representation"
        )


def checked_shape(rep: Representation, spec: Spec) -> tuple[int, ...]:
    """The shape of z for one goal, as a representation declares it."""
    shape = rep.z_shape(spec)
    if not (isinstance(shape, tuple) and all(isinstance(size, Integral) for size in shape)):
        raise UserError(
            f"{type(rep).__name__}.z_shape gives {shape!r}; expected a tuple of whole numbers, such as (8,)"
        )
    return shape


def checked_encoding(rep: Representation, encoded: Any, rows: int, spec: Spec) -> Encoded:
    """A representation's encoding of this many goals; raise unless z has the declared shape."""
    name = type(rep).__name__
    if not isinstance(encoded, Encoded):
        raise UserError(f"{name}.encode gives {_kind(encoded)}; expected Encoded(z)")
    (count, *shape), wanted = encoded.z.shape or (1,), rep.z_shape(spec)
    if count != rows:
        raise UserError(f"{name}.encode gives z of shape {encoded.z.shape} for {rows} goals; expected a row for each")
    if (*shape,) != wanted:
        raise UserError(f"{name}.encode gives z of shape {(*shape,)} for a goal, but by its z_shape it is {wanted}")
    if encoded.penalty is not None and jnp.shape(encoded.penalty) != (rows,):
        found = jnp.shape(encoded.penalty)
        raise UserError(f"{name}.encode gives a penalty of shape {found}; expected ({rows},), a number for each goal")
    return encoded


def checked_actions(algo: Algorithm, actions: Array, rows: int, spec: Spec) -> Array:
    """An algorithm's actions in this many states; raise unless there is one for each of them."""
    if actions.shape != (wanted := (rows,) if spec.discrete else (rows, spec.action_dim)):
        raise UserError(f"{type(algo).__name__}.act gives actions of shape {actions.shape}; expected {wanted}")
    return actions


def checked_owner(rep: Representation, algo: Algorithm, have: Mapping[str, bool], of: str | None) -> str:
    """Whose value to take, "rep" or "algo": the one that is asked for, or the first that there is."""
    if of not in (None, *have):
        raise unknown("owner of a value", str(of), list(have))
    chosen = of or next((part for part, has in have.items() if has), None)
    if chosen is not None and have[chosen]:
        return chosen
    which = " that this run can use" if rep.learns_value and chosen != "algo" else ""
    if chosen is None:
        names = f"{type(rep).__name__} nor {type(algo).__name__}"
        raise UserError(f"neither {names} learns a value{which} to measure distance with")
    raise UserError(f"{type(rep if chosen == 'rep' else algo).__name__} learns no value{which}")


def checked_values(part: Representation | Algorithm, values: Array, rows: int) -> Array:
    """The values of this many pairs; raise unless there is one for each of them."""
    if values.shape != (rows,):
        raise UserError(f"{type(part).__name__}.value gives values of shape {values.shape}; expected ({rows},)")
    return values


def checked_factors(rep: Representation, found: Any, rows: int) -> tuple[Array, Array]:
    """psi(s) and phi(g) of a representation's value; raise unless both have the form that it declares."""
    assert rep.factor_shape is not None
    expected = (rep.factor_shape[0], rows, rep.factor_shape[1])
    shapes = [jnp.shape(x) for x in found] if isinstance(found, tuple) else []
    if shapes != [expected, expected]:
        what = f"arrays of shapes {' and '.join(map(str, shapes))}" if shapes else _kind(found)
        raise UserError(f"{type(rep).__name__}.factors gives {what}; its factor_shape says two of shape {expected}")
    return found


def checked_loss(where: str, found: Any) -> Loss:
    """A loss of a part; raise unless it is a single number, with single numbers to log."""
    if not (isinstance(found, tuple) and len(found) == 2 and isinstance(found[1], dict)):
        raise UserError(f"{where} gives {_kind(found)}; expected a loss and a dictionary of what to log")
    if "loss" in found[1]:
        raise UserError(f"{where} logs 'loss', under which the loss itself is logged; give it another name")
    for name, value in {"the loss": found[0], **found[1]}.items():
        if shape := jnp.shape(value):
            raise UserError(f"{where}: {name} has shape {shape}; expected a single number, such as its mean")
    return found


def checked_losses(algo: Algorithm, found: Any) -> dict[str, Loss]:
    """All losses of an algorithm by their names; raise if one has a name under which something else is logged."""
    where = f"{type(algo).__name__}.losses"
    if not isinstance(found, dict):
        raise UserError(f"{where} gives {_kind(found)}; expected a dictionary of losses by name")
    if taken := sorted(NOT_OF_ALGORITHMS & found.keys()):
        whose = "the sum of all losses" if taken[0] == "total" else "the representation's"
        raise UserError(f"{type(algo).__name__}: a loss cannot be called '{taken[0]}'; that is {whose}")
    return {name: checked_loss(f"{where}['{name}']", loss) for name, loss in found.items()}


def _kind(found: Any) -> str:
    return "an array" if hasattr(found, "shape") else kind_of(found)


def is_ours(part: Representation | Algorithm) -> bool:
    """Whether a part belongs to this package, whose tests check what it declares."""
    return type(part).__module__.startswith("dualgoal.")


def pair_of_rows(spec: Spec) -> list[jax.ShapeDtypeStruct]:
    """Shapes of two states and of two goals, to trace programs with."""
    kind = jnp.uint8 if spec.pixels else jnp.float32
    return [jax.ShapeDtypeStruct((2, *shape), kind) for shape in (spec.observation_shape, spec.goal_shape)]


def check_encoding(rep: Representation, nets: Nets, spec: Spec) -> None:
    """Refuse a representation whose z depends on more than it declares: on the state (algorithms would use z as seen
    from one state at another), or on networks besides `goal_network`, which exports treat as the only one."""
    if is_ours(rep):
        return
    name, read = type(rep).__name__, _read_by_encoding(rep, nets, spec)
    if STATE in read and not rep.looks_at_state:
        raise UserError(f"{name}.encode reads the state; declare looks_at_state = True")
    others = sorted(read - {STATE, rep.goal_network})
    if rep.goal_network is not None and others:
        raise UserError(
            f"{name}.encode reads {others[0]}, but by its goal_network {rep.goal_network} alone turns a goal into z; "
            "name the right one, or None"
        )


def _read_by_encoding(rep: Representation, nets: Nets, spec: Spec) -> set[str]:
    """What z depends on besides the goal: the state, and networks by their names."""
    arrays, rest = eqx.partition(nets, eqx.is_array)
    s, g = pair_of_rows(spec)

    def z(s: Array, arrays: Nets, g: Array, key: Array) -> Array:
        return checked_encoding(rep, rep.encode(eqx.combine(arrays, rest), g, s, key), 2, spec).z

    program = jax.make_jaxpr(z)(s, arrays, g, jax.random.key(0)).jaxpr
    networks = [name for name in require_networks(nets, ()) for _ in jax.tree.leaves(getattr(arrays, name))]
    sources: list[set[str]] = [{STATE}, *({name} for name in networks)]  # each array of a network is one input
    sources += [set()] * (len(program.invars) - len(sources))  # the goal and the key, which any z may depend on
    return set().union(*_read_by_outputs(program, sources))


def _read_by_outputs(program: Any, sources: list[set[str]]) -> list[set[str]]:
    """What every output of a traced program depends on, given what its inputs depend on. Inner functions that were
    compiled separately are followed step by step; every other step counts as a whole. (JAX's `dce_jaxpr` returns the
    inputs that a program needs, but includes those that are only printed, for example to debug `encode`.)"""
    known = {id(x): source for x, source in zip(program.invars, sources, strict=True)}
    of = lambda variables: [known.get(id(x), set()) for x in variables]
    for step in program.eqns:
        inner = step.params.get("jaxpr") if step.primitive.name in ("jit", "pjit") else None
        together = [set().union(*of(step.invars))] * len(step.outvars)
        found = _read_by_outputs(inner.jaxpr, of(step.invars)) if inner else together
        known |= {id(x): source for x, source in zip(step.outvars, found, strict=True)}
    return of(program.outvars)

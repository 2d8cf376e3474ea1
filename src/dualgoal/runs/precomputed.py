"""A function in two stages: what follows from its first arguments alone is computed once, the rest at every call.

A policy acts many times towards the same goal with the same parameters. What it makes of these without looking at an
observation (features of the goal's image, z, weights rounded for a product) is the same at every step. Which parts
these are depends on the representation and the algorithm, so it is read off the function itself: JAX writes it as a
list of equations, and an equation belongs to the first stage if everything that it reads does.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
from jax.extend import core

# Equations that only call another function, and where they keep it. Their gradients do not matter here.
CALLS = {"jit": "jaxpr", "pjit": "jaxpr", "custom_jvp_call": "call_jaxpr", "custom_vjp_call": "call_jaxpr"}
# These only repeat or count numbers, which the second stage does again: storing the result would take longer to read.
CHEAP = ("broadcast_in_dim", "iota")


class Value:
    """Something that is computed; its identity is its name."""


class Constant(NamedTuple):
    """Something that is known."""

    content: Any


class Equation(NamedTuple):
    of: core.JaxprEqn
    inputs: Sequence[Value | Constant]
    outputs: Sequence[Value]

    @property
    def values(self) -> set[Value]:
        """The inputs that are computed."""
        return {read for read in self.inputs if isinstance(read, Value)}


class Stages(NamedTuple):
    """`function(*early, *late)` is `second(first(*early), *late)`."""

    first: Callable[..., list[Any]]
    second: Callable[..., Any]


def split(function: Callable[..., Any], early: Sequence[Any], late: Sequence[Any]) -> Stages:
    """The stages of a function that returns one array, for arguments of these shapes and types."""
    traced = jax.make_jaxpr(function)(*early, *late)
    before, after = ([Value() for _ in jax.tree.leaves(list(part))] for part in (early, late))
    listed: dict[Any, Equation] = {}
    (result,) = _flatten(traced.jaxpr, traced.consts, [*before, *after], listed)
    equations = list(listed.values())
    if not isinstance(result, Value):  # the function is a constant
        return Stages(lambda *_: [], jax.jit(lambda _, *late: result.content))

    ready, first = set(before), list[Equation]()
    for equation in equations:
        if equation.values <= ready:
            first.append(equation)
            ready.update(equation.outputs)
    of_first = {id(equation) for equation in first}
    second, wanted = list[Equation](), {result}
    for equation in reversed(equations):
        again = equation.of.primitive.name in CHEAP and not wanted.isdisjoint(equation.outputs)
        if again or id(equation) not in of_first:
            second.insert(0, equation)
            wanted |= equation.values
    made = {value for equation in second for value in equation.outputs}
    # In a fixed order: compiled programs are kept between processes.
    kept = [v for v in [*before, *(v for e in first for v in e.outputs)] if v in wanted and v not in made]

    def run_first(*early: Any) -> list[Any]:
        known = _run(first, zip(before, jax.tree.leaves(list(early)), strict=True))
        return [known[value] for value in kept]

    def run_second(stored: list[Any], *late: Any) -> Any:
        given = [*zip(kept, stored, strict=True), *zip(after, jax.tree.leaves(list(late)), strict=True)]
        return _run(second, given)[result]

    return Stages(jax.jit(run_first), jax.jit(run_second))


def _flatten(
    jaxpr: core.Jaxpr, constants: Sequence[Any], inputs: Sequence[Value | Constant], listed: dict[Any, Equation]
) -> list[Value | Constant]:
    """List the equations of a function and of those that it calls, each only once; what it returns."""
    names: dict[Any, Value | Constant] = dict(zip(jaxpr.invars, inputs, strict=True))
    names |= {name: Constant(content) for name, content in zip(jaxpr.constvars, constants, strict=True)}
    read = lambda name: Constant(name.val) if isinstance(name, core.Literal) else names[name]
    for of in jaxpr.eqns:
        arguments = [read(name) for name in of.invars]
        inner = of.params.get(CALLS.get(of.primitive.name, ""))
        results: Sequence[Value | Constant]
        if inner is not None:
            results = _flatten(inner.jaxpr, inner.consts, arguments, listed)
        else:
            equation = Equation(of, arguments, [Value() for _ in of.outvars])
            results = listed.setdefault(_key(equation), equation).outputs
        names |= dict(zip(of.outvars, results, strict=True))
    return [read(name) for name in jaxpr.outvars]


def _key(equation: Equation) -> Any:
    """Equal for equations that compute the same. Loops over networks repeat many, such as the rounding of weights; none
    of these reads a constant, and 0 and -0 should not count as equal, so others stay as they are."""
    try:
        parameters = frozenset(equation.of.params.items())
    except TypeError:  # an array is among them
        return object()
    computed = len(equation.values) > 0 and not any(isinstance(read, Constant) for read in equation.inputs)
    return (equation.of.primitive, parameters, tuple(equation.inputs)) if computed else object()


def _run(equations: Iterable[Equation], given: Iterable[tuple[Value, Any]]) -> Mapping[Value, Any]:
    """Everything that follows from what is given."""
    known = dict(given)
    for equation in equations:
        arguments = [read.content if isinstance(read, Constant) else known[read] for read in equation.inputs]
        primitive = equation.of.primitive
        found = primitive.bind(*arguments, **equation.of.params)
        known |= zip(equation.outputs, found if primitive.multiple_results else [found], strict=True)
    return known

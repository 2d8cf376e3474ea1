"""All cases, in the order of the report that lists the failures; each says what went wrong in a few words, or None."""

from collections.abc import Callable
from dataclasses import dataclass

from bench import Bench


@dataclass(frozen=True)
class Case:
    name: str
    held_by: str
    try_it: Callable[[Bench], str | None]


ALL: list[Case] = []


def case(name: str, held_by: str) -> Callable[[Callable[[Bench], str | None]], None]:
    return lambda function: ALL.append(Case(name, held_by, function))


def refused(name: str, held_by: str, words: str, prepare: Callable[[Bench], object] = lambda bench: None) -> None:
    """A case in which a command must answer with one line and status 2."""

    def try_it(bench: Bench) -> str | None:
        prepare(bench)
        return bench.call(words).refused()

    ALL.append(Case(name, held_by, try_it))


def first(*problems: str | None) -> str | None:
    return next((problem for problem in problems if problem), None)

"""What every command of `dualgoal` is: a frozen dataclass whose fields are its options, with a method that does it."""

import abc
import json
from collections.abc import Callable, Sequence
from typing import Any, Self

from dualgoal.options import check_options


class Verb(abc.ABC):
    """One command. The docstring of a subclass follows the summary of `main.VERBS` in its `--help`."""

    @classmethod
    def defaults(cls, words: Sequence[str]) -> Self | None:
        """An instance whose values are the defaults of the options; None: those that the class states."""
        return None

    def __post_init__(self) -> None:
        check_options(self)

    def options(self, *without: str) -> dict[str, Any]:
        """All options by name, but for some, to call a function whose parameters have the same names."""
        return {name: value for name, value in vars(self).items() if name not in without}

    @abc.abstractmethod
    def run(self) -> None:
        """Do it. Heavy libraries (JAX, MuJoCo, plots) are imported here, so that help and errors come at once."""


def show(value: Any, as_json: bool, text: Callable[[Any], str]) -> None:
    """Print plain values as JSON, or as text for people."""
    print(json.dumps(value, indent=1) if as_json else text(value))

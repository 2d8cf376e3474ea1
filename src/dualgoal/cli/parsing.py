"""Words of the command line to an instance of a dataclass, by tyro; whatever is wrong with them is one `UserError`."""

import contextlib
import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from fractions import Fraction
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import tyro
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from dualgoal.errors import UserError, did_you_mean

T = TypeVar("T")

WHOLE = re.compile(r"[+-]?\d[\d_]*(\.\d*)?([eE][+-]?\d{1,2})?")
RANGE = re.compile(r"(\d+)-(\d+)")
LONGEST_RANGE = 10_000


def unset(meaning: str, metavar: str | None = None, help: str | None = None) -> Any:
    """Annotation of an option that is None or empty unless given: what the help prints instead of that default.

    A `help` of more than one line of source has to stand here: tyro would break the line where a docstring does.
    """
    return tyro.conf.arg(metavar=metavar, help=help, help_behavior_hint=f"(default: {meaning})")


def whole_number(text: str) -> int:
    """A whole number as people write it: 1000000, 1_000_000, 1e6, 2.5e5."""
    exact = Fraction(text.replace("_", "")) if WHOLE.fullmatch(text) and len(text) < 20 else None
    if exact is None or exact.denominator != 1:
        raise ValueError(f"invalid literal for int: {text!r}")
    return int(exact)


def whole_numbers(words: Sequence[str]) -> tuple[int, ...]:
    """A list of whole numbers: 0 1 2, 0,1,2 or 0-2."""
    found: list[int] = []
    for word in filter(None, ",".join(words).split(",")):
        ends = RANGE.fullmatch(word)
        first, last = (int(end) for end in ends.groups()) if ends else (whole_number(word),) * 2
        if not first <= last < first + LONGEST_RANGE:
            raise ValueError(f"the range {word} is empty or longer than {LONGEST_RANGE:,}")
        found += range(first, last + 1)
    return tuple(found)


NUMBERS = ConstructorRegistry()


@NUMBERS.primitive_rule
def _whole(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    """How tyro reads whole numbers, and lists of them, everywhere on the command line."""
    if info.type is int:
        return PrimitiveConstructorSpec(
            nargs=1,
            metavar="INT",
            instance_from_str=lambda words: whole_number(words[0]),
            is_instance=lambda value: type(value) is int,
            str_from_instance=lambda value: [str(value)],
        )
    if info.type == tuple[int, ...]:
        return PrimitiveConstructorSpec(
            nargs="*",
            metavar="INT ...",
            instance_from_str=whole_numbers,
            is_instance=lambda value: isinstance(value, tuple) and all(type(v) is int for v in value),
            str_from_instance=lambda value: [str(v) for v in value],
        )
    return None


def parse(cls: type[T], words: Sequence[str], command: str, description: str, default: T | None = None) -> T:
    """The instance of `cls` that the words after `command` ask for; `--help` prints and raises SystemExit."""
    known = list(flags(cls if default is None else type(default), default))
    parts = _parts(default)
    settings: dict[str, Any] = {} if default is None else {"default": default}
    if {"-h", "--help"} & set(words):
        words = ["--help"]  # tyro leaves out of its help the positional arguments that come before it
    with one_line_errors(command, known, parts):
        return tyro.cli(cls, prog=command, description=description, args=list(words), registry=NUMBERS, **settings)


def flags(cls: type, default: Any = None) -> Iterator[str]:
    """The options of a dataclass as a user types them; fields that hold another dataclass have theirs behind a dot.
    Arguments that are known by their place, and fields that no user sets, have none."""
    for flag, kind in _options(cls, default, "--"):
        yield flag
        if kind is bool:
            name = flag.rpartition(".")[2].removeprefix("--")
            yield f"{flag.removesuffix(name)}no-{name}"


def choices(cls: type, default: Any = None) -> dict[str, tuple[str, ...]]:
    """The options among `flags` that take one or several of a few words, with these words."""
    found = {}
    for flag, kind in _options(cls, default, "--"):
        single = get_args(kind)[0] if get_origin(kind) is tuple else kind
        if get_origin(single) is Literal:
            found[flag] = get_args(single)
    return found


def _options(cls: type, default: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    """The options of a dataclass, each with the type of its field."""
    types, annotated = get_type_hints(cls), get_type_hints(cls, include_extras=True)
    for field in dataclasses.fields(cls):
        notes = getattr(annotated[field.name], "__metadata__", ())
        if tyro.conf.Positional in notes or tyro.conf.Suppress in notes:
            continue
        called = next((note.name for note in notes if getattr(note, "name", None)), field.name)
        value, flag = getattr(default, field.name, None), prefix + called.replace("_", "-")
        if dataclasses.is_dataclass(value):
            yield from _options(type(value), value, f"{flag}.")
        else:
            yield flag, types[field.name]


def _parts(default: Any) -> dict[str, str]:
    """The names of the parts whose options stand behind a dot, such as "--rep." of orig."""
    fields = () if default is None else [field.name for field in dataclasses.fields(default)]
    return {f"--{field}.": getattr(default, f"{field}_name") for field in fields if f"{field}_name" in fields}


@contextlib.contextmanager
def one_line_errors(command: str, known: Sequence[str], parts: Mapping[str, str]) -> Iterator[None]:
    """Tyro's complaints as one-line `UserError`s. `known` are the options, `parts` the names of what has its own.

    Tyro prints a framed text of several lines and exits. What it is about to print can be had as a value, but only by
    a private module (tyro 1.0.16). Where a version of tyro has no such module, its own text is printed.
    """
    try:
        from tyro import _errors as events
    except ImportError:
        yield
        return

    def raise_instead(event: events.ParseErrorEvent) -> None:
        raise UserError(f"{_message(event, known, parts)} (see {command} --help)")

    with events.on_parse_error(raise_instead):
        yield


def _message(event: Any, known: Sequence[str], parts: Mapping[str, str]) -> str:
    """What is wrong, from one of tyro's events; the attributes are those of tyro 1.0.16."""
    kind = type(event).__name__
    if kind == "UnrecognizedArgs":
        return _unrecognized(event.tokens, known, parts)
    if kind == "MissingArgs":
        missing = f"missing: {', '.join(_name(missing.arg) for missing in event.missing_arguments)}"
        strange = _unrecognized(event.unrecognized_tokens, known, parts) if event.unrecognized_tokens else ""
        # A near name is probably the missing one.
        return strange if strange.endswith("?") else "; ".join(filter(None, [strange, missing]))
    if kind == "InvalidChoice":
        hint = did_you_mean(event.value, event.choices)
        return f"{_name(event.argument)} is '{event.value}'{hint} (choices: {', '.join(event.choices)})"
    if kind == "BadValue":
        return f"{_name(event.argument)} needs a value"
    if kind == "InstantiationFailure":
        return event.message if event.argument is None else _not_of_its_type(_name(event.argument), event.message)
    return f"the options do not fit together ({kind})"


def _name(argument: Any) -> str:
    """As the help spells it: flags as they are, positional arguments in capitals."""
    name: str = argument.display_name()
    return (argument.field.argconf.metavar or name.upper()) if argument.is_positional() else name


def _not_of_its_type(name: str, message: str) -> str:
    """Python's words for a text that is no number, in ours."""
    for begin, expected in (("invalid literal for int", "a whole number"), ("could not convert string", "a number")):
        if begin in message:  # of an option that may be left out, among other words
            return f"{name} is {message.rpartition(': ')[2]}; expected {expected}"
    return f"{name}: {message}"


def _unrecognized(tokens: Sequence[str], known: Sequence[str], parts: Mapping[str, str]) -> str:
    flag = next((token.split("=")[0] for token in tokens if token.startswith("-")), None)
    if flag is None:
        return f"unexpected '{' '.join(tokens)}'"
    for prefix in (prefix for prefix in parts if flag.startswith(prefix)):
        own, name = [f.removeprefix(prefix) for f in known if f.startswith(prefix)], flag.removeprefix(prefix)
        has = [option for option in own if not option.rpartition(".")[2].startswith("no-")]
        there = f"it has: {', '.join(has)}" if has else "it has none"
        return f"{parts[prefix]} has no option {name}{did_you_mean(name, own)} ({there})"
    near = get_close_matches(flag, known, n=1)
    return f"unknown option {flag}" + (f"; did you mean {near[0]}?" if near else "")

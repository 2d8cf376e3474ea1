"""Options by dotted names, as users write them: "lr" of the run, "rep.dim" of a part, "rep.goals.current" of what an
option of a part holds."""

import dataclasses
import typing
from collections.abc import Iterator, Mapping
from types import UnionType
from typing import Any

from dualgoal import registry
from dualgoal.options import as_option
from dualgoal.runs import config


def from_options(values: dict[str, Any], options: Mapping[str, Any]) -> config.Run:
    """`config.from_dict` of these values, changed by options; those of a part have names such as "rep.dim", and those
    of what an option of a part holds another dot, as in "rep.goals.current"."""
    values = dict(values)
    # What holds others comes before them, and the name of a part before its options.
    order = lambda name: (name.count("."), not name.endswith(".name"))
    given = config.flat(options)
    for name in sorted(given, key=order):
        _set(values, config.Run, name, as_option(name, given[name]))
    return config.from_dict(values)


def _set(values: dict[str, Any], cls: Any, name: str, value: Any) -> None:
    """Change an option in the JSON values of a `cls`. A name that is not known is written as it is, for `from_dict` to
    refuse."""
    option, _, inner = name.partition(".")
    held = values.get(option, _default(cls, option))
    held = config.plain(held, option) if dataclasses.is_dataclass(held) else {} if held is None else held
    held_cls = _held_class(cls, option, held)
    if not inner or held_cls is None or not isinstance(held, dict):
        values[name] = value
        return
    other_part = inner == "name" and registry.kind_of(held_cls) is not None and held.get("name") != value
    values[option] = {} if other_part else dict(held)  # an option of another part means nothing to this one
    _set(values[option], held_cls, inner, value)


def option_names(cls: Any, chosen: Mapping[str, Any], prefix: str) -> Iterator[str]:
    """The names of all options of a part, those of what it holds included, behind `prefix`. `chosen` are options by
    name, which may put another part than the default in it."""
    for field in (field for field in dataclasses.fields(cls) if field.init):
        name = f"{prefix}{field.name}"
        yield name
        start = f"{name}."
        inside = {each.removeprefix(start): value for each, value in chosen.items() if each.startswith(start)}
        held = _held_class(cls, field.name, inside)
        if held is None or not (inside or dataclasses.is_dataclass(_default(cls, field.name))):
            continue
        if registry.kind_of(held):
            yield f"{name}.name"
        yield from option_names(held, chosen, start)


def parts_in(cls: Any, chosen: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    """A part's class behind `prefix`, and those of the parts that it holds behind longer ones, as `chosen` has them."""
    yield prefix, cls
    for field in (field for field in dataclasses.fields(cls) if field.init):
        start = f"{prefix}{field.name}."
        inside = {each.removeprefix(start): value for each, value in chosen.items() if each.startswith(start)}
        wrong = start.removesuffix(".") in chosen or not isinstance(inside.get("name", ""), str)  # for others to refuse
        held, usual = _held_class(cls, field.name, inside), dataclasses.is_dataclass(_default(cls, field.name))
        if registry.kind_of(held) and (inside or usual) and not wrong:
            yield from parts_in(held, chosen, start)


def _held_class(cls: Any, option: str, held: Any) -> Any:
    """The dataclass of which an option holds an instance, None if it holds none. `held` are its values, among which the
    name of a part decides."""
    hint = typing.get_type_hints(cls).get(option)
    hints = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, UnionType) else (hint,)
    found = [each for each in (type(_default(cls, option)), *hints) if dataclasses.is_dataclass(each)]
    if not found:
        return None
    kind, name = registry.kind_of(found[0]), held.get("name") if isinstance(held, Mapping) else None
    return registry.part(kind, name) if kind and isinstance(name, str) else found[0]


def _default(cls: Any, option: str) -> Any:
    """What an option is if nobody says; None if there is no such thing."""
    for field in dataclasses.fields(cls):
        if field.name == option and field.default_factory is not dataclasses.MISSING:
            return field.default_factory()
        if field.name == option and field.default is not dataclasses.MISSING:
            return field.default
    return None

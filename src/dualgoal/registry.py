"""Representations and algorithms by name: those of this package, those that other packages offer, and any class.

A name is looked up in this order: the parts of this package (`dual`, `gcivl`); parts that an installed package declares
under the entry point groups `dualgoal.reps` and `dualgoal.algos`; and `module:Class`, which is imported. Importing a
part runs its module, so a configuration is only as trustworthy as the modules that can be imported here.
"""

import functools
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from dualgoal import imports
from dualgoal.algos import ALGOS
from dualgoal.errors import UserError, unknown
from dualgoal.interface import Algorithm, Representation
from dualgoal.reps import REPS

Kind = Literal["rep", "algo"]
WORDS: dict[Kind, str] = {"rep": "representation", "algo": "algorithm"}
BASES: dict[Kind, type] = {"rep": Representation, "algo": Algorithm}
BUILT_IN: dict[Kind, dict[str, Any]] = {"rep": REPS, "algo": ALGOS}


def names(kind: Kind) -> list[str]:
    """The names of all parts of this package and of installed packages."""
    return [*BUILT_IN[kind], *(name for name in _offered(kind) if name not in BUILT_IN[kind])]


def part(kind: Kind, name: str) -> Any:
    """The class of a representation or an algorithm; `name` may be `module:Class`."""
    if name in BUILT_IN[kind]:
        return BUILT_IN[kind][name]
    if name in (offered := _offered(kind)):
        return _imported(kind, offered[name])
    if ":" in name:
        return _imported(kind, name)
    raise unknown(WORDS[kind], name, names(kind))


def name_of(kind: Kind, cls: type) -> str:
    """The name under which `part` finds a class again, in this process or in another."""
    for name, known in BUILT_IN[kind].items():
        if cls is known:
            return name
    path = f"{cls.__module__}:{cls.__qualname__}"
    for name, offered in _offered(kind).items():
        if name not in BUILT_IN[kind] and _is_offered_as(kind, offered, cls):
            return name
    if cls.__module__ == "__main__" or not imports.PATH.fullmatch(path):
        raise UserError(
            f"{WORDS[kind]} {cls.__qualname__} is defined in {cls.__module__} where other processes cannot import it; "
            f"put the class at the top level of a module"
        )
    return path


def _is_offered_as(kind: Kind, offered: str, cls: type) -> bool:
    """Whether an entry point names this class, perhaps by a module that has it from another one."""
    if offered == f"{cls.__module__}:{cls.__qualname__}":
        return True
    package = lambda place: place.partition(":")[0].partition(".")[0]
    if package(offered) != package(cls.__module__):
        return False  # no other package is imported for this
    try:
        return _imported(kind, offered) is cls
    except UserError:  # another part of the package, which does not work
        return False


def kind_of(cls: Any) -> Kind | None:
    """Whether a class is a representation or an algorithm, or neither."""
    for kind, base in BASES.items():
        if isinstance(cls, type) and issubclass(cls, base):
            return kind
    return None


@functools.cache
def _offered(kind: Kind) -> dict[str, str]:
    """What installed packages declare: `module:Class` by name."""
    return {entry.name: entry.value for entry in metadata.entry_points(group=f"dualgoal.{kind}s")}


def _imported(kind: Kind, path: str) -> Any:
    module, _, name = path.rpartition(":")
    if module.endswith(".py"):  # processes that evaluate could not import a script by name
        file = Path(module)
        raise UserError(
            f"{WORDS[kind]} '{path}' is in a file; give module:Class, here {file.stem}:{name}, with the folder "
            f"{file.parent} on PYTHONPATH"
        )
    if not imports.PATH.fullmatch(path):
        raise UserError(f"{WORDS[kind]} '{path}' is not of the form module:Class")
    cls = imports.load(WORDS[kind], path)
    if not isinstance(cls, type) or not issubclass(cls, BASES[kind]):
        raise UserError(f"{WORDS[kind]} '{path}' is not a subclass of {BASES[kind].__name__}")
    if "__dataclass_fields__" not in vars(cls):  # the class itself: its base class always is one
        raise UserError(f"{WORDS[kind]} '{path}' is not a dataclass; decorate it with @dataclass(frozen=True)")
    if missing := sorted(getattr(cls, "__abstractmethods__", ())):
        raise UserError(f"{WORDS[kind]} '{path}' does not define {', '.join(missing)}; see {BASES[kind].__name__}")
    return cls

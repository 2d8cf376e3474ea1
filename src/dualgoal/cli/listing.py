"""`dualgoal list`: the representations, algorithms, tasks and tables there are to choose from."""

import dataclasses
import inspect
import re
import sys
from dataclasses import asdict, dataclass
from typing import Any, Literal

from tyro.conf import Positional

from dualgoal import texts
from dualgoal.cli.verb import Verb, show

Entry = dict[str, Any]
What = Literal["reps", "algos", "tasks", "tables"]


@dataclass(frozen=True)
class List(Verb):
    """Each representation and algorithm is listed with its options and their defaults."""

    what: Positional[What]
    """What to list."""
    json: bool = False
    """Print JSON."""

    def run(self) -> None:
        show(entries(self.what), self.json, text)


def entries(what: What) -> list[Entry]:
    """One entry per name, as plain values."""
    if what in ("tasks", "tables"):
        return _tasks() if what == "tasks" else _tables()
    from dualgoal import registry

    kind: registry.Kind = "rep" if what == "reps" else "algo"
    parts = {name: registry.part(kind, name) for name in registry.names(kind)}
    options = lambda part: {f.name: _plain(f) for f in dataclasses.fields(part) if f.init}
    return [{"name": name, "about": about(part), "options": options(part)} for name, part in parts.items()]


def _tasks() -> list[Entry]:
    from dualgoal.envs import tasks
    from dualgoal.paper import settings

    found = [tasks.get(name) for name in (*tasks.TASKS, *tasks.ORACLE_TASKS)]
    derived = lambda task: {name: getattr(task, name) for name in ("family", "pixels", "needs_expert")}
    return [asdict(task) | derived(task) | asdict(settings.task_settings(task.name)) for task in found]


def _tables() -> list[Entry]:
    from dualgoal.paper import tables

    return [
        {
            "name": table.name,
            "title": table.title,
            "tasks": list(table.tasks),
            "columns": [column.name for column in table.columns],
            "seeds": table.seeds,
        }
        for table in tables.TABLES.values()
    ]


def about(cls: type) -> str:
    """The first paragraph of a part's docstring, or of its module's, without references to sections."""
    own = cls.__dict__.get("__doc__") or ""
    if not own or own.startswith(f"{cls.__name__}("):  # none, or the signature that a dataclass puts there
        own = sys.modules[cls.__module__].__doc__ or ""
    first = " ".join(inspect.cleandoc(own).split("\n\n")[0].split())
    return re.sub(r" \(section[^)]*\)", "", first)


def _plain(field: "dataclasses.Field[Any]") -> Any:
    """A default as a JSON value; None where there is none."""
    from dualgoal import registry

    value = None if field.default is dataclasses.MISSING else field.default
    if field.default_factory is not dataclasses.MISSING:
        value = field.default_factory()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        kinds = [kind for kind, base in registry.BASES.items() if isinstance(value, base)]
        named = {"name": registry.name_of(kinds[0], type(value))} if kinds else {}
        return named | dataclasses.asdict(value)
    return list(value) if isinstance(value, tuple) else value


def text(found: list[Entry]) -> str:
    return "\n".join(texts.aligned([line for entry in found for line in _lines(entry)]))


def _lines(entry: Entry) -> list[list[str]]:
    """The cells of an entry: one line, or two for a part that has options."""
    if "about" in entry:
        options = "  ".join(f"{name}={_brief(value)}" for name, value in entry["options"].items())
        return [[entry["name"], entry["about"]], *([["", options]] if options else [])]
    if "family" in entry:
        from dualgoal.collect import experts

        shape = "x".join(map(str, entry["observation_shape"]))
        own = entry["needs_expert"] and not experts.all_shipped(entry["family"])
        sizes = [f"observations {shape}", f"actions {entry['action_dim']}", f"discount {entry['discount']}"]
        sizes.append(f"representation {entry['dim']}")
        return [[entry["name"], *sizes, "needs your own expert to generate" * own]]
    size = f"{len(entry['tasks'])} tasks x {len(entry['columns'])} columns x {entry['seeds']} seeds"
    return [[entry["name"], entry["title"], size]]


def _brief(value: Any) -> str:
    if isinstance(value, dict):
        return f"({', '.join(f'{name} {inner}' for name, inner in value.items())})"
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)

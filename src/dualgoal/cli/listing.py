"""What there is to choose from: representations, algorithms, tasks and tables, read from the registries themselves."""

import dataclasses
import inspect
import sys
from typing import Any, Literal

from dualgoal import registry
from dualgoal.envs import tasks
from dualgoal.paper import settings, tables

Entry = dict[str, Any]
What = Literal["reps", "algos", "tasks", "tables"]


def entries(what: What) -> list[Entry]:
    """One entry per name, as plain values."""
    if what in ("reps", "algos"):
        return [_part(name, cls) for name, cls in (registry.reps() if what == "reps" else registry.algos()).items()]
    if what == "tasks":
        return [
            dataclasses.asdict(task) | dataclasses.asdict(settings.task_settings(name))
            for name, task in tasks.TASKS.items()
        ]
    return [
        {
            "name": table.name,
            "label": table.label,
            "title": table.title,
            "tasks": list(table.tasks),
            "columns": [column.name for column in table.columns],
            "seeds": table.seeds,
        }
        for table in tables.TABLES.values()
    ]


def _part(name: str, cls: type) -> Entry:
    """A part's first sentence is that of its module; its options are its fields."""
    about = (inspect.getdoc(sys.modules[cls.__module__]) or "").split("\n\n")[0].replace("\n", " ")
    options = {f.name: _plain(f.default) for f in dataclasses.fields(cls) if f.init}
    return {"name": name, "about": about, "options": options}


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def text(found: list[Entry]) -> str:
    """The entries for people."""
    return "\n".join(_line(entry) for entry in found)


def _line(entry: Entry) -> str:
    if "about" in entry:
        options = "  ".join(f"{name}={_brief(value)}" for name, value in entry["options"].items())
        return f"{entry['name']:<6} {entry['about']}\n       {options}"
    if "family" in entry:
        shape = "x".join(map(str, entry["observation_shape"]))
        return (
            f"{entry['name']:<34} observations {shape:<8} actions {entry['action_dim']:<3}"
            f" discount {entry['discount']:<6} N {entry['dim']:<4}"
            f" {'needs an expert to generate' if entry['needs_expert'] else ''}"
        ).rstrip()
    size = f"{len(entry['tasks'])} tasks x {len(entry['columns'])} columns x {entry['seeds']} seeds"
    return f"{entry['name']:<17} {entry['label']:<18} {entry['title']:<52} {size}"


def _brief(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)

"""A run as a TOML file: `train --print-config` prints one, `train --config` reads it (docs/everyday.md).

Options of the run are at the top, beside those of `HOW`; those of a part are in a table [rep] or [algo] with its
`name`, which alone may also be given as rep = "dual".
"""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dualgoal.errors import UserError, unknown
from dualgoal.files import read_toml
from dualgoal.runs import config, directory
from dualgoal.runs.config import Run
from dualgoal.runs.trackers import TRACKERS

# How a run is carried out, which does not change it, and the type of each in a file.
HOW: dict[str, type] = {
    "data": str, "out": str, "workers": int, "track": list, "video": bool, "separate_cores": bool, "quiet": bool,
    "source": str,
}  # fmt: skip
PARTS = ("rep", "algo")


@dataclass(frozen=True)
class RunFile:
    """What a file says: the names of the two parts, options of the run (those of its parts behind a dot), and how to
    carry it out. Nothing is checked that a run checks itself."""

    path: Path
    names: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    how: Mapping[str, Any] = field(default_factory=dict)

    def options_for(self, names: Mapping[str, str]) -> dict[str, Any]:
        """The options for parts of these names: those of another part in the file mean nothing to them."""
        other = [f"{kind}." for kind in PARTS if self.names.get(kind) not in (None, names[kind])]
        return {name: value for name, value in self.options.items() if not name.startswith(tuple(other))}


def read(path: str | Path) -> RunFile:
    """A TOML file, or the configuration of a run directory."""
    path = Path(path).expanduser()
    content = _of_directory(path) if path.is_dir() else read_toml(path, "the options of a run")
    known = [f.name for f in dataclasses.fields(Run)]
    names: dict[str, str] = {}
    options: dict[str, Any] = {}
    for name, value in content.items():
        if name in PARTS and isinstance(value, str):
            names[name] = value
        elif name in PARTS and isinstance(value, dict):
            options |= {f"{name}.{option}": v for option, v in value.items() if option != "name"}
            if "name" in value:
                names[name] = _require(value["name"], str, f"{path}: {name}.name")
        elif name == "task":
            options[name] = _require(value, str, f"{path}: task")
        elif name in known or name.partition(".")[0] in PARTS and "." in name:
            options[name] = value
        elif name not in HOW:
            raise UserError(f"{path}: {unknown('key', name, [*known, *HOW])}")
        else:
            _require(value, HOW[name], f"{path}: {name}")
    for tracker in content.get("track", ()):
        if tracker not in TRACKERS:
            raise UserError(f"{path}: {unknown('tracker', str(tracker), TRACKERS)}")
    return RunFile(path, names, options, {name: content[name] for name in HOW if name in content})


def _of_directory(path: Path) -> dict[str, Any]:
    """A run's own configuration, and its data if they are still where they were."""
    run, facts = directory.read(path)
    file = facts.dataset.file
    return config.to_dict(run) | ({"data": file} if file and Path(file).is_file() else {})


def _require(value: Any, kind: type, where: str) -> Any:
    if type(value) is not kind:
        words = {str: "a text in quotes", int: "a whole number", list: "a list", bool: "true or false"}
        raise UserError(f"{where} is {json.dumps(value, default=str)}; expected {words[kind]}")
    return value


def text(run: Run, how: Mapping[str, Any]) -> str:
    """The file that gives this run, and how it is carried out as far as that was chosen."""
    values = config.to_dict(run)
    chosen = {name: value for name, value in how.items() if value not in (None, False, ())}
    top = {name: value for name, value in values.items() if not isinstance(value, dict)}
    lines = [f"# dualgoal train --config FILE: run {run.id}", *_lines(top | chosen)]
    for kind in PARTS:
        lines += ["", *_table(kind, values[kind])]
    return "\n".join(lines)


def _table(name: str, values: Mapping[str, Any]) -> list[str]:
    inner = [_table(f"{name}.{key}", value) for key, value in values.items() if isinstance(value, dict)]
    own = {key: value for key, value in values.items() if not isinstance(value, dict)}
    return [f"[{name}]", *_lines(own), *(line for table in inner for line in ["", *table])]


def _lines(values: Mapping[str, Any]) -> list[str]:
    """TOML writes numbers, texts, lists and truth values as JSON does, but for 1e-05, which both read. It has no null:
    what is None is left out, which means the same."""
    text = lambda value: json.dumps(value, ensure_ascii=False, allow_nan=False, default=str)  # a path is a text
    return [f"{name} = {text(value)}" for name, value in values.items() if value is not None]

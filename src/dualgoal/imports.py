"""Things of the user's own by name (`module:name`, or `file.py:name` for a script that is in no package), and optional
packages."""

import hashlib
import importlib
import importlib.util
import inspect
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from dualgoal.errors import UserError, brief, kind_of

WITHOUT_LABMAZE = "pip install --no-deps ogbench==1.2.2 dm-control==1.0.36"  # see pyproject.toml
OWN = "_own_"  # how the names of modules begin that are scripts
PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
_loaded: dict[str, str] = {}  # SHA-256 of files when they were loaded


def modules_of(package: str) -> Callable[[str], ModuleType]:
    """The `__getattr__` of a package whose modules are imported when they are first used as its attributes."""

    def module(name: str) -> ModuleType:
        try:
            return importlib.import_module(f"{package}.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"{package}.{name}":  # something that the module itself needs
                raise
            raise AttributeError(f"module '{package}' has no attribute '{name}'") from None

    return module


def load(what: str, path: str, or_file: bool = False) -> Any:
    """The thing that `path` names, or one line that says why it cannot be had; with `or_file` it names a file that may
    have been meant. Importing runs the module."""
    found, (module, _, name) = module_of(what, path, or_file), path.rpartition(":")
    if not hasattr(found, name):
        raise UserError(f"{what} '{path}': {module} has nothing called {name}")
    return getattr(found, name)


def name_of(thing: Any) -> str | None:
    """What other processes can load this by: its name, or where it is defined; None for all else."""
    if thing is None or isinstance(thing, str):
        return thing
    path = f"{getattr(thing, '__module__', '')}:{getattr(thing, '__qualname__', '')}"
    if not PATH.fullmatch(path) or path.startswith("__main__:"):
        return None
    try:
        return path if load("thing", path) is thing else None
    except UserError:
        return None


def function(what: str, path: str) -> Any:
    """The same for something that is called."""
    found = load(what, path, or_file=True)
    if not callable(found):
        raise UserError(f"{what} '{path}': it is {kind_of(found)}, which cannot be called; name a function")
    return found


def digest(what: str, path: str) -> str | None:
    """The SHA-256 of the file that a function comes from, if it comes from one. What was edited after this process had
    loaded it is loaded again if it is a script; a module of a package cannot be."""
    found = function(what, path)
    try:
        file = Path(inspect.getfile(inspect.unwrap(found)))
    except TypeError:  # it is compiled, or an object that can be called
        file = Path(getattr(module_of(what, path), "__file__", None) or "")
    if not file.is_file():
        return None
    now = hashlib.sha256(file.read_bytes()).hexdigest()
    if _loaded.setdefault(str(file), now) == now:
        return now
    if not getattr(found, "__module__", "").startswith(OWN):
        raise UserError(f"{what} '{path}': {file.name} was edited after this process had loaded it; start Python again")
    del sys.modules[found.__module__], _loaded[str(file)]
    return digest(what, path)


def file_digest(path: str) -> str | None:
    """The SHA-256 of the file in which `module:name` or `file.py:name` is looked for, which is not run; None if there
    is no such file, or this is a name of another kind."""
    place, colon, name = path.rpartition(":")
    if not colon or not name.isidentifier():
        return None
    try:
        found = place if place.endswith(".py") else getattr(importlib.util.find_spec(place), "origin", None)
        return hashlib.sha256(Path(found or "").expanduser().read_bytes()).hexdigest()
    except Exception:  # a package around it may raise anything
        return None


@contextmanager
def calling(what: str) -> Iterator[None]:
    """Around code of the user's own: what it raises becomes one line, or stays as it is if DUALGOAL_DEBUG is set."""
    try:
        yield
    except (Exception, SystemExit) as error:
        if isinstance(error, UserError) or os.environ.get("DUALGOAL_DEBUG"):
            raise
        raise raised(what, error) from error


def raised(what: str, error: Exception | SystemExit) -> UserError:
    """One line about an exception of the user's code, with the last place that is neither ours nor a library's."""
    others = (str(Path(__file__).parent), str(Path(os.__file__).parent), "<")
    places = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(others)]
    own = [f for f in places if "site-packages" not in Path(f.filename).parts]
    place = f" ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else ""
    return UserError(
        f"{what} raised {type(error).__name__}: {brief(error)}{place}; DUALGOAL_DEBUG=1 shows the traceback"
    )


def optional(module: str, extra: str, what: str) -> Any:
    """A module of an optional package, or one line that says how to install it; `what` is the thing that needs it."""
    package = module.split(".")[0]
    try:
        return importlib.import_module(module)
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name in (package, module):
            raise missing(what, package, extra) from error
        raise UserError(
            f"{what} needs {package}, which is installed but cannot be imported ({brief(error)}); install it anew: "
            f"{install(extra)}"
        ) from error


def missing(what: str, package: str, extra: str) -> UserError:
    """The one line about a package that comes only with an extra of this one."""
    return UserError(f"{what} needs {package}, which is not installed: {install(extra)}")


def install(extra: str) -> str:
    """The command that installs an extra."""
    command = f"pip install 'dualgoal[{extra}]'"
    if extra != "ogbench" or sys.version_info < (3, 13):
        return command
    return f"{command}, then {WITHOUT_LABMAZE}"


def absolute(path: str) -> str:
    """The same name in any working directory: the path of a file is made absolute."""
    module, _, name = path.rpartition(":")
    return f"{Path(module).expanduser().resolve()}:{name}" if module.endswith(".py") else path


def module_of(what: str, path: str, or_file: bool = False) -> ModuleType:
    """The module in which `path` names something."""
    module, _, name = path.rpartition(":")
    if not (PATH.fullmatch(path) or (module.endswith(".py") and name.isidentifier())):
        raise UserError(f"{what} '{path}' is not of the form module:name or file.py:name")
    try:
        return _from_file(Path(module)) if module.endswith(".py") else importlib.import_module(module)
    except ImportError as error:
        file, itself = Path(f"{module.replace('.', '/')}.py"), f"{module}.".startswith(f"{error.name}.")
        advice = f"give {file}:{name} for the file here, or " if or_file and itself and file.is_file() else ""
        advice += "install the package or put its folder on PYTHONPATH"
        raise UserError(f"{what} '{path}': {error}; {advice}") from error
    except OSError as error:
        raise UserError(f"{what} '{path}': {error.strerror or error}; expected a Python file") from error
    except SyntaxError as error:
        raise UserError(f"{what} '{path}': line {error.lineno} is not Python ({error.msg})") from error
    except Exception as error:
        raise raised(f"{what} '{path}'", error) from error


class _Script(SourceFileLoader):
    """Reads the file itself each time and notes its digest; Python's cache of compiled files takes one that was edited
    within a second, and has the same size, for the same."""

    def path_stats(self, path: str) -> Mapping[str, Any]:
        raise OSError("not cached")

    def get_data(self, path: str) -> bytes:
        content = super().get_data(path)
        _loaded[path] = hashlib.sha256(content).hexdigest()
        return content


def _from_file(file: Path) -> ModuleType:
    """A script as a module, loaded once; its name is its own, so that it hides no module of the same name."""
    file = file.expanduser().resolve()
    name = f"{OWN}{file.stem}_{hashlib.sha256(str(file).encode()).hexdigest()[:8]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file, loader=_Script(name, str(file)))
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} cannot be loaded")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module

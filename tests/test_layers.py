"""Who may import whom: every import of the package is read, those inside functions and for type checking too."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "src" / "dualgoal"
METHOD = "options draws interface compatibility trials streams losses fast nets sampler reps algos registry agent loop"
ALLOWED = {  # a folder, or a module at the top, may import itself and what stands here
    "errors": "",
    "files": "errors",
    "jsons": "errors files",
    "imports": "errors",
    "machine": "errors",
    "progress": "errors",
    "texts": "",
    "workers": "errors machine",
    "options": "errors",
    "spec": "options errors",
    "draws": "",
    "interface": "draws options spec",
    "compatibility": "interface errors",
    "trials": "compatibility interface errors",
    "losses": "",
    "fast": "",
    "nets": "interface fast losses errors",
    "streams": "interface options nets errors",
    "sampler": "interface streams nets errors",
    "reps": "interface streams losses nets errors",  # representations and algorithms never import each other
    "algos": "interface streams losses nets errors",
    "registry": "reps algos interface imports errors",
    "agent": "interface compatibility streams sampler losses nets fast errors",
    "loop": "agent fast streams sampler interface errors",
    "envs": "errors files imports",
    "data": "envs files imports jsons machine progress errors",
    "collect": "data envs files imports jsons machine progress workers errors",
    "theory": "errors files imports",
    "runs": f"{METHOD} collect data envs files imports jsons machine progress texts workers errors",
    "experts": "interface options nets fast loop runs collect files imports jsons machine progress texts errors",
    "engine": "runs files imports jsons machine errors __init__",  # of the package: its version
    "paper": f"{METHOD} engine runs collect data envs files imports jsons machine progress texts theory errors",
    "report": "paper runs data envs files imports jsons machine errors",
    "api": "paper report runs data envs imports interface options registry files errors",
    "probes": f"{METHOD} paper runs data envs files imports jsons machine texts errors",
    "bench": f"{METHOD} paper runs envs machine errors",
    "cli": "*",
    "__init__": "*",  # lazily: see test_public
    "__main__": "cli",
}


def modules() -> dict[str, Path]:
    names = {}
    for path in ROOT.rglob("*.py"):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        names[name.removesuffix(".__init__")] = path
    return names


MODULES = modules()


def imported(path: Path) -> set[str]:
    """The modules of the package that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {a.name.removeprefix("dualgoal.") for a in node.names if a.name.startswith("dualgoal.")}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            if node.module == "dualgoal":
                found |= {a.name if a.name in MODULES else "__init__" for a in node.names}
            elif (node.module or "").startswith("dualgoal."):
                module = node.module.removeprefix("dualgoal.")
                inner = {f"{module}.{a.name}" for a in node.names if f"{module}.{a.name}" in MODULES}
                found |= inner or {module}
    return found


IMPORTS = {name: imported(path) for name, path in MODULES.items()}
folder = lambda name: name.split(".")[0]


def test_the_table_knows_every_folder():
    assert {folder(name) for name in MODULES} == set(ALLOWED)


@pytest.mark.parametrize("name", ALLOWED)
def test_a_folder_imports_only_what_its_row_allows(name):
    allowed = {name, *ALLOWED[name].split()}
    wrong = [
        f"{source} imports {target}"
        for source in MODULES
        if folder(source) == name
        for target in IMPORTS[source]
        if folder(target) not in allowed and ALLOWED[name] != "*"
    ]
    assert not wrong


def test_no_two_modules_need_each_other():
    """No cycle, however long. A folder's `__init__` that gathers its modules is not one of them."""
    graph = {name: {t for t in targets if t != name} for name, targets in IMPORTS.items() if name != "__init__"}
    done: set[str] = set()

    def visit(name, path):
        if name in path:
            raise AssertionError(" -> ".join([*path[path.index(name) :], name]))
        if name in done or name not in graph:
            return
        for target in graph[name]:
            visit(target, [*path, name])
        done.add(name)

    for name in graph:
        visit(name, [])


def test_no_module_repeats_its_name_in_a_function():
    """`train.train` makes callers write `import train as ...`."""
    for name, path in MODULES.items():
        last = name.split(".")[-1]
        functions = {n.name for n in ast.parse(path.read_text()).body if isinstance(n, ast.FunctionDef)}
        assert last == "main" or last not in functions, f"{name}.{last}"


def test_no_module_is_imported_under_another_name():
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "dualgoal":
                renamed = [a.name for a in node.names if a.asname and f"{node.module}.{a.name}"[9:] in MODULES]
                assert not renamed, f"{path.name} renames {renamed}"


def test_no_file_is_long():
    """A file has one idea, and about 350 lines at most."""
    lines = {name: len(path.read_text().splitlines()) for name, path in MODULES.items()}
    assert {name: count for name, count in lines.items() if count > 360} == {}

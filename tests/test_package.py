"""What is shipped: the wheel has all files the package reads and nothing else, and imports are declared."""

import ast
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import dualgoal

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SHIPPED = [
    "src", "docs", "examples", "tests", "tools", "results", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE",
    "CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "Makefile", "mkdocs.yml",
]  # fmt: skip


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """(sdist, wheel), the wheel built from the sdist, as `python -m build` does."""
    folder = tmp_path_factory.mktemp("package")
    backend = PROJECT["build-system"]["requires"]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--disable-pip-version-check", "--target"]
    got = subprocess.run([*pip, str(folder / "backend"), *backend], capture_output=True, text=True)
    if got.returncode:
        pytest.skip("setuptools cannot be downloaded here: " + got.stderr.strip().splitlines()[-1])
    for name in SHIPPED:
        source, target = ROOT / name, folder / "tree" / name
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        else:
            shutil.copy(source, target)
    call = lambda kind, where: subprocess.run(
        [sys.executable, "-c", f"from setuptools import build_meta; build_meta.build_{kind}({str(folder)!r})"],
        cwd=where, env={"PYTHONPATH": str(folder / "backend"), "PATH": ""}, check=True, capture_output=True,
    )  # fmt: skip
    call("sdist", folder / "tree")
    (sdist,) = folder.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    call("wheel", folder / sdist.name.removesuffix(".tar.gz"))
    (wheel,) = folder.glob("*.whl")
    return sdist, wheel


def test_the_wheel_has_every_file_of_the_package_and_nothing_else(built):
    names = set(zipfile.ZipFile(built[1]).namelist())
    package = {str(p.relative_to(ROOT / "src")) for p in (ROOT / "src" / "dualgoal").rglob("*") if p.is_file()}
    package = {name for name in package if "__pycache__" not in name}
    assert {name for name in names if ".dist-info/" not in name} == package
    assert {"py.typed", "report.css", "report.js", "paper_results.json"} <= {Path(name).name for name in package}
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_the_source_archive_can_be_tested(built):
    with tarfile.open(built[0]) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    assert {
        "README.md",
        "LICENSE",
        "CITATION.cff",
        "Makefile",
        "mkdocs.yml",
        "tests/tiny.py",
        "docs/index.md",
        "examples/two_link_arm.py",
    } <= names


def test_there_is_one_version(built):
    assert built[1].name.startswith(f"dualgoal-{dualgoal.__version__}-")
    facts = zipfile.ZipFile(built[1]).read(f"dualgoal-{dualgoal.__version__}.dist-info/METADATA").decode()
    assert f"\nVersion: {dualgoal.__version__}\n" in facts and "\nLicense-Expression: MIT\n" in facts


def distributions(requirements):
    return {re.match(r"[\w-]+", line).group().lower().replace("-", "_") for line in requirements}


def imported(folder: Path) -> set[str]:
    """Top-level modules that the files of a folder import, inside functions too."""
    found: set[str] = set()
    for file in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                found |= {name.name.split(".")[0] for name in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module.split(".")[0])
    return found - set(sys.stdlib_module_names) - {"dualgoal"}


def test_everything_imported_is_declared():
    project = PROJECT["project"]
    extras = [line for name, lines in project["optional-dependencies"].items() if name != "dev" for line in lines]
    declared = distributions([*project["dependencies"], *extras])
    assert {name.lower() for name in imported(ROOT / "src")} <= declared

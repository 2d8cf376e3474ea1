"""CITATION.cff, the README and the package name the same paper and the same version."""

import re
import tomllib
from pathlib import Path

import yaml

import dualgoal

ROOT = Path(__file__).parents[1]
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text())
PAPER = CITATION["preferred-citation"]


def test_the_file_has_what_the_format_requires():
    assert CITATION["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= set(CITATION) and {"type", "title", "authors"} <= set(PAPER)
    assert all({"family-names", "given-names"} <= set(person) for person in PAPER["authors"])


def test_its_version_is_the_package_version():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert str(CITATION["version"]) == dualgoal.__version__
    assert CITATION["license"] == project["license"]


def test_the_readme_names_the_same_paper():
    readme = (ROOT / "README.md").read_text()
    assert PAPER["title"] in readme and PAPER["url"] in readme
    entry = re.search(r"```bibtex\n(.*?)```", readme, re.S).group(1)
    assert f"title={{{PAPER['title']}}}" in entry.replace(" = ", "=")
    for person in PAPER["authors"]:
        assert f"{person['family-names']}, {person['given-names']}" in entry

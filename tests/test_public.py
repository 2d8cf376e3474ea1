"""The public names: few, imported when first used, documented, and with examples that are right."""

import ast
import doctest
import inspect
import subprocess
import sys
import typing
from pathlib import Path

import pytest

import dualgoal
import pages
from tiny import make_data

NAMES = sorted(set(dualgoal.__all__) - {"__version__"})


def test_importing_is_quick_and_starts_nothing():
    code = "import sys, time; t = time.process_time(); import dualgoal; t = time.process_time() - t\n"
    code += "assert 'jax' not in sys.modules and 'numpy' not in sys.modules; print(t)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 0.2


def test_every_name_is_found_and_known_to_type_checkers():
    tree = ast.parse(Path(inspect.getfile(dualgoal)).read_text())
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    declared = {f"{line.module}.{name.name}" for line in block.body for name in line.names}
    homes = {f"dualgoal.{module}.{name}" for name, module in dualgoal._HOMES.items()}
    assert declared == homes and {home.rsplit(".", 1)[1] for home in homes} == set(NAMES)
    assert all(getattr(dualgoal, name) is not None for name in NAMES) and set(NAMES) < set(dir(dualgoal))


def test_other_names_are_refused():
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        dualgoal.trian  # noqa: B018


@pytest.fixture(scope="module")
def place(tmp_path_factory, evaluated_here):
    """A folder with data and the run that the example of `train` makes, which the other examples use."""
    folder = tmp_path_factory.mktemp("place")
    make_data(folder / "data")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("DUALGOAL_CACHE", str(folder / "cache"))
        (example,) = doctest.DocTestFinder().find(dualgoal.train, "train", globs={"dualgoal": dualgoal})
        assert not doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(example).failed
    return folder


@pytest.mark.parametrize("name", [name for name in NAMES if not name.isupper()])
def test_every_name_is_documented_and_its_examples_are_right(name, place, monkeypatch):
    monkeypatch.chdir(place)
    monkeypatch.setenv("DUALGOAL_CACHE", str(place / "cache"))
    thing = getattr(dualgoal, name)
    assert ">>> " in (inspect.getdoc(thing) or "")
    names = {**vars(inspect.getmodule(thing)), "dualgoal": dualgoal}
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    for example in doctest.DocTestFinder(recurse=False).find(thing, name, globs=names):
        report: list[str] = []
        failed, _ = doctest.DocTestRunner(optionflags=flags).run(example, out=report.append)
        assert not failed, "".join(report)


def test_the_examples_of_the_api_page_run(tmp_path, monkeypatch, capsys, evaluated_here):
    make_data(tmp_path / "data")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DUALGOAL_CACHE", str(tmp_path / "cache"))
    names, blocks = {}, pages.blocks((pages.ROOT / "docs" / "api.md").read_text())
    for _, block in blocks:
        exec(block, names)
    assert len(names["rows"]) == 5 and names["z"].shape == (8,) and names["steps"].shape == (5,)
    said = capsys.readouterr().out
    assert "2 [0 3] [2 5]" in said and "did you mean 'cube-single-play-v0'?" in said
    used = " ".join(block for _, block in blocks)
    shown = [name for name in NAMES if f"dualgoal.{name}" in used or ">>> " in (getattr(dualgoal, name).__doc__ or "")]
    assert shown == NAMES


def test_annotations_of_the_functions_resolve():
    for name in ("load", "train", "evaluate", "preset"):
        assert typing.get_type_hints(getattr(dualgoal, name))["return"] is not type(None)

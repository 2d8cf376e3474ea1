"""Every "section 4.7", D5, A3 or T1 in the code leads to a heading or a table row of docs/method.md."""

import dataclasses
import re
from pathlib import Path

import pytest

from dualgoal.algos import ALGOS
from dualgoal.reps import REPS
from dualgoal.runs.config import Run

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "method.md").read_text()
SOURCES = sorted([*(ROOT / "src").rglob("*.py"), *(ROOT / "tests").glob("*.py"), *(ROOT / "docs").glob("*.md")])
NUMBER = r"\d+(?:\.\d+)?"
SECTIONS = rf"[Ss]ections? ({NUMBER}(?:(?:, | and | to |, and )(?={NUMBER}){NUMBER})*)"
CODES = r"\b[DAT]\d{1,2}\b"

HEADINGS = set(re.findall(rf"^##+ ({NUMBER})\.? ", PAGE, re.M))
ROWS = {cell for row in re.findall(r"^\|(.*)\|$", PAGE, re.M) for cell in map(str.strip, row.split("|"))}


def references(text: str) -> tuple[set[str], set[str]]:
    """The sections and the codes that a text names; line breaks and comment signs may stand inside a reference."""
    text = re.sub(r"\s+(#\s+)?", " ", text)
    sections = {number for group in re.findall(SECTIONS, text) for number in re.findall(NUMBER, group)}
    return sections, set(re.findall(CODES, text))


def test_references_are_found_in_every_form_they_are_written_in():
    text = "see section 4.7, and sections 6, 7.1 and 10\n    # (D5); section\n # 2.2 about A10, T8, an A100 and 3 to 5"
    assert references(text) == ({"4.7", "6", "7.1", "10", "2.2"}, {"D5", "A10", "T8"})


def test_the_page_has_all_sections_and_codes():
    assert {str(n) for n in range(1, 14)} <= HEADINGS
    codes = {f"D{n}" for n in range(1, 27)} | {f"A{n}" for n in range(1, 14)} | {f"T{n}" for n in range(1, 10)}
    assert codes <= ROWS


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_reference_resolves(path):
    text = path.read_text()
    sections, codes = references(text)
    assert sections <= HEADINGS and codes <= ROWS, "not in docs/method.md"
    assert not re.findall(r"\xa7|wish(?:es)? \d", text), "a reference that readers cannot follow"


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_what_users_read_first_needs_no_codes(name):
    assert references((ROOT / name).read_text()) == (set(), set())


def test_every_option_that_the_page_names_exists():
    classes = [Run, *REPS.values(), *ALGOS.values()]
    known = {f.name for cls in classes for f in dataclasses.fields(cls)}
    named = re.findall(r"`--(?:rep\.|algo\.)(?:no-)?([a-z-]+)", PAGE)
    named += re.findall(r"`--(?:no-)?(frozen-rep|ema-before-update|reached-by|augment)", PAGE)
    assert len(set(named)) >= 9
    assert {name.replace("-", "_") for name in named} <= known

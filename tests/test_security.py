"""Every test that SECURITY.md and docs/reliability.md name exists, and the claims that no other test holds."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [page for page in (ROOT / "SECURITY.md", ROOT / "docs" / "reliability.md") if page.exists()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_tests_that_the_pages_name_exist(page):
    named, file = 0, ""
    for span in re.findall(r"`([^`\n]+)`", page.read_text()):
        found = re.fullmatch(r"(?:tests/)?(test_\w+\.py)?(?:::(test_\w+))?", span)
        if not found or not any(found.groups()):
            continue
        file, test, named = found[1] or file, found[2], named + 1
        assert (ROOT / "tests" / file).is_file(), span
        assert test is None or f"def {test}(" in (ROOT / "tests" / file).read_text(), span
    assert named > (5 if page.name == "SECURITY.md" else 0)


def test_nothing_listens():
    """No server and no listening socket in the package."""
    for file in (ROOT / "src").rglob("*.py"):
        assert not re.search(
            r"socketserver|http\.server|\.listen\(|(?<!primitive)\.bind\(|asyncio", file.read_text()
        ), file

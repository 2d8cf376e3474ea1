"""The documentation builds as a site without a warning, without a network, and asks for nothing from elsewhere."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
pytest.importorskip("mkdocs")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    closed = {name: "http://127.0.0.1:9" for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")}
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT, capture_output=True, text=True, env={**os.environ, **closed, "NO_MKDOCS_2_WARNING": "1"},
    )  # fmt: skip
    assert done.returncode == 0 and "WARNING" not in done.stderr, done.stderr
    return folder


def test_every_page_is_built(site):
    pages = {path.stem for path in (ROOT / "docs").glob("*.md")}
    assert pages <= {path.stem for path in site.glob("*.html")} and "index" in pages


def test_nothing_is_fetched_by_a_reader(site):
    for page in site.rglob("*.html"):
        text = page.read_text()
        fetched = re.findall(r"<(?:script|img|source)\b[^>]*\bsrc=\"(?:https?:)?//", text)
        fetched += re.findall(
            r"<link\b(?=[^>]*rel=\"(?:stylesheet|preconnect|preload)\")[^>]*href=\"(?:https?:)?//", text
        )
        assert not fetched, page.name


def test_the_reference_has_every_public_name(site):
    import dualgoal

    page = (site / "api.html").read_text()
    for name in set(dualgoal.__all__) - {"__version__"}:
        assert f'id="dualgoal.{name}"' in page or f"dualgoal.{name}" in page, name

"""The documentation as a site: every link leads somewhere, nothing is fetched from elsewhere, two clicks are enough."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mkdocs", reason="make docs installs it")

from tests.helpers.browser import chromium, until, window

pytestmark = pytest.mark.extra

ROOT = Path(__file__).parents[2]
FETCHED = re.compile(
    r"<(?:script|img|iframe|source)[^>]* src=\"?(?:https?:)?//"
    r"|<link[^>]* rel=\"?(?:stylesheet|preconnect|icon)[^>]* href=\"?(?:https?:)?//"
)
ANSWERS = {  # what somebody asks, and the page with the answer
    "Which method may I use with edge labels?": ("choosing.html", "edge labels"),
    "What does the server see?": ("what-the-server-sees.html", "the server receives"),
    "How do I add my own method?": ("adding.html", "--plugin"),
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as ``make docs`` does; a link that leads nowhere is an error."""
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(out)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return out


def texts(site: Path) -> Iterator[tuple[str, str]]:
    """Every page of the site, by its place."""
    for page in sorted(site.rglob("*.html")):
        yield str(page.relative_to(site)), page.read_text()


def test_pages_fetch_nothing_from_elsewhere(site: Path) -> None:
    assert [(place, found[:3]) for place, text in texts(site) if (found := FETCHED.findall(text))] == []
    sheets = [path for path in site.rglob("*.css") if re.search(r"(@import|url\()\W*https?:", path.read_text())]
    assert sheets == []


def test_the_search_needs_no_server(site: Path) -> None:
    assert (site / "search" / "search_index.js").is_file()
    assert 'src="search-worker.js"' in (site / "index.html").read_text()
    assert 'src="../search-worker.js"' in (site / "methods" / "fedavg.html").read_text()


@pytest.mark.parametrize("question", ANSWERS)
def test_the_front_page_leads_to_answers_in_one_click(site: Path, question: str) -> None:
    place, answer = ANSWERS[question]
    front = (site / "index.html").read_text()
    row = next(row for row in re.findall(r"<tr>.*?</tr>", front, re.DOTALL) if question in row)
    assert f'href="{place}' in row and answer in (site / place).read_text()


def test_every_page_of_docs_is_in_the_site(site: Path) -> None:
    pages = {str(page.relative_to(ROOT / "docs").with_suffix(".html")) for page in (ROOT / "docs").rglob("*.md")}
    made = {place for place, _ in texts(site)}
    assert {page.replace("README.html", "index.html") for page in pages} <= made


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    found = chromium(tmp_path_factory.mktemp("profile"))
    yield found
    found.quit()


READ_FIRST = (
    "index.html",
    "tour.html",
    "choosing.html",
    "methods/fedavg.html",
    "what-the-server-sees.html",
    "page.html",
)


@pytest.mark.parametrize("place", READ_FIRST)
def test_pages_that_are_read_first_fit_wide_and_narrow_windows(site: Path, driver: Any, place: str) -> None:
    for width in (360, 1280):
        window(driver, width)
        driver.get((site / f"{place}.html").as_uri())
        assert driver.execute_script("return document.documentElement.scrollWidth - innerWidth") <= 0
    wraps = "[...document.querySelectorAll('.md-typeset__scrollwrap')]"
    assert driver.execute_script(f"return {wraps}.filter((each) => each.scrollWidth > each.clientWidth).length") == 0


def test_the_site_is_dark_where_the_system_is(site: Path, driver: Any) -> None:
    for scheme in ("light", "dark", "light"):
        window(driver, 1280, scheme=scheme)
        driver.get((site / "index.html").as_uri())
        body = "getComputedStyle(document.body).backgroundColor.match(/[0-9]+/g).map(Number)"
        until(lambda: (sum(driver.execute_script(f"return {body}")) < 200) == (scheme == "dark"))  # noqa: B023

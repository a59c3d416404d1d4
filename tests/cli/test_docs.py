"""Pages that are made from code say what the code says; every page begins with its purpose and a command."""

import re
import runpy
from pathlib import Path

import pytest

from isthmus import __version__

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
MOST = 150  # words of a paragraph


def test_the_api_page_is_up_to_date() -> None:
    """Else: python docs/make_api.py."""
    made = runpy.run_path(str(DOCS / "make_api.py"))["page"]()
    assert (DOCS / "api.md").read_text() == made.rstrip() + "\n"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_a_page_begins_with_its_purpose_and_a_command(page: Path) -> None:
    title, purpose, command, *_ = re.split(r"\n\s*\n", page.read_text())
    assert title.startswith("# ") and ("This page is" in purpose or purpose.startswith("What"))
    assert re.match(r"```(sh|bash)\n(isthmus|python) ", command)


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda page: str(page.relative_to(ROOT)))
def test_no_paragraph_is_long(page: Path) -> None:
    """Lines of tables and of code are no paragraphs; each point of a list is one."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    text = re.sub(r"^\|.*$", "", text, flags=re.MULTILINE)
    parts = re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )", text)
    assert [part for part in parts if len(part.split()) > MOST] == []


def test_the_site_has_every_page_in_its_navigation() -> None:
    """And nothing else but what comes from outside docs/: ``mkdocs.yml``."""
    listed = re.findall(r"^ +- (?:[^:\n]+: )?(\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    outside = ["CHANGELOG.md", "CONTRIBUTING.md", "examples/tour.ipynb.md"]
    assert sorted(listed) == sorted([str(page.relative_to(DOCS)) for page in PAGES] + outside)


def test_there_is_one_version_number() -> None:
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"\n## [{__version__}]" in (ROOT / "CHANGELOG.md").read_text()

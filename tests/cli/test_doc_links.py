"""Links of the README and of all pages lead to files that exist, and to headings that they have."""

import re
from pathlib import Path

import pytest

from tests.helpers.doc_commands import ROOT, pages

LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)")
CODE = re.compile(r"^ *(`{3,}).*?^ *\1`*$|`[^`\n]+`(?!\])", re.DOTALL | re.MULTILINE)


def headings(page: Path) -> set[str]:
    """The anchors of a page's headings, as code hosts and the site make them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    found = set()
    for title in re.findall(r"^#+ (.*)$", text, re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).lower()
        found.add(re.sub(r"[^\w\- ]", "", plain).strip().replace(" ", "-"))
    return found


def problems(page: Path) -> list[str]:
    """Links of a page that lead nowhere."""
    found = []
    for place, anchor in LINK.findall(CODE.sub("", page.read_text())):
        if re.match(r"[a-z]+:", place):
            continue
        target = (page.parent / place).resolve() if place else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in headings(target)):
            found.append(f"{place}#{anchor}")
    return found


@pytest.mark.parametrize("page", [*pages(), ROOT / "CHANGELOG.md"], ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    assert problems(page) == []


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# One title\n\n[a](page.md#one-title) [b](page.md#another) [c](none.md) `[d](none.md)` [e](#one-title)\n"
    )
    assert problems(page) == ["page.md#another", "none.md#"]

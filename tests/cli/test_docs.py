"""Pages that are made from code say what the code says."""

import runpy
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_the_api_page_is_up_to_date() -> None:
    """Else: python docs/make_api.py."""
    made = runpy.run_path(str(DOCS / "make_api.py"))["page"]()
    assert (DOCS / "api.md").read_text() == made.rstrip() + "\n"

"""The disclosure sheet of a run as a part of the page."""

from __future__ import annotations

from pathlib import Path

from markupsafe import Markup

from isthmus.core.errors import IsthmusError
from isthmus.page.shelf import bounded

_MOST = 512_000_000  # bytes of the ledger that the sheet is made of


def disclosed(run: Path) -> Markup:
    """The sheet on what each party saw, as markup whose text is escaped; raises in words before a run has ended."""
    from isthmus.report.disclosure import disclosure, server_place, wire_words
    from isthmus.report.traffic import sheet
    from isthmus.runs.folder import RunFolder
    from isthmus.runs.summary import members

    if not (run / "metrics.json").is_file():
        raise IsthmusError("The sheet is made of the whole ledger, when the run has ended.")
    folder = RunFolder.open(run)
    if (run / "ledger.parquet").is_file():
        bounded(run / "ledger.parquet", _MOST)
    place = f"{server_place(folder)} {wire_words(folder)}".strip()
    return Markup(sheet(disclosure(folder), len(members(folder)), place))

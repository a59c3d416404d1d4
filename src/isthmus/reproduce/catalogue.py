"""Every study by name. A paper's studies are one file that lists them in ``STUDIES``; add it here."""

from __future__ import annotations

from isthmus.errors import unknown
from isthmus.reproduce import layerwise
from isthmus.reproduce.study import Study

STUDIES: dict[str, Study] = {study.name: study for study in (*layerwise.STUDIES,)}


def get(name: str) -> Study:
    """The named study."""
    if name not in STUDIES:
        raise unknown("study", name, STUDIES)
    return STUDIES[name]

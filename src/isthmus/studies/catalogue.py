"""All studies by name. Each module of studies lists its own in ``STUDIES``; a new module is added here."""

from __future__ import annotations

from isthmus.core.errors import unknown
from isthmus.studies import (
    ce_fedgnn,
    ce_fedgnn_aml,
    ce_fedgnn_epsilon,
    ce_fedgnn_parts,
    layerwise,
    swift,
    swift_surface,
)
from isthmus.studies.study import Study

PAPERS = (layerwise, ce_fedgnn, ce_fedgnn_aml, ce_fedgnn_parts, ce_fedgnn_epsilon, swift, swift_surface)
STUDIES: dict[str, Study] = {study.name: study for paper in PAPERS for study in paper.STUDIES}


def get_study(name: str) -> Study:
    """The study of that name; raises an error that lists all names if there is none."""
    if name not in STUDIES:
        raise unknown("study", name, STUDIES)
    return STUDIES[name]

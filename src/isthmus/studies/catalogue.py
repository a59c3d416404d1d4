"""All studies by name: those of papers, from the ``STUDIES`` of their modules, and grids, from files in ``grids``."""

from __future__ import annotations

from pathlib import Path

from isthmus.core.errors import unknown
from isthmus.studies import (
    ce_fedgnn,
    ce_fedgnn_aml,
    ce_fedgnn_epsilon,
    ce_fedgnn_parts,
    feddep,
    feddep_parts,
    hifgl,
    hifgl_epochs,
    hifgl_parts,
    layerwise,
    swift,
    swift_surface,
)
from isthmus.studies.grid import read_study
from isthmus.studies.study import Study

PAPERS = (
    layerwise,
    ce_fedgnn,
    ce_fedgnn_aml,
    ce_fedgnn_parts,
    ce_fedgnn_epsilon,
    swift,
    swift_surface,
    feddep,
    feddep_parts,
    hifgl,
    hifgl_epochs,
    hifgl_parts,
)
GRIDS = Path(__file__).parent / "grids"
STUDIES: dict[str, Study] = {study.name: study for paper in PAPERS for study in paper.STUDIES} | {
    path.stem: read_study(path) for path in sorted(GRIDS.glob("*.toml"))
}


def get_study(name: str) -> Study:
    """The study of that name; raises an error that lists all names if there is none."""
    if name not in STUDIES:
        raise unknown("study", name, STUDIES)
    return STUDIES[name]

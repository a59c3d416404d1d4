"""Rows that ``isthmus methods``, ``datasets`` and ``reproduce`` list, read from a file to save importing PyTorch.

``python -m isthmus.cli.listing`` writes the file anew; a test compares it with the catalogues. Where there are
plug-ins, the catalogues themselves are asked.
"""

from __future__ import annotations

import json
import os
from importlib import resources
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from isthmus.core.plugins import GROUPS, VARIABLE

AXES = ("exchange", "schedule", "sync", "objective")
FILE = "listing.json"


def listed(what: str) -> list[dict[str, Any]]:
    """The rows of ``methods``, ``datasets`` or ``studies``, from the file, or with plug-ins from the catalogues."""
    plugged = os.environ.get(VARIABLE) or any(entry_points(group=group) for group in GROUPS)
    return asked()[what] if plugged else shipped(what)


def shipped(what: str) -> list[dict[str, Any]]:
    """The rows of ``methods``, ``datasets`` or ``studies`` that ship with the package, from the file."""
    rows: list[dict[str, Any]] = json.loads(resources.files("isthmus.cli").joinpath(FILE).read_text())[what]
    return rows


def asked() -> dict[str, list[dict[str, Any]]]:
    """The rows of all three lists, by name, from the catalogues themselves."""
    from isthmus.core.plugins import load_plugins
    from isthmus.data import DATASETS
    from isthmus.studies.reproduce import listing

    load_plugins()
    sets = [
        {"name": d.name, "summary": d.summary, "model": d.default_model, "source": d.source} for d in DATASETS.values()
    ]
    rows = {"methods": _methods(), "datasets": sets, "studies": listing()}
    plain: dict[str, list[dict[str, Any]]] = json.loads(json.dumps(rows))
    return plain


def _methods() -> list[dict[str, Any]]:
    from isthmus.methods import catalogue
    from isthmus.methods.compose import tables_of
    from isthmus.runs.config import flat

    rows = []
    for name in catalogue.names():
        method = catalogue.get(name)
        told = {"name": name, "summary": method.summary, "paper": method.paper, "score": ",".join(method.scores)}
        parts = {axis: [type(getattr(phase, axis)).__name__ for phase in method.phases] for axis in AXES}
        single: dict[str, Any] = {axis: each[0] if len(each) == 1 else each for axis, each in parts.items()}
        single["protect"] = [type(mechanism).__name__ for mechanism in method.protect]
        options = {key: value for key, value in flat(tables_of(method)).items() if not key.endswith("name")}
        rows.append({**told, **single, "options": options})
    return rows


def main() -> None:
    """Write ``listing.json`` anew from the catalogues."""
    (Path(__file__).parent / FILE).write_text(json.dumps(asked(), indent=1) + "\n")


if __name__ == "__main__":
    main()

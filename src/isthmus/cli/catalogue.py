"""Commands that list what there is."""

from __future__ import annotations

from isthmus.cli.shared import Json, show

AXES = ("exchange", "schedule", "sync", "objective")


def methods(as_json: Json = False) -> None:
    """List the methods: what crosses, how parameters agree, whose paper."""
    from isthmus.core.plugins import load_plugins
    from isthmus.methods import catalogue
    from isthmus.methods.compose import tables_of
    from isthmus.runs.config import flat

    load_plugins()
    rows = []
    for name in catalogue.names():
        method = catalogue.get(name)
        told = {"name": name, "summary": method.summary, "paper": method.paper, "score": method.score}
        parts = {axis: [type(getattr(phase, axis)).__name__ for phase in method.phases] for axis in AXES}
        single = {axis: each[0] if len(each) == 1 else each for axis, each in parts.items()}
        options = {key: value for key, value in flat(tables_of(method)).items() if not key.endswith("name")}
        rows.append({**told, **single, "options": options})
    show(rows, ("name", "summary", "paper"), as_json)


def datasets(as_json: Json = False) -> None:
    """List the data sets."""
    from isthmus.core.plugins import load_plugins
    from isthmus.data import DATASETS

    load_plugins()
    rows = [
        {"name": d.name, "summary": d.summary, "model": d.default_model, "source": d.source} for d in DATASETS.values()
    ]
    show(rows, ("name", "summary", "model"), as_json)

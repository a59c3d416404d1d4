"""Commands that list what there is."""

from __future__ import annotations

from isthmus.cli.shared import Json, show


def methods(as_json: Json = False) -> None:
    """List the methods: what crosses, how parameters agree, whose paper."""
    from isthmus import methods as catalogue

    rows = []
    for name in catalogue.names():
        method = catalogue.get(name)
        options = {
            f"{axis}.{key}": value
            for axis in catalogue.AXES
            for key, value in catalogue.part_options(getattr(method, axis)).items()
        }
        parts = {axis: type(getattr(method, axis)).__name__ for axis in catalogue.AXES}
        rows.append({"name": name, "summary": method.summary, "paper": method.paper, **parts, "options": options})
    show(rows, ("name", "summary", "paper"), as_json)


def datasets(as_json: Json = False) -> None:
    """List the data sets."""
    from isthmus.data import DATASETS

    rows = [
        {"name": d.name, "summary": d.summary, "model": d.default_model, "source": d.source} for d in DATASETS.values()
    ]
    show(rows, ("name", "summary", "model"), as_json)

"""The commands ``isthmus methods`` and ``isthmus datasets``, which list what can be run."""

from __future__ import annotations

from isthmus.cli.listing import listed
from isthmus.cli.shared import Json, show


def methods(as_json: Json = False) -> None:
    """List the methods: what crosses, how parameters agree, whose paper."""
    show(listed("methods"), ("name", "summary", "paper"), as_json)


def datasets(as_json: Json = False) -> None:
    """List the data sets."""
    show(listed("datasets"), ("name", "summary", "model"), as_json)

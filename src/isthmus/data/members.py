"""Who takes part: the list of silos in a folder of parts."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from isthmus.errors import IsthmusError


def is_parts(folder: str) -> bool:
    """Whether a folder holds parts (rather than a whole graph)."""
    root = Path(folder)
    return root.is_dir() and ((root / "federation.toml").is_file() or any(root.glob("*/silo.toml")))


def member_names(root: Path) -> list[str]:
    """The silos of a federation, in the order that numbers them."""
    listing = root / "federation.toml"
    if listing.is_file():
        names = read_toml(listing).get("silos")
        if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
            raise IsthmusError(f"{listing} must list the silos by name, like silos = ['bank-a', 'bank-b'].")
        return names
    found = [path.parent.name for path in root.glob("*/silo.toml")]
    return sorted(found, key=lambda name: [int(t) if t.isdigit() else t for t in re.split(r"(\d+)", name)])


def read_toml(path: Path) -> dict[str, Any]:
    """A TOML file, or an error that names it."""
    try:
        return tomllib.loads(path.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise IsthmusError(f"{path} is not valid TOML: {error}.") from error


def _declared(path: Path, meta: dict[str, Any]) -> dict[str, Any]:
    """The ``[schema]`` of a silo, checked."""
    schema = meta.get("schema", {})
    if not isinstance(schema, dict):
        raise IsthmusError(f"{path}: schema is {schema!r}; it must be a table, [schema].")
    for key, value in schema.items():
        if key not in _SCHEMA:
            raise unknown(f"key in [schema] of {path}", key, _SCHEMA)
        kind, choices = _SCHEMA[key]
        if not isinstance(value, kind) or isinstance(value, bool):
            raise IsthmusError(f"{path}: {key} in [schema] is {value!r}; it must be of type {kind.__name__}.")
        if choices and value not in choices:
            raise unknown(f"{key} in [schema] of {path}", value, choices)
    words = {key: [str(word) for word in schema[key]] for key in ("labels", "feature_names") if key in schema}
    return {**schema, **words}


def _or_unknown(y: Tensor | None, split: Tensor | None, rows: int) -> tuple[Tensor, Tensor]:
    """Labels and split; where there are none, every label is unknown and every row unused."""
    if y is None or split is None:
        return torch.full((rows,), -1), torch.full((rows,), UNUSED, dtype=torch.int8)
    return y, split

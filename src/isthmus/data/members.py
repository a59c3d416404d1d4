"""Which silos take part, read from a folder that holds one part of a graph for each silo."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from isthmus.core.errors import IsthmusError
from isthmus.core.files import is_folder


def is_parts(folder: str) -> bool:
    """Whether a folder holds parts of silos rather than the tables of a whole graph."""
    root = Path(folder)
    return is_folder(root) and ((root / "federation.toml").is_file() or any(root.glob("*/silo.toml")))


def member_names(root: Path) -> list[str]:
    """Names of all silos, in the order that numbers them: as federation.toml lists them, else sorted."""
    listing = root / "federation.toml"
    if listing.is_file():
        names = read_toml(listing).get("silos")
        if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
            raise IsthmusError(f"{listing} must list the silos by name, like silos = ['bank-a', 'bank-b'].")
        return names
    found = [path.parent.name for path in root.glob("*/silo.toml")]
    return sorted(found, key=lambda name: [int(t) if t.isdigit() else t for t in re.split(r"(\d+)", name)])


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file; raises an error that names the file if it is no valid TOML."""
    try:
        return tomllib.loads(path.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise IsthmusError(f"{path} is not valid TOML: {error}.") from error

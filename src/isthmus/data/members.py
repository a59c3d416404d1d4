"""Which silos take part, read from a folder that holds one part of a graph for each silo."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from isthmus.core.errors import IsthmusError
from isthmus.core.files import is_folder
from isthmus.core.silo_names import odd_name


def is_parts(folder: str) -> bool:
    """Whether a folder holds parts of silos rather than the tables of a whole graph."""
    root = Path(folder)
    return is_folder(root) and ((root / "federation.toml").is_file() or any(root.glob("*/silo.toml")))


def member_names(root: Path) -> list[str]:
    """Names of all silos, in the order that numbers them: as federation.toml lists them, else sorted.

    Each is the name of a folder below ``root``; raises for a name or a link that leads out of it.
    """
    listing = root / "federation.toml"
    names = _listed(listing) if listing.is_file() else _found(root)
    if odd := odd_name(names):
        raise IsthmusError(f"{listing if listing.is_file() else root}: {odd}.")
    for name in names:
        check_inside(root, root / name)
    return names


def _listed(listing: Path) -> list[str]:
    """The silos that federation.toml lists."""
    names = read_toml(listing).get("silos")
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise IsthmusError(f"{listing} must list the silos by name, like silos = ['bank-a', 'bank-b'].")
    return names


def _found(root: Path) -> list[str]:
    """The folders with a silo.toml, sorted with 2 before 10."""
    found = [path.parent.name for path in root.glob("*/silo.toml")]
    return sorted(found, key=lambda name: [int(t) if t.isdigit() else t for t in re.split(r"(\d+)", name)])


def check_inside(root: Path, path: Path) -> None:
    """Raise where a folder or file of parts is a link that leads out of the folder of all parts."""
    try:
        at = path.resolve()
        inside, where = at.is_relative_to(root.resolve()), str(at)
    except (OSError, RuntimeError):  # a circle of links
        inside, where = False, "itself"
    if not inside:
        raise IsthmusError(
            f"{path} leads out of {root}, to {where}; parts are read from their own folder, so put the files there."
        )


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file; raises an error that names the file if it is no valid TOML."""
    try:
        return tomllib.loads(path.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise IsthmusError(f"{path} is not valid TOML: {error}.") from error

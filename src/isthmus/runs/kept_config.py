"""The configuration that a run left in ``config.toml``: read as a run, and whether it still is the one that ran."""

from __future__ import annotations

import hashlib
from pathlib import Path

from isthmus.core.errors import IsthmusError
from isthmus.runs.config import RunConfig, resolve
from isthmus.runs.folder import RunFolder

FILE = "config.toml"
CHANGED = "'{}' is not as the run left it (edited, or damaged): its settings are read as they are now."


def kept_config(folder: RunFolder) -> RunConfig:
    """The configuration of a run, from its folder; raises, by the file, for settings that are none."""
    table = folder.config
    try:
        return resolve(table)
    except IsthmusError as error:
        raise IsthmusError(
            f"'{folder.path / FILE}' holds settings that no run writes; restore it from a copy. {error}"
        ) from error


def digest_of_config(folder: Path) -> str:
    """The SHA-256 of ``config.toml``; empty where there is none."""
    path = folder / FILE
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


def note_on_changed_config(folder: RunFolder) -> tuple[str, ...]:
    """A sentence where ``config.toml`` has changed since the run ended, as far as ``metrics.json`` knows."""
    known = (folder.metrics.get("environment") or {}).get("config_sha256")
    same = not known or known == digest_of_config(folder.path)
    return () if same else (CHANGED.format(folder.path / FILE),)

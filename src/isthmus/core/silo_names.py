"""What silos may be called: folders of their parts and files of their runs are called by them, on any disk."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

MOST_BYTES = 200  # files are called by a silo with a few letters more, and disks allow 255


def odd_name(names: Sequence[str]) -> str:
    """Why the names of silos cannot be those of folders, with what to do; empty where they can."""
    for name in names:
        if name in ("", ".", "..") or name != name.strip() or re.search(r"[/\\\x00-\x1f\x7f]", name):
            return (
                f"a silo is called {name!r}, which is no name of a folder; silos are called like the folders of their "
                "parts, without slashes, control characters and blanks around them"
            )
        if len(name.encode(errors="replace")) > MOST_BYTES:
            return (
                f"a silo's name, '{name[:40]}…', has {len(name.encode(errors='replace'))} bytes, and folders are "
                f"called by it; give it one of {MOST_BYTES} bytes at most"
            )
    known: dict[str, str] = {}
    for name in names:
        other = known.setdefault(unicodedata.normalize("NFC", name).casefold(), name)
        if other != name:
            return (
                f"the silos {other!r} and {name!r} differ in case or accents alone, and many disks take them for one; "
                "rename one of them, and its folder"
            )
    return ""

"""Parts of pages that a damaged folder may keep from being made: each by itself, and with a sentence in its place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from isthmus.core.errors import IsthmusError


@dataclass(frozen=True)
class Section:
    """What a template shows of one part, or a sentence on why there is nothing to show."""

    value: Any = None
    why_not: str = ""


def section(make: Callable[[], Any]) -> Section:
    """The part that ``make`` gives; where its files are damaged or half written, a sentence that says so."""
    try:
        return Section(make())
    except IsthmusError as error:
        return Section(why_not=str(error))
    except Exception as error:  # what stands in a damaged file has no bounds; the other parts are shown all the same
        name = getattr(error, "filename", None)
        what = f"'{name}'" if name else "A file of this run"
        return Section(
            why_not=f"{what} is damaged, or just being written ({type(error).__name__}); reload the page in a moment."
        )

"""Run folders whose files can be read and hold what no run writes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from isthmus.core.errors import IsthmusError


@contextmanager
def telling_of_damage(*paths: str) -> Iterator[None]:
    """Say of finished runs that are read within that one is damaged, where its files hold what no run writes.

    Files that can be read and hold, say, a word in place of a table fail wherever their content is used.
    """
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        named = " or ".join(f"'{path}'" for path in paths)
        raise IsthmusError(
            f"{named} is damaged, or of another version: its files (metrics.json?) hold something that no run writes "
            f"({type(error).__name__}: {str(error)[:200]}). Restore it from a copy, or repeat the run."
        ) from error

"""Errors that tell the next step: what was given, what is allowed, what to do."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path


class IsthmusError(Exception):
    """A problem the user can fix; the command line prints it as one line, without a traceback."""


def unknown(what: str, given: object, choices: Iterable[str]) -> IsthmusError:
    """An error for a name that does not exist: the closest match first, then every choice."""
    names = sorted(choices)
    near = get_close_matches(str(given), names, n=1)
    hint = f" Did you mean '{near[0]}'?" if near else ""
    return IsthmusError(f"Unknown {what} '{given}'.{hint} Choose from: {', '.join(names)}.")


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """What the disk refuses in this block, in words."""
    try:
        yield
    except OSError as error:
        why = error.strerror or str(error)
        raise IsthmusError(f"'{path}' cannot be written: {why}; choose another --out.") from error

"""Problems of data kept together instead of raised one at a time, so that a user hears of all of them at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from isthmus.core.errors import IsthmusError

_T = TypeVar("_T")
_kept: ContextVar[list[IsthmusError] | None] = ContextVar("kept", default=None)


class Incomplete(IsthmusError):
    """Reading cannot go on, because of problems that were kept before."""


@contextmanager
def keeping_problems() -> Iterator[list[IsthmusError]]:
    """Within the block :func:`attempt` keeps problems, in the list that is yielded."""
    kept: list[IsthmusError] = []
    token = _kept.set(kept)
    try:
        yield kept
    finally:
        _kept.reset(token)


def attempt(read: Callable[[], _T], otherwise: _T) -> _T:
    """What ``read`` returns. Where problems are kept, one that it raises is, and ``otherwise`` is returned."""
    kept = _kept.get()
    if kept is None:
        return read()
    try:
        return read()
    except Incomplete:
        return otherwise
    except IsthmusError as problem:
        kept.append(problem)
        return otherwise


def problems_so_far() -> int:
    """How many problems have been kept; 0 where they are raised."""
    return len(_kept.get() or ())


def go_on_if_complete(since: int) -> None:
    """Raise :class:`Incomplete` where problems were kept after there were ``since`` of them."""
    if problems_so_far() > since:
        raise Incomplete("Problems that were found before keep the data from being read.")

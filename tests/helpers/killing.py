"""Commands that die at a chosen call."""

import os
import signal
from collections.abc import Callable
from typing import Any

from tests.helpers.command import isthmus


def die(*_: Any, **__: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def at(owner: Any, name: str, call: int, after: bool = False) -> Callable[[], None]:
    """Die at the ``call``-th call of a function, before or after it has done its work."""

    def plant() -> None:
        inner, count = getattr(owner, name), 0

        def deadly(*arguments: Any, **options: Any) -> Any:
            nonlocal count
            count += 1
            if count == call and not after:
                die()
            result = inner(*arguments, **options)
            if count == call:
                die()
            return result

        setattr(owner, name, deadly)

    return plant


def killed(plant: Callable[[], None], *arguments: Any) -> None:
    """A command in a process of its own, which a planted SIGKILL ends."""
    child = os.fork()
    if child == 0:
        try:
            plant()
            isthmus(*arguments)
        finally:
            os._exit(0)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, "it was never killed"

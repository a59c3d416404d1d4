"""Server-sent events: an open page hears when something that it shows has changed, and asks for it then."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from isthmus.core.errors import IsthmusError
from isthmus.page.views import Views

MOST = 32  # pages that listen at once
_LOOK = 1.0  # seconds between two looks
_QUIET = 15  # looks without a change after which a line is sent all the same, so that a lost page is noticed


class Streams:
    """The streams of events that are open."""

    def __init__(self, views: Views) -> None:
        self.views, self.open = views, 0

    async def events(self, request: Request) -> Response:
        """The events of the list, or of one run."""
        name = request.query_params.get("folder")
        if self.open >= MOST:
            return Response("Too many pages listen; close some.", 503)
        look = self.views.list_stamp if name is None else lambda: self.views.run_stamp(name)
        return StreamingResponse(self._counted(changes(look)), media_type="text/event-stream")

    async def _counted(self, stream: AsyncIterator[str]) -> AsyncIterator[str]:
        self.open += 1
        try:
            async for line in stream:
                yield line
        finally:
            self.open -= 1


async def changes(look: Callable[[], str], wait: float = _LOOK) -> AsyncIterator[str]:
    """Yield an event with the stamp of what is shown, at first and whenever it changes."""
    before, quiet = "", 0
    while True:
        try:
            stamp = await run_in_threadpool(look)
        except (IsthmusError, OSError):  # a folder that is gone; the page that asks for it again is told so
            stamp = "gone"
        quiet = 0 if stamp != before else quiet + 1
        if stamp != before:
            yield f"data: {stamp}\n\n"
        elif quiet % _QUIET == 0:
            yield ": still here\n\n"
        before = stamp
        await asyncio.sleep(wait)

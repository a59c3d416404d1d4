"""The page as an application: its addresses, and the guard before them."""

from __future__ import annotations

from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from isthmus.page.actions import Actions, Choices
from isthmus.page.doorway import Doorway, Keys
from isthmus.page.events import Streams
from isthmus.page.shelf import Shelf
from isthmus.page.starting import Starter
from isthmus.page.views import Views, told

_STATIC = Path(__file__).parent / "static"


def page_app(
    root: Path, keys: Keys, port: int, choices: Choices | None = None, starter: Starter | None = None
) -> Doorway:
    """The application for a folder of runs; with a ``starter`` and ``choices`` runs can be started from it."""
    shelf = starter.shelf if starter else Shelf(root)
    views = Views(shelf, keys, starter)
    reading = {
        "/": views.index, "/run": views.run, "/ledger": views.ledger, "/disclosure": views.disclosure,
        "/report": views.report, "/signed": views.signed, "/compare": views.compare, "/apart": views.apart,
    }  # fmt: skip
    routes: list[Route | Mount] = [Route(path, told(views, view)) for path, view in reading.items()]
    routes += [
        Route("/events", Streams(views).events),
        Route("/favicon.ico", lambda _: FileResponse(_STATIC / "icon.svg")),
        Mount("/static", StaticFiles(directory=_STATIC)),
    ]
    if starter and choices:
        actions = Actions(views, starter, choices)
        routes += [Route("/start", told(views, actions.form)), Route("/begun", told(views, actions.begun))]
        forms = {"/plan": actions.plan, "/start": actions.start, "/stop": actions.stop, "/resume": actions.resume}
        routes += [Route(path, view, methods=["POST"]) for path, view in forms.items()]

    def nowhere(request: Request, error: Exception) -> Response:
        reads = request.method in ("GET", "HEAD")
        said = (
            "There is no such page here." if reads or starter else "This page only reads; isthmus page --allow-start."
        )
        return views.show("problem.html", 404 if reads else 405, sentence=said)

    return Doorway(
        Starlette(routes=routes, exception_handlers={404: nowhere, 405: nowhere}), keys, port, views.first_look
    )

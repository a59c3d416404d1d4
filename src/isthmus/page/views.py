"""What the page answers to reading: the list of runs, a run, its ledger, its disclosure sheet, and comparisons."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from isthmus.core.errors import IsthmusError
from isthmus.page.books import Books
from isthmus.page.comparing import reasons_apart, side_by_side
from isthmus.page.disclosed import disclosed
from isthmus.page.doorway import Keys
from isthmus.page.explorer import Filter, choices, lines
from isthmus.page.run_page import signature, view_of
from isthmus.page.sections import section
from isthmus.page.shelf import RunsFound, Shelf, bounded
from isthmus.page.shown_runs import ShownRun, ShownRuns
from isthmus.page.starting import Starter
from isthmus.page.templates import WebPage, environment, filled

ON_A_PAGE = 50  # runs
_READING = 1.0  # seconds that a reader of the list is left before the page loads what a run's own page needs
_STATES = ("running", "starting", "finished", "stopped", "cut off", "failed", "damaged")
_REPORT = "default-src 'none'; style-src 'unsafe-inline'; sandbox"  # it is a file of the folder


class Views:
    """The pages that only read."""

    def __init__(self, shelf: Shelf, keys: Keys, starter: Starter | None) -> None:
        self.shelf, self.keys, self.starter = shelf, keys, starter
        self.runs, self.books = ShownRuns(shelf), Books()
        self._warm = threading.Timer(_READING, _warm_up)
        self._warm.daemon = True

    def show(self, template: str, status: int = 200, **values: Any) -> Response:
        """A whole page."""
        common = {"root": self.shelf.root.name, "starts": self.starter is not None, "csrf": self.keys.form}
        return WebPage(filled(template, **common, **values), status)

    def first_look(self) -> None:
        """Read every run once, and the templates of the list."""
        self.runs.all()
        environment().get_template("index.html")

    def index(self, request: Request) -> Response:
        """The list of runs, or only its rows."""
        every, found = self.runs.all()
        text, state = request.query_params.get("q", "")[:200], request.query_params.get("state", "")[:20]
        chosen = [run for run in every if _matches(run, text.lower(), state)]
        pages = max(-(-len(chosen) // ON_A_PAGE), 1)
        asked = request.query_params.get("page", "1")
        page = min(max(int(asked) if asked.isascii() and asked.isdigit() and len(asked) < 9 else 1, 1), pages)
        shown = chosen[(page - 1) * ON_A_PAGE : page * ON_A_PAGE]
        values: dict[str, Any] = {"runs": shown, "count": len(chosen), "all": len(every), "page": page, "pages": pages}
        query = {"q": text, "state": state}
        stamp = self.list_stamp(every, found)
        notes, states = found.notes, _STATES
        part = "rows.html" if request.query_params.get("part") else "index.html"
        if self._warm.ident is None:
            self._warm.start()
        return self.show(part, **values, query=query, stamp=stamp, notes=notes, states=states)

    def list_stamp(self, every: list[ShownRun] | None = None, found: RunsFound | None = None) -> str:
        """What changes when any line of the list does."""
        if every is None or found is None:
            every, found = self.runs.all()
        return f"{hash((tuple(every), tuple(found.notes))):x}"

    def run_stamp(self, name: str) -> str:
        """What changes when anything on the page of a run does."""
        mine = self.starter.started.get(name) if self.starter else None
        return f"{signature(self.shelf.open(name), self.runs.one(name))}-{bool(mine and mine.going)}"

    def run(self, request: Request) -> Response:
        """One run, or only what changes of it while it goes on."""
        name, path = self._asked(request)
        stamp = self.run_stamp(name)  # before the files are read: what changes meanwhile is shown again
        view = view_of(path, self.runs.one(name), self.books)
        mine = self.starter.started.get(name) if self.starter else None
        template = "run_live.html" if request.query_params.get("part") else "run.html"
        config = section(lambda: _text(path / "config.toml"))
        return self.show(template, view=view, run=view.run, tab="run", mine=mine, config=config, stamp=stamp)

    def ledger(self, request: Request) -> Response:
        """The ledger explorer."""
        name, path = self._asked(request)
        run, problem, asked = self.runs.one(name), "", Filter()
        try:
            asked = Filter.of(request.query_params)
        except IsthmusError as error:
            problem = str(error)
        book = section(lambda: self.books.of(path))
        table = book.value.table if book.value else None
        found = section(lambda: lines(table, asked)) if table is not None else None
        words = section(lambda: choices(table)).value if table is not None else None
        typed = {name: request.query_params.get(name, "")[:40] for name in ("from", "to")}
        values: dict[str, Any] = {"book": book, "found": found, "choices": words, "asked": asked, "typed": typed}
        return self.show("ledger.html", run=run, tab="ledger", problem=problem, **values)

    def disclosure(self, request: Request) -> Response:
        """The disclosure sheet."""
        name, path = self._asked(request)
        sheet, signed = section(lambda: disclosed(path)), (path / "disclosure.html").is_file()
        return self.show("disclosure.html", run=self.runs.one(name), tab="disclosure", sheet=sheet, signed=signed)

    def report(self, request: Request) -> Response:
        """The report that the run has left, as a page that may run nothing."""
        return self._written(request, "report.html", "report")

    def signed(self, request: Request) -> Response:
        """The disclosure sheet for signatures, once it was written."""
        return self._written(request, "disclosure.html", "disclose")

    def _written(self, request: Request, name: str, command: str) -> Response:
        """A page that lies in a run folder, and is shown as it is."""
        _, path = self._asked(request)
        if not (path / name).is_file():
            raise IsthmusError(f"This run has no {name}; isthmus {command} makes one when it has ended.")
        content = bounded(path / name, 64_000_000).read_bytes()
        return Response(content, media_type="text/html", headers={"content-security-policy": _REPORT})

    def compare(self, request: Request) -> Response:
        """Ticked runs side by side."""
        names = list(dict.fromkeys(request.query_params.getlist("run")))[:100]
        paths: dict[str, Path] = {name: self.shelf.open(name) for name in names}
        ticked = [self.runs.one(name) for name in names]
        return self.show("compare.html", found=section(lambda: side_by_side(ticked, paths)), ticked=ticked)

    def apart(self, request: Request) -> Response:
        """By name, why runs may not be ticked beside those that are."""
        every, _ = self.runs.all()
        names = set(request.query_params.getlist("run"))
        ticked = [run for run in every if run.name in names]
        return JSONResponse(reasons_apart(ticked, every))

    def _asked(self, request: Request) -> tuple[str, Path]:
        name = request.query_params.get("folder", "")
        return name, self.shelf.open(name)


def told(views: Views, view: Callable[[Request], Response]) -> Callable[[Request], Response]:
    """A view that answers with a sentence where something is wrong with what it was asked for, or with a folder."""

    def answered(request: Request) -> Response:
        try:
            return view(request)
        except IsthmusError as error:
            return views.show("problem.html", 404, sentence=str(error))
        except Exception as error:  # a folder may change under the page in ways that nobody has thought of
            said = f"This cannot be shown ({type(error).__name__}): a file is damaged, or being written. Try again."
            return views.show("problem.html", 422, sentence=said)

    return answered


def _warm_up() -> None:
    """Load what the pages of runs need, so that the first of them does not wait for it."""
    import isthmus.report.compared_run
    import isthmus.report.disclosure
    import isthmus.wire.ledger  # noqa: F401 - for their cost alone


def _matches(run: ShownRun, text: str, state: str) -> bool:
    """Whether a run is among those that the list was asked for."""
    inside = f"{run.name} {run.method} {run.data}".lower()
    kind = "damaged" if run.problem else run.state
    return all(word in inside for word in text.split()) and state in ("", kind)


def _text(path: Path) -> str:
    return bounded(path, 1_000_000).read_text(encoding="utf-8", errors="replace")

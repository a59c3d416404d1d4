"""What the page answers to forms: the estimate of a run, and runs that are started, stopped and resumed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from isthmus.core.errors import IsthmusError
from isthmus.page.starting import Starter, StartForm
from isthmus.page.templates import WebPage, filled, link
from isthmus.page.views import Views
from isthmus.runs.model_names import OFFERED

SPLITS = ("louvain", "metis", "random", "label:0.5", "attribute:COLUMN")
LABELS = {
    "data": "Data", "method": "Method", "model": "Model", "silos": "Silos", "split": "Split by", "hosts": "Hosts",
    "epochs": "Epochs", "seed": "First seed", "seeds": "Seeds", "sets": "Other settings", "name": "Name of its folder",
}  # fmt: skip
_FIELDS = 40


class Choices(NamedTuple):
    """What the form offers: rows with a name and a summary."""

    methods: list[dict[str, Any]]
    datasets: list[dict[str, Any]]


class Actions:
    """The pages that change something; every form must carry what this page has put into it."""

    def __init__(self, views: Views, starter: Starter, choices: Choices) -> None:
        self.views, self.starter, self.choices = views, starter, choices

    def form(self, request: Request) -> Response:
        """The form, empty or as an address fills it."""
        return self._form(StartForm(), {})

    async def plan(self, request: Request) -> Response:
        """The estimate for a form, as a part of the page, or as a whole page where there is no script."""
        return await self._on(request, self._plan)

    async def start(self, request: Request) -> Response:
        """Start a run, and go to its page; a form that is refused comes back with the reason."""
        return await self._on(request, self._start)

    async def stop(self, request: Request) -> Response:
        """Stop a run that this page has started."""
        return await self._on(request, lambda sent: self._then(sent, self.starter.stop))

    async def resume(self, request: Request) -> Response:
        """Let a run go on from its last checkpoint."""
        return await self._on(request, lambda sent: self._then(sent, self.starter.resume))

    async def _on(self, request: Request, action: Callable[[dict[str, str]], Response]) -> Response:
        """The answer of an action to a form that this page has made."""
        try:
            sent = dict(parse_qsl((await request.body()).decode("utf-8", "replace"), True, max_num_fields=_FIELDS))
        except ValueError:
            return self.views.show("problem.html", 400, sentence=f"A form here has at most {_FIELDS} fields.")
        if not self.views.keys.made(sent):
            return self.views.show(
                "problem.html", 403, sentence="This form is not of this page; reload it and try again."
            )
        try:
            return await run_in_threadpool(action, sent)
        except IsthmusError as error:
            return self.views.show("problem.html", 409, sentence=str(error))

    def _plan(self, sent: dict[str, str]) -> Response:
        form = StartForm.of(sent)
        problems = form.problems()
        estimate, why_not = None, "Mend the fields that are marked first." if problems else ""
        if problems and sent.get("part"):  # the form stays as it is, so that nothing in it is marked
            why_not = " ".join(["Mend first:", *(f"{LABELS[name]}: {text}" for name, text in problems.items())])
        if not problems:
            try:
                estimate = self.starter.plan(form)
            except IsthmusError as error:
                why_not = str(error)
        if sent.get("part"):
            return WebPage(filled("estimate.html", estimate=estimate, why_not=why_not))
        return self._form(form, problems, estimate=estimate, why_not=why_not)

    def _start(self, sent: dict[str, str]) -> Response:
        form = StartForm.of(sent)
        problems = form.problems()
        if problems:
            return self._form(form, problems, 422)
        try:
            name = self.starter.start(form)
        except IsthmusError as error:
            return self._form(form, {"name": str(error)}, 422)
        return RedirectResponse(link("/begun", folder=name), 303)

    def begun(self, request: Request) -> Response:
        """A run that has been started: its page once its folder is there, and before that how it stands."""
        name = request.query_params.get("folder", "")
        mine = self.starter.started.get(name)
        try:
            self.views.shelf.open(name)
        except IsthmusError:
            if mine is None:
                raise
            return self.views.show("begun.html", mine=mine)
        return RedirectResponse(link("/run", folder=name), 303)

    def _then(self, sent: dict[str, str], action: Callable[[str], None]) -> Response:
        name = sent.get("folder", "")
        action(name)
        return RedirectResponse(link("/run", folder=name), 303)

    def _form(self, form: StartForm, problems: dict[str, str], status: int = 200, **values: Any) -> Response:
        known = {"estimate": None, "why_not": "", "models": OFFERED, "splits": SPLITS, "labels": LABELS, **values}
        return self.views.show("start.html", status, form=form, problems=problems, choices=self.choices, **known)

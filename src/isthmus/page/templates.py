"""Templates as pages: everything that a run, a folder or a form says is escaped, and written as UTF-8 at any price."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import cache
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.responses import HTMLResponse

from isthmus.page.crossed import words_of
from isthmus.runs.text import bytes_text, count_text, duration, epsilon_text, metric_label, score_text


class WebPage(HTMLResponse):
    """An HTML page; letters that UTF-8 has not (half of a pair, from a damaged file) are replaced."""

    def render(self, content: Any) -> bytes:
        """The page as bytes."""
        return str(content).encode("utf-8", "replace")


@cache
def environment() -> Environment:
    """The templates of this package, with escaping on in all of them."""
    known = Environment(
        loader=PackageLoader("isthmus.page"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    known.filters |= {
        "bytes_text": bytes_text, "duration": duration, "epsilon_text": epsilon_text, "score": _score,
        "metric": metric_label, "count": count_text, "ago": ago, "kind_words": words_of,
    }  # fmt: skip
    known.globals |= {"link": link}
    return known


def filled(name: str, **values: Any) -> str:
    """A template with values in it."""
    return environment().get_template(name).render(**values)


def link(path: str, parameters: dict[str, Any] | Sequence[tuple[str, str]] = (), **more: Any) -> str:
    """An address within the page, with its parameters quoted."""
    pairs = [*(parameters.items() if isinstance(parameters, dict) else parameters), *more.items()]
    told = urlencode([(key, str(value)) for key, value in pairs], errors="replace")
    return f"{path}?{told}" if told else path


def ago(when: float) -> str:
    """A time as how long ago it was: ``4 min ago``."""
    if not when:
        return "–"
    seconds = max(time.time() - when, 0.0)
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size:.0f} {unit} ago"
    return "just now"


def _score(value: float | None, metric: str) -> str:
    return score_text(metric, value)

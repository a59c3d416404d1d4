"""Who may speak to the page: whoever has its address, from this machine and from the page itself."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import HTMLResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST_SENT = 64_000  # bytes of a form
_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
_ENTERED = (
    '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><meta http-equiv="refresh" content="0; url=/">'
    '<title>Isthmus</title></head><body><p><a href="/">Go on to the runs</a></p></body></html>'
)
_REFUSED = (
    '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>Isthmus</title></head>'
    "<body><p>{}</p></body></html>"
)
_NO_TOKEN = "Open the address that <code>isthmus page</code> has printed, with the token that it ends with."
_HOST = "This page answers to the address that <code>isthmus page</code> has printed, and to no other name."
_SITE = "This was sent by another site, and is not done."


@dataclass(frozen=True)
class Keys:
    """What opens the page: the token in its address, what the cookie holds, and what every form carries."""

    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    cookie: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    form: str = field(default_factory=lambda: secrets.token_urlsafe(24))

    def made(self, form: Mapping[str, str]) -> bool:
        """Whether a form is one that this page has made."""
        return _equal(form.get("csrf", ""), self.form)


class Doorway:
    """Lets a request through to the page if its host, its cookie, its origin and its size are right."""

    def __init__(self, app: ASGIApp, keys: Keys, port: int, first_look: Callable[[], object]) -> None:
        """``first_look`` reads what the first page shows, so that whoever opens it does not wait for that."""
        self.app, self.keys, self.port, self.first_look = app, keys, port, first_look
        self.hosts = {f"{name}:{port}" for name in ("127.0.0.1", "localhost")}
        self.cookie = f"isthmus-{port}"  # browsers give cookies of one port to all ports of a host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            answer = self._refusal(scope) or self._entered(scope) or self._unknown(scope)
            await (answer or _SmallForms(self.app))(scope, receive, _with_headers(send))

    def _refusal(self, scope: Scope) -> Response | None:
        """The answer to a request of another host name or another site; None to one that may be looked at."""
        headers = Headers(scope=scope)
        if headers.get("host", "") not in self.hosts or len(headers.getlist("host")) != 1:
            return _refused(_HOST, 421)
        if scope["method"] in ("GET", "HEAD"):
            return None
        if headers.get("origin") != f"http://{headers['host']}":
            return _refused(_SITE, 403)
        if headers.get("sec-fetch-site", "same-origin") != "same-origin":
            return _refused(_SITE, 403)
        return None

    def _entered(self, scope: Scope) -> Response | None:
        """The answer to the address with the token: a cookie, and the way on, which leaves the token behind."""
        if scope["path"] != "/" or scope["method"] != "GET":
            return None
        told = parse_qs(scope["query_string"].decode("latin-1")).get("token")
        if told is None:
            return None
        if not _equal(told[0], self.keys.token):
            return _refused(_NO_TOKEN, 403)
        answer = HTMLResponse(_ENTERED)
        answer.set_cookie(self.cookie, self.keys.cookie, path="/", httponly=True, samesite="strict")
        return answer

    def _unknown(self, scope: Scope) -> Response | None:
        """The answer to a request without the cookie; None to one that has it."""
        given = _cookies(Headers(scope=scope), self.cookie)
        return None if any(_equal(each, self.keys.cookie) for each in given) else _refused(_NO_TOKEN, 403)


class _SmallForms:
    """Refuses what is larger than a form."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] in ("GET", "HEAD"):
            await self.app(scope, receive, send)
            return
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
            if len(body) > MOST_SENT:
                await _refused(f"A form here has at most {MOST_SENT:,} bytes.", 413)(scope, receive, send)
                return
        whole: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def again() -> Message:
            return whole.pop() if whole else await receive()

        await self.app(scope, again, send)


def _with_headers(send: Send) -> Send:
    """Send what every answer says to browsers beside its own headers."""

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return sent


def _cookies(headers: Headers, name: str) -> list[str]:
    """The values of all cookies of a name.

    Other servers of this machine set cookies too, also malformed ones and some of this name, and browsers send them
    along: each is looked at by itself.
    """
    pairs = (pair.partition("=") for line in headers.getlist("cookie") for pair in line.split(";"))
    return [value.strip() for key, _, value in pairs if key.strip() == name]


def _refused(sentence: str, status: int) -> Response:
    return HTMLResponse(_REFUSED.format(sentence), status)


def _equal(given: str, known: str) -> bool:
    return secrets.compare_digest(given.encode("utf-8", "replace"), known.encode())

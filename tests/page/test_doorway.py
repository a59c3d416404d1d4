"""Who may speak to the page: whoever has its address, from this machine and from the page itself."""

from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="the extra isthmus[page] is not installed")

from starlette.testclient import TestClient

from isthmus.page.app import page_app
from isthmus.page.doorway import MOST_SENT, Keys
from tests.helpers.pages import BASE, reader, scored_run, send, stranger


def test_without_the_token_nothing_is_told(tmp_path: Path) -> None:
    scored_run(tmp_path / "secret-name")
    client, keys = stranger(tmp_path)
    for path in ("/", "/run?folder=secret-name", "/events", "/static/page.css", "/?token=", "/?token=wrong"):
        answer = client.get(path)
        assert answer.status_code == 403 and "secret-name" not in answer.text and "isthmus page" in answer.text
        assert "set-cookie" not in answer.headers
    client.cookies.set("isthmus-8765", keys.token)  # the token is not the cookie
    assert client.get("/").status_code == 403


def test_the_token_becomes_a_cookie_that_scripts_and_other_sites_do_not_get(tmp_path: Path) -> None:
    client, keys = stranger(tmp_path)
    entered = client.get("/", params={"token": keys.token})
    assert entered.status_code == 200 and "url=/" in entered.text and keys.token not in entered.text
    cookie = entered.headers["set-cookie"]
    assert "HttpOnly" in cookie and "samesite=strict" in cookie.lower() and keys.token not in cookie
    assert client.get("/").status_code == 200
    assert len(keys.token) >= 32


@pytest.mark.parametrize("other", ['{"a": 1}', "a b", "ü", "2|1:0|x", '"open'])
@pytest.mark.parametrize("name", ["else", "isthmus-8765"])
def test_cookies_of_other_servers_of_this_machine_do_not_lock_the_page(name: str, other: str, tmp_path: Path) -> None:
    """Browsers send them along, for they give cookies of one port to all ports."""
    client, keys = stranger(tmp_path)
    for cookies in (f"{name}={other}; isthmus-8765={keys.cookie}", f"isthmus-8765={keys.cookie}; {name}={other}"):
        assert client.get("/", headers={"cookie": cookies.encode()}).status_code == 200
    assert client.get("/", headers={"cookie": f"{name}={other}".encode()}).status_code == 403


def test_two_pages_on_two_ports_neither_disturb_nor_open_each_other(tmp_path: Path) -> None:
    one, two = Keys(), Keys()
    doors = {port: page_app(tmp_path, keys, port) for port, keys in ((8765, one), (8766, two))}
    clients = {port: TestClient(door, base_url=f"http://127.0.0.1:{port}") for port, door in doors.items()}
    told = [clients[port].get("/", params={"token": keys.token}) for port, keys in ((8765, one), (8766, two))]
    first, second = (answer.headers["set-cookie"].partition(";")[0] for answer in told)
    assert first.partition("=")[0] != second.partition("=")[0]
    for client in clients.values():
        client.cookies.clear()
        assert client.get("/", headers={"cookie": f"{first}; {second}"}).status_code == 200
    assert clients[8765].get("/", headers={"cookie": second}).status_code == 403
    assert clients[8766].get("/", headers={"cookie": f"isthmus-8766={one.cookie}"}).status_code == 403
    assert clients[8766].get("/", params={"token": one.token}).status_code == 403


@pytest.mark.parametrize("host", ["evil.example:8765", "127.0.0.1", "127.0.0.1:9000", "evil.example", ""])
def test_another_host_name_is_refused_also_with_the_cookie(host: str, tmp_path: Path) -> None:
    """A name that an attacker lets point to this machine (DNS rebinding)."""
    client = reader(tmp_path)
    assert client.get("/", headers={"host": host}).status_code == 421
    assert client.get("/", headers={"host": "localhost:8765"}).status_code == 200


FROM_ELSEWHERE = [
    {"origin": "http://evil.example"}, {"origin": "null"}, {}, {"origin": "http://127.0.0.1:9000"},
    {"origin": BASE, "sec-fetch-site": "cross-site"}, {"origin": BASE, "sec-fetch-site": "same-site"},
]  # fmt: skip


@pytest.mark.parametrize("headers", FROM_ELSEWHERE)
def test_a_form_of_another_site_does_nothing(headers: dict[str, str], tmp_path: Path) -> None:
    client = reader(tmp_path, starts=True)
    form = {"csrf": client.headers["x-form"], "name": "theirs"}
    answer = client.post("/start", data=form, headers=headers)
    assert answer.status_code == 403 and not list(tmp_path.iterdir())


def test_a_form_that_the_page_has_not_made_does_nothing(tmp_path: Path) -> None:
    client = reader(tmp_path, starts=True)
    for form in ({}, {"csrf": "guessed"}):
        assert client.post("/start", data=form, headers={"origin": BASE}).status_code == 403
    assert send(client, "/start", silos="many").status_code == 422  # the right token: the form itself is looked at


def test_a_page_that_reads_takes_no_form(tmp_path: Path) -> None:
    scored_run(tmp_path / "run")
    client = reader(tmp_path)
    for path in ("/start", "/stop", "/resume", "/plan", "/"):
        assert send(client, path, folder="run").status_code == 405
    assert client.get("/start").status_code == 404 and "Start a run" not in client.get("/").text


def test_what_is_sent_is_bounded(tmp_path: Path) -> None:
    client = reader(tmp_path, starts=True)
    assert send(client, "/start", sets="x" * MOST_SENT).status_code == 413
    assert send(client, "/start", **{f"f{i}": "1" for i in range(100)}).status_code == 400


def test_a_page_loads_and_runs_nothing_from_elsewhere(tmp_path: Path) -> None:
    scored_run(tmp_path / "run")
    client = reader(tmp_path)
    for path in ("/", "/run?folder=run", "/ledger?folder=run", "/disclosure?folder=run", "/static/page.js", "/nowhere"):
        answer = client.get(path)
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "script-src 'self';" in policy and "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff" and answer.headers["cache-control"] == "no-store"
        assert "http:" not in answer.text.replace("http://www.w3.org/2000/svg", "") and "https:" not in answer.text
        assert " style=" not in answer.text and " onclick" not in answer.text


def test_a_report_is_shown_but_may_run_nothing(tmp_path: Path) -> None:
    run, client = scored_run(tmp_path / "run"), reader(tmp_path)
    for path, file in (("/report", "report.html"), ("/signed", "disclosure.html")):
        assert client.get(f"{path}?folder=run").status_code == 404
        (run / file).write_text("<script>alert(1)</script>")
        answer = client.get(f"{path}?folder=run")
        policy = answer.headers["content-security-policy"]
        assert answer.status_code == 200 and "sandbox" in policy and "script-src" not in policy
    assert "/signed?folder=run" in client.get("/disclosure?folder=run").text

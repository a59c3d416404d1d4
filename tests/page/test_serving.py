"""The command, the events that open pages hear, and a whole page over a real socket."""

import asyncio
import builtins
import http.client
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from importlib.util import find_spec as real_find_spec
from pathlib import Path

import pytest

pytest.importorskip("uvicorn", reason="the extra isthmus[page] is not installed")

from isthmus.core.errors import IsthmusError
from isthmus.page.events import changes
from tests.helpers.command import refuse
from tests.helpers.pages import scored_run


async def first(stream: AsyncIterator[str], count: int) -> list[str]:
    return [await anext(stream) for _ in range(count)]


def test_an_open_page_hears_of_changes_alone() -> None:
    looks = iter(["a", "a", "b", "b", *["c"] * 40])
    heard = asyncio.run(first(changes(lambda: next(looks), 0.0), 5))
    assert heard == ["data: a\n\n", "data: b\n\n", "data: c\n\n", ": still here\n\n", ": still here\n\n"]


def test_a_folder_that_is_gone_ends_no_stream() -> None:
    looks = iter([IsthmusError("gone"), OSError("gone"), "back"])

    def look() -> str:
        found = next(looks)
        if isinstance(found, builtins.Exception):
            raise found
        return found

    assert asyncio.run(first(changes(look, 0.0), 2)) == ["data: gone\n\n", "data: back\n\n"]


def test_what_is_missing_is_told_with_how_to_install_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    module = sys.modules["isthmus.cli.page"]  # as an attribute it is the command
    monkeypatch.setattr(module, "find_spec", lambda name: None if name == "starlette" else real_find_spec(name))
    refuse("page", tmp_path, says=["needs starlette", "pip install 'isthmus[page]'"])


def test_a_folder_that_is_none_and_a_port_that_is_taken(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        refuse("page", tmp_path / "runs", "--port", port, says=["cannot be used", "another with --port"])
    refuse("page", tmp_path / "no", says=["is no folder", "isthmus page runs"])
    refuse("page", tmp_path / "runs", "--port", 99999, says=["cannot be used"])


def test_the_page_is_served_on_this_machine_alone(tmp_path: Path) -> None:
    scored_run(tmp_path / "mine")
    command = [sys.executable, "-m", "isthmus", "page", str(tmp_path), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            told = [process.stdout.readline(), process.stdout.readline().strip()]
            assert told[1].startswith("http://127.0.0.1:") and "/?token=" in told[1]
            look_around(*told[1].removeprefix("http://").split("/"))
            process.terminate()
            process.wait(20)
        finally:
            process.kill()


def look_around(where: str, token: str) -> None:
    """What a browser does first."""
    connection = http.client.HTTPConnection(where, timeout=30)
    connection.request("GET", f"/{token}")
    entered = connection.getresponse()
    entered.read()
    cookie = str(entered.getheader("set-cookie")).partition(";")[0]
    connection.request("GET", "/", headers={"cookie": cookie})
    assert b"mine" in connection.getresponse().read()
    connection.request("GET", "/events", headers={"cookie": cookie})
    with connection.getresponse() as events:
        assert events.readline().startswith(b"data: ")
    connection.close()

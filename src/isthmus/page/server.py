"""Serving the page on this machine, until it is ended."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import uvicorn

from isthmus.core.errors import IsthmusError
from isthmus.page.actions import Choices
from isthmus.page.app import page_app
from isthmus.page.doorway import Keys
from isthmus.page.shelf import Shelf
from isthmus.page.starting import Starter

HOST = "127.0.0.1"


def serve(root: Path, port: int, choices: Choices | None, say: Callable[[str], None]) -> None:
    """Serve the runs below a folder until the process is interrupted; with ``choices`` runs can be started.

    ``say`` is told the address, and at the end which runs go on without the page.
    """
    shelf = Shelf(root)
    listening = _listen(port)
    port = listening.getsockname()[1]
    keys = Keys()
    starter = Starter(shelf) if choices else None
    app = page_app(root, keys, port, choices, starter)
    app.first_look()
    say("Only this machine can open the page, with the whole address; Ctrl-C ends it.")
    say(f"http://{HOST}:{port}/?token={keys.token}")
    settings = uvicorn.Config(
        app, log_level="critical", access_log=False, server_header=False, lifespan="off", timeout_graceful_shutdown=1,
    )  # fmt: skip
    with listening:
        uvicorn.Server(settings).run(sockets=[listening])
    for each in starter.going() if starter else []:
        say(f"'{each.name}' goes on (process {each.process.pid}); isthmus status tells how it stands.")


def _listen(port: int) -> socket.socket:
    """A socket of this machine alone; raises in words where the port is taken."""
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((HOST, port))
        listening.listen(128)  # before the address is told, so that nobody is turned away who is quick
    except (OSError, OverflowError) as error:
        listening.close()
        raise IsthmusError(f"Port {port} cannot be used ({error}); give another with --port, or 0 for any.") from error
    return listening

"""A relay of TCP connections between hosts of one machine: it delays, drops, truncates or cuts what passes."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch.distributed as dist

_ADDRESS = re.compile(rb"\x02\x00(..)\x7f\x00\x00\x01", re.DOTALL)  # of a socket on loopback, as gloo tells it


@dataclass
class Trouble:
    """What relays do to what passes, once ``begun`` is set; ``port``: only of those that lead there (None: of all)."""

    name: str
    delay: float = 0.0
    port: int | None = None
    begun: threading.Event = field(default_factory=threading.Event)

    def pass_on(self, content: bytes, port: int, close: Callable[[], None]) -> bytes:
        """What is left of some bytes; may close the connection."""
        if not self.begun.is_set() or self.port not in (None, port):
            return content
        if self.name == "delays":
            time.sleep(self.delay)
            return content
        if self.name == "truncates":
            return content[: len(content) // 2]
        if self.name == "cuts":
            close()
        return b""


class RelayedStore(dist.Store):
    """A store in which this host finds the other hosts behind relays of its own.

    Of two hosts the one with the larger address connects to the other; a relay's address lies on the side of the host
    that is behind it, so that both still agree on who does.
    """

    def __init__(self, inner: dist.Store, trouble: Trouble) -> None:
        super().__init__()
        self.inner, self.trouble, self.own = inner, trouble, 0
        self.found: dict[bytes, bytes] = {}  # ports that were told, and addresses of their relays

    def set(self, key: str, value: Any) -> None:
        said = value if isinstance(value, bytes) else str(value).encode()
        address = _ADDRESS.search(said)
        if address:
            self.own = int.from_bytes(address[1], "little")
        self.inner.set(key, value)

    def get(self, key: str) -> bytes:
        return _ADDRESS.sub(lambda found: self._behind(found[1]), self.inner.get(key))

    def _behind(self, port: bytes) -> bytes:
        there = int.from_bytes(port, "little")  # as hosts compare them
        if there == self.own:
            return _address(port)
        while port not in self.found:
            listening = socket.create_server(("127.0.0.1", 0))
            mine = listening.getsockname()[1].to_bytes(2, "big")
            if (int.from_bytes(mine, "little") > self.own) == (there > self.own):
                given = (listening, int.from_bytes(port, "big"), self.trouble)
                threading.Thread(target=_serve, args=given, daemon=True).start()
                self.found[port] = _address(mine)
        return self.found[port]

    def check(self, keys: list[str]) -> bool:
        return self.inner.check(keys)

    def wait(self, keys: list[str], *timeout: Any) -> None:
        self.inner.wait(keys, *timeout)

    def add(self, key: str, value: int) -> int:
        return self.inner.add(key, value)


def _address(port: bytes) -> bytes:
    return b"\x02\x00" + port + b"\x7f\x00\x00\x01"


def _serve(listening: socket.socket, port: int, trouble: Trouble) -> None:
    while True:
        near, _ = listening.accept()
        far = socket.create_connection(("127.0.0.1", port))
        for a, b in ((near, far), (far, near)):
            a.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=_pump, args=(a, b, port, trouble), daemon=True).start()


def _pump(a: socket.socket, b: socket.socket, port: int, trouble: Trouble) -> None:
    def close() -> None:
        for each in (a, b):
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    try:
        while content := a.recv(2**16):
            b.sendall(trouble.pass_on(content, port, close))
    except OSError:
        pass
    close()

"""Packets as messages between cells of NVIDIA FLARE: small ones at once, large ones as streams; nothing is pickled."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

CHANNEL, SMALL, LARGE = "isthmus", "packet", "stream"
_LARGE = 2**19  # bytes from which a packet is streamed; FLARE's default transport loses single messages above 4 MiB


class CellPost:
    """The mail box of one party of a job; packets that arrive before anybody listens are kept until then."""

    def __init__(self, cell: Any) -> None:
        self._cell = cell
        self._lock = threading.Lock()
        self._early: list[tuple[str, bytes]] = []
        self._arrived: Callable[[str, bytes], None] | None = None
        self._addresses: dict[str, str] = {}  # party -> cell
        self._names: dict[str, str] = {}  # cell -> party
        cell.core_cell.register_request_cb(channel=CHANNEL, topic=SMALL, cb=self._on_small)
        cell.register_blob_cb(CHANNEL, LARGE, self._on_large)

    def address(self, addresses: Mapping[str, str]) -> None:
        """Learn the cell of every party; who lies about them is found out by the seals."""
        self._addresses = dict(addresses)
        self._names = {cell: name for name, cell in addresses.items()}

    def put(self, receiver: str, packet: bytes) -> None:
        """Hand a packet to FLARE, without waiting; what FLARE loses is asked for again by its receiver."""
        from nvflare.fuel.f3.message import Message

        message, target = Message({}, packet), self._addresses[receiver]
        if len(packet) < _LARGE:
            self._cell.core_cell.fire_and_forget(
                channel=CHANNEL, topic=SMALL, targets=[target], message=message, optional=True
            )
        else:
            self._cell.send_blob(
                channel=CHANNEL, topic=LARGE, target=target, message=message, reliable=False, optional=True
            )

    def listen(self, arrived: Callable[[str, bytes], None]) -> None:
        """Call ``arrived(claimed sender, packet)`` for all packets that have come or will come."""
        with self._lock:
            self._arrived, early, self._early = arrived, self._early, []
        for cell, packet in early:
            arrived(self._names.get(cell, cell), packet)

    def _on_small(self, message: Any) -> None:
        self._take(message.headers, message.payload)

    def _on_large(self, future: Any) -> None:
        self._take(future.headers, future.result())

    def _take(self, headers: Mapping[str, Any], payload: Any) -> None:
        from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey
        from nvflare.fuel.f3.streaming.stream_const import StreamHeaderKey

        cell = str(headers.get(MessageHeaderKey.ORIGIN) or headers.get(StreamHeaderKey.ORIGIN) or "")
        packet = bytes(payload) if isinstance(payload, (bytes, bytearray, memoryview)) else b""
        with self._lock:
            arrived = self._arrived
            if arrived is None:
                self._early.append((cell, packet))
        if arrived is not None:
            arrived(self._names.get(cell, cell), packet)

"""The ledgers of all hosts as one: what silos tell the server at the end of who sent what to whom."""

from __future__ import annotations

import json

import torch
from torch import Tensor

from isthmus.core.kinds import SERVER, Kind
from isthmus.core.parcel import Traffic
from isthmus.protect.events import from_json, to_json
from isthmus.wire.ledger import COLUMNS
from isthmus.wire.wire import Wire


def collect_ledgers(wire: Wire) -> dict[str, int]:
    """Every silo's lines go to the server, by the one way out; returns the bytes that hosts' transports carried.

    The letter that carries a ledger cannot list itself: the server adds a line for each that it receives.
    """
    ledger = wire.ledger
    transport = dict(ledger.transport)
    if wire.hosts == 1:
        return transport
    lines, events = ledger.lines(), json.dumps([[to_json(each) for each in ledger.events], transport])
    text = torch.frombuffer(bytearray(events.encode()), dtype=torch.uint8)
    mine = {silo: lines[_concerns(lines, silo)] for silo in wire.mine}
    pages = wire.gather(Kind.LEDGER, mine)
    words = wire.gather(Kind.LEDGER, dict.fromkeys(wire.mine, text))
    if pages is None or words is None:
        return transport
    ledger.turn_page()
    carried: dict[int, dict[str, int]] = {}  # by host
    for silo in (silo for silo in pages if not wire.houses(silo)):
        events_there, carried[wire.members.home(silo)] = json.loads(bytes(words[silo].tolist()))
        ledger.adopt(pages[silo], [from_json(each) for each in events_there])
        for letter in (pages[silo], words[silo]):
            row = letter.shape[1:].numel() * letter.element_size()
            ledger.record(Kind.LEDGER, (), Traffic.single(silo, SERVER, len(letter)), row)
    for kind, size in (item for host in carried.values() for item in host.items()):
        transport[kind] = transport.get(kind, 0) + size
    return transport


def _concerns(lines: Tensor, silo: int) -> Tensor:
    """Which lines of a host's ledger are of messages that a silo sent, or got from the server: [lines] bool."""
    sender, receiver = lines[:, COLUMNS.index("sender")], lines[:, COLUMNS.index("receiver")]
    return (sender == silo) | ((sender == SERVER) & (receiver == silo))

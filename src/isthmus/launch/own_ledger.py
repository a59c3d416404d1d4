"""The ledger of one party: what it sent, by its own count, and what it received, as the server tells it."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence

import torch
from torch import Tensor

from isthmus.core.errors import PeerError
from isthmus.core.kinds import SERVER, Kind, devices_of
from isthmus.core.parcel import Traffic
from isthmus.launch.ledger_lines import check_lines
from isthmus.protect.events import Events, from_json, to_json
from isthmus.wire.books import COLUMNS
from isthmus.wire.ledger import Ledger
from isthmus.wire.wire import Wire

_SENDER, _RECEIVER, _EVENT = (COLUMNS.index(name) for name in ("sender", "receiver", "event"))
_STEPS = [COLUMNS.index(name) for name in ("epoch", "step", "purpose", "kind", "messages", "rows", "bytes")]
_WHEN, _BYTES = [0, 1, 2], COLUMNS.index("bytes")


def parties_on(wire: Wire) -> list[int]:
    """Numbers of the parties of this host: its silos, their devices, and the server where it lives here."""
    below = [devices_of(silo) for silo in wire.mine]
    return [*wire.mine, *below, *([SERVER] if wire.houses(SERVER) else [])]


def own_ledger(wire: Wire, before: Tensor) -> Ledger:
    """The ledger of this host's parties, with a line for every message that they sent or received.

    Every host calls this, once the server has the ledgers of all. ``before``: the server's lines from before that. The
    server tells each silo of another host of the messages that it has received: by whom, when, of which kind and size
    and under which protection. No silo hears of messages between others.
    """
    mine, at_server = torch.tensor(parties_on(wire)), wire.houses(SERVER)
    letters = _letters(wire, wire.ledger.book("ledger"), before) if at_server else {"words": {}, "ledger": {}}
    with wire.ledger.at_once():
        heard = {what: wire.post(Kind.LEDGER, each) for what, each in letters.items()}
    lines = wire.ledger.book("ledger")
    own = ledger_of(wire, lines[torch.isin(lines[:, _SENDER], mine) | torch.isin(lines[:, _RECEIVER], mine)])
    if not at_server:
        for silo in wire.mine:
            _add_received(wire, own, silo, {what: each[SERVER, silo] for what, each in heard.items()})
    return own


def ledger_of(wire: Wire, lines: Tensor) -> Ledger:
    """A ledger that holds some lines of this host's, with steps and loads of these, and the legs of the whole run."""
    found, ledger = Ledger(), wire.ledger
    found.names, found.models = ledger.names, ledger.models
    found.epoch, found.step, found.purpose = ledger.epoch, ledger.step, ledger.purpose
    _add(found, wire, lines, ledger.events)
    found.adopt({"legs": ledger.book("legs")}, ())
    return found


def sent_by(wire: Wire, ledger: Ledger) -> Ledger:
    """Of a party's ledger the messages that silos of this host, and their devices, have sent."""
    silos = torch.tensor([*wire.mine, *(devices_of(silo) for silo in wire.mine)], dtype=torch.int64)
    lines = ledger.book("ledger")
    found = Ledger()
    found.names, found.models = ledger.names, ledger.models
    _add(found, wire, lines[torch.isin(lines[:, _SENDER], silos)], ledger.events)
    return found


def _add(ledger: Ledger, wire: Wire, lines: Tensor, events: Sequence[Events]) -> None:
    """Add lines to a party's ledger, and their sums by step and by party."""
    ledger.adopt({"ledger": lines, "steps": lines[:, _STEPS], "loads": _loads(lines, parties_on(wire))}, events)


def _loads(lines: Tensor, parties: Collection[int]) -> Tensor:
    """What each of some parties sent and received, as lines of the book ``loads``."""
    found = []
    for party in parties:
        sent, got = (torch.where(lines[:, end] == party, lines[:, _BYTES], 0) for end in (_SENDER, _RECEIVER))
        found.append(torch.cat([lines[:, _WHEN], torch.stack([torch.full_like(sent, party), sent, got], 1)], 1))
    return torch.cat(found)


def _letters(wire: Wire, lines: Tensor, before: Tensor) -> dict[str, dict[tuple[int, int], Tensor]]:
    """For every silo of another host, the lines of what it received and did not count itself, and their events."""
    letters: dict[str, dict[tuple[int, int], Tensor]] = {"words": {}, "ledger": {}}
    for silo in wire.members.present:
        if wire.houses(silo):
            continue
        there = [*wire.members.on(wire.members.home(silo))]
        counted = torch.tensor([SERVER, *there, *map(devices_of, there)])
        of_peers = lines[_to(lines, silo) & ~torch.isin(lines[:, _SENDER], counted)]
        of_server = before[_to(before, silo) & (before[:, _SENDER] == SERVER)]
        told = torch.cat([of_peers, of_server])
        events, place = told[:, _EVENT].unique(return_inverse=True)
        told[:, _EVENT] = place
        words = json.dumps([to_json(wire.ledger.events[event]) for event in events.tolist()]).encode()
        letters["words"][SERVER, silo] = torch.frombuffer(bytearray(words), dtype=torch.uint8)
        letters["ledger"][SERVER, silo] = told
    return letters


def _to(lines: Tensor, silo: int) -> Tensor:
    """Which lines are of messages to a silo or its devices: [lines] bool."""
    return (lines[:, _RECEIVER] == silo) | (lines[:, _RECEIVER] == devices_of(silo))


def _add_received(wire: Wire, own: Ledger, silo: int, letters: Mapping[str, Tensor]) -> None:
    """Check what the server has told a silo that it received, and add it to the silo's ledger, the letters included."""
    who, lines = f"The server, to {wire.party(silo)},", letters["ledger"]
    try:
        events = [from_json(each) for each in json.loads(bytes(letters["words"].tolist()))]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise PeerError(f"{who} sent a ledger whose words make no sense ({type(error).__name__}).") from error
    check_lines(wire, "ledger", lines, len(events), who)
    if not bool(_to(lines, silo).all()):
        raise PeerError(f"{who} sent ledger lines of messages that the silo has not received.")
    _add(own, wire, lines, events)
    arrived = Ledger()
    arrived.epoch, arrived.step, arrived.purpose = wire.ledger.epoch, wire.ledger.step, wire.ledger.purpose
    for letter in letters.values():
        row = letter.shape[1:].numel() * letter.element_size()
        arrived.record(Kind.LEDGER, (), Traffic.single(SERVER, silo, len(letter)), row)
    _add(own, wire, arrived.book("ledger"), arrived.events)

"""Collecting the ledgers and notes of all hosts at the server, at the end of a run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.core.kinds import SERVER, Kind, devices_of
from isthmus.core.parcel import Traffic
from isthmus.federation.text_on_wire import raise_together
from isthmus.launch.ledger_lines import check_lines
from isthmus.launch.own_ledger import own_ledger
from isthmus.protect.events import Events, from_json, to_json
from isthmus.wire.books import COLUMNS
from isthmus.wire.ledger import Ledger
from isthmus.wire.wire import Wire

_NAMED = ("ledger", "loads", "steps")  # books that differ from host to host; every host has the same legs
_LONGEST = 1000  # letters of a note, and notes of a host


@dataclass(frozen=True)
class Collected:
    """What a host knows once ledgers are collected: bytes that transports carried, notes, and its parties' ledger.

    ``transport`` and ``notes`` are those of all hosts at the server's, and its own elsewhere.
    """

    transport: dict[str, int]
    notes: list[str]
    own: Ledger


@dataclass(frozen=True)
class _HostReport:
    """What one host has told beside the lines of its ledger: events, bytes of its transport, notes."""

    events: list[Events] = field(default_factory=list)
    transport: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def collect_ledgers(wire: Wire, notes: Sequence[str]) -> Collected:
    """Send every silo's ledger lines and its host's notes to the server, which tells each silo what it received.

    The letter that carries a ledger cannot list itself: the server adds a line for each that it receives. Lines that a
    silo cannot have are refused, on every host.
    """
    ledger = wire.ledger
    if wire.hosts == 1:
        return Collected(dict(ledger.transport), list(notes), ledger)
    said = _letters(wire, notes)
    with ledger.at_once():
        heard = {what: wire.gather(Kind.LEDGER, letters) for what, letters in said.items()}
    told: dict[int, _HostReport] = {}  # by host
    problem = ""
    try:
        for host in (host for host in wire.members.hosts if host != wire.host and wire.houses(SERVER)):
            told[host] = _checked(wire, host, {what: each or {} for what, each in heard.items()})
    except IsthmusError as error:
        problem = str(error)
    raise_together(wire, problem, Kind.LEDGER)
    before = ledger.book("ledger")
    for host, each in told.items():
        _adopt(wire, host, {what: letters or {} for what, letters in heard.items()}, each)
    own = own_ledger(wire, before)
    transport = dict(ledger.transport)
    for kind, size in (item for each in told.values() for item in each.transport.items()):
        transport[kind] = transport.get(kind, 0) + size
    return Collected(
        transport, merged_notes(wire, {wire.host: notes, **{h: each.notes for h, each in told.items()}}), own
    )


def _letters(wire: Wire, notes: Sequence[str]) -> dict[str, dict[int, Tensor]]:
    """Letters {what: {silo: tensor}} of my silos: each sends its own lines, the first also what is the whole host's."""
    ledger = wire.ledger
    words = json.dumps([[to_json(each) for each in ledger.events], ledger.transport, list(notes)])
    text = torch.frombuffer(bytearray(words.encode()), dtype=torch.uint8)
    books = {name: ledger.book(name) for name in _NAMED}
    letters: dict[str, dict[int, Tensor]] = {}
    for what, whole in {**books, "words": text}.items():
        letters[what] = {silo: whole if place == 0 else whole[:0] for place, silo in enumerate(wire.mine)}
    letters["ledger"] = {silo: books["ledger"][_concerns(books["ledger"], silo)] for silo in wire.mine}
    return letters


def _concerns(lines: Tensor, silo: int) -> Tensor:
    """Which lines of a host's ledger are of messages that a silo sent, or got from the server: [lines] bool."""
    sender, receiver = lines[:, COLUMNS.index("sender")], lines[:, COLUMNS.index("receiver")]
    own = (sender == silo) | (sender == devices_of(silo))
    return own | ((sender == SERVER) & (receiver == silo))


def _checked(wire: Wire, host: int, heard: Mapping[str, Mapping[int, Tensor]]) -> _HostReport:
    """Check what another host has told; returns what it told beside the lines of its ledger."""
    silos = wire.members.on(host)
    who = ", ".join(map(wire.party, silos))
    if not silos:
        return _HostReport()
    told = _decoded(heard["words"][silos[0]], who)
    for silo in silos:
        lines = heard["ledger"][silo]
        check_lines(wire, "ledger", lines, len(told.events), wire.party(silo))
        if not bool(_concerns(lines, silo).all()):
            raise IsthmusError(f"{wire.party(silo)} sent ledger lines of messages between other parties.")
    for what in ("loads", "steps"):
        check_lines(wire, what, heard[what][silos[0]], len(told.events), who)
    pairs, steps = torch.cat([heard["ledger"][silo] for silo in silos]), heard["steps"][silos[0]]
    if not torch.equal(pairs[:, -3:].sum(0), steps[:, -3:].sum(0)):
        raise IsthmusError(f"{who} sent a ledger whose lines and sums by step do not agree.")
    return told


def _adopt(wire: Wire, host: int, heard: Mapping[str, Mapping[int, Tensor]], told: _HostReport) -> None:
    """Add the lines of another host to this ledger, and a line for each letter that came after they were counted.

    These are the letters that carried the lines, and an empty one in which each silo said that it has no objection.
    """
    ledger, silos = wire.ledger, wire.members.on(host)
    for silo in silos:
        ledger.adopt({"ledger": heard["ledger"][silo]}, told.events)
        for letters in heard.values():
            letter = letters[silo]
            row = letter.shape[1:].numel() * letter.element_size()
            ledger.record(Kind.LEDGER, (), Traffic.single(silo, SERVER, len(letter)), row)
        ledger.record(Kind.LEDGER, (), Traffic.single(silo, SERVER, 0), 1)
    for silo in silos[:1]:  # the first of a host tells these of all
        ledger.adopt({what: heard[what][silo] for what in ("loads", "steps")}, told.events)


def _decoded(words: Tensor, who: str) -> _HostReport:
    """Events, bytes carried and notes of another host, from its letter."""
    try:
        events, transport, notes = json.loads(bytes(words.tolist()))
        kinds = [Kind(kind) for kind in transport]
        whole = all(isinstance(size, int) and size >= 0 for size in transport.values())
        short = len(notes) <= _LONGEST and all(isinstance(n, str) and len(n) <= _LONGEST for n in notes)
        told = _HostReport([from_json(each) for each in events], {k.value: transport[k.value] for k in kinds}, notes)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise IsthmusError(f"{who} sent a ledger whose words make no sense ({type(error).__name__}).") from error
    if not whole or not short:
        raise IsthmusError(f"{who} sent a ledger with impossible counts of bytes, or notes that are too long.")
    return told


def merged_notes(wire: Wire, notes: Mapping[int, Sequence[str]]) -> list[str]:
    """Notes of all hosts, each once; one that not all hosts have begins with the silos of the hosts that have it."""
    found: dict[str, list[int]] = {}
    for host, each in notes.items():
        for sentence in each:
            found.setdefault(sentence, []).append(host)
    return [sentence if len(on) == len(notes) else _told_by(wire, on, sentence) for sentence, on in found.items()]


def _told_by(wire: Wire, hosts: Sequence[int], sentence: str) -> str:
    """A note with the silos of its hosts in front, unless it names one of them itself."""
    silos = [wire.party(silo) for host in hosts for silo in wire.members.on(host)]
    if any(name in sentence for name in silos):
        return sentence
    return f"On the host of {', '.join(silos) or 'the server'}: {sentence}"

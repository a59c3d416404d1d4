"""The ledger: who sent how much of what to whom, at which step, and under which protection."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from isthmus.core.kinds import BELOW, KINDS, PURPOSES, SERVER, SERVER_NAME, Kind, Purpose, silo_of_devices
from isthmus.core.parcel import Traffic
from isthmus.protect.events import Events, describe
from isthmus.wire.counts import (
    Counts,
    as_lines,
    as_table,
    at_moment,
    busiest,
    count,
    grouped,
    loads,
    loads_of,
    sums_of,
    total_of_loads,
)
from isthmus.wire.tally import Tally

if TYPE_CHECKING:  # loaded where tables are made, so that training needs no more than torch
    import pyarrow as pa

COLUMNS = ("epoch", "step", "purpose", "sender", "receiver", "kind", "event", "model", "messages", "rows", "bytes")
STEP_COLUMNS = ("epoch", "step", "purpose", "kind", "messages", "rows", "bytes")
LOAD_COLUMNS = ("epoch", "step", "purpose", "party", "sent", "received")
LEG_COLUMNS = ("epoch", "step", "purpose", "legs")
BOOKS = {"ledger": COLUMNS, "steps": STEP_COLUMNS, "loads": LOAD_COLUMNS, "legs": LEG_COLUMNS}
DETAILED = 100_000  # lines that tell who sent to whom at which step; what comes after them is summed over steps
_PENDING = 1_000_000  # entries of traffic that wait to be counted
_TALLIED = [COLUMNS.index(name) for name in ("sender", "receiver", "kind", "messages", "rows", "bytes")]
_WHEN = 3  # columns that tell a moment: epoch, step, purpose


class Ledger:
    """Counts every message.

    It keeps four books. Each has one line for every combination of:

    - ``ledger``: (epoch, step, purpose, sender, receiver, kind, protection event, model). After ``DETAILED`` lines,
      messages of later steps are added up by all of these but epoch and step, under the epoch and step of the first,
      so that the book grows with the pairs that talk and no longer with steps times pairs. ``model`` is the one that a
      message is about, as parameters and gradients are; empty where it is about none.
    - ``steps``: (epoch, step, purpose, kind), summed over senders and receivers.
    - ``loads``: (epoch, step, purpose, party), the bytes that a party sent and received. A process that counts for all
      parties (``alone``) keeps the busiest two of each step that is over.
    - ``legs``: (epoch, step, purpose), one-way trips that had to follow each other. All messages of one call travel at
      once, so that a call is one leg whatever the number of silos, also where it turns out that nobody had anything to
      send. Every host makes the same calls, so every host counts the same legs.

    Lines that will not change lie in ``pages`` as whole numbers [lines, columns], so that a checkpoint can append them.
    What still grows (sums over steps, loads of the current step) is kept apart from them.
    """

    def __init__(self, alone: bool = False) -> None:
        self.epoch = self.step = 0
        self.purpose = Purpose.SETUP
        self.alone = alone
        self.events: list[Events] = []
        self.names: dict[int, str] = {SERVER: SERVER_NAME}  # silos go by number until they introduce themselves
        self.models: tuple[str, ...] = ("",)  # those that messages may be about, on every host in the same order
        self.model = ""  # the one that messages are about now
        self.pages: dict[str, list[Tensor]] = {book: [] for book in BOOKS}
        self._fresh: dict[str, list[Tensor]] = {book: [] for book in BOOKS}  # pages that nobody has taken yet
        self.transport: dict[str, int] = {}  # bytes that this host's transport really carried to other hosts
        self._written = 0  # detailed lines of this host
        self._sums: dict[tuple[int, ...], tuple[list[int], Counts]] = {}  # by purpose, kind, event, model; since when
        self._loads: dict[tuple[int, ...], np.ndarray] = {}  # by (epoch, step, purpose) of the current step
        self._open: dict[tuple[int, ...], list[tuple[Traffic, int]]] = {}
        self._legs: dict[tuple[int, ...], int] = {}
        self._pending = 0
        self._tally = Tally()  # of all messages that are in the books

    def party(self, number: int) -> str:
        """The name of a party, as reports and errors print it."""
        below = silo_of_devices(number)
        return self.names.get(number, f"silo-{number}") if below is None else f"{BELOW}{self.party(below)}"

    def _now(self) -> tuple[int, int, int]:
        return self.epoch, self.step, PURPOSES.index(self.purpose)

    @contextmanager
    def during(self, purpose: Purpose) -> Iterator[None]:
        """Count what follows under the given purpose."""
        before, self.purpose = self.purpose, purpose
        try:
            yield
        finally:
            self.purpose = before

    @contextmanager
    def about(self, model: str) -> Iterator[None]:
        """Count what follows as messages about a model."""
        before, self.model = self.model, model
        try:
            yield
        finally:
            self.model = before

    @contextmanager
    def unrecorded(self) -> Iterator[None]:
        """Leave the messages of a ``with`` block out of the books: those that only a resumed run has to send."""
        before = {key: list(sent) for key, sent in self._open.items()}, dict(self.transport), dict(self._legs)
        yield
        self._open, self.transport, self._legs = before

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Count what follows as one leg: messages of several calls that do not wait for each other."""
        before = dict(self._legs)
        yield
        self._legs = before
        self.leg()

    def leg(self, count: int = 1) -> None:
        """Count one-way trips that follow each other; a message through the server and back takes two."""
        self._legs[self._now()] = self._legs.get(self._now(), 0) + count

    def record(self, kind: Kind, events: Events, traffic: Traffic, row_size: int) -> None:
        """Count messages of one kind, protected by ``events``, with ``row_size`` bytes a row."""
        key = (*self._now(), KINDS.index(kind), self._place_of(events), self.models.index(self.model))
        self._open.setdefault(key, []).append((traffic, row_size))
        self._pending += len(traffic.rows)
        if self._pending > _PENDING:
            self._close()

    def _place_of(self, events: Events) -> int:
        """The place of ``events`` in ``self.events``, to which they are added the first time."""
        if events not in self.events:
            self.events.append(events)
        return self.events.index(events)

    def carry(self, kind: Kind, size: int) -> None:
        """Count bytes that crossed between hosts."""
        self.transport[kind.value] = self.transport.get(kind.value, 0) + size

    def turn_page(self) -> dict[str, Tensor]:
        """By book, the lines that will not change any more and that no earlier call returned."""
        self._close()
        fresh, self._fresh = self._fresh, {book: [] for book in BOOKS}
        return {book: torch.cat(pages) for book, pages in fresh.items()}

    def _close(self) -> None:
        """Turn messages that were recorded since the last call into lines of the four books."""
        counts = self._counted()
        sides = {key: loads(each) for key, each in counts.items()}
        self._tally.add(((key[_WHEN], each) for key, each in counts.items()), sides.values())
        here = {
            "ledger": as_lines(self._by_pair(counts), len(COLUMNS)),
            "steps": as_lines([[[*key[:-2], *each.counts.sum(0)]] for key, each in counts.items()], len(STEP_COLUMNS)),
            "loads": as_lines(self._by_party(sides), len(LOAD_COLUMNS)),
            "legs": as_lines([sorted([*key, legs] for key, legs in self._legs.items())], len(LEG_COLUMNS)),
        }
        for book, lines in here.items():
            self.pages[book].append(lines)
            self._fresh[book].append(lines)
        self._clear()

    def _counted(self) -> dict[tuple[int, ...], Counts]:
        """Counts of messages that were recorded since the books were last written, by moment, kind, event, model."""
        return {key: count(sent) for key, sent in sorted(self._open.items())}

    def so_far(self) -> Tally:
        """What has crossed up to now; the books stay as they are."""
        found, counts = self._tally.copy(), self._counted()
        found.add(((key[_WHEN], each) for key, each in counts.items()), map(loads, counts.values()))
        return found

    def _by_pair(self, counts: Mapping[tuple[int, ...], Counts]) -> list[np.ndarray]:
        """Lines of the book ``ledger``; none once it has ``DETAILED`` of them: counts then go to sums over steps."""
        size = sum(len(each.pairs) for each in counts.values())
        if self._written + size <= DETAILED and not self._sums:
            self._written += size
            return [each.lines(key[:_WHEN], key[_WHEN:]) for key, each in counts.items()]
        alike: dict[tuple[int, ...], list[tuple[list[int], Counts]]] = {}
        for (epoch, step, *what), each in counts.items():
            alike.setdefault(tuple(what), []).append(([epoch, step], each))
        for key, more in alike.items():
            parts = [self._sums[key], *more] if key in self._sums else more
            self._sums[key] = parts[0][0], Counts.total([each for _, each in parts])
        return []

    def _by_party(self, sides: Mapping[tuple[int, ...], np.ndarray]) -> list[np.ndarray]:
        """Lines of the book ``loads`` for steps that are over; loads of the current step are kept until it is over."""
        fresh: dict[tuple[int, ...], list[np.ndarray]] = {}
        for key, each in sides.items():
            fresh.setdefault(key[:_WHEN], []).append(each)
        for when, more in fresh.items():
            before = [self._loads[when]] if when in self._loads else []
            self._loads[when] = total_of_loads([*before, *more])
        over = [when for when in self._loads if when[:2] != (self.epoch, self.step)]
        return [
            at_moment(when, busiest(self._loads.pop(when)) if self.alone else self._loads.pop(when)) for when in over
        ]

    def growing(self) -> dict[str, Tensor]:
        """Counts that may still grow, for a checkpoint: sums over steps, and loads of the current step."""
        self._close()
        keys = [[*key, *since, len(c.pairs)] for key, (since, c) in self._sums.items()]
        counts = [np.column_stack([c.pairs, c.counts]) for _, c in self._sums.values()]
        return {"keys": as_lines([keys], 7), "sums": as_lines(counts, 4), "loads": self._loads_at_hand()}

    def _loads_at_hand(self) -> Tensor:
        """Loads of the current step, as lines of the book ``loads``."""
        each = [at_moment(when, lines) for when, lines in sorted(self._loads.items())]
        return as_lines(each, len(LOAD_COLUMNS))

    @property
    def summed_since(self) -> int | None:
        """The first epoch whose lines are summed over steps; None while the ledger has a line for every step."""
        return min((since[0] for since, _ in self._sums.values()), default=None)

    def _clear(self) -> None:
        self._open.clear()
        self._legs.clear()
        self._pending = 0

    def book(self, name: str) -> Tensor:
        """All lines of a book: [lines, columns]."""
        self._close()
        self.pages[name] = [torch.cat(self.pages[name])]
        more: list[Tensor] = []
        if name == "ledger":
            sums = (c.lines([*since, purpose], key) for (purpose, *key), (since, c) in sorted(self._sums.items()))
            more = [as_lines(list(sums), len(COLUMNS))]
        elif name == "loads":
            more = [self._loads_at_hand()]
        return torch.cat([*self.pages[name], *more])

    def lines(self) -> Tensor:
        """All lines of the book ``ledger``, who sent what to whom: [lines, len(COLUMNS)]."""
        return self.book("ledger")

    def adopt(self, books: Mapping[str, Tensor], events: Sequence[Events]) -> None:
        """Add the books of another ledger (another host's, or a checkpoint's), which numbers ``events`` as listed."""
        for name, lines in books.items():
            self.pages[name].append(self._renumbered(lines, events) if name == "ledger" else lines)

    def _renumbered(self, lines: Tensor, events: Sequence[Events]) -> Tensor:
        """Lines of another ledger, with its event numbers (places in ``events``) replaced by those of this ledger."""
        lines, column = lines.clone(), COLUMNS.index("event")
        place = torch.tensor([self._place_of(each) for each in events] or [0])
        lines[:, column] = place[lines[:, column]]
        return lines

    def restore(
        self,
        books: Mapping[str, Tensor],
        growing: Mapping[str, Tensor],
        events: Sequence[Events],
        transport: dict[str, int],
    ) -> None:
        """Replace all books by those of a checkpoint, and drop what was recorded since."""
        self._clear()
        self.pages, self._fresh = {book: [] for book in BOOKS}, {book: [] for book in BOOKS}
        self.events, self.transport = [], dict(transport)
        self.adopt(books, events)
        self._written = len(books["ledger"])
        self._sums = sums_of(growing["keys"], growing["sums"])
        self._loads = loads_of(growing["loads"])
        self._tally = Tally.of(self.lines()[:, _TALLIED])

    def forget(self) -> None:
        """Drop all lines."""
        growing = {name: lines[:0] for name, lines in self.growing().items()}
        self.restore({name: as_lines([], len(columns)) for name, columns in BOOKS.items()}, growing, self.events, {})

    def by_kind(self) -> dict[str, int]:
        """Bytes of each kind that crossed, most first."""
        steps = self.book("steps")
        kind, size = (steps[:, STEP_COLUMNS.index(name)] for name in ("kind", "bytes"))
        total = torch.zeros(len(KINDS), dtype=torch.int64).index_add_(0, kind, size)
        seen = sorted(set(kind.tolist()), key=lambda kind: -int(total[kind]))
        return {KINDS[kind].value: int(total[kind]) for kind in seen}

    def by_model(self) -> dict[str, int]:
        """Bytes of messages about each model that crossed."""
        lines = self.lines()
        model, size = (lines[:, COLUMNS.index(name)] for name in ("model", "bytes"))
        total = torch.zeros(len(self.models), dtype=torch.int64).index_add_(0, model, size)
        return {name: int(total[i]) for i, name in enumerate(self.models) if name}

    def treatments(self, kind: Kind) -> dict[int, dict[Events, int]]:
        """How messages of a kind of each silo, and of its devices, were protected: {silo: {events: messages}}.

        Messages that left without protection stand under the empty tuple.
        """
        lines = self.lines()
        column = {name: lines[:, i] for i, name in enumerate(COLUMNS)}
        here = lines[(column["kind"] == KINDS.index(kind)) & (column["sender"] != SERVER)]
        found: dict[int, dict[Events, int]] = {}
        places = [COLUMNS.index(name) for name in ("sender", "event", "messages")]
        for sender, event, messages in grouped(here[:, places], 2).tolist():
            below = silo_of_devices(sender)
            mine = found.setdefault(sender if below is None else below, {})
            mine[self.events[event]] = mine.get(self.events[event], 0) + messages
        return found

    def table(self) -> pa.Table:
        """The book ``ledger`` as an Arrow table, with names instead of numbers."""
        names: dict[str, Callable[[int], str]] = {
            "sender": self.party,
            "receiver": self.party,
            "event": lambda i: describe(self.events[i]),
            "model": lambda i: self.models[i],
        }
        return as_table(self.lines(), COLUMNS, _WORDS | names)

    def step_table(self) -> pa.Table:
        """Messages, rows and bytes by (epoch, step, purpose, kind), as an Arrow table."""
        return as_table(grouped(self.book("steps"), _WHEN + 1), STEP_COLUMNS, _WORDS)

    def leg_table(self) -> pa.Table:
        """By (epoch, step, purpose): legs, and the bytes that the busiest party sent or received, as an Arrow table."""
        each, legs = grouped(self.book("loads"), _WHEN + 1), self.book("legs")
        most = grouped(torch.cat([each[:, :_WHEN], each[:, -2:].amax(1, keepdim=True)], 1), _WHEN, "amax")
        trips, sizes = (lines[:, [0, 1, 2, 3, 3]] for lines in (legs, most))
        trips[:, 4], sizes[:, 3] = 0, 0
        return as_table(grouped(torch.cat([trips, sizes]), _WHEN), (*LEG_COLUMNS, "busiest"), _WORDS)


_WORDS: dict[str, Callable[[int], str]] = {
    "purpose": lambda i: PURPOSES[i].value,
    "kind": lambda i: KINDS[i].value,
}

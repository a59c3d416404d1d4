"""The ledger: who sent how much of what to whom, at which step, and under which protection."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from isthmus.core.kinds import BELOW, KINDS, PURPOSES, SERVER, SERVER_NAME, Kind, Purpose, silo_of_devices
from isthmus.core.parcel import Traffic
from isthmus.protect.events import Events, describe
from isthmus.wire.books import BOOKS, COLUMNS, LEG_COLUMNS, STEP_COLUMNS, WHEN, LedgerBooks
from isthmus.wire.counts import Counts, as_lines, as_table, count, grouped, loads
from isthmus.wire.tally import Tally

if TYPE_CHECKING:  # loaded where tables are made, so that training needs no more than torch
    import pyarrow as pa

_PENDING = 1_000_000  # entries of traffic that wait to be counted
_TALLIED = [COLUMNS.index(name) for name in ("sender", "receiver", "kind", "messages", "rows", "bytes")]


class Ledger:
    """Counts every message: under the epoch, step and purpose at hand, and the model that it is about.

    Messages wait to be counted until somebody looks, or until they are many; then they become lines of ``books``.
    """

    def __init__(self, alone: bool = False) -> None:
        self.epoch = self.step = 0
        self.purpose = Purpose.SETUP
        self.events: list[Events] = []
        self.names: dict[int, str] = {SERVER: SERVER_NAME}  # silos go by number until they introduce themselves
        self.models: tuple[str, ...] = ("",)  # those that messages may be about, on every host in the same order
        self.model = ""  # the one that messages are about now
        self.transport: dict[str, int] = {}  # bytes that this host's transport really carried to other hosts
        self._open: dict[tuple[int, ...], list[tuple[Traffic, int]]] = {}
        self._legs: dict[tuple[int, ...], int] = {}
        self._pending = 0
        self.books = LedgerBooks(alone)
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
        return self.books.take_fresh()

    def _close(self) -> None:
        """Turn messages that were recorded since the last call into lines of the books."""
        counts = self._counted()
        sides = {key: loads(each) for key, each in counts.items()}
        self._tally.add(((key[WHEN], each) for key, each in counts.items()), sides.values())
        self.books.write(counts, sides, self._legs, (self.epoch, self.step))
        self._clear()

    def _counted(self) -> dict[tuple[int, ...], Counts]:
        """Counts of messages that were recorded since the books were last written, by moment, kind, event, model."""
        return {key: count(sent) for key, sent in sorted(self._open.items())}

    def so_far(self) -> Tally:
        """What has crossed up to now; the books stay as they are."""
        found, counts = self._tally.copy(), self._counted()
        found.add(((key[WHEN], each) for key, each in counts.items()), map(loads, counts.values()))
        return found

    def growing(self) -> dict[str, Tensor]:
        """Counts that may still grow, for a checkpoint: sums over steps, and loads of the current step."""
        self._close()
        return self.books.growing()

    @property
    def summed_since(self) -> int | None:
        """The first epoch whose lines are summed over steps; None while the ledger has a line for every step."""
        return self.books.summed_since

    def _clear(self) -> None:
        self._open.clear()
        self._legs.clear()
        self._pending = 0

    def book(self, name: str) -> Tensor:
        """All lines of a book: [lines, columns]."""
        self._close()
        return self.books.lines(name)

    def lines(self) -> Tensor:
        """All lines of the book ``ledger``, who sent what to whom: [lines, len(COLUMNS)]."""
        return self.book("ledger")

    def adopt(self, books: Mapping[str, Tensor], events: Sequence[Events]) -> None:
        """Add the books of another ledger (another host's, or a checkpoint's), which numbers ``events`` as listed."""
        for name, lines in books.items():
            self.books.adopt(name, self._renumbered(lines, events) if name == "ledger" else lines)

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
        self.books = LedgerBooks(self.books.alone)
        self.events, self.transport = [], dict(transport)
        self.adopt(books, events)
        self.books.go_on(len(books["ledger"]), growing)
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
        return as_table(grouped(self.book("steps"), WHEN + 1), STEP_COLUMNS, _WORDS)

    def leg_table(self) -> pa.Table:
        """By (epoch, step, purpose): legs, and the bytes that the busiest party sent or received, as an Arrow table."""
        each, legs = grouped(self.book("loads"), WHEN + 1), self.book("legs")
        most = grouped(torch.cat([each[:, :WHEN], each[:, -2:].amax(1, keepdim=True)], 1), WHEN, "amax")
        trips, sizes = (lines[:, [0, 1, 2, 3, 3]] for lines in (legs, most))
        trips[:, 4], sizes[:, 3] = 0, 0
        return as_table(grouped(torch.cat([trips, sizes]), WHEN), (*LEG_COLUMNS, "busiest"), _WORDS)


_WORDS: dict[str, Callable[[int], str]] = {
    "purpose": lambda i: PURPOSES[i].value,
    "kind": lambda i: KINDS[i].value,
}

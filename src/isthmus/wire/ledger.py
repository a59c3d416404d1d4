"""The ledger: who sent how much of what to whom, at which step, and under which protection."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from isthmus.core.kinds import KINDS, PURPOSES, SERVER, SERVER_NAME, Kind, Purpose
from isthmus.core.parcel import Traffic
from isthmus.protect.events import Events, describe

if TYPE_CHECKING:  # loaded where tables are made, so that training needs no more than torch
    import pyarrow as pa

COLUMNS = ("epoch", "step", "purpose", "sender", "receiver", "kind", "event", "messages", "rows", "bytes")
LEG_COLUMNS = ("epoch", "step", "purpose", "legs")
_KIND, _EVENT, _BYTES = COLUMNS.index("kind"), COLUMNS.index("event"), COLUMNS.index("bytes")


class Ledger:
    """Counts every message by (epoch, step, purpose, sender, receiver, kind, protection event).

    Beside the messages it counts **legs** by (epoch, step, purpose): one-way trips that had to follow each other. All
    messages of one call travel at once, so that a call is one leg whatever the number of silos, also where it turns out
    that nobody had anything to send. Every host makes the same calls, so every host counts the same legs.

    Lines of finished epochs lie in ``pages`` as whole numbers [lines, columns], so that a checkpoint can append them.
    """

    def __init__(self) -> None:
        self.epoch = self.step = 0
        self.purpose = Purpose.SETUP
        self.events: list[Events] = []
        self.names: dict[int, str] = {SERVER: SERVER_NAME}  # silos go by number until they introduce themselves
        self.pages: list[Tensor] = []
        self.leg_pages: list[Tensor] = []
        self.transport: dict[str, int] = {}  # bytes that this host's transport really carried to other hosts
        self._open: dict[tuple[int, ...], list[tuple[Traffic, int]]] = {}
        self._legs: dict[tuple[int, ...], int] = {}

    def party(self, number: int) -> str:
        """The name of a party as people know it."""
        return self.names.get(number, f"silo-{number}")

    def _now(self) -> tuple[int, int, int]:
        return self.epoch, self.step, PURPOSES.index(self.purpose)

    @contextmanager
    def during(self, purpose: Purpose) -> Iterator[None]:
        """Count what follows for a purpose of its own."""
        before, self.purpose = self.purpose, purpose
        try:
            yield
        finally:
            self.purpose = before

    @contextmanager
    def unrecorded(self) -> Iterator[None]:
        """Forget messages that only a run that was interrupted has to send."""
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
        """Count messages of one kind that had one treatment, ``row_size`` bytes a row."""
        key = (*self._now(), KINDS.index(kind), self._place_of(events))
        self._open.setdefault(key, []).append((traffic, row_size))

    def _place_of(self, events: Events) -> int:
        """The number of a treatment in the list of those that were seen."""
        if events not in self.events:
            self.events.append(events)
        return self.events.index(events)

    def carry(self, kind: Kind, size: int) -> None:
        """Count bytes that crossed between hosts."""
        self.transport[kind.value] = self.transport.get(kind.value, 0) + size

    def turn_page(self) -> tuple[Tensor, Tensor]:
        """Close the lines since the last call and return them, and the legs."""
        pages = [_lines(key, sent) for key, sent in sorted(self._open.items())]
        legs = sorted([*key, count] for key, count in self._legs.items())
        self.pages.append(torch.cat([*pages, torch.zeros(0, len(COLUMNS), dtype=torch.int64)]))
        self.leg_pages.append(torch.tensor(legs, dtype=torch.int64).reshape(-1, len(LEG_COLUMNS)))
        self._clear()
        return self.pages[-1], self.leg_pages[-1]

    def _clear(self) -> None:
        self._open.clear()
        self._legs.clear()

    def lines(self) -> Tensor:
        """Every line so far: [lines, columns]."""
        self.turn_page()
        self.pages = [torch.cat(self.pages)]
        return self.pages[0]

    def adopt(self, lines: Tensor, events: list[Events]) -> None:
        """Take over lines of another ledger (another host's, or a checkpoint's)."""
        lines = lines.clone()
        place = torch.tensor([self._place_of(each) for each in events] or [0])
        lines[:, _EVENT] = place[lines[:, _EVENT]]
        self.pages.append(lines)

    def restore(self, lines: Tensor, legs: Tensor, events: list[Events], transport: dict[str, int]) -> None:
        """Stand where a checkpoint stood, whatever was recorded since."""
        self._clear()
        self.pages, self.leg_pages, self.events, self.transport = [], [legs], [], dict(transport)
        self.adopt(lines, events)

    def by_kind(self) -> dict[str, int]:
        """Bytes of each kind that crossed, most first."""
        lines = self.lines()
        total = torch.zeros(len(KINDS), dtype=torch.int64).index_add_(0, lines[:, _KIND], lines[:, _BYTES])
        seen = sorted(set(lines[:, _KIND].tolist()), key=lambda kind: -int(total[kind]))
        return {KINDS[kind].value: int(total[kind]) for kind in seen}

    def table(self) -> pa.Table:
        """The ledger as a table, with names instead of numbers."""
        lines = self.lines()
        names = {
            "purpose": lambda i: PURPOSES[i].value,
            "sender": self.party,
            "receiver": self.party,
            "kind": lambda i: KINDS[i].value,
            "event": lambda i: describe(self.events[i]),
        }
        return _table(lines, COLUMNS, names)

    def leg_table(self) -> pa.Table:
        """How many one-way trips followed each other, by (epoch, step, purpose)."""
        self.turn_page()
        when, place = torch.cat(self.leg_pages)[:, :-1].unique(dim=0, return_inverse=True)
        legs = torch.zeros(len(when), dtype=torch.int64).index_add_(0, place, torch.cat(self.leg_pages)[:, -1])
        return _table(torch.cat([when, legs[:, None]], 1), LEG_COLUMNS, {"purpose": lambda i: PURPOSES[i].value})


def _lines(key: tuple[int, ...], sent: list[tuple[Traffic, int]]) -> Tensor:
    """The lines of one moment, kind and treatment, one for each sender and receiver: [lines, columns]."""
    sender, receiver, rows = (
        np.concatenate([getattr(traffic, name) for traffic, _ in sent]) for name in ("sender", "receiver", "rows")
    )
    size = rows * np.concatenate([np.full(len(traffic.rows), row_size) for traffic, row_size in sent])
    ends, place = np.unique(np.stack([sender, receiver], 1), axis=0, return_inverse=True)
    counts = np.zeros((len(ends), 3), dtype=np.int64)
    np.add.at(counts, place.reshape(-1), np.stack([np.ones_like(rows), rows, size], 1))
    *when, kind, event = key
    fixed = [np.broadcast_to(np.array(part, dtype=np.int64), (len(ends), len(part))) for part in (when, [kind, event])]
    return torch.from_numpy(np.concatenate([fixed[0], ends, fixed[1], counts], 1, dtype=np.int64))


def _table(lines: Tensor, columns: tuple[str, ...], names: Mapping[str, Callable[[int], str]]) -> pa.Table:
    """Whole numbers as a table, those of named columns as words."""
    import pyarrow as pa

    found = {}
    for i, name in enumerate(columns):
        values = lines[:, i].tolist()
        words = [names[name](value) for value in values] if name in names else None
        found[name] = pa.array(values, pa.int64()) if words is None else pa.array(words, pa.string())
    return pa.table(found)

"""The books of a ledger: lines of whole numbers on what crossed, by pair of parties, by step, by party, and legs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from isthmus.wire.counts import Counts, as_lines, at_moment, busiest, loads_of, sums_of, total_of_loads

COLUMNS = ("epoch", "step", "purpose", "sender", "receiver", "kind", "event", "model", "messages", "rows", "bytes")
STEP_COLUMNS = ("epoch", "step", "purpose", "kind", "messages", "rows", "bytes")
LOAD_COLUMNS = ("epoch", "step", "purpose", "party", "sent", "received")
LEG_COLUMNS = ("epoch", "step", "purpose", "legs")
BOOKS = {"ledger": COLUMNS, "steps": STEP_COLUMNS, "loads": LOAD_COLUMNS, "legs": LEG_COLUMNS}
WHEN = 3  # columns that tell a moment: epoch, step, purpose
DETAILED = 100_000  # lines that tell who sent to whom at which step; what comes after them is summed over steps


class LedgerBooks:
    """What a ledger has counted, in four books.

    Each has one line for every combination of:

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

    def __init__(self, alone: bool) -> None:
        self.alone = alone
        self.pages = _empty()
        self._fresh = _empty()  # pages that nobody has taken yet
        self._written = 0  # detailed lines of this host
        self._sums: dict[tuple[int, ...], tuple[list[int], Counts]] = {}  # by purpose, kind, event, model; since when
        self._loads: dict[tuple[int, ...], np.ndarray] = {}  # by (epoch, step, purpose) of the current step

    def write(
        self,
        counts: Mapping[tuple[int, ...], Counts],
        sides: Mapping[tuple[int, ...], np.ndarray],
        legs: Mapping[tuple[int, ...], int],
        now: tuple[int, int],
    ) -> None:
        """Add lines to all books.

        ``counts``, and the loads ``sides`` that they make, are by moment, kind, event and model, ``legs`` by moment;
        ``now`` are the epoch and step that are not over.
        """
        here = {
            "ledger": as_lines(self._by_pair(counts), len(COLUMNS)),
            "steps": as_lines([[[*key[:-2], *each.counts.sum(0)]] for key, each in counts.items()], len(STEP_COLUMNS)),
            "loads": as_lines(self._by_party(sides, now), len(LOAD_COLUMNS)),
            "legs": as_lines([sorted([*key, count] for key, count in legs.items())], len(LEG_COLUMNS)),
        }
        for book, lines in here.items():
            self.pages[book].append(lines)
            self._fresh[book].append(lines)

    def _by_pair(self, counts: Mapping[tuple[int, ...], Counts]) -> list[np.ndarray]:
        """Lines of the book ``ledger``; none once it has ``DETAILED`` of them: counts then go to sums over steps."""
        size = sum(len(each.pairs) for each in counts.values())
        if self._written + size <= DETAILED and not self._sums:
            self._written += size
            return [each.lines(key[:WHEN], key[WHEN:]) for key, each in counts.items()]
        alike: dict[tuple[int, ...], list[tuple[list[int], Counts]]] = {}
        for (epoch, step, *what), each in counts.items():
            alike.setdefault(tuple(what), []).append(([epoch, step], each))
        for key, more in alike.items():
            parts = [self._sums[key], *more] if key in self._sums else more
            self._sums[key] = parts[0][0], Counts.total([each for _, each in parts])
        return []

    def _by_party(self, sides: Mapping[tuple[int, ...], np.ndarray], now: tuple[int, int]) -> list[np.ndarray]:
        """Lines of the book ``loads`` for steps that are over; loads of the current step are kept until it is over."""
        fresh: dict[tuple[int, ...], list[np.ndarray]] = {}
        for key, each in sides.items():
            fresh.setdefault(key[:WHEN], []).append(each)
        for when, more in fresh.items():
            before = [self._loads[when]] if when in self._loads else []
            self._loads[when] = total_of_loads([*before, *more])
        over = [when for when in self._loads if when[:2] != now]
        return [
            at_moment(when, busiest(self._loads.pop(when)) if self.alone else self._loads.pop(when)) for when in over
        ]

    def take_fresh(self) -> dict[str, Tensor]:
        """By book, the lines that will not change any more and that no earlier call returned."""
        fresh, self._fresh = self._fresh, _empty()
        return {book: torch.cat(pages) for book, pages in fresh.items()}

    def growing(self) -> dict[str, Tensor]:
        """Counts that may still grow, for a checkpoint: sums over steps, and loads of the current step."""
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

    def lines(self, book: str) -> Tensor:
        """All lines of a book: [lines, columns]."""
        self.pages[book] = [torch.cat(self.pages[book])]
        more: list[Tensor] = []
        if book == "ledger":
            sums = (c.lines([*since, purpose], key) for (purpose, *key), (since, c) in sorted(self._sums.items()))
            more = [as_lines(list(sums), len(COLUMNS))]
        elif book == "loads":
            more = [self._loads_at_hand()]
        return torch.cat([*self.pages[book], *more])

    def adopt(self, book: str, lines: Tensor) -> None:
        """Add lines that were written elsewhere."""
        self.pages[book].append(lines)

    def go_on(self, written: int, growing: Mapping[str, Tensor]) -> None:
        """Continue after ``written`` detailed lines, with the counts of a checkpoint that may still grow."""
        self._written = written
        self._sums = sums_of(growing["keys"], growing["sums"])
        self._loads = loads_of(growing["loads"])


def _empty() -> dict[str, list[Tensor]]:
    """Books in which nothing is written."""
    return {book: [as_lines([], len(columns))] for book, columns in BOOKS.items()}

"""What has crossed so far in a few numbers, kept while a run goes on: by kind of message, and by party."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from torch import Tensor

from isthmus.wire.counts import Counts, loads, pair_numbers, total_of_loads


class Tally:
    """Messages, rows and bytes of each kind, and the bytes that each party sent and received.

    It grows with kinds and parties, not with steps or pairs, so that it can be looked at while a run goes on.
    """

    def __init__(self) -> None:
        self.kinds: dict[int, np.ndarray] = {}  # by number of the kind: [3] messages, rows, bytes
        self.parties: np.ndarray = np.zeros((0, 3), dtype=np.int64)  # [n, 3] number, bytes sent, bytes received

    def copy(self) -> Tally:
        """A tally that can grow by itself."""
        other = Tally()
        other.kinds, other.parties = dict(self.kinds), self.parties
        return other

    def add(self, kinds: Iterable[tuple[int, Counts]], parties: Iterable[np.ndarray]) -> None:
        """Add counts, each with the number of its kind, and the loads that they make."""
        for kind, counts in kinds:
            self.kinds[kind] = self.kinds.get(kind, np.zeros(3, dtype=np.int64)) + counts.counts.sum(0)
        self.parties = total_of_loads([self.parties, *parties])

    @staticmethod
    def of(lines: Tensor) -> Tally:
        """The tally of lines (sender, receiver, kind, messages, rows, bytes): [lines, 6]."""
        found, each = Tally(), lines.numpy()
        here = [each[each[:, 2] == kind] for kind in np.unique(each[:, 2])]
        counts = [(int(one[0, 2]), Counts(pair_numbers(one[:, 0], one[:, 1]), one[:, 3:])) for one in here]
        found.add(counts, [loads(one) for _, one in counts])
        return found

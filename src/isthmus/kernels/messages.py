"""What the kernels read: messages on edges that are sorted by target."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Messages:
    """The message of edge e is rows[src_e] + values[e] + sum over l of table[at[e, l]] + common[dst_e].

    Channels lie in ``groups`` of equal width. ``values``, ``table`` with ``at``, and ``common`` may be absent.
    """

    rows: Tensor  # [sources, d]
    src: Tensor  # [E] int64
    ptr: Tensor  # [targets + 1] int64: where the edges of each target begin
    groups: int
    values: Tensor | None = None  # [E, d]
    table: Tensor | None = None  # [entries, d]
    at: Tensor | None = None  # [E, lookups] int64
    common: Tensor | None = None  # [targets, d]

    @property
    def targets(self) -> int:
        """Number of targets."""
        return len(self.ptr) - 1

    @property
    def width(self) -> int:
        """Channels of a group."""
        return self.rows.shape[1] // self.groups

    @property
    def lookups(self) -> int:
        """Entries of the table that go into each message."""
        return 0 if self.at is None else self.at.shape[1]

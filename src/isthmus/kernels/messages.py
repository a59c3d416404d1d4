"""The arguments of kernels: messages on edges that are sorted by target, and how rows are activated."""

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
        """Number of channels of a group."""
        return self.rows.shape[1] // self.groups

    @property
    def lookups(self) -> int:
        """Number of table entries that are added to each message."""
        return 0 if self.at is None else self.at.shape[1]


@dataclass(frozen=True)
class Activation:
    """How rows are activated: h_i becomes dropout(ReLU((h_i - mean_s) scale_s + shift_s)), s being the silo of row i.

    ``mean``, ``scale`` and ``shift`` are [silos, d], or [1, d] where all silos share them. On average ``kept`` of 65536
    entries survive dropout, chosen by a hash of ``key`` and the row's id.
    """

    mean: Tensor
    scale: Tensor
    shift: Tensor
    silo: Tensor  # [n] int64, place of the row's silo
    ids: Tensor  # [n] int64, public keys
    key: int
    kept: int

    @property
    def bound(self) -> int:
        """The smallest signed 16-bit number with which an entry survives dropout."""
        return 65536 - self.kept - 32768

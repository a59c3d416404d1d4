"""The wire of a simulation: all parties in this process."""

from __future__ import annotations

from torch import Tensor

from isthmus.core.kinds import Kind
from isthmus.protect.base import Chain
from isthmus.wire.membership import Membership
from isthmus.wire.wire import Wire


class LocalWire(Wire):
    """All silos and the server in one process: delivery is a copy, and autograd runs through."""

    def __init__(self, silos: int, protect: Chain | None = None) -> None:
        super().__init__(Membership.dealt(silos), 0, 1, protect)

    def _deliver(self, kind: Kind, letters: dict[tuple[int, int], Tensor]) -> dict[tuple[int, int], Tensor]:
        return letters

    def _swap(self, kind: Kind, rows: Tensor, leaving: list[int], arriving: list[int]) -> Tensor:
        return rows

    def _sizes(self, kind: Kind, leaving: list[int]) -> list[int]:
        return leaving

    def _sum_hosts(self, kind: Kind, x: Tensor, per_silo: bool) -> Tensor:
        return x.sum(0)

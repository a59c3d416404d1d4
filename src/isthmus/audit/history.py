"""All releases of some nodes' rows at one layer, kept in a bounded number of blocks that follow each other in time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

Parameters = Mapping[str, Tensor]  # by name: [sets, ...]


@dataclass
class ReleaseSums:
    """Consecutive releases: sums of each node's rows, how many these are, and parameters as the adversary knew them.

    ``parameters`` are sums over the ``events`` (moments at which any of the rows left); None as long as nobody but the
    owner knows them.
    """

    rows: Tensor  # [nodes, width]
    counts: Tensor  # [nodes]
    events: int
    parameters: dict[str, Tensor] | None

    def join(self, later: ReleaseSums) -> ReleaseSums:
        """One block of the releases of this block and of the ``later`` one."""
        known = None
        if self.parameters is not None and later.parameters is not None:
            known = {name: total + later.parameters[name] for name, total in self.parameters.items()}
        return ReleaseSums(self.rows + later.rows, self.counts + later.counts, self.events + later.events, known)

    @property
    def mean(self) -> Tensor:
        """The mean of each node's releases; zeros for a node that was not among them: [nodes, width]."""
        return self.rows / self.counts.clamp(min=1)[:, None]

    def mean_parameters(self) -> dict[str, Tensor]:
        """The mean of the parameters over the events of the block."""
        assert self.parameters is not None
        return {name: total / self.events for name, total in self.parameters.items()}


class History:
    """Every release of the rows of ``nodes`` nodes at one layer: at most ``most`` blocks, and the last event by itself.

    Where there are more events, neighbouring blocks are joined, those with the fewest events first. The mean of the
    rows of a block belongs to the mean of its parameters: exactly so where rows are linear in them and all nodes left
    at all events of the block.
    """

    def __init__(self, nodes: int, most: int) -> None:
        self.nodes, self.most = nodes, most
        self.blocks: list[ReleaseSums] = []

    def add(self, place: Tensor, rows: Tensor, parameters: Parameters | None) -> None:
        """Add one event: the ``rows`` that left of the nodes at ``place``; a node may be listed twice with equal rows.

        ``parameters`` are those that made them, as the adversary knows them; None where it will know them later.
        """
        table = torch.zeros(self.nodes, rows.shape[1], dtype=torch.float64)
        table[place] = rows.double()
        counts = torch.zeros(self.nodes, dtype=torch.float64)
        counts[place] = 1.0
        known = None if parameters is None else {name: value.double() for name, value in parameters.items()}
        new = ReleaseSums(table, counts, 1, known)
        if known is None and self.blocks and self.blocks[-1].parameters is None:
            self.blocks[-1] = self.blocks[-1].join(new)  # the same parameters will become known for both
        else:
            self.blocks.append(new)
        self._shrink(self.most)

    def settle(self, parameters: Parameters) -> None:
        """Set the parameters, now known, of all releases for which they were not known yet."""
        for block in self.blocks:
            if block.parameters is None:
                block.parameters = {name: value.double() * block.events for name, value in parameters.items()}
        self._shrink(self.most)

    def coarser(self, most: int) -> History:
        """A history of all these releases in at most ``most`` blocks, and the last event by itself."""
        other = History(self.nodes, most)
        other.blocks = list(self.blocks)
        other._shrink(most)
        return other

    def _shrink(self, most: int) -> None:
        """Join blocks until at most ``most`` are left; the last event and blocks without parameters are not joined."""
        while len(self.blocks) > most + 1:
            settled = [block.parameters is not None for block in self.blocks]
            pairs = [i for i in range(len(self.blocks) - 2) if settled[i] and settled[i + 1]]
            if not pairs:
                return
            first = min(pairs, key=lambda i: self.blocks[i].events + self.blocks[i + 1].events)
            self.blocks[first : first + 2] = [self.blocks[first].join(self.blocks[first + 1])]

    @property
    def counts(self) -> Tensor:
        """How often each node's row left: [nodes]."""
        return torch.stack([block.counts for block in self.blocks]).sum(0)

    def only(self, at: Tensor) -> History:
        """The releases of some of the nodes."""
        other = History(len(at), self.most)
        other.blocks = [ReleaseSums(b.rows[at], b.counts[at], b.events, b.parameters) for b in self.blocks]
        return other

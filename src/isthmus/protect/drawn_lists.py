"""How often each node's list of neighbours was drawn from, and how: the bookkeeping that edge-LDP is accounted by."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from isthmus.core.random import mix
from isthmus.core.tensors import renumbered

DRAWS, LENGTH, SKIPPED, WHOLE, SEEN = "draws", "length", "skipped", "whole", "seen"
_LONGEST = torch.iinfo(torch.int64).max  # the length of a list that was not drawn from


class DrawnLists:
    """Counts draws by list, on the host that draws; ``state`` is checkpointed.

    Rows are owned and halo rows of one silo after the other, whatever view of the silos a sampler works on. Tables:

    - ``draws/SIDE/FANOUT/HOW`` [rows]: how often ``fanout`` entries were drawn from a row's list of incoming (side 0)
      or outgoing (side 1) edges, without replacement (how 0) or with (how 1)
    - ``length/SIDE/FANOUT/HOW`` [rows]: entries of the shortest list that these draws were from
    - ``skipped/SIDE`` [rows]: how often a list below the floor was passed over
    - ``whole`` [1]: how often lists were read as a whole, without any draw
    - ``seen`` [n]: fingerprints of draws that would be made again alike, as every validation does

    ``claimed_rate``: the rate at which a method's generator keeps rows, by which its paper claims amplification.
    """

    def __init__(self) -> None:
        self.ptr: tuple[int, ...] = (0,)
        self.floor = 0
        self.claimed_rate = 1.0
        self._tables: dict[str, Tensor] = {}
        self._seen: set[int] = set()

    def open(self, sizes: Sequence[int], floor: int) -> None:
        """Begin an empty book; ``sizes`` are the rows of each of this host's silos, owned and halo."""
        self.ptr, self.floor = (0, *torch.tensor(sizes, dtype=torch.int64).cumsum(0).tolist()), floor
        self._tables, self._seen = {}, set()

    @property
    def state(self) -> dict[str, Tensor]:
        """All tables, as a checkpoint holds them."""
        seen = {SEEN: torch.tensor(sorted(self._seen), dtype=torch.int64)} if self._seen else {}
        return self._tables | seen

    @state.setter
    def state(self, state: dict[str, Tensor]) -> None:
        self._tables = {name: table for name, table in state.items() if name != SEEN}
        self._seen = set(state[SEEN].tolist()) if SEEN in state else set()

    def again(self, key: int, nodes: Tensor, degree: Tensor) -> bool:
        """Whether a draw with this key, these nodes and list lengths was made before; it is remembered from now on.

        Every validation repeats the draws of the one before it, so that it shows no more of any list.
        """
        mark = int(mix(mix(nodes) + degree + key).sum())
        if mark in self._seen:
            return True
        self._seen.add(mark)
        return False

    def record(
        self, ptr: Sequence[int], rows: Tensor, degree: Tensor, fanout: int, side: int, refilled: bool, anew: bool
    ) -> None:
        """Count one draw from the list of each of ``rows``, which lie in a stack whose silos begin at ``ptr``.

        ``anew``: every call is a new draw; else all calls together count as one draw, which is used again and again.
        """
        at, name = renumbered(rows, ptr, self.ptr), f"{side}/{fanout}/{int(refilled)}"
        draws = self._table(f"{DRAWS}/{name}", 0, rows)
        draws[at] = draws[at] + 1 if anew else 1
        length = self._table(f"{LENGTH}/{name}", _LONGEST, rows)
        length[at] = torch.minimum(length[at], degree)

    def skip(self, ptr: Sequence[int], rows: Tensor, side: int) -> None:
        """Count lists that were passed over because they are below the floor."""
        at, skipped = renumbered(rows, ptr, self.ptr), self._table(f"{SKIPPED}/{side}", 0, rows)
        skipped[at] += 1

    def read_whole(self) -> None:
        """Count a pass that reads lists as a whole."""
        self._tables[WHOLE] = self._tables.get(WHOLE, torch.zeros(1, dtype=torch.int64)) + 1

    def _table(self, name: str, fill: int, like: Tensor) -> Tensor:
        if name not in self._tables:
            self._tables[name] = torch.full((self.ptr[-1],), fill, dtype=torch.int64, device=like.device)
        return self._tables[name]

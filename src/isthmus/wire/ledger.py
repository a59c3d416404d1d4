"""The ledger: who sent how much of what to whom, at which step, and under which protection."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:  # loaded where tables are made, so that training needs no more than torch
    import pyarrow as pa

SERVER = -1
SERVER_NAME = "server"


class Kind(StrEnum):
    """What a message carries; the disclosure sheet explains each in plain words."""

    SCHEMA = "schema"
    IDS = "ids"
    ORDER = "order"
    STATISTICS = "statistics"
    PORTS = "ports"
    PARAMETERS = "parameters"
    GRADIENTS = "gradients"
    EMBEDDINGS = "embeddings"
    ADJOINTS = "adjoints"
    PARTIALS = "partials"
    METRICS = "metrics"
    SCORES = "scores"
    AGGREGATES = "aggregates"
    FEATURES = "features"
    LABELS = "labels"
    EDGES = "edges"


KINDS = tuple(Kind)
COLUMNS = ("epoch", "step", "sender", "receiver", "kind", "event", "messages", "rows", "bytes")
_KIND, _EVENT, _BYTES = COLUMNS.index("kind"), COLUMNS.index("event"), COLUMNS.index("bytes")


class Ledger:
    """Counts every message by (epoch, step, sender, receiver, kind, protection event).

    Lines of finished epochs lie in ``pages`` as whole numbers [lines, columns], so that a checkpoint can append them.
    """

    def __init__(self) -> None:
        self.epoch = self.step = 0
        self.events: list[str] = []
        self.names: dict[int, str] = {SERVER: SERVER_NAME}  # silos go by number until they introduce themselves
        self.pages: list[Tensor] = []
        self.transport: dict[str, int] = {}  # bytes that this host's transport really carried to other hosts
        self._open: dict[tuple[int, ...], list[int]] = {}
        self._grids: dict[tuple[int, int, int, int], np.ndarray] = {}

    def party(self, number: int) -> str:
        """The name of a party as people know it."""
        return self.names.get(number, f"silo-{number}")

    def record(self, kind: Kind, event: str, sender: int, receiver: int, rows: int, size: int) -> None:
        """Count one message of ``rows`` rows and ``size`` bytes."""
        if event not in self.events:
            self.events.append(event)
        key = (self.epoch, self.step, sender, receiver, KINDS.index(kind), self.events.index(event))
        count = self._open.setdefault(key, [0, 0, 0])
        count[0] += 1
        count[1] += rows
        count[2] += size

    def record_grid(self, kind: Kind, event: str, rows: np.ndarray, row_size: int) -> None:
        """Count messages between silos from a matrix of rows [sender, receiver], ``row_size`` bytes each."""
        if event not in self.events:
            self.events.append(event)
        key = (self.epoch, self.step, KINDS.index(kind), self.events.index(event))
        grid = self._grids.setdefault(key, np.zeros((3, *rows.shape), dtype=np.int64))
        grid += np.stack([rows > 0, rows, rows * row_size])

    def carry(self, kind: Kind, size: int) -> None:
        """Count bytes that crossed between hosts."""
        self.transport[kind.value] = self.transport.get(kind.value, 0) + size

    def turn_page(self) -> Tensor:
        """Close the lines since the last call and return them."""
        for (epoch, step, kind, event), grid in self._grids.items():
            for sender, receiver in zip(*(axis.tolist() for axis in grid[0].nonzero()), strict=True):
                counts = grid[:, sender, receiver].tolist()
                line = self._open.setdefault((epoch, step, sender, receiver, kind, event), [0, 0, 0])
                line[:] = [a + b for a, b in zip(line, counts, strict=True)]
        self._grids.clear()
        lines = sorted([*key, *count] for key, count in self._open.items())
        page = torch.tensor(lines, dtype=torch.int64).reshape(-1, len(COLUMNS))
        self.pages.append(page)
        self._open.clear()
        return page

    def lines(self) -> Tensor:
        """Every line so far: [lines, columns]."""
        self.turn_page()
        self.pages = [torch.cat(self.pages)]
        return self.pages[0]

    def adopt(self, lines: Tensor, events: list[str]) -> None:
        """Take over lines of another ledger (another host's, or a checkpoint's)."""
        for event in events:
            if event not in self.events:
                self.events.append(event)
        lines = lines.clone()
        place = torch.tensor([self.events.index(event) for event in events] or [0])
        lines[:, _EVENT] = place[lines[:, _EVENT]]
        self.pages.append(lines)

    def by_kind(self) -> dict[str, int]:
        """Bytes of each kind that crossed, most first."""
        lines = self.lines()
        total = torch.zeros(len(KINDS), dtype=torch.int64).index_add_(0, lines[:, _KIND], lines[:, _BYTES])
        seen = sorted(set(lines[:, _KIND].tolist()), key=lambda kind: -int(total[kind]))
        return {KINDS[kind].value: int(total[kind]) for kind in seen}

    def table(self) -> pa.Table:
        """The ledger as a table, with names instead of numbers."""
        import pyarrow as pa

        lines = self.lines()
        data = {name: lines[:, i].tolist() for i, name in enumerate(COLUMNS)}
        named = {
            "sender": [self.party(i) for i in data["sender"]],
            "receiver": [self.party(i) for i in data["receiver"]],
            "kind": [KINDS[i].value for i in data["kind"]],
            "event": [self.events[i] for i in data["event"]],
        }
        return pa.table(
            {
                name: pa.array(named[name], pa.string()) if name in named else pa.array(data[name], pa.int64())
                for name in COLUMNS
            }
        )

    def write(self, path: Path) -> None:
        """Write ``ledger.parquet``."""
        import pyarrow.parquet as pq

        pq.write_table(self.table(), path)

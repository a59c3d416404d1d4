"""Shorter numbers on the wire: they save bytes, and protect nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError, unknown
from isthmus.core.kinds import ROWS, Kind
from isthmus.core.parcel import Parcel
from isthmus.protect.base import Mechanism
from isthmus.protect.events import Event, Formatted
from isthmus.protect.secrets import Noise

FORMATS = {"": None, "float32": torch.float32, "bfloat16": torch.bfloat16}
_SCALE = 4  # bytes of a row's largest absolute value, in front of its int8 numbers


@dataclass(frozen=True)
class NumberFormat(Mechanism):
    """Rows of nodes (embeddings, adjoints, sums) travel as ``format`` and are read in the format of the run.

    ``int8`` sends round(127 x / max |x|) of each row and max |x| beside it. An empty ``format`` changes nothing.
    """

    name: ClassVar[str] = "format"
    encodes: ClassVar[bool] = True
    format: str = ""

    def __post_init__(self) -> None:
        if self.format not in (*FORMATS, "int8"):
            raise unknown("protect.format", self.format, [*filter(None, FORMATS), "int8"])

    def seal(self, parcel: Parcel, noise: Noise) -> tuple[Tensor, Event | None, Tensor | None]:
        """Rows of nodes in the shorter format; other payloads as they are."""
        if not self.format or parcel.kind not in ROWS:
            return parcel.rows, None, None
        return self._encoded(parcel.rows), Formatted(self.format), None

    def _encoded(self, rows: Tensor) -> Tensor:
        as_sent = FORMATS.get(self.format)
        if as_sent is not None:
            return rows.to(as_sent)
        if rows.dim() != 2:
            raise IsthmusError(f"protect=int8 sends rows [n, width], not a payload of shape {list(rows.shape)}.")
        scale = rows.abs().amax(1).float() if rows.shape[1] else rows.new_zeros(len(rows), dtype=torch.float32)
        steps = (127 * rows / scale.clamp(min=torch.finfo(torch.float32).tiny)[:, None].to(rows)).round()
        head = scale[:, None].contiguous().view(torch.uint8)
        return torch.cat([head, steps.clamp(-127, 127).to(torch.int8).view(torch.uint8)], 1)

    def open(self, kind: Kind, rows: Tensor, like: Tensor) -> Tensor:
        """Rows that arrived, in the number format of ``like``."""
        if not self.format or kind not in ROWS:
            return rows
        if self.format in FORMATS:
            return rows.to(like.dtype)
        if not len(rows):  # torch cannot view zero bytes as float32
            return like.new_zeros(0, rows.shape[1] - _SCALE)
        scale = rows[:, :_SCALE].contiguous().view(torch.float32).to(like.dtype)
        return rows[:, _SCALE:].contiguous().view(torch.int8).to(like.dtype) * (scale / 127)

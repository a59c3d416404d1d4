"""Words over the wire: text and JSON as bytes, and an error on one host that is raised on all."""

from __future__ import annotations

import json

import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.core.kinds import Kind
from isthmus.wire.wire import Wire


def raise_together(wire: Wire, problem: str, kind: Kind = Kind.SCHEMA) -> None:
    """Raise on every host when one host has a ``problem``, so that nobody waits for a host that has stopped."""
    mine = encode_text(problem)
    said = dict.fromkeys(wire.mine, mine)
    first = wire.settle(kind, said, lambda all_: next((w for w in all_.values() if len(w)), mine))
    verdict = decode_text(first)
    if verdict:
        raise IsthmusError(verdict)


def encode_json(value: dict[str, object]) -> Tensor:
    """A table as JSON in bytes."""
    return encode_text(json.dumps(value))


def encode_text(text: str) -> Tensor:
    """Text as bytes."""
    return torch.tensor(list(text.encode()), dtype=torch.uint8)


def decode_text(payload: Tensor) -> str:
    """The text that bytes stand for."""
    return bytes(payload.tolist()).decode()

"""Silos that have shaken hands: the wire, my parts of the graph, and what was agreed before training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from isthmus.federation.handshake import HaloPlan, agree_schema, check_single_owner, compare_edges, plan_halo
from isthmus.federation.statistics import Moments, scale_features
from isthmus.graph.graph import Schema
from isthmus.graph.silo import Silo
from isthmus.wire.wire import Wire

_NO_EDGES = torch.zeros(0, dtype=torch.bool)


@dataclass
class Federation:
    """What a host holds of a federation: its own silos, nothing of the others', and notes for the report."""

    wire: Wire
    silos: list[Silo]
    plan: HaloPlan
    schema: Schema  # agreed by all
    alone: Tensor  # [edges of my silos, end to end] bool: cross edges that the other silo does not list
    moments: Moments = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def note(self, sentence: str) -> None:
        """Remember something the user should know; it is printed and put into the report."""
        if sentence not in self.notes:
            self.notes.append(sentence)


def open_federation(
    wire: Wire, silos: Sequence[Silo], seed: int = 0, scale: str = "none", agreed: bool = True
) -> Federation:
    """Shake hands: one schema, one owner for each node, halo plans that mirror, cross edges that both sides list."""
    silos, schema = agree_schema(wire, silos)
    check_single_owner(wire, silos, seed)
    plan = plan_halo(wire, silos)
    scaled, moments = scale_features(wire, silos, schema, scale, agreed)
    notes, alone = compare_edges(wire, silos)
    federation = Federation(wire, scaled, plan, schema, torch.cat([*alone, _NO_EDGES]), moments)
    for sentence in notes:
        federation.note(sentence)
    for silo in silos:
        if not silo.n:
            federation.note(f"{silo.name} owns no nodes.")
    return federation

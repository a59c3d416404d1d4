"""Silos that have shaken hands: the wire, my parts of the graph, and what was agreed before training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from isthmus.errors import IsthmusError
from isthmus.graph.agree import Moments, scale_features
from isthmus.graph.graph import SPLIT_NAMES, TEST, TRAIN, VALID, Schema
from isthmus.graph.handshake import HaloPlan, agree_schema, check_single_owner, compare_edges, plan_halo
from isthmus.graph.silo import Silo
from isthmus.sample.order import Pool, rule_of
from isthmus.wire.base import Wire


@dataclass
class Federation:
    """What a host holds of a federation: its own silos, nothing of the others', and notes for the report."""

    wire: Wire
    silos: list[Silo]
    plan: HaloPlan
    alone: Tensor  # [edges of my silos, end to end] bool: cross edges that the other silo does not list
    moments: Moments = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def schema(self) -> Schema:
        """The agreed schema."""
        return self.silos[0].schema

    def check_seeds(self, pools: Mapping[int, Pool], batches: str, size: int) -> int:
        """Refuse a federation with nothing to learn from; note silos that cannot learn. Returns steps an epoch."""
        counts = pools[TRAIN].counts
        if not int(counts.sum()):
            raise IsthmusError("No silo has a labelled training node; set 'split' to 'train' for some labelled nodes.")
        for split in (TRAIN, VALID, TEST):
            empty = [i for i, count in enumerate(pools[split].counts.tolist()) if not count]
            if empty:
                who = "No silo" if len(empty) == self.wire.silos else ", ".join(self.wire.party(i) for i in empty)
                verb = "has" if len(empty) in (1, self.wire.silos) else "have"
                not_any = "any" if len(empty) == self.wire.silos else "no"
                self.note(f"{who} {verb} {not_any} labelled {SPLIT_NAMES[split]} {self.schema.target}s.")
        return len(rule_of(batches).seeds_per_step(pools[TRAIN], size)) if size else 1

    def note(self, sentence: str) -> None:
        """Remember something the user should know; it is printed and put into the report."""
        if sentence not in self.notes:
            self.notes.append(sentence)


def open_federation(
    wire: Wire, silos: Sequence[Silo], seed: int = 0, scale: str = "none", agreed: bool = True
) -> Federation:
    """Shake hands: one schema, one owner for each node, halo plans that mirror, cross edges that both sides list."""
    silos = agree_schema(wire, silos)
    check_single_owner(wire, silos, seed)
    plan = plan_halo(wire, silos)
    scaled, moments = scale_features(wire, silos, scale, agreed)
    notes, alone = compare_edges(wire, silos)
    federation = Federation(wire, scaled, plan, torch.cat(alone), moments)
    for sentence in notes:
        federation.note(sentence)
    for silo in silos:
        if not silo.n:
            federation.note(f"{silo.name} owns no nodes.")
    return federation

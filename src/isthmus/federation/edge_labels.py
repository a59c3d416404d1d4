"""Labels of cross edges: both silos list such an edge, and training uses it in the silos that know its label."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from isthmus.core.errors import PeerError
from isthmus.core.kinds import Kind
from isthmus.federation.cross_edges import tell_other_ends
from isthmus.graph.graph import Schema, labelled
from isthmus.graph.silo import BY_BOTH, BY_SOURCE, BY_TARGET, Silo, changed
from isthmus.wire.wire import Wire

_LABELLED = 4  # added to the split of an edge whose label is known


def agree_labels(wire: Wire, silos: Sequence[Silo], schema: Schema, alone: Tensor) -> tuple[list[Silo], list[str]]:
    """Both silos of a cross edge tell each other its split and whether they have its label; labels themselves stay.

    Returns my silos with the splits that both sides then have (the target's owner's, or that of the only one with a
    label) and with who teaches each edge, and notes. ``alone`` marks edges, end to end, that one side alone lists: the
    owner of the target teaches them.
    """
    if schema.target != "edge":
        return list(silos), []
    marks = [_marks(silo) for silo in silos]
    heard = _tell(wire, silos, marks, alone)
    agreed, unlike, twice = [], 0, 0
    for silo, mine, theirs in zip(silos, marks, heard, strict=True):
        known = theirs >= 0
        inward = silo.edge_index[1] < silo.n  # my end is the target
        at_target = torch.where(inward | ~known, mine, theirs)
        at_source = torch.where(inward & known, theirs, mine)
        teacher = torch.where(at_target < _LABELLED, BY_SOURCE, BY_TARGET)
        teacher = torch.where((at_target >= _LABELLED) & (at_source >= _LABELLED), BY_BOTH, teacher)
        usual = torch.full_like(mine, BY_TARGET) if silo.edge_teacher is None else silo.edge_teacher.long()
        teacher = torch.where(known, teacher, usual)
        split = torch.where(known & (teacher == BY_SOURCE) & (at_source >= _LABELLED), at_source, at_target) % _LABELLED
        both = known & inward & (teacher == BY_BOTH)
        twice, unlike = twice + int(both.sum()), unlike + int((both & (at_target != at_source)).sum())
        agreed.append(changed(silo, edge_split=split.to(torch.int8), edge_teacher=teacher.to(torch.int8)))
    return agreed, _notes(unlike, twice if wire.hosts > 1 else 0)


def _marks(silo: Silo) -> Tensor:
    """The split of each edge, plus 4 where its label is known: [edges]."""
    assert silo.edge_split is not None and silo.edge_y is not None
    return silo.edge_split.long() + _LABELLED * labelled(silo.edge_y)


def _tell(wire: Wire, silos: Sequence[Silo], marks: Sequence[Tensor], alone: Tensor) -> list[Tensor]:
    """The mark that the other silo gives each cross edge, -1 for inner edges: [edges] for each of my silos."""
    heard = torch.full((len(alone),), -1)
    small = [mine.to(torch.uint8) for mine in marks]
    for peer, edges, theirs in tell_other_ends(wire, Kind.PORTS, silos, small, alone):
        if bool((theirs >= 2 * _LABELLED).any()):
            raise PeerError(f"{wire.party(peer)} sent marks of cross edges that are none.")
        heard[edges] = theirs.long()
    return list(heard.split([len(mine) for mine in marks]))


def _notes(unlike: int, unseen: int) -> list[str]:
    """Notes on edges that two silos put into different splits, and on those whose two labels nobody could compare."""
    notes = []
    if unlike:
        notes.append(
            f"{unlike:,} cross edges are labelled by both silos, for different splits: that of the target's owner "
            "counts."
        )
    if unseen:
        notes.append(
            f"{unseen:,} cross edges are labelled by both of their silos: whether alike was not compared between "
            "hosts, since labels stay at home."
        )
    return notes

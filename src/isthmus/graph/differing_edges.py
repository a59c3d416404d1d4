"""Cross edges that the two silos that list them describe differently."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from isthmus.graph.graph import one_spelling
from isthmus.graph.silo import Silo, changed


def with_notes_on_edges(silos: Sequence[Silo]) -> list[Silo]:
    """The silos, the first of them with a note on cross edges that two silos describe differently, if there are any."""
    told = differing_edges(silos) if len({silo.schema.edge_feature_names for silo in silos}) == 1 else []
    return [changed(silo, notes=(*silo.notes, *told)) if not place else silo for place, silo in enumerate(silos)]


def differing_edges(silos: Sequence[Silo]) -> list[str]:
    """Sentences on cross edges to which their two silos give different times or features, or different labels.

    It takes both silos in one process. Between processes nothing is compared: a hash of an amount gives it away.
    """
    crossing = [silo.crosses.nonzero().flatten() for silo in silos]
    keys = torch.cat(
        [torch.zeros(0, dtype=torch.int64), *(s.edge_keys[e] for s, e in zip(silos, crossing, strict=True))]
    )
    order = torch.argsort(keys, stable=True)
    same = (keys[order][1:] == keys[order][:-1]).nonzero().flatten()
    one, other = order[same], order[same + 1]
    differ = torch.zeros(len(same), dtype=torch.bool)
    for column in _columns(silos, crossing):
        differ |= column[one] != column[other]
    labels = _differing_labels(silos, crossing, one, other)
    if not bool(differ.any()):
        return labels
    sizes = torch.tensor([len(edges) for edges in crossing])
    first = differ.nonzero()[0]
    pair = [_located(silos, crossing, sizes, int(at[first])) for at in (one, other)]
    (a, edge), (b, twin) = pair
    return [
        f"{int(differ.sum()):,} cross edges have other times or features in one of their silos than in the other, e.g. "
        f"{_ends(a, edge)}: {_values(a, edge)} in {a.name}, {_values(b, twin)} in {b.name}. Each computes with its "
        "own.",
        *labels,
    ]


def _classes(labels: Sequence[str], spelling: Mapping[str, str], classes: dict[str, int]) -> Tensor:
    """The common number of each class of a silo, and -1 at its end; new classes are added to ``classes``."""
    names = [spelling.get(name, name) for name in labels]
    return torch.tensor([*(classes.setdefault(name, len(classes)) for name in names), -1])


def _differing_labels(silos: Sequence[Silo], crossing: list[Tensor], one: Tensor, other: Tensor) -> list[str]:
    """A sentence on cross edges that both silos have labelled, but differently; ``one``, ``other``: their copies."""
    known = [silo.edge_y for silo in silos if silo.edge_y is not None]
    if len(known) < len(silos):
        return []
    spelling = one_spelling(name for silo in silos for name in silo.schema.labels)
    classes: dict[str, int] = {}
    places = [_classes(silo.schema.labels, spelling, classes) for silo in silos]
    y = torch.cat([place[each[edges].long()] for place, each, edges in zip(places, known, crossing, strict=True)])
    differ = int(((y[one] >= 0) & (y[other] >= 0) & (y[one] != y[other])).sum())
    if not differ:
        return []
    return [
        f"{differ:,} cross edges have one label in one of their silos and another in the other. Where one silo teaches "
        "such an edge it is the target's owner; where both do, each teaches its own."
    ]


def _columns(silos: Sequence[Silo], crossing: list[Tensor]) -> Iterator[Tensor]:
    """Times, then every feature, of the cross edges of all silos end to end: [edges] each."""
    times = [silo.edge_time for silo in silos if silo.edge_time is not None]
    tables = [silo.edge_attr for silo in silos if silo.edge_attr is not None]
    if len(times) == len(silos):
        yield torch.cat([time[edges] for time, edges in zip(times, crossing, strict=True)])
    width = tables[0].shape[1] if len(tables) == len(silos) else 0
    for place in range(width):
        yield torch.cat([table[edges, place] for table, edges in zip(tables, crossing, strict=True)])


def _located(silos: Sequence[Silo], crossing: list[Tensor], sizes: Tensor, at: int) -> tuple[Silo, int]:
    """The silo and its edge that stand at a place among the cross edges of all silos, end to end."""
    number = int(torch.searchsorted(sizes.cumsum(0), at, right=True))
    return silos[number], int(crossing[number][at - int(sizes[:number].sum())])


def _ends(silo: Silo, edge: int) -> str:
    ids = np.concatenate([silo.ids, silo.halo_ids])
    return " -> ".join(str(ids[row]) for row in silo.edge_index[:, edge].tolist())


def _values(silo: Silo, edge: int) -> str:
    """Time and features of one edge, as a user wrote them."""
    time = [] if silo.edge_time is None else [f"time {int(silo.edge_time[edge])}"]
    attributes = [] if silo.edge_attr is None else [f"{value:.6g}" for value in silo.edge_attr[edge].tolist()]
    return ", ".join([*time, *attributes])

"""All silos merged into one: what a centralised run trains on, in a simulation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.graph.features import concat
from isthmus.graph.silo import BY_SOURCE, BY_TARGET, Silo


def merge(silos: Sequence[Silo]) -> Silo:
    """One silo that owns the nodes of all silos: what a centralised run trains on (a simulation only).

    Each edge is taken from the silo that owns its target, because both silos of a cross edge list it; its label, where
    that silo has none, from the other.
    """
    ids = np.concatenate([silo.ids for silo in silos])
    keys = torch.cat([silo.keys[: silo.n] for silo in silos])
    order = torch.argsort(keys)
    silos = [_with_labels_of_sources(silo, silos) for silo in silos]
    kept = [silo.edge_index[1] < silo.n for silo in silos]
    ends = [_merged_rows(s, keys[order], order)[s.edge_index[:, k]] for s, k in zip(silos, kept, strict=True)]
    fields: dict[str, Any] = {}
    for field in ("edge_attr", "edge_time", "edge_y", "edge_split", "edge_teacher"):
        parts = [getattr(silo, field) for silo in silos]
        whole = all(part is not None for part in parts)
        fields[field] = torch.cat([p[k] for p, k in zip(parts, kept, strict=True)]) if whole else None
    named = [silo.edge_ids for silo in silos]
    whole_ids = [ids[k.numpy()] for ids, k in zip(named, kept, strict=True) if ids is not None]
    return replace(
        silos[0],
        number=0,
        name="all",
        ids=ids,
        x=concat([silo.x for silo in silos]),
        y=torch.cat([silo.y for silo in silos]),
        split=torch.cat([silo.split for silo in silos]),
        halo_ids=ids[:0],
        halo_owner=torch.zeros(0, dtype=torch.int64),
        edge_index=torch.cat(ends, 1),
        notes=tuple(dict.fromkeys(note for silo in silos for note in silo.notes)),
        edge_ids=np.concatenate(whole_ids) if len(whole_ids) == len(silos) else None,
        merged_from=tuple(part for silo in silos for part in silo.merged_from or ((silo.name, silo.n),)),
        **fields,
    )


def _with_labels_of_sources(silo: Silo, silos: Sequence[Silo]) -> Silo:
    """The silo with labels and splits of edges into it whose source's owner alone has the label, marked as such."""
    if silo.edge_y is None or silo.edge_split is None:
        return silo
    bare = (silo.crosses & (silo.edge_index[1] < silo.n) & (silo.edge_y < 0)).nonzero().flatten()
    y, split = silo.edge_y.clone(), silo.edge_split.clone()
    usual = torch.full((len(y),), BY_TARGET, dtype=torch.int8)
    teacher = usual if silo.edge_teacher is None else silo.edge_teacher.clone()
    for other in silos:
        known, at = _labelled_twins(silo.edge_keys[bare], other)
        assert other.edge_y is not None and other.edge_split is not None
        y[bare[known]], split[bare[known]] = other.edge_y[at], other.edge_split[at]
        teacher[bare[known]] = BY_SOURCE
    return replace(silo, edge_y=y, edge_split=split, edge_teacher=teacher)


def _labelled_twins(keys: Tensor, other: Silo) -> tuple[Tensor, Tensor]:
    """Which edges, by public key, another silo owns the source of and has the label of; and their numbers there."""
    assert other.edge_y is not None
    theirs = (other.crosses & (other.edge_y >= 0) & (other.edge_index[0] < other.n)).nonzero().flatten()
    ordered, order = other.edge_keys[theirs].sort()
    if not len(ordered):
        return torch.zeros(len(keys), dtype=torch.bool), theirs
    place = torch.searchsorted(ordered, keys).clamp_(max=len(ordered) - 1)
    known = ordered[place] == keys
    return known, theirs[order[place[known]]]


def _merged_rows(silo: Silo, keys: Tensor, order: Tensor) -> Tensor:
    """The row of each of a silo's nodes, owned and halo, in the merged silo: [n + h].

    ``keys`` are the public keys of all owned nodes, sorted, and ``order`` the rows that they stand for.
    """
    place = torch.searchsorted(keys, silo.keys).clamp_(max=len(keys) - 1)
    missing = keys[place] != silo.keys
    if bool(missing.any()):
        far = silo.halo_ids[int(missing.nonzero()[0]) - silo.n]
        raise IsthmusError(f"{silo.name} refers to node {far!r}, which no silo owns; add the node or drop the edge.")
    return order[place]

"""What one silo holds: the nodes it owns and every edge that touches them; of far ends only id and owner."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from isthmus.core.random import combine, keys_of
from isthmus.core.tensors import by_value
from isthmus.graph.encoding import Encoding
from isthmus.graph.features import Features
from isthmus.graph.graph import Schema
from isthmus.graph.ports import ports

BY_TARGET, BY_SOURCE, BY_BOTH = 0, 1, 2  # who has the label of an edge: the owner of its target, of its source, both


@dataclass(frozen=True)
class CrossEdges:
    """Edges of a silo to one other silo, in the order of their public keys."""

    edges: Tensor
    keys: Tensor


@dataclass(frozen=True)
class Silo:
    """One silo's part of the graph.

    Rows 0..n-1 are its **owned** nodes. Rows n..n+h-1 are its **halo**: nodes of other silos at the far end of its
    edges, of which it knows id and owner but neither features nor labels.
    """

    number: int
    name: str
    schema: Schema
    ids: np.ndarray  # [n] public ids of owned nodes
    x: Features  # [n, features]
    y: Tensor  # [n] or [n, T]; -1 unknown
    split: Tensor  # [n] int8
    halo_ids: np.ndarray  # [h]
    halo_owner: Tensor  # [h] number of the silo that owns each
    edge_index: Tensor  # [2, m] rows of source and target
    edge_attr: Tensor | None = None
    edge_time: Tensor | None = None
    edge_y: Tensor | None = None
    edge_split: Tensor | None = None
    edge_teacher: Tensor | None = None  # [m] int8, who has the label of an edge; None before silos have told each other
    notes: tuple[str, ...] = ()  # what the report should say of the data
    edge_ids: np.ndarray | None = None  # [m] ids of edges: they go beside predictions, and never leave the silo
    node_encoding: Encoding = ()  # the columns that features of nodes come from, where these are not simply numbers
    edge_encoding: Encoding = ()
    merged_from: tuple[tuple[str, int], ...] = ()  # of a merged silo: names and numbers of nodes of its parts, in order

    @property
    def n(self) -> int:
        """Number of owned nodes."""
        return len(self.ids)

    @property
    def h(self) -> int:
        """Number of halo nodes."""
        return len(self.halo_ids)

    @cached_property
    def keys(self) -> Tensor:
        """Public keys of all rows, owned then halo: [n + h]."""
        return torch.cat([keys_of(self.ids), keys_of(self.halo_ids)])

    @cached_property
    def edge_keys(self) -> Tensor:
        """A public key for each edge; both silos of a cross edge compute the same key: [m]."""
        source, target = (self.keys.index_select(0, end) for end in self.edge_index)
        pair = combine(source, target)
        return combine(pair, parallel_rank(pair, self.edge_time, self.edge_attr))

    @cached_property
    def ports(self) -> Tensor:
        """In-port at the target and out-port at the source of each edge, from the edges this silo knows: [m, 2]."""
        return torch.stack(ports(self.keys, self.edge_index[0], self.edge_index[1], self.edge_time), 1)

    @cached_property
    def crosses(self) -> Tensor:
        """Which edges have their far end in another silo: [m] bool."""
        return (self.edge_index[0] >= self.n) | (self.edge_index[1] >= self.n)

    @cached_property
    def cross_by_peer(self) -> dict[int, CrossEdges]:
        """The cross edges by the silo at the far end, those of each peer in the order of their public keys.

        Both silos of an edge know its key, so that lists in this order agree without a message.
        """
        edges = self.crosses.nonzero().flatten()
        source, target = (end.index_select(0, edges) for end in self.edge_index)
        peer = self.halo_owner.index_select(0, torch.maximum(source, target) - self.n)
        order, counts = by_value(peer, int(peer.max()) + 1 if len(peer) else 0)
        lots = edges.index_select(0, order).split(counts)
        return {number: _by_key(lot, self.edge_keys) for number, lot in enumerate(lots) if len(lot)}


def _by_key(edges: Tensor, keys: Tensor) -> CrossEdges:
    """The given edges in the order of their keys."""
    ordered, order = keys.index_select(0, edges).sort()
    return CrossEdges(edges.index_select(0, order), ordered)


# What a silo finds out once, and which of its fields each follows from.
_ENDS = ("ids", "halo_ids", "edge_index")
_FOUND = {
    "keys": ("ids", "halo_ids"),
    "crosses": _ENDS,
    "edge_keys": (*_ENDS, "edge_time", "edge_attr"),
    "ports": (*_ENDS, "edge_time"),
    "cross_by_peer": (*_ENDS, "halo_owner", "edge_time", "edge_attr"),
}


def changed(silo: Silo, **values: Any) -> Silo:
    """The silo with other values of some fields; what was found out from fields that stay need not be found again."""
    other = replace(silo, **values)
    known = {
        name: silo.__dict__[name] for name, of in _FOUND.items() if name in silo.__dict__ and not {*of} & {*values}
    }
    other.__dict__.update(known)
    return other


def keep_edges(silo: Silo, kept: Tensor) -> Silo:
    """The silo with the edges marked in ``kept`` [edges], and the halo nodes that these reach."""
    every = bool(kept.all())
    ends = silo.edge_index if every else silo.edge_index[:, kept]
    reached = torch.zeros(silo.n + silo.h, dtype=torch.bool)
    reached[: silo.n] = True
    reached[ends.flatten()] = True
    if every and bool(reached.all()):
        return silo
    far = reached[silo.n :]
    return replace(
        silo,
        edge_index=(reached.cumsum(0) - 1)[ends],
        halo_ids=silo.halo_ids[far.numpy()],
        halo_owner=silo.halo_owner[far],
        edge_attr=taken(silo.edge_attr, kept),
        edge_time=taken(silo.edge_time, kept),
        edge_y=taken(silo.edge_y, kept),
        edge_split=taken(silo.edge_split, kept),
        edge_teacher=taken(silo.edge_teacher, kept),
        edge_ids=None if silo.edge_ids is None else silo.edge_ids[kept.numpy()],
    )


def nobody(schema: Schema) -> Silo:
    """A silo without nodes and edges, which stands in on a host that has no silo."""
    none = torch.zeros(0, dtype=torch.int64)
    on_edges = schema.target == "edge"
    return Silo(
        number=0,
        name="nobody",
        schema=schema,
        ids=np.zeros(0, dtype=np.int64),
        x=torch.zeros(0, schema.features),
        y=torch.zeros((0, len(schema.labels)) if schema.task == "tasks" else (0,), dtype=torch.int64),
        split=none.to(torch.int8),
        halo_ids=np.zeros(0, dtype=np.int64),
        halo_owner=none,
        edge_index=none.reshape(2, 0),
        edge_attr=torch.zeros(0, schema.edge_features) if schema.edge_features else None,
        edge_time=none if schema.timed else None,
        edge_y=none if on_edges else None,
        edge_split=none.to(torch.int8) if on_edges else None,
    )


def parallel_rank(pair: Tensor, time: Tensor | None, attr: Tensor | None) -> Tensor:
    """The number of each edge among the parallel edges of its ``pair`` of nodes: [m].

    They are ordered by time, then attributes, then place in the list. Two silos list their common edges in different
    orders; edges that are equal in time and attributes are interchangeable.
    """
    rank = torch.zeros(len(pair), dtype=torch.int64)
    alone = np.sort(pair.numpy())
    if not bool((alone[1:] == alone[:-1]).any()):
        return rank
    order = torch.argsort(pair, stable=True)
    ordered = pair[order]
    again = torch.zeros(len(pair), dtype=torch.bool)
    again[1:] = ordered[1:] == ordered[:-1]
    member = again.clone()
    member[:-1] |= again[1:]
    edges = _by_time_and_attributes(order[member].numpy(), pair, time, attr)
    group = pair[edges].numpy()
    first = np.flatnonzero(np.concatenate([[True], group[1:] != group[:-1]]))
    length = np.diff(np.append(first, len(group)))
    rank[edges] = torch.from_numpy(np.arange(len(group)) - np.repeat(first, length))
    return rank


def _by_time_and_attributes(edges: np.ndarray, pair: Tensor, time: Tensor | None, attr: Tensor | None) -> np.ndarray:
    """``edges`` sorted by (pair, time, attributes, place); attributes are read only where times are equal."""
    keys = [pair[edges].numpy()] if time is None else [time[edges].numpy(), pair[edges].numpy()]
    order = np.lexsort((edges, *keys))
    if attr is None or not attr.shape[1]:
        return edges[order]
    same = np.all([key[order][1:] == key[order][:-1] for key in keys], axis=0)
    tied = np.flatnonzero(np.append(same, False) | np.append(False, same))
    rows = order[tied]
    columns = [attr[edges[rows], j].numpy() for j in reversed(range(attr.shape[1]))]
    order[tied] = rows[np.lexsort((edges[rows], *columns, *(key[rows] for key in keys)))]
    return edges[order]


def taken(values: Tensor | None, edges: Tensor) -> Tensor | None:
    """What some edges have of an optional property."""
    return None if values is None else values[edges]

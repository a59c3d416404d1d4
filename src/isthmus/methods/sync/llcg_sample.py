"""A sampled part of all silos' graphs, laid out where it was sent: at the server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from isthmus.graph.features import Features, SparseRows, take
from isthmus.graph.graph import TRAIN
from isthmus.graph.stack import Adjacency, Stack
from isthmus.sample.neighbours import Sample
from isthmus.wire.ledger import SERVER, Kind

if TYPE_CHECKING:
    from isthmus.state import Run


def collect(run: Run, sample: Sample, seeds: Tensor) -> Stack | None:
    """Send features of sampled nodes, sampled edges and labels of seeds to the server; there: the graph they make.

    ``seeds`` are stack rows. Elsewhere None comes back. Nodes are told apart by their public keys.
    """
    stack, wire = run.stack, run.wire
    rows = sample.rows[stack.owned[sample.rows]]
    edge = stack.incoming.edge[sample.incoming]
    nodes = _told(run, Kind.IDS, stack.keys[rows], rows)
    x = _features(run, rows)
    degree = _told(run, Kind.EDGES, stack.in_degree[rows], rows) if run.batcher.degrees else torch.zeros_like(nodes)
    ends = _told(run, Kind.EDGES, stack.keys[stack.ends[:, edge]].T.contiguous(), stack.ends[1][edge])
    ports, attr = torch.zeros_like(ends), None
    if run.model.config.ports:
        ports = _told(run, Kind.EDGES, stack.ports[edge], stack.ends[1][edge])
    if stack.edge_attr is not None and run.model.encoder is not None:
        attr = _told(run, Kind.FEATURES, stack.edge_attr[edge], stack.ends[1][edge])
    whose = _told(run, Kind.IDS, stack.keys[seeds], seeds)
    y = _told(run, Kind.LABELS, run.labels[seeds], seeds)
    if not wire.serves:
        return None
    order = torch.argsort(nodes)
    place = torch.searchsorted(nodes[order], torch.cat([ends.flatten(), whose]))
    labels = run.labels.new_full((len(nodes), *y.shape[1:]), -1)
    labels[place[2 * len(ends) :]] = y
    both = place[: 2 * len(ends)].reshape(-1, 2).T.contiguous()
    return _laid_out(nodes[order], take(x, order), degree[order], labels, (both, attr, ports), run)


def _told(run: Run, kind: Kind, rows: Tensor, at: Tensor) -> Tensor:
    """Rows of my silos, by the stack rows that they belong to, for the server: there all silos' rows in silo order."""
    wire, silo = run.wire, run.stack.silo_of(at)
    parcels = {(number, SERVER): rows[silo == place].cpu() for place, number in enumerate(wire.mine)}
    got = wire.post(kind, parcels)
    return torch.cat([got[number, SERVER] for number in range(wire.silos)] if wire.serves else [rows[:0]]).to(rows)


def _features(run: Run, rows: Tensor) -> Features:
    """Of sparse features how many entries each row has, their columns and values; zeros do not travel."""
    x = take(run.stack.x, run.stack.own_line[rows])
    if not isinstance(x, SparseRows):
        return _told(run, Kind.FEATURES, x, rows)
    entries = rows.repeat_interleave(x.ptr.diff())
    sizes = _told(run, Kind.FEATURES, x.ptr.diff().int(), rows)
    index = _told(run, Kind.FEATURES, x.index.int(), entries)
    value = _told(run, Kind.FEATURES, x.value, entries)
    return SparseRows(torch.cat([sizes.new_zeros(1), sizes.cumsum(0)]).long(), index.long(), value, x.width)


def _laid_out(
    keys: Tensor, x: Features, degree: Tensor, y: Tensor, edges: tuple[Tensor, Tensor | None, Tensor], run: Run
) -> Stack:
    """A stack in which all nodes belong to the first of the server's host's silos, and the others have none."""
    ends, attr, ports = (None if part is None else part.cpu() for part in edges)
    assert ends is not None and ports is not None
    count = len(keys)
    incoming, outgoing = (Adjacency.build(ends[to], ends[1 - to], None, count) for to in (1, 0))
    return Stack(
        silos=run.stack.silos,
        ptr=(0, *[count] * len(run.stack.silos)),
        keys=keys,
        owned=torch.ones(count, dtype=torch.bool),
        x=x,
        x_ptr=(0, *[count] * len(run.stack.silos)),
        feature_row=None,
        y=y,
        split=torch.full((count,), TRAIN, dtype=torch.int8),
        ends=ends,
        incoming=incoming,
        outgoing=outgoing,
        edge_keys=torch.zeros(ends.shape[1], dtype=torch.int64),  # nothing is sampled here
        edge_attr=attr,
        edge_y=None,
        edge_split=None,
        in_degree=degree,
        out_degree=degree,
        ports=ports,
    ).to(run.device)

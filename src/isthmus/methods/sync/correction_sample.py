"""The server's sample in LLCG: a sampled part of all silos' graphs, sent to the server and made a graph there."""

from __future__ import annotations

import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.core.kinds import SERVER, Kind
from isthmus.engine.site import Site
from isthmus.graph.features import Features, SparseRows, take
from isthmus.graph.graph import TRAIN
from isthmus.graph.stack import Adjacency, Stack
from isthmus.sample.neighbours import Sample


class SampleSender:
    """Sends sampled nodes, edges and labels of my silos to the server."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.sparse = self._agree_on_sparseness()

    def _agree_on_sparseness(self) -> bool:
        """Whether silos hold sparse features, which a server without silos cannot see for itself."""
        site = self.site
        mine = torch.tensor([isinstance(silo.x, SparseRows) for silo in site.federation.silos], dtype=torch.uint8)
        told = site.wire.share(Kind.STATISTICS, mine)
        if len(told.unique()) > 1:
            raise IsthmusError("Some silos hold sparse features and others dense ones; write all parts in one way.")
        return bool(told[0])

    def send(self, sample: Sample, seeds: Tensor) -> Stack | None:
        """Send sampled nodes' features, sampled edges and labels of seeds; returns their graph at the server.

        Returns None on other hosts. ``seeds`` are stack rows. Nodes are identified by their public keys.
        """
        site, stack = self.site, self.site.stack
        rows = sample.rows[stack.owned[sample.rows]]
        edge = stack.incoming.edge[sample.incoming]
        target = stack.ends[1][edge]
        nodes = self._gathered(Kind.IDS, stack.keys[rows], rows)
        x = self._features(rows)
        degree = self._gathered(Kind.EDGES, stack.in_degree[rows], rows) if site.degrees else torch.zeros_like(nodes)
        ends = self._gathered(Kind.EDGES, stack.keys[stack.ends[:, edge]].T.contiguous(), target)
        ports, attr = torch.zeros_like(ends), None
        if stack.ports is not None:
            ports = self._gathered(Kind.EDGES, stack.ports[edge], target)
        if stack.edge_attr is not None and site.net.encoder is not None:
            attr = self._gathered(Kind.FEATURES, stack.edge_attr[edge], target)
        whose = self._gathered(Kind.IDS, stack.keys[seeds], seeds)
        y = self._gathered(Kind.LABELS, site.layout.labels[seeds], seeds)
        if not site.wire.houses(SERVER):
            return None
        order = torch.argsort(nodes)
        place = torch.searchsorted(nodes[order], torch.cat([ends.flatten(), whose]))
        labels = y.new_full((len(nodes), *y.shape[1:]), -1)
        labels[place[2 * len(ends) :]] = y
        both = place[: 2 * len(ends)].reshape(-1, 2).T.contiguous()
        return self._laid_out(nodes[order], take(x, order), degree[order], labels, (both, attr, ports))

    def _gathered(self, kind: Kind, rows: Tensor, at: Tensor) -> Tensor:
        """Send rows, which belong to the stack rows ``at``; returns at the server all silos' rows, in silo order."""
        silo = self.site.stack.silo_of(at)
        mine = {number: rows[silo == place].cpu() for place, number in enumerate(self.site.wire.mine)}
        heard = self.site.wire.gather(kind, mine)
        return rows[:0] if heard is None else torch.cat(list(heard.values())).to(rows)

    def _features(self, rows: Tensor) -> Features:
        """Send features of stack rows; sparse ones as the number, columns and values of each row's entries."""
        x = take(self.site.stack.x, self.site.stack.own_line[rows])
        if not self.sparse:
            assert isinstance(x, Tensor)
            return self._gathered(Kind.FEATURES, x, rows)
        x = x if isinstance(x, SparseRows) else SparseRows.from_dense(x)
        entries = rows.repeat_interleave(x.ptr.diff())
        sizes = self._gathered(Kind.FEATURES, x.ptr.diff().int(), rows)
        index = self._gathered(Kind.FEATURES, x.index.int(), entries)
        value = self._gathered(Kind.FEATURES, x.value, entries)
        return SparseRows(torch.cat([sizes.new_zeros(1), sizes.cumsum(0)]).long(), index.long(), value, x.width)

    def _laid_out(
        self, keys: Tensor, x: Features, degree: Tensor, y: Tensor, edges: tuple[Tensor, Tensor | None, Tensor]
    ) -> Stack:
        """A stack in which all nodes belong to the first silo of the server's host, or to the server if it has none.

        The other silos of the host have no rows in it, so that every row is computed with one set of constants.
        """
        ends, attr, ports = (None if part is None else part.cpu() for part in edges)
        assert ends is not None and ports is not None
        count, parts = len(keys), len(self.site.stack.ptr) - 1
        incoming, outgoing = (Adjacency.build(ends[to], ends[1 - to], None, count) for to in (1, 0))
        return Stack(
            silos=self.site.stack.silos or (SERVER,),
            ptr=(0, *[count] * parts),
            keys=keys,
            owned=torch.ones(count, dtype=torch.bool),
            x=x,
            x_ptr=(0, *[count] * parts),
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
            edge_teacher=None,
            in_degree=degree,
            out_degree=degree,
            ports=ports,
        ).to(self.site.device)

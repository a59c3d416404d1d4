"""The same work as PyTorch Geometric users write it: one model on all, and a loop over one model for each silo."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from measure import SEED, now
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv

from isthmus.graph.features import Features, SparseRows
from isthmus.graph.graph import TRAIN, VALID
from isthmus.graph.merged import merge
from isthmus.graph.silo import Silo


class TwoLayers(nn.Module):
    """Two GCN layers, hidden 64; the normalised edge weights are kept, as a fixed graph allows."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.first = GCNConv(features, 64, cached=True)
        self.second = GCNConv(64, classes, cached=True)

    def forward(self, data: Data) -> Tensor:
        """Logits of every node."""
        h = F.dropout(self.first(data.x, data.edge_index).relu(), 0.5, self.training)
        out: Tensor = self.second(h, data.edge_index)
        return out


class Party:
    """A model, its optimiser and its graph."""

    def __init__(self, silo: Silo, sparse: bool) -> None:
        self.data = _data(silo, sparse)
        self.model = TwoLayers(silo.schema.features, len(silo.schema.labels))
        self.optimiser = torch.optim.Adam(self.model.parameters(), lr=0.01, weight_decay=5e-4, fused=True)
        self.seeds = int(self.data.train.sum())

    def epoch(self) -> None:
        """One full-batch step."""
        self.model.train()
        self.optimiser.zero_grad()
        F.cross_entropy(self.model(self.data)[self.data.train], self.data.y[self.data.train]).backward()
        self.optimiser.step()

    @torch.no_grad()
    def score(self) -> float:
        """Accuracy on the validation nodes."""
        self.model.eval()
        guess = self.model(self.data)[self.data.valid].argmax(1)
        return float((guess == self.data.y[self.data.valid]).double().mean())


def centralised(silos: Sequence[Silo], rounds: int, sparse: bool) -> list[tuple[float, float]]:
    """Times (see ``now``) at the end of each epoch of one model that sees everything."""
    torch.manual_seed(SEED)
    party = Party(merge(silos), sparse)
    ends = []
    for _ in range(rounds):
        party.epoch()
        party.score()
        ends.append(now())
    return ends


def naive(silos: Sequence[Silo], local_epochs: int, rounds: int, sparse: bool) -> list[tuple[float, float]]:
    """Times (see ``now``) at the end of each round of federated averaging: a loop over silos, cross edges left out."""
    torch.manual_seed(SEED)
    parties = [Party(silo, sparse) for silo in silos]
    total = sum(party.seeds for party in parties)
    for party in parties[1:]:
        party.model.load_state_dict(parties[0].model.state_dict())
    ends = []
    for _ in range(rounds):
        for party in parties:
            for _ in range(local_epochs):
                party.epoch()
        states = [party.model.state_dict() for party in parties]
        mean = {
            name: sum(state[name] * (party.seeds / total) for state, party in zip(states, parties, strict=True))
            for name in states[0]
        }
        for party in parties:
            party.model.load_state_dict(mean)
            party.score()
        ends.append(now())
    return ends


def _data(silo: Silo, sparse: bool) -> Data:
    inner = silo.edge_index[:, ~silo.crosses]
    if not sparse:
        x = silo.x.dense() if isinstance(silo.x, SparseRows) else silo.x
        return _with_masks(Data(x=x, edge_index=inner), silo)
    ones = torch.ones(inner.shape[1])
    edges = torch.sparse_coo_tensor(inner.flip(0), ones, (silo.n, silo.n)).coalesce().to_sparse_csr()
    return _with_masks(Data(x=_csr(silo.x), edge_index=edges), silo)


def _csr(x: Features) -> Tensor:
    return torch.sparse_csr_tensor(x.ptr, x.index, x.value, size=x.shape) if isinstance(x, SparseRows) else x


def _with_masks(data: Data, silo: Silo) -> Data:
    data.y, data.train, data.valid = silo.y.long(), silo.split == TRAIN, silo.split == VALID
    return data

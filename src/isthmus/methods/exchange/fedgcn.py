"""FedGCN: sums of neighbours' features cross once, before training; the first layer then reads no edge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from isthmus.errors import IsthmusError
from isthmus.exchange.base import Beyond, Exchange
from isthmus.graph.agree import agree_far_degrees
from isthmus.graph.features import Features
from isthmus.graph.stack import Stack
from isthmus.graph.sums import Sums, collect_sums, hand_out_sums
from isthmus.nn.block import Rows
from isthmus.nn.gcn import GCN
from isthmus.nn.linear import product
from isthmus.nn.model import GNN
from isthmus.nn.norm import Pass
from isthmus.nn.sets import per_row
from isthmus.sample.batches import Batch
from isthmus.sample.neighbours import Sampler

if TYPE_CHECKING:
    from isthmus.state import Run


@dataclass
class FeatureSums(Exchange):
    r"""y_v = W (E S_x(v) + c S_1(v)) / sqrt(d_v + 1) + b,  S(v) = sum over u in N(v) and v of [x_u, 1] / sqrt(d_u + 1).

    That is a GCN's first layer after an embedding h = E x + c. Before training every silo sends its own nodes' part of
    S(v), for each of its halo nodes v, to the owner of v. With two ``hops`` the owner then sends S(v), now whole, to
    each silo that reads v. So every silo computes the first layer of its halo nodes too, with its own parameters and
    full gradients, and the second layer has all its cross edges. Later layers (with one hop the second too) have none:
    there a far end counts in its neighbours' degrees and adds nothing.
    S is complete whatever a batch samples, so that the last number of ``train.fanout`` has no use.
    """

    hops: int = 2
    sums: Sums = field(init=False, repr=False)  # of owned rows; with two hops of all rows of the stack
    place: Tensor = field(init=False, repr=False)  # [stack rows] the line of a row in the sums

    def __post_init__(self) -> None:
        if self.hops not in (1, 2):
            raise IsthmusError(f"exchange.hops is {self.hops}; features are summed over 1 hop or over 2.")

    @property
    def view(self) -> str:
        """Far ends are rows without neighbours of their own."""
        return "halo"

    @torch.no_grad()
    def begin(self, run: Run) -> None:
        """All that ever crosses of features; a resumed run collects the same sums again."""
        _check(run, self.hops)
        self.sums = collect_sums(run.wire, run.stack, run.boundary)
        self.place = run.stack.own_line
        if self.hops == 2:
            agree_far_degrees(run.wire, run.stack, run.boundary)
            self.sums = hand_out_sums(run.wire, run.stack, run.boundary, self.sums)
            self.place = torch.arange(run.stack.rows, device=run.device)

    def sampler(self, run: Run, stack: Stack, fanout: Sequence[int], directed: bool) -> Sampler:
        """Each silo expands what it knows by itself, one hop less than there are layers."""
        return Sampler(stack, fanout[:-1], run.draws, directed)

    def enter(self, batch: Batch, run: Run, this: Pass) -> tuple[int, Features]:
        """The first layer, of halo rows too where their sums are known."""
        at, rows = batch.layout.held[1], batch.blocks[0].targets
        if self.hops == 2:
            at, rows = batch.layout.read[1], batch.blocks[1].sources
        whole = len(at) == len(self.sums.one)  # rows ascend, so that all of them are the sums as they lie
        sums = self.sums if whole else self.sums.at(self.place[at])
        pre = _first_layer(run.model, sums, run.stack.in_degree[at], rows)
        return 1, run.model.finish(0, pre, rows, this)

    def beyond(self, layer: int, h: Features, batch: Batch, run: Run, this: Pass) -> Beyond:
        """Zeros for far ends, where nothing is known of them: in all layers after the first ``hops``."""
        assert isinstance(h, Tensor)
        held, read = batch.layout.held[layer], batch.layout.read[layer]
        if layer < self.hops or len(held) == len(read):
            return Beyond(h)
        return Beyond(h.new_zeros(len(read), h.shape[1]).index_copy(0, torch.searchsorted(read, held), h))


def _first_layer(model: GNN, sums: Sums, degree: Tensor, rows: Rows) -> Tensor:
    """W (E S_x + c S_1) / sqrt(d + 1) + b, before normalisation."""
    h, layer = sums.x, model.layers[0]
    assert isinstance(layer, GCN)
    if model.enter is not None:
        h = product(sums.x, model.enter.weight, None, rows)
        h = h if model.enter.bias is None else h + sums.one * per_row(model.enter.bias, rows)
    z: Tensor = layer.lin(h, rows)
    pre = z * degree.add(1).to(z.dtype).rsqrt()[:, None]
    return pre if layer.bias is None else pre + per_row(layer.bias, rows)


def _check(run: Run, hops: int) -> None:
    """Refuse models in which sums of features do not stand for sums of messages, and sums that nobody would read."""
    config = run.model.config
    if config.name != "gcn" or config.directed or config.ego:
        what = config.name if config.name != "gcn" else "a directed gcn" if config.directed else "gcn with ego ids"
        raise IsthmusError(
            "Sums of features stand for sums of messages only where messages are linear in the features alone and a "
            f"node's own row is folded in. That is so for gcn and not for {what}; use model.name=gcn with "
            "model.directed=false and model.ego=false, or another method, such as ce-fedgnn."
        )
    if run.schema.target == "edge":
        raise IsthmusError(
            "Labels lie on edges, whose ends meet after the last layer, where sums of features tell nothing of a far "
            "end. Use sync-sgd+fwd-bwd-le or ce-fedgnn."
        )
    if config.layers < hops:
        raise IsthmusError("A model of one layer would not read what crosses at the second hop; use exchange.hops=1.")

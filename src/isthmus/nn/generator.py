"""A generator of neighbours that nobody knows (NeighGen of FedSage+, DGen of FedDEP): how many, and a row for each."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from isthmus.graph.features import Features
from isthmus.nn.block import Block, Rows
from isthmus.nn.layer import Layer
from isthmus.nn.linear import Linear, product
from isthmus.nn.maps import some_rows


class Generator(nn.Module):
    """A code of each node's neighbourhood; from it a number of missing neighbours, and from code + noise their rows.

    ``layers`` encode (each [hidden] to [hidden]); at most ``most`` rows of ``width`` numbers are made for a node,
    through a layer of ``wide`` units. Each of a node's neighbours has a last layer of its own and they have the noise
    in common, or, where it is ``shared``, all have one last layer and noise of their own.

    n_v = ReLU(w c_v + b) neighbours are missing, or, where it is ``steady``, n_v = w c_v / ||c_v|| + b: then a step
    changes numbers by little, however long codes are, and negative ones, which stand for none, go on learning.

    Numbers of a row pass a tanh, or, where rows have ``unit`` length, the whole row is divided by its length. A tanh
    that large steps drive to -1 or 1 learns no more; a row of unit length turns by less, the longer it was before.
    """

    def __init__(
        self,
        features: int,
        hidden: int,
        layers: Sequence[Layer],
        most: int,
        width: int,
        wide: int,
        shared: bool = False,
        steady: bool = False,
        unit: bool = False,
    ) -> None:
        super().__init__()
        self.hidden, self.most, self.width = hidden, most, width
        self.shared, self.steady, self.unit = shared, steady, unit
        self.enter = Linear(features, hidden)
        self.layers = nn.ModuleList(layers)
        self.number = Linear(hidden, 1)
        self.first = Linear(hidden, wide)
        self.second = Linear(wide, width if shared else most * width)

    def encode(self, x: Features, x_rows: Rows, blocks: Sequence[Block]) -> Tensor:
        """The code of each target of the last block: [targets, hidden]."""
        h: Tensor = self.enter(x, x_rows).relu()
        for layer, block in zip(self.layers, blocks, strict=True):
            h = layer(h, block).relu()
        return h

    def count(self, code: Tensor, rows: Rows) -> Tensor:
        """How many neighbours each node misses, as a number that can be trained: [n]."""
        if self.steady:
            numbers: Tensor = self.number(F.normalize(code), rows)
        else:
            numbers = self.number(code, rows).relu()
        return numbers.squeeze(1)

    def generate(self, code: Tensor, rows: Rows) -> Tensor:
        """z_i = W' ReLU(W c_i + b) + b', bounded, of each neighbour's noisy code, where they share W': [n, width]."""
        return self._bounded(self.second(self.first(code, rows).relu(), rows))

    def _bounded(self, made: Tensor) -> Tensor:
        """Rows of which no number is beyond -1..1."""
        return F.normalize(made) if self.unit else made.tanh()

    def generate_apart(self, code: Tensor, rows: Rows, wanted: Tensor) -> Tensor:
        """z_vp = W_p ReLU(W c_v + b) + b_p, bounded, the p-th neighbour of v, for each v and p that is ``wanted``.

        ``code`` [n, hidden] holds the noisy codes c_v, ``wanted`` [n, most] is bool. Rows come node by node, as
        ``wanted.nonzero()`` lists them: [some, width].
        """
        units: Tensor = self.first(code, rows).relu()
        assert self.second.bias is not None
        weights = self.second.weight.unflatten(2, (self.most, self.width)).unbind(2)
        biases = self.second.bias.unflatten(1, (self.most, self.width)).unbind(1)
        ends = torch.tensor(rows.ptr, device=code.device)
        made = [units.new_zeros(0, self.width)]
        for place, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
            some = wanted[:, place].nonzero().flatten()
            # Without any row weights still get a gradient, of 0: whether they move must not depend on who else is here.
            if len(some) or not place:
                these = Rows(tuple(torch.searchsorted(some, ends).tolist()), rows.keys[some])
                made.append(product(units.index_select(0, some), weight, bias, these))
        by_node = (wanted.T.flatten().cumsum(0) - 1).view(self.most, len(code)).T[wanted]
        return some_rows(self._bounded(torch.cat(made)), by_node)

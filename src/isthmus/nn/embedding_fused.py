"""FedDEP's embedding-fused graph convolution: every layer also reads a row that was generated for the node."""

from __future__ import annotations

from torch import Tensor, nn

from isthmus.core.errors import IsthmusError
from isthmus.graph.features import Features
from isthmus.graph.graph import Schema
from isthmus.nn.block import Rows
from isthmus.nn.linear import Linear
from isthmus.nn.model import GNN, ModelConfig


class FusedGNN(GNN):
    r"""x^0_v = ReLU(W_0 [x_v, m_v] + b_0); x^k_v = ReLU(W_k [mean of x^(k-1) over v and its neighbours, m_v] + b_k).

    m_v [width] stands for neighbours that nobody knows; where there are none it is 0. Since W [a, m] = W_a a + W_m m,
    the columns of m are linear maps of their own (``fuse``), added to what any layer computes before its activation.
    The last layer gives the logits.
    """

    def __init__(self, config: ModelConfig, schema: Schema, width: int, batch: int = 0) -> None:
        if schema.target != "node":
            raise IsthmusError(
                "Labels lie on edges, and embedding-fused layers are for labels on nodes; use another method, such as "
                "fedavg."
            )
        if not config.embed or config.head or config.directed:
            raise IsthmusError(
                "Embedding-fused layers embed, have no head and no directions: use model.embed=true and "
                "model.directed=false, or another method."
            )
        super().__init__(config, schema, batch)
        outputs = [config.hidden] * config.layers + [len(schema.labels)]
        self.fuse = nn.ModuleList(Linear(width, out, bias=False) for out in outputs)

    def embed(self, x: Features, rows: Rows, ego: Tensor | None = None) -> Features:
        """The input rows of the first layer where nothing was generated."""
        return super().embed(x, rows, ego).relu()  # type: ignore[union-attr]

    def embed_fused(self, x: Features, rows: Rows, mended: Tensor, ego: Tensor | None = None) -> Tensor:
        """The input rows of the first layer, with the rows ``mended`` [n, width] that were generated for its nodes."""
        h, added = super().embed(x, rows, ego), self.fuse[0](mended, rows)
        assert isinstance(h, Tensor) and isinstance(added, Tensor)
        return (h + added).relu()

    def fused(self, place: int, pre: Tensor, mended: Tensor, rows: Rows) -> Tensor:
        """Rows of the layer at ``place`` before its activation, with what was generated for their nodes."""
        added: Tensor = self.fuse[place + 1](mended, rows)
        return pre + added

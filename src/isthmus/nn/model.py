"""Whole models: embed -> layers -> readout; the training loop calls these steps one by one."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from isthmus.core.errors import IsthmusError, unknown
from isthmus.graph.features import Features
from isthmus.graph.graph import Schema
from isthmus.nn.block import Block, Rows
from isthmus.nn.dense import Dense
from isthmus.nn.directed import Directed, both_sides
from isthmus.nn.edge_updates import EdgeUpdates
from isthmus.nn.edges import EdgeEncoder, Edges, Encoding
from isthmus.nn.ego import Ego
from isthmus.nn.gat import GAT
from isthmus.nn.gcn import GCN
from isthmus.nn.gin import GIN
from isthmus.nn.layer import Layer
from isthmus.nn.linear import Linear
from isthmus.nn.monoid import Monoid, State
from isthmus.nn.norm import NORMS, Norm, Pass, norm_relu_dropout, rounded
from isthmus.nn.pna import PNA
from isthmus.nn.sage import SAGE
from isthmus.nn.sage_gcn import SAGEGCN
from isthmus.nn.sets import reset

LAYERS: dict[str, type[Layer]] = {
    "gcn": GCN, "sage": SAGE, "sage-gcn": SAGEGCN, "gin": GIN, "gat": GAT, "pna": PNA, "mlp": Dense,
}  # fmt: skip


@dataclass(frozen=True)
class ModelConfig:
    """The settings of a model; ``options`` go to the layer's constructor (towers, heads, aggregate, ...)."""

    name: str = "sage"
    layers: int = 2
    hidden: int = 64
    dropout: float = 0.5
    norm: str = "none"
    embed: bool = True  # a linear map of the features before the first layer
    head: bool = True  # a linear map after the last layer; without it that layer's output is the logits
    directed: bool = False  # a second set of layers over outgoing edges
    ports: int = 0  # rows of the port tables; 0: no ports
    ego: bool = False  # mark the seeds of a batch by ego ids
    edge_updates: bool = False  # embeddings of edges, updated from both ends after every layer
    options: Mapping[str, Any] = field(default_factory=dict)

    def check(self) -> ModelConfig:
        """Raise a clear error for a model that cannot be built; returns the settings themselves."""
        if self.name not in LAYERS:
            raise unknown("model", self.name, LAYERS)
        if self.norm not in NORMS:
            raise unknown("norm", self.norm, NORMS)
        if self.layers < 1 or self.hidden < 1 or self.ports < 0:
            raise IsthmusError(
                f"layers={self.layers}, hidden={self.hidden}, ports={self.ports}: "
                "a model needs at least one layer and one hidden unit, and no negative number of ports."
            )
        if not 0 <= rounded(self.dropout) < 1:
            raise IsthmusError(f"dropout={self.dropout} must lie in [0, 1).")
        if self.ego and not self.embed:
            raise IsthmusError("ego=true needs embed=true: slots are added to the embedded features.")
        layer = LAYERS[self.name]
        for switch, off in (("ports", "0"), ("edge_updates", "false")):
            if getattr(self, switch) and not layer.uses_edges:
                given = str(getattr(self, switch)).lower()
                readers = ", ".join(name for name, each in LAYERS.items() if each.uses_edges)
                raise IsthmusError(
                    f"{switch}={given}, but {self.name} does not read edges. Use {switch}={off} or one of: {readers}."
                )
        for option in self.options:
            if option not in options_of(layer):
                raise unknown(f"option of {self.name}", option, options_of(layer))
        return self


def options_of(layer: type[Layer]) -> list[str]:
    """Names of the options that a layer takes, which are its keyword-only arguments."""
    parameters = inspect.signature(layer).parameters.values()
    return [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]


MODELS: dict[str, ModelConfig] = {
    **{name: ModelConfig(name=name) for name in LAYERS},
    "multi-pna": ModelConfig(name="pna", layers=6, dropout=0.1, norm="batch", directed=True, ports=32, ego=True),
}


def register(name: str, layer: type[Layer]) -> None:
    """Make a user's own layer available as the model ``name``, like those that come with the package."""
    if name in MODELS and LAYERS.get(name, layer).__qualname__ != layer.__qualname__:
        raise IsthmusError(f"There is a model called '{name}' already; choose another name.")
    LAYERS[name] = layer
    MODELS[name] = ModelConfig(name=name)


class GNN(nn.Module):
    """A model: embed -> (convolve -> normalise -> ReLU -> dropout) for each layer -> readout.

    ``batch`` is the number of seeds in a batch, which is the size of the table of ego ids.
    """

    def __init__(self, config: ModelConfig, schema: Schema, batch: int = 0) -> None:
        super().__init__()
        self.config, self.schema = config.check(), schema
        if schema.target == "edge" and not config.head:
            raise IsthmusError("Labels lie on edges, so both ends meet in a head: use head=true.")
        if config.ego and batch < 1:
            raise IsthmusError("ego=true needs a batch size of at least 1.")
        hidden, labels = config.hidden, len(schema.labels)
        layer, norm = LAYERS[config.name], NORMS[config.norm]
        # A mean over neighbours passes a constant on, so a centring norm would cancel this bias as well.
        self.enter = Linear(schema.features, hidden, bias=not norm.centres) if config.embed else None
        self.ego = Ego(batch, hidden) if config.ego else None
        self.encoder = EdgeEncoder(schema.edge_features, config.ports) if layer.uses_edges else None
        shape = schema, config.layers, config.hidden, config.directed
        self.edge_updates = EdgeUpdates(self.encoder, *shape) if config.edge_updates else None
        self.layers = nn.ModuleList(self._layer(layer, place) for place in range(config.layers))
        self.norms = nn.ModuleList(norm(hidden) for _ in range(config.layers - (not config.head)))
        self.head = Linear(hidden, labels) if config.head and schema.target == "node" else None
        width = hidden if config.edge_updates else schema.edge_features
        self.edge_head = _EdgeHead(hidden, width, labels) if schema.target == "edge" else None

    def _layer(self, layer: type[Layer], place: int) -> nn.Module:
        """The layer at ``place``; the last one yields logits where the model has no head."""
        config = self.config
        last = place == config.layers - 1 and not config.head
        inputs = self.schema.features if place == 0 and not config.embed else config.hidden
        outputs = len(self.schema.labels) if last else config.hidden
        # A bias before a centring norm has gradient 0 but for rounding, which Adam would scale up to full steps.
        bias = last or not NORMS[config.norm].centres
        edge = config.hidden if config.edge_updates else self.encoder.width if self.encoder is not None else 0
        options = {**(layer.final if last else {}), **config.options}
        if config.directed:
            return Directed(layer, inputs, outputs, edge, bias, **options)
        return layer(inputs, outputs, edge, bias, **options)

    def reset(self, seed: int) -> None:
        """Set all parameters to starting values that follow from the seed alone, on any device, in any process."""
        reset(self, seed)

    def set_degree(self, inward: Tensor, outward: Tensor | None = None) -> None:
        """Give the layers each silo's mean of log(degree + 1), over incoming and over outgoing edges: [silos] each."""
        for layer in self.layers:
            assert isinstance(layer, Layer | Directed)
            layer.set_degree(inward, outward)

    def embed(self, x: Features, rows: Rows, ego: Tensor | None = None) -> Features:
        """The input rows of the first layer: W x + b plus the row of the ego slot; the features where embed=false."""
        if self.enter is None:
            return x
        h: Tensor = self.enter(x, rows)
        return h if self.ego is None else self.ego(h, ego, rows)

    def encode(self, block: Block) -> Encoding | None:
        """The encodings of a block's edges; None where edges have nothing to encode or layers do not read them."""
        return None if self.encoder is None else self.encoder(block)

    def edges(self, place: int, h: Features, block: Block, before: Edges | None = None) -> Edges | None:
        """What the layer at ``place`` reads of its edges: encodings, or embeddings with edge updates; None if nothing.

        ``h`` are the layer's source rows, ``before`` what the layer before it read. A directed model reads every edge
        twice, once from each end.
        """
        block = both_sides(block) if self.config.directed else block
        if self.edge_updates is None:
            return self.encode(block)
        # The first update encodes its own edges: most edges of the first layer are not among those of the second.
        before = self.encode(block) if place < 2 else before
        assert before is not None
        embedded: Edges = self.edge_updates(place, h, block, before)
        return embedded

    def seed_edges(self, block: Block, ends: Sequence[tuple[Tensor, Tensor]]) -> Tensor | None:
        """What the edge head reads of seed edges: their features, or with edge updates their final embeddings.

        ``ends`` are the rows of each edge's source and target after every layer. The head reads an edge along its
        direction only.
        """
        if self.edge_updates is None:
            return block.attr
        encoding = self.encode(block)
        assert encoding is not None
        return self.edge_updates.along(block, encoding, ends)

    def convolve(
        self, place: int, h: Features, block: Block, edge: Edges | None, beyond: State | None = None
    ) -> Tensor:
        """The target rows of the layer at ``place`` from its source rows, before normalisation.

        ``edge`` is what ``edges`` returned; ``beyond`` are aggregates of edges that other silos hold.
        """
        layer = self.layers[place]
        if beyond is not None and isinstance(layer, Directed):
            raise IsthmusError("A directed model has two aggregates at each node; exchange rows instead.")
        if beyond is not None and self.edge_updates is not None:
            raise IsthmusError("Edge updates read the rows of both ends of an edge; exchange rows instead.")
        out: Tensor = layer(h, block, edge) if isinstance(layer, Directed) else layer(h, block, edge, beyond)
        return out

    def monoid(self, place: int) -> Monoid:
        """The aggregate of the layer at ``place``, which must be one whose parts merge."""
        layer = self.layers[place]
        assert isinstance(layer, Layer) and layer.monoid is not None
        return layer.monoid

    def messages(self, place: int, h: Features, block: Block) -> Tensor:
        """What each source row sends along all of its edges, in the layer at ``place``: [sources, width]."""
        layer = self.layers[place]
        assert isinstance(layer, Layer)
        message = layer.message(layer.prepare(h, block), block, None)
        assert message.rows is not None and message.weight is None
        assert message.values is None and message.lookup is None
        return message.rows

    def partial(self, place: int, h: Features, block: Block) -> State:
        """The aggregate of a block's edges in the layer at ``place``, to be merged with other silos' aggregates."""
        layer = self.layers[place]
        assert isinstance(layer, Layer)
        return layer.partial(h, block, self.edges(place, h, block))

    def finish(self, place: int, pre: Tensor, rows: Rows, this_pass: Pass) -> Tensor:
        """The rows after normalisation, ReLU and dropout; unchanged after a last layer that yields the logits."""
        if place >= len(self.norms):
            return pre
        norm = self.norms[place]
        assert isinstance(norm, Norm)
        return norm_relu_dropout(norm, pre, rows, self.config.dropout, place, this_pass)

    def readout(self, h: Tensor, rows: Rows) -> Tensor:
        """Logits of nodes: [n, labels]."""
        return h if self.head is None else self.head(h, rows)

    def readout_edges(self, source: Tensor, target: Tensor, edge: Tensor | None, rows: Rows) -> Tensor:
        """Logits of edges [n, labels] from the rows of both ends [n, hidden] and what ``seed_edges`` returned."""
        if self.edge_head is None:
            raise IsthmusError(f"Labels lie on {self.schema.target}s: this model has no edge head.")
        out: Tensor = self.edge_head(source, target, edge, rows)
        return out


class _EdgeHead(nn.Module):
    """W_2 ReLU(W_1 [h_u, h_v, e_uv] + b_1) + b_2."""

    def __init__(self, hidden: int, edge: int, labels: int) -> None:
        super().__init__()
        self.first = Linear(2 * hidden + edge, hidden)
        self.second = Linear(hidden, labels)

    def forward(self, source: Tensor, target: Tensor, edge: Tensor | None, rows: Rows) -> Tensor:
        """Logits of edges: [n, labels]."""
        ends = torch.cat([source, target] if edge is None else [source, target, edge], 1)
        out: Tensor = self.second(self.first(ends, rows).relu(), rows)
        return out

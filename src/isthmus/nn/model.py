"""Whole models: embed -> layers -> readout, as the training loop calls them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from isthmus.errors import IsthmusError, unknown
from isthmus.graph.features import Features
from isthmus.graph.graph import Schema
from isthmus.nn.block import Block, Rows
from isthmus.nn.dense import Dense
from isthmus.nn.directed import Directed, both_sides
from isthmus.nn.edges import EdgeEncoder, Encoding
from isthmus.nn.ego import Ego
from isthmus.nn.gat import GAT
from isthmus.nn.gcn import GCN
from isthmus.nn.gin import GIN
from isthmus.nn.layer import Layer
from isthmus.nn.linear import Linear
from isthmus.nn.monoid import State
from isthmus.nn.norm import NORMS, Norm, Pass, activate, rounded
from isthmus.nn.pna import PNA
from isthmus.nn.sage import SAGE
from isthmus.nn.sets import reset

LAYERS: dict[str, type[Layer]] = {
    "gcn": GCN, "sage": SAGE, "gin": GIN, "gat": GAT, "pna": PNA, "mlp": Dense,
}  # fmt: skip


@dataclass(frozen=True)
class ModelConfig:
    """What a model is made of; ``options`` go to the layer's constructor (towers, heads, aggregate, ...)."""

    name: str = "sage"
    layers: int = 2
    hidden: int = 64
    dropout: float = 0.5
    norm: str = "none"
    embed: bool = True  # a linear map of the features before the first layer
    head: bool = True  # a linear map after the last layer; without it that layer's output is the logits
    directed: bool = False  # a second set of layers over outgoing edges
    ports: int = 0  # rows of the port tables; 0: no ports
    ego: bool = False  # mark the seeds of a batch
    options: Mapping[str, Any] = field(default_factory=dict)

    def check(self) -> ModelConfig:
        """Raise a clear error for what cannot be built; return self."""
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
        if self.ports and not layer.uses_edges:
            readers = ", ".join(name for name, each in LAYERS.items() if each.uses_edges)
            raise IsthmusError(
                f"ports={self.ports}, but {self.name} does not read edges. Use ports=0 or one of: {readers}."
            )
        for option in self.options:
            if option not in options_of(layer):
                raise unknown(f"option of {self.name}", option, options_of(layer))
        return self


def options_of(layer: type[Layer]) -> list[str]:
    """The options a layer takes: its keyword-only arguments."""
    parameters = inspect.signature(layer).parameters.values()
    return [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]


MODELS: dict[str, ModelConfig] = {
    **{name: ModelConfig(name=name) for name in LAYERS},
    "multi-pna": ModelConfig(name="pna", layers=6, dropout=0.1, norm="batch", directed=True, ports=32, ego=True),
}


def register(name: str, layer: type[Layer]) -> None:
    """Make a layer of one's own available as a model under ``name``, as if it had come with the package."""
    if name in MODELS:
        raise IsthmusError(f"There is a model called '{name}' already; choose another name.")
    LAYERS[name] = layer
    MODELS[name] = ModelConfig(name=name)


class GNN(nn.Module):
    """embed -> (convolve -> normalise -> ReLU -> dropout) for each layer -> readout.

    ``batch`` is the number of seeds in a batch, the size of the ego table.
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
        self.layers = nn.ModuleList(self._layer(layer, place) for place in range(config.layers))
        self.norms = nn.ModuleList(norm(hidden) for _ in range(config.layers - (not config.head)))
        self.head = Linear(hidden, labels) if config.head and schema.target == "node" else None
        self.edge_head = _EdgeHead(schema, hidden) if schema.target == "edge" else None

    def _layer(self, layer: type[Layer], place: int) -> nn.Module:
        config = self.config
        last = place == config.layers - 1 and not config.head
        inputs = self.schema.features if place == 0 and not config.embed else config.hidden
        outputs = len(self.schema.labels) if last else config.hidden
        # A bias before a centring norm has gradient 0 but for rounding, which Adam would blow up to full
        # steps.
        bias = last or not NORMS[config.norm].centres
        edge = self.encoder.width if self.encoder is not None else 0
        options = {**(layer.final if last else {}), **config.options}
        if config.directed:
            return Directed(layer, inputs, outputs, edge, bias, **options)
        return layer(inputs, outputs, edge, bias, **options)

    def reset(self, seed: int) -> None:
        """Start from parameters that follow from the seed alone, on any device, in any process."""
        reset(self, seed)

    def set_degree(self, inward: Tensor, outward: Tensor | None = None) -> None:
        """Tell the layers each silo's mean of log(degree + 1): [silos], for incoming and outgoing edges."""
        for layer in self.layers:
            assert isinstance(layer, Layer | Directed)
            layer.set_degree(inward, outward)

    def embed(self, x: Features, rows: Rows, ego: Tensor | None = None) -> Features:
        """The input of the first layer: W x + b, plus the ego slot; the raw features without an embedding."""
        if self.enter is None:
            return x
        h: Tensor = self.enter(x, rows)
        return h if self.ego is None else self.ego(h, ego, rows)

    def encode(self, block: Block) -> Encoding | None:
        """Encodings of the edges; None where there are none or the layers do not read them."""
        return None if self.encoder is None else self.encoder(block)

    def convolve(self, place: int, h: Features, block: Block, beyond: State | None = None) -> Tensor:
        """One layer: source rows to target rows, before normalisation."""
        layer = self.layers[place]
        if not isinstance(layer, Directed):
            out: Tensor = layer(h, block, self.encode(block), beyond)
            return out
        if beyond is not None:
            raise IsthmusError("A directed model has two aggregates at each node; exchange rows instead.")
        both: Tensor = layer(h, block, self.encode(both_sides(block)))
        return both

    def finish(self, place: int, pre: Tensor, rows: Rows, this_pass: Pass) -> Tensor:
        """Normalisation, ReLU and dropout; nothing after a last layer that yields the logits."""
        if place >= len(self.norms):
            return pre
        norm = self.norms[place]
        assert isinstance(norm, Norm)
        return activate(norm, pre, rows, self.config.dropout, place, this_pass)

    def readout(self, h: Tensor, rows: Rows) -> Tensor:
        """Logits of nodes: [n, labels]."""
        return h if self.head is None else self.head(h, rows)

    def readout_edges(self, source: Tensor, target: Tensor, attr: Tensor | None, rows: Rows) -> Tensor:
        """Logits of edges [n, labels] from both ends [n, hidden] and the edge features."""
        if self.edge_head is None:
            raise IsthmusError(f"Labels lie on {self.schema.target}s: this model has no edge head.")
        out: Tensor = self.edge_head(source, target, attr, rows)
        return out


class _EdgeHead(nn.Module):
    """W_2 ReLU(W_1 [h_u, h_v, e_uv] + b_1) + b_2."""

    def __init__(self, schema: Schema, hidden: int) -> None:
        super().__init__()
        self.first = Linear(2 * hidden + schema.edge_features, hidden)
        self.second = Linear(hidden, len(schema.labels))

    def forward(self, source: Tensor, target: Tensor, attr: Tensor | None, rows: Rows) -> Tensor:
        """Logits of edges."""
        ends = torch.cat([source, target] if attr is None else [source, target, attr], 1)
        out: Tensor = self.second(self.first(ends, rows).relu(), rows)
        return out

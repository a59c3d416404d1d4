"""Graph neural networks, written for one graph: layers, normalisation, heads and models."""

from isthmus.nn.block import Block, Rows
from isthmus.nn.dense import Dense
from isthmus.nn.directed import Directed
from isthmus.nn.edge_updates import EdgeUpdate, EdgeUpdates
from isthmus.nn.edges import EdgeEncoder, Edges, Embedded, Encoding
from isthmus.nn.gat import GAT
from isthmus.nn.gcn import GCN
from isthmus.nn.gin import GIN
from isthmus.nn.layer import Layer
from isthmus.nn.linear import Linear, product
from isthmus.nn.model import GNN, LAYERS, MODELS, ModelConfig, register
from isthmus.nn.monoid import MAX, MEAN, MOMENTS, SUM, Aggregate, Message, Monoid, State
from isthmus.nn.norm import NORMS, BatchNorm, LayerNorm, Pass, dropout
from isthmus.nn.pna import PNA
from isthmus.nn.sage import SAGE
from isthmus.nn.sets import Stackable, per_row, reset, row_sums, stack_sets

__all__ = [
    "GAT", "GCN", "GIN", "GNN", "LAYERS", "MAX", "MEAN", "MODELS", "MOMENTS", "NORMS", "PNA", "SAGE",
    "SUM", "Aggregate", "BatchNorm", "Block", "Dense", "Directed", "EdgeEncoder", "EdgeUpdate",
    "EdgeUpdates", "Edges", "Embedded", "Encoding", "Layer", "LayerNorm", "Linear", "Message", "ModelConfig",
    "Monoid", "Pass", "Rows", "Stackable", "State", "dropout", "per_row", "product", "register", "reset",
    "row_sums", "stack_sets",
]  # fmt: skip

"""Isthmus: one graph neural network across graphs that cannot be merged."""

from isthmus.api import fit, from_pyg, split
from isthmus.core.errors import IsthmusError
from isthmus.data import load
from isthmus.graph.graph import Graph, Schema
from isthmus.graph.silo import Silo

__all__ = ["Graph", "IsthmusError", "Schema", "Silo", "fit", "from_pyg", "load", "split"]
__version__ = "0.1.0"

"""Isthmus: one graph neural network across graphs that cannot be merged."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from isthmus.core.errors import IsthmusError
from isthmus.core.version import VERSION as __version__

if TYPE_CHECKING:
    from isthmus.api import Predictions, fit, predict, save, split
    from isthmus.data import load
    from isthmus.data.pyg import from_pyg
    from isthmus.graph.graph import Graph, Schema
    from isthmus.graph.silo import Silo
    from isthmus.launch.trackers import tracker
    from isthmus.methods.catalogue import method
    from isthmus.methods.method import Method
    from isthmus.methods.parts import register_part
    from isthmus.methods.phase import Phase
    from isthmus.train.result import Result
    from isthmus.train.watcher import Watcher

_WHERE = {
    **dict.fromkeys(("Predictions", "fit", "predict", "save", "split"), "isthmus.api"),
    "from_pyg": "isthmus.data.pyg",
    "load": "isthmus.data",
    "Graph": "isthmus.graph.graph",
    "Schema": "isthmus.graph.graph",
    "Silo": "isthmus.graph.silo",
    "method": "isthmus.methods.catalogue",
    "Method": "isthmus.methods.method",
    "Phase": "isthmus.methods.phase",
    "register_part": "isthmus.methods.parts",
    "Result": "isthmus.train.result",
    "Watcher": "isthmus.train.watcher",
    "tracker": "isthmus.launch.trackers",
}


def __getattr__(name: str) -> Any:
    """Import what is asked for when it is asked for: a command that computes nothing need not wait for PyTorch."""
    if name not in _WHERE:
        raise AttributeError(f"module 'isthmus' has no attribute '{name}'")
    return getattr(import_module(_WHERE[name]), name)


__all__ = [
    "Graph", "IsthmusError", "Method", "Phase", "Predictions", "Result", "Schema", "Silo", "Watcher", "__version__",
    "fit", "from_pyg", "load", "method", "predict", "register_part", "save", "split", "tracker",
]  # fmt: skip

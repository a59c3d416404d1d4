"""The original files of Cora, CiteSeer and PubMed: Python pickles, of which only arrays and lists are read.

A pickle can name any function to be called while it is read. Here everything but what these files consist of is
refused by name, so that a folder of data cannot run code.
"""

from __future__ import annotations

import pickle
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.graph.features import SparseRows
from isthmus.graph.graph import TEST, TRAIN, UNUSED, VALID

PARTS = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
PUBLIC_VALID = 500  # nodes that validate in the public split, after the training nodes


@dataclass(frozen=True)
class Citations:
    """What the files of one graph hold; ``y`` is -1 for nodes without a label, ``split`` the public one."""

    x: SparseRows
    edges: np.ndarray  # [2, m]
    y: Tensor  # [n]
    split: Tensor  # [n] int8


class _Csr:
    """Takes the place of scipy's sparse matrix while a file is read: its fields, and no method of its own."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.data, self.indices, self.indptr = (np.asarray(state[name]) for name in ("data", "indices", "indptr"))
        self.shape = tuple(state["_shape"])


def _allowed() -> dict[tuple[str, str], Any]:
    again = np.empty(0).__reduce__()[0]  # numpy's own function, which has moved between its modules
    array = {("numpy", "ndarray"): np.ndarray, ("numpy", "dtype"): np.dtype}
    places = {(f"numpy.{core}.multiarray", "_reconstruct"): again for core in ("core", "_core")}
    sparse = {(f"scipy.sparse.{module}", "csr_matrix"): _Csr for module in ("csr", "_csr")}
    lists = {(module, "list"): list for module in ("__builtin__", "builtins")}
    return {**array, **places, **sparse, **lists, ("collections", "defaultdict"): defaultdict}


class _Unpickler(pickle.Unpickler):
    """Reads arrays, sparse matrices, lists and dictionaries; refuses any other name that a file calls for."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        super().__init__(file, encoding="latin1")
        self.path = path

    def find_class(self, module: str, name: str) -> Any:
        """The class that a file names, if it is one of the few that these files consist of."""
        found = _allowed().get((module, name))
        if found is None:
            raise IsthmusError(
                f"{self.path} asks for '{module}.{name}', which is no part of a graph and was not run; the file is not "
                "what it says it is: fetch it from its source."
            )
        return found


def read_citations(folder: Path, title: str) -> Citations:
    """The graph in the files ``ind.TITLE.*`` of a folder."""
    files = {part: folder / f"ind.{title}.{part}" for part in PARTS}
    read = {part: _load(path) for part, path in files.items() if part != "test.index"}
    asked = np.loadtxt(files["test.index"], dtype=np.int64).reshape(-1)
    first, last = int(asked.min()), int(asked.max())
    n = last + 1
    # CiteSeer's test nodes are numbered with gaps: nodes without words and label fill them.
    place = np.concatenate([np.arange(first), np.sort(asked)])
    order = np.arange(n)
    order[asked] = np.sort(asked)  # features and labels of test nodes stand in the order of their numbers
    at = np.full(n, -1)
    at[place] = np.arange(len(place))
    line = at[order]
    y = np.concatenate([read["ally"], read["ty"]]).argmax(1)[line]
    split = torch.full((n,), UNUSED, dtype=torch.int8)
    train = len(read["y"])
    split[:train], split[train : train + PUBLIC_VALID] = TRAIN, VALID
    split[asked] = TEST
    edges = [(source, target) for source, targets in read["graph"].items() for target in targets]
    return Citations(
        x=_rows(read["allx"], read["tx"], line),
        edges=np.array(edges, dtype=np.int64).T,
        y=torch.from_numpy(np.where(line >= 0, y, -1)),
        split=split,
    )


def _load(path: Path) -> Any:
    with open(path, "rb") as file:
        return _Unpickler(path, file).load()


def _rows(known: _Csr, asked: _Csr, line: np.ndarray) -> SparseRows:
    """Feature rows of all nodes; ``line`` [n] is where each stands in the two tables end to end, -1 nowhere."""
    from scipy.sparse import csr_matrix, vstack

    parts = [csr_matrix((part.data, part.indices, part.indptr), shape=part.shape) for part in (known, asked)]
    width = parts[0].shape[1]
    whole = vstack([*parts, csr_matrix((1, width))], format="csr")[line].astype(np.float32)  # -1 is the last, empty
    whole.sum_duplicates()
    whole.eliminate_zeros()
    ptr, index = (torch.from_numpy(each.astype(np.int64)) for each in (whole.indptr, whole.indices))
    return SparseRows(ptr, index, torch.from_numpy(whole.data), width)

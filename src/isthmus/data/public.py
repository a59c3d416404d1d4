"""Public benchmark graphs, read from their original files: Planetoid, Coauthor, Amazon, WordNet.

The data folder holds ``Planetoid/Cora/raw/ind.cora.x`` and so on, the layout that PyTorch Geometric writes. A missing
file is downloaded by PyTorch Geometric into the user's cache, where there is a network.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError, unknown
from isthmus.core.random import keys_of
from isthmus.data.missing import missing_data_set
from isthmus.data.planetoid import PARTS, read_citations
from isthmus.data.split import random_split
from isthmus.graph.features import SparseRows
from isthmus.graph.graph import Graph, Schema


@dataclass(frozen=True)
class Raw:
    """The original files of a data set, in the folder ``group/title/raw``; both are PyTorch Geometric's names."""

    group: str
    title: str
    files: tuple[str, ...]
    downloads: bool = True


def _planetoid_raw(title: str) -> Raw:
    return Raw("Planetoid", title, tuple(f"ind.{title.lower()}.{part}" for part in PARTS))


RAW = {
    "cora": _planetoid_raw("Cora"),
    "citeseer": _planetoid_raw("CiteSeer"),
    "pubmed": _planetoid_raw("PubMed"),
    "coauthor-cs": Raw("Coauthor", "CS", ("ms_academic_cs.npz",)),
    "amazon-photo": Raw("Amazon", "Photo", ("amazon_electronics_photo.npz",)),
    "wordnet": Raw("WordNet", "", ("wordnet30.npz",), downloads=False),
}


def planetoid(name: str, folder: str | None = None, seed: int = 0, masks: str = "public") -> Graph:
    """The graph of Cora, CiteSeer or PubMed.

    ``masks`` says which nodes serve training, validation and test: the ``public`` choice (20 training nodes
    a class) or ``random`` (60/20/20).
    """
    if masks not in ("public", "random"):
        raise unknown("masks", masks, ("public", "random"))
    path = find_raw(name, folder)
    with _readable(path):
        found = read_citations(path, RAW[name].title.lower())
    classes = tuple(map(str, range(int(found.y.max()) + 1)))
    split = found.split if masks == "public" else None
    return _graph(name, found.x, found.edges, found.y, classes, split=split, seed=seed)


def npz(name: str, folder: str | None = None, seed: int = 0, masks: str = "random") -> Graph:
    """The graph of Coauthor CS, Amazon Photo or WordNet.

    ``masks`` can only be ``random`` (60/20/20), because there is no public choice of training nodes. A feature is 1
    where a word is present.
    """
    if masks != "random":
        raise unknown(f"masks of {name}", masks, ("random",))
    path = find_raw(name, folder) / RAW[name].files[0]
    with _readable(path), np.load(path) as file:
        words = {key: file[f"attr_{key}"] for key in ("data", "indices", "indptr", "shape")}
        source = np.repeat(np.arange(file["adj_shape"][0]), np.diff(file["adj_indptr"]))
        edges = np.stack([source, file["adj_indices"]])
        y = torch.from_numpy(file["labels"].astype(np.int64))
        classes = _class_names(file, int(y.max()) + 1)
    return _graph(name, _present(words), edges, y, classes, split=None, seed=seed)


def _class_names(file: np.lib.npyio.NpzFile, classes: int) -> tuple[str, ...]:
    try:
        return tuple(map(str, file["class_names"]))
    except ValueError:  # stored as Python objects, which are not loaded from a data file
        return tuple(map(str, range(classes)))


def _present(words: dict[str, np.ndarray]) -> SparseRows:
    """Feature rows with 1 for each positive entry; other entries are left out."""
    positive = words["data"] > 0
    ptr = np.concatenate([[0], np.cumsum(positive)])[words["indptr"]]
    index = torch.from_numpy(words["indices"][positive].astype(np.int64))
    return SparseRows(torch.from_numpy(ptr), index, torch.ones(len(index)), int(words["shape"][1]))


def _graph(
    name: str,
    x: SparseRows,
    edges: np.ndarray,
    y: Tensor,
    classes: tuple[str, ...],
    split: Tensor | None,
    seed: int,
) -> Graph:
    ids = np.arange(len(x))
    return Graph(
        ids=ids,
        x=x,
        edge_index=_undirected(edges, len(x)),
        schema=Schema(x.width, classes),
        y=y,
        split=random_split(keys_of(ids), seed, y >= 0) if split is None else split,
        name=name,
    ).check()


def _undirected(edges: np.ndarray, nodes: int) -> Tensor:
    """Each connected pair of nodes as two directed edges, without self-loops, sorted by source: [2, m]."""
    source, target = edges[:, edges[0] != edges[1]].astype(np.int64)
    code = np.unique(np.concatenate([source * nodes + target, target * nodes + source]))
    return torch.from_numpy(np.stack([code // nodes, code % nodes]))


def find_raw(name: str, folder: str | None = None) -> Path:
    """The folder of a data set's original files: in the data folder, in the cache, or after a download."""
    raw = RAW[name]
    cache = Path.home() / ".cache" / "isthmus"
    places = [Path(place) / raw.group / raw.title / "raw" for place in (folder, cache) if place]
    for place in places:
        if all((place / file).is_file() for file in raw.files):
            return place
    reason = _download(raw, cache) if raw.downloads else "it cannot be downloaded"
    if reason is None:
        return places[-1]
    raise missing_data_set(name, places[0] / raw.files[0], reason)


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Turn whatever fails while a file is read into an error that names the file."""
    try:
        yield
    except IsthmusError:
        raise
    except Exception as error:  # pickles and zip files fail in many ways
        raise IsthmusError(
            f"{path} cannot be read ({type(error).__name__}: {error}); it may be damaged: fetch it again."
        ) from error


def _download(raw: Raw, cache: Path) -> str | None:
    """Let PyTorch Geometric download the files into the cache; returns why it could not, None if it could."""
    import torch_geometric.datasets

    try:
        getattr(torch_geometric.datasets, raw.group)(root=str(cache / raw.group), name=raw.title)
    except Exception as error:  # no network, a proxy, a server's answer: each raises its own kind
        return f"the download failed ({type(error).__name__})"
    return None

import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.io import read_npz, read_planetoid_data

from isthmus.core.errors import IsthmusError
from isthmus.data import DATASETS, find, load
from isthmus.graph.features import SparseRows, rows_to_one
from isthmus.graph.graph import TEST, TRAIN, UNUSED, VALID
from isthmus.graph.partition import partition
from isthmus.graph.stats import split_statistics

# name: nodes, undirected edges, features, classes, as published
PUBLISHED = {
    "cora": (2708, 5278, 1433, 7),
    "citeseer": (3327, 4552, 3703, 6),
    "pubmed": (19717, 44324, 500, 3),
    "coauthor-cs": (18333, 81894, 6805, 15),
    "amazon-photo": (7650, 119081, 745, 8),
    "wordnet": (117659, 183789, 500, 45),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_counts_are_the_published_ones(name: str, data_folder: Path):
    graph = load(name, folder=str(data_folder))
    assert (graph.n, graph.m / 2, graph.schema.features, len(graph.schema.labels)) == PUBLISHED[name]
    source, target = graph.edge_index
    code = source * graph.n + target
    assert (code.diff() > 0).all() and (source != target).all()  # no duplicates, no self-loops
    assert torch.equal(code, (target * graph.n + source).sort().values)  # undirected
    assert isinstance(graph.x, SparseRows)
    rows = rows_to_one(graph.x)
    assert isinstance(rows, SparseRows) and bool((graph.x.value > 0).all())
    total = torch.zeros(graph.n).index_add_(0, rows.row, rows.value)
    assert torch.allclose(total, (rows.ptr.diff() > 0).float(), atol=1e-5)  # rows sum to 1, or are empty


def test_planetoid_as_pyg_reads_it(data_folder: Path):
    graph = load("citeseer", folder=str(data_folder))
    data = read_planetoid_data(str(data_folder / "Planetoid/CiteSeer/raw"), "citeseer")
    assert isinstance(graph.x, SparseRows) and torch.equal(graph.x.dense(), data.x)
    assert (graph.y == -1).sum() == 15 and torch.equal(graph.y[graph.y >= 0], data.y[graph.y >= 0])
    for part, mask in ((TRAIN, data.train_mask), (VALID, data.val_mask), (TEST, data.test_mask)):
        assert torch.equal(graph.split == part, mask)
    pairs = {tuple(edge) for edge in data.edge_index.T.tolist()}
    assert {tuple(edge) for edge in graph.edge_index.T.tolist()} == pairs


def test_npz_as_pyg_reads_it(data_folder: Path):
    graph = load("amazon-photo", folder=str(data_folder))
    data = read_npz(str(data_folder / "Amazon/Photo/raw/amazon_electronics_photo.npz"))
    assert isinstance(graph.x, SparseRows) and torch.equal(graph.x.dense(), data.x)
    assert torch.equal(graph.y, data.y) and torch.equal(graph.edge_index, data.edge_index)
    assert graph.schema.labels[0] == "Film Photography"


def test_npz_rows_are_binary_and_edges_simple(tmp_path: Path):
    raw = tmp_path / "WordNet" / "raw"
    raw.mkdir(parents=True)
    adjacency = {
        "adj_data": [1.0] * 4,
        "adj_indices": [1, 0, 1, 0],
        "adj_indptr": [0, 1, 3, 4],
        "adj_shape": [3, 3],
    }
    words = {
        "attr_data": [3.0, 0.0, 2.0],
        "attr_indices": [1, 0, 2],
        "attr_indptr": [0, 2, 2, 3],
        "attr_shape": [3, 4],
    }
    names = np.array(["x", "y"], dtype=object)  # not loaded: it would run code from the file
    np.savez(raw / "wordnet30.npz", labels=[1, 0, 1], class_names=names, **adjacency, **words)
    graph = load("wordnet", folder=str(tmp_path))
    assert isinstance(graph.x, SparseRows)
    assert graph.x.dense().tolist() == [[0, 1, 0, 0], [0, 0, 0, 0], [0, 0, 1, 0]]
    assert graph.edge_index.tolist() == [[0, 0, 1, 2], [1, 2, 0, 0]]
    assert graph.schema.labels == ("0", "1")


def test_random_masks(data_folder: Path):
    graph = load("citeseer", folder=str(data_folder), masks="random", seed=1)
    shares = np.bincount(graph.split.numpy()) / graph.n
    assert shares[1:] == pytest.approx([0.6, 0.2, 0.2], abs=0.03)
    assert torch.equal(graph.split == UNUSED, graph.y == -1)
    other = load("citeseer", folder=str(data_folder), masks="random", seed=2)
    assert not torch.equal(graph.split, other.split)


def test_louvain_splits_cora_as_published(data_folder: Path):
    """FedDEP's table of partition statistics, undirected: 496, 552 and 912 links cut at 3, 5 and 10 silos."""
    graph = load("cora", folder=str(data_folder))
    for silos, cut in ((3, 496), (5, 552), (10, 912)):
        stats = split_statistics(graph, partition(graph, "louvain", silos), silos)
        assert stats.cross_pairs == pytest.approx(cut, rel=0.2)
        sizes = [silo.nodes for silo in stats.silos]
        assert max(sizes) - min(sizes) <= 0.02 * graph.n / silos


@pytest.mark.parametrize(("name", "transfers", "fraud"), [("amlsim", 120_558, 1804), ("amlsim-fanin", 118_250, 954)])
def test_amlsim(name: str, transfers: int, fraud: int, data_folder: Path):
    graph = load(name, folder=str(data_folder))
    assert (graph.n, graph.m, int(graph.y.sum())) == (20_000, transfers, fraud)
    assert graph.schema.feature_names == ("log_balance",)  # the step of the fraud is no feature
    assert graph.x[0].item() == pytest.approx(np.log1p(184.44))
    assert (int(graph.edge_time.min()), int(graph.edge_time.max())) == (1, 149)
    assert graph.edge_attr.shape == (transfers, 1)
    assert np.array_equal(graph.columns["bank"], graph.ids % 10)


def test_the_folder_may_come_from_the_environment(data_folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ISTHMUS_DATA", str(data_folder))
    assert load("cora").name == "cora"


def test_what_is_missing_is_fetched_into_the_cache(data_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A stand-in for PyG's dataset class "downloads" the files to where PyG would put them."""

    def fetch(root: str, name: str) -> None:
        raw = Path(root, name, "raw")
        raw.mkdir(parents=True)
        for file in (data_folder / "Planetoid" / name / "raw").iterdir():
            (raw / file.name).symlink_to(file)

    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("torch_geometric.datasets.Planetoid", fetch)
    assert load("cora", folder=str(tmp_path / "none")).n == 2708
    monkeypatch.delattr("torch_geometric.datasets.Planetoid")  # from now on the cache must do
    assert load("cora", folder=str(tmp_path / "none")).n == 2708


def test_errors_say_where_it_looked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def offline(root: str, name: str) -> None:
        raise OSError("no network")

    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("torch_geometric.datasets.Coauthor", offline)
    for name, file in (
        ("coauthor-cs", "Coauthor/CS/raw/ms_academic_cs.npz"),
        ("wordnet", "WordNet/raw/wordnet30.npz"),
        ("amlsim", "AMLSim/20K_fanin200cycle200/nodes.csv"),
    ):
        for look in (load, find):
            with pytest.raises(IsthmusError, match="data.folder=DIR or the variable ISTHMUS_DATA") as caught:
                look(name, folder=str(tmp_path))
            assert str(tmp_path / file) in str(caught.value)


def test_what_is_here_is_found_without_being_read(tmp_path: Path):
    raw = tmp_path / "WordNet" / "raw"
    raw.mkdir(parents=True)
    (raw / "wordnet30.npz").write_bytes(b"not an archive")
    (tmp_path / "transfers.csv").write_text("")
    find("wordnet", folder=str(tmp_path), masks="random")
    find("aml", path=str(tmp_path / "transfers.csv"), valid_from=0.5)
    for name in (str(tmp_path / "transfers.csv"), str(tmp_path), "blocks", "interbank"):
        find(name)
    for name, says in (("/no/such/x.csv", "no file"), ("/no/such", "no folder"), ("coral", "Did you mean 'cora'")):
        with pytest.raises(IsthmusError, match=says):
            find(name)


class Shell:
    """What a crafted pickle would hold: a call that leaves a trace."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.trace),)


@pytest.mark.parametrize("part", ["x", "graph"])
def test_a_crafted_pickle_is_refused_by_name_and_not_run(tmp_path: Path, data_folder: Path, part: str):
    raw = tmp_path / "Planetoid" / "Cora" / "raw"
    raw.parent.mkdir(parents=True)
    shutil.copytree(data_folder / "Planetoid" / "Cora" / "raw", raw)
    (raw / f"ind.cora.{part}").chmod(0o600)
    (raw / f"ind.cora.{part}").write_bytes(pickle.dumps(Shell(tmp_path / "trace")))
    with pytest.raises(IsthmusError, match=rf"ind.cora.{part} asks for 'posix.mkdir'.*was not run"):
        load("cora", folder=str(tmp_path))
    assert not (tmp_path / "trace").exists()


def test_a_damaged_file_is_named(tmp_path: Path):
    raw = tmp_path / "WordNet" / "raw"
    raw.mkdir(parents=True)
    (raw / "wordnet30.npz").write_bytes(b"not an archive")
    with pytest.raises(IsthmusError, match="wordnet30.npz cannot be read"):
        load("wordnet", folder=str(tmp_path))


def test_unknown_names_and_options():
    with pytest.raises(IsthmusError, match="Unknown data set 'coral'. Did you mean 'cora'"):
        load("coral")
    with pytest.raises(IsthmusError, match="Unknown data option 'node'. Did you mean 'nodes'.*degree"):
        load("patterns", node=100)
    with pytest.raises(IsthmusError, match="Choose from: masks\\."):
        load("cora", name="citeseer")
    with pytest.raises(IsthmusError, match="Unknown masks 'full'"):
        load("cora", masks="full")
    with pytest.raises(IsthmusError, match="Unknown masks of wordnet 'public'"):
        load("wordnet", masks="public")


def test_the_registry_names_its_entries():
    assert all(name == entry.name and entry.summary and entry.source for name, entry in DATASETS.items())
    assert load("patterns", nodes=50, seed=3).n == 150
    assert load("blocks", nodes=100, degree=4.0).n == 100

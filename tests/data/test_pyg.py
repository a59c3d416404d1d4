"""PyG's ``Data`` as a graph: whole numbers are taken as they are, and nothing is cut to fit."""

from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData

import isthmus
from isthmus import from_pyg
from isthmus.core.errors import IsthmusError
from isthmus.graph.features import SparseRows
from isthmus.graph.graph import TEST, TRAIN, UNUSED, VALID

N, RING = 6, torch.tensor([[0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 0]])
SEVEN = RING[:, [0, 1, 2, 3, 4, 5, 0]]
LATE = np.arange(6, dtype=np.uint64) + np.uint64(2**63)  # as signed numbers they would be negative
EVEN = torch.arange(N) % 2 == 0


def data(**changes: Any) -> Data:
    fields = {"x": torch.randn(N, 3), "y": torch.tensor([0, 1, 2, 0, 1, -1]), "edge_index": RING}
    return Data(**{**fields, **changes})


def test_what_is_there_is_taken() -> None:
    graph = from_pyg(data(edge_attr=torch.arange(6.0), time=torch.arange(6), train_mask=EVEN, test_mask=~EVEN))
    assert graph.y is not None and graph.y.tolist() == [0, 1, 2, 0, 1, -1]
    assert graph.split is not None and graph.split.tolist() == [TRAIN, TEST] * 3
    assert graph.edge_attr is not None and graph.edge_attr.shape == (6, 1) and graph.schema.timed
    whole = from_pyg(data(y=torch.tensor([0.0, 1.0, 2.0, 0.0, 1.0, -1.0]), time=torch.arange(6.0)))
    assert whole.y is not None and whole.y.dtype == torch.int64 and whole.schema.labels == ("0", "1", "2")


def test_what_is_not_read_is_told_of() -> None:
    graph = from_pyg(data(edge_weight=torch.ones(6), pos=torch.zeros(N, 2)))
    assert graph.notes == ("Of the Data object nothing reads edge_weight, pos; edge_attr holds features of edges.",)
    assert from_pyg(data(num_nodes=N, val_mask=EVEN)).notes == ()


def test_a_mask_alone_is_not_overlooked() -> None:
    graph = from_pyg(data(val_mask=EVEN))
    assert graph.split is not None and graph.split.tolist() == [VALID, UNUSED] * 3


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "half a class": ({"y": torch.tensor([0, 1, 0.5, 0, 1, 1])}, r"y\[2\] is 0.5, which is no whole number \(1 such\)"),
    "a label that is not a number": ({"y": torch.tensor([0, 1, torch.nan, 0, 1, 1])}, r"y\[2\] is nan.*-1 for an unk"),
    "half a yes": ({"y": torch.tensor([[0.0, 1.0]] * 5 + [[0.5, 1.0]])}, r"y\[5, 0\] is 0.5"),
    "labels in a cube": ({"y": torch.zeros(6, 1, 1)}, r"y has the shape \[6, 1, 1\]"),
    "too few labels": ({"y": torch.zeros(5)}, r"y has the shape \[5\] for 6 nodes"),
    "indices for a mask": (
        {"train_mask": torch.tensor([0, 2, 4])},
        r"train_mask is torch.int64 \[3\]; give bool \[6\]",
    ),
    "a mask of 0 and 1": ({"train_mask": EVEN.long()}, r"train_mask is torch.int64 \[6\]"),
    "ten masks": ({"train_mask": EVEN[:, None].expand(6, 10)}, r"torch.bool \[6, 10\]; .*one column"),
    "a node that trains and tests": (
        {"train_mask": EVEN, "test_mask": EVEN},
        "3 nodes are in test_mask and in another",
    ),
    "a time that is not a number": ({"time": torch.tensor([0, torch.nan, 2, 3, 4, 5])}, r"time\[1\] is nan"),
    "half a second": ({"time": torch.arange(6) / 2}, r"time\[1\] is 0.5"),
    "times of something else": ({"time": torch.arange(4)}, r"time has the shape \[4\] for 6 edges"),
    "edge features of something else": ({"edge_attr": torch.ones(12)}, r"edge_attr has the shape \[12\] for 6 edges"),
    "a time beyond 64 bits": ({"time": torch.tensor(LATE)}, r"time has 9\.22.* does not fit into 64 bits"),
    "a time that no whole number holds": ({"time": torch.full((6,), 1e19)}, "time has .* does not fit into 64 bits"),
    "times of yes and no": ({"time": EVEN}, "time is torch.bool"),
    "edges of yes and no": ({"edge_index": RING > 2}, "edge_index is torch.bool"),
    "account numbers for classes": ({"y": 10**9 * torch.arange(6)}, "y has the class 5,000,000,000 among 6 nodes"),
    "complex features": ({"x": torch.ones(6, 2, dtype=torch.complex64)}, "x is torch.complex64"),
    "complex edge features": ({"edge_attr": torch.ones(6, dtype=torch.complex64)}, "edge_attr is torch.complex64"),
    "sparse labels": ({"y": torch.eye(6).to_sparse()}, r"y is sparse; give a dense tensor, like y.to_dense\(\)"),
    "a sparse vector for features": ({"x": torch.ones(6).to_sparse()}, r"x is sparse, of shape \[6\]"),
    "labels of edges as y": (
        {"y": torch.zeros(7), "edge_index": RING[:, [0, 1, 2, 3, 4, 5, 0]]},
        "go into data.edge_y",
    ),
    "labels of edges twice": ({"edge_y": torch.zeros(6), "edge_label": torch.zeros(6)}, "edge_y and edge_label; keep"),
    "half an edge's class": ({"edge_y": torch.ones(6) / 2}, r"edge_y\[0\] is 0.5"),
    "tasks of edges": ({"edge_y": torch.ones(6, 2)}, r"edge_y has the shape \[6, 2\]; give one class for each of 6"),
    "labels of drawn pairs": (
        {"edge_label": torch.ones(6), "edge_label_index": RING.flip(1)},
        "edge_label_index has other pairs than edge_index",
    ),
    "features of NumPy": ({"x": np.ones((6, 2))}, "x is ndarray; give a dense tensor"),
    "a list of labels": ({"y": [0, 1, 2, 0, 1, 2]}, "y is list"),
    "a mask that is a list": ({"train_mask": [True] * 6}, "train_mask is list"),
    "a list of edges": ({"edge_index": RING.T}, r"edge_index is \(6, 2\)"),
    "half a node": ({"edge_index": RING + 0.5}, r"edge_index\[0, 0\] is 0.5"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_would_be_cut_or_guessed_is_refused(case: str) -> None:
    changes, says = WRONG[case]
    with pytest.raises(IsthmusError, match=says):
        from_pyg(data(**changes))


def test_ids_and_other_objects() -> None:
    with pytest.raises(IsthmusError, match=r"ids are float64 \[6\]; give whole numbers or text"):
        from_pyg(data(), ids=[0.5, 1, 2, 3, 4, 5])
    with pytest.raises(IsthmusError, match=r"ids are int64 \[5\].*one for each of 6"):
        from_pyg(data(), ids=range(5))
    with pytest.raises(IsthmusError, match="ids has .* does not fit into 64 bits"):
        from_pyg(data(), ids=LATE)
    with pytest.raises(IsthmusError, match="labels has 'a' twice"):
        from_pyg(data(), labels=["a", "b", "a"])
    with pytest.raises(IsthmusError, match=r"not HeteroData.* data.to_homogeneous\(\), .*data.node_type_subgraph"):
        from_pyg(HeteroData())
    with pytest.raises(IsthmusError, match="target is 'edge', but .* data.edge_y"):
        from_pyg(data(), target="edge")
    with pytest.raises(IsthmusError, match="edgy"):
        from_pyg(data(), target="edgy")


def hetero() -> HeteroData:
    """Two types of nodes with equally many features."""
    made = HeteroData()
    for name in ("account", "bank"):
        made[name].x = torch.randn(3, 2)
    made["account", "held", "bank"].edge_index = torch.tensor([[0, 1, 2], [0, 0, 1]])
    made["account", "pays", "account"].edge_index = torch.tensor([[0, 1], [1, 2]])
    return made


def test_what_is_said_of_hetero_data_works() -> None:
    whole = from_pyg(hetero().to_homogeneous())
    assert (whole.n, whole.m) == (6, 5) and whole.notes[0].startswith("Of the Data object nothing reads edge_type")
    alone = from_pyg(hetero().node_type_subgraph(["account"]).to_homogeneous())
    assert (alone.n, alone.m) == (3, 2)


# ---- labels of edges


CLASSES = torch.tensor([0, 1, 1, 0, -1, 1])


@pytest.mark.parametrize("name", ["edge_y", "edge_label"])
def test_labels_of_edges_are_learnt(name: str) -> None:
    bare = {"y": None, "edge_label_index": RING} if name == "edge_label" else {"y": None}
    graph = from_pyg(data(**bare, **{name: CLASSES}), labels=["licit", "laundering"])
    assert graph.schema.target == "edge" and graph.schema.labels == ("licit", "laundering")
    assert graph.y is None and graph.edge_y is not None and graph.edge_y.tolist() == CLASSES.tolist()
    assert graph.edge_split is not None and graph.edge_split[4] == UNUSED and int((graph.edge_split > 0).sum()) == 5


def test_masks_are_those_of_what_is_learnt() -> None:
    late = torch.tensor([0, 0, 1, 1, 1, 1, 0], dtype=torch.bool)
    graph = from_pyg(data(y=None, edge_index=SEVEN, edge_y=late.long(), train_mask=~late, test_mask=late))
    assert graph.edge_split is not None and graph.edge_split.tolist() == [TRAIN, TRAIN, *[TEST] * 4, TRAIN]
    with pytest.raises(IsthmusError, match=r"give bool \[7\], an entry for each edge"):
        from_pyg(data(y=None, edge_index=SEVEN, edge_y=late.long(), train_mask=EVEN))


def test_labels_of_nodes_come_first_and_those_of_edges_are_told_of() -> None:
    graph = from_pyg(data(edge_y=CLASSES))
    assert graph.schema.target == "node" and graph.edge_y is None
    assert graph.notes[0].startswith("Nodes and edges have labels; 5 of edges are not used")
    assert from_pyg(data(edge_y=CLASSES), target="edge").schema.target == "edge"


def test_labels_of_edges_train() -> None:
    """An edge's class is whether its source has the larger feature: with the same draws as from tables."""
    torch.manual_seed(0)
    x, ends = torch.randn(60, 2), torch.randint(60, (2, 400))
    graph = from_pyg(Data(x=x, edge_index=ends, edge_y=(x[ends[0], 0] > x[ends[1], 0]).long()))
    silos = isthmus.split(graph, "random", 3)
    few = {"train.epochs": 40, "model.hidden": 16, "train.lr": 0.03}
    assert isthmus.fit(silos, "sync-sgd+fwd-bwd-le", settings=few).test.as_dict()["accuracy"] > 0.8


# ---- features of which few are not 0


def test_few_features_that_are_not_0_are_kept_sparse() -> None:
    words = (torch.rand(200, 50) < 0.03).float()
    kept = from_pyg(Data(x=words, edge_index=RING))
    assert isinstance(kept.x, SparseRows) and torch.equal(kept.x.dense(), words)
    assert isinstance(from_pyg(Data(x=words, edge_index=RING), sparse=False).x, torch.Tensor)
    for other in (torch.randn(200, 50), words[:, :8]):  # most are not 0; too narrow to gain
        assert isinstance(from_pyg(Data(x=other, edge_index=RING)).x, torch.Tensor)
        assert isinstance(from_pyg(Data(x=other, edge_index=RING), sparse=True).x, SparseRows)
    for layout in (words.to_sparse(), words.to_sparse_csr()):
        given = from_pyg(Data(x=layout, edge_index=RING)).x
        assert isinstance(given, SparseRows) and torch.equal(given.dense(), words)


def test_sparse_and_dense_features_train_alike() -> None:
    torch.manual_seed(1)
    words, ends = (torch.rand(60, 40) < 0.05).float(), torch.randint(60, (2, 300))
    made = Data(x=words, edge_index=ends, y=torch.arange(60) % 3)
    losses = []
    for sparse in (False, True):
        silos = isthmus.split(from_pyg(made, sparse=sparse), "random", 3)
        result = isthmus.fit(silos, dtype="float64", settings={"train.epochs": 3, "data.scale": "none"})
        losses.append([line["loss"] for line in result.history])
    assert losses[0] == pytest.approx(losses[1], rel=1e-10)

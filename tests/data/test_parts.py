"""Parts on disk: they are read as they were written, a host reads its own only, and training gives equal results."""

import shutil
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.data import patterns
from isthmus.data.members import is_parts, member_names
from isthmus.data.parts import read_part
from isthmus.data.write_parts import WIDE, write_parts
from isthmus.graph.cut import split_graph
from isthmus.graph.features import SparseRows
from isthmus.graph.graph import UNUSED, Graph
from isthmus.graph.silo import Silo
from tests.helpers.command import SMALL, history, losses, metrics, refuse, succeed
from tests.helpers.small import small_graph

pytestmark = pytest.mark.usefixtures("no_report")

THREE = torch.arange(12) % 3
TOLD = ["Node features", "Edge features", "Edge features (amount)", "NO BETTER THAN A CONSTANT"]
NO_SECOND = torch.where(THREE == 1, 0, THREE)  # silo 1 owns nothing


def sparse(graph: Graph) -> Graph:
    return replace(graph, x=SparseRows.from_dense(graph.x * (graph.x > 0.3)))


def wide(graph: Graph) -> Graph:
    x = torch.randn(graph.n, WIDE + 1)
    named = tuple(f"column {i}" for i in range(WIDE + 1))
    return replace(graph, x=x, schema=replace(graph.schema, features=WIDE + 1, feature_names=named))


def words(graph: Graph) -> Graph:
    return replace(graph, ids=np.array([f"näme-{i}" for i in range(graph.n)]))


def mixed(graph: Graph) -> Graph:
    """A graph with text ids, of which one silo sees only such that consist of digits."""
    ids = np.array([str(i) if i % 3 == 0 else f"n{i}" for i in range(graph.n)])
    ends = graph.edge_index[:, THREE[graph.edge_index[0]] == THREE[graph.edge_index[1]]]
    schema = replace(graph.schema, edge_features=0, timed=False)
    return Graph(ids, graph.x, ends, schema, graph.y, graph.split)


def unlabelled_silo(graph: Graph) -> Graph:
    assert graph.y is not None and graph.split is not None
    return replace(graph, y=graph.y.where(THREE != 1, -1), split=graph.split.where(THREE != 1, UNUSED))


def edge_labels(graph: Graph) -> Graph:
    return replace(small_graph(edge_task=True), y=None, split=None)


def some_edges_unlabelled(graph: Graph) -> Graph:
    graph = edge_labels(graph)
    assert graph.edge_y is not None and graph.edge_split is not None
    known = torch.arange(graph.m) % 4 > 0
    return replace(graph, edge_y=graph.edge_y.where(known, -1), edge_split=graph.edge_split.where(known, UNUSED))


def yes_or_no(graph: Graph) -> Graph:
    several = patterns(nodes=4, degree=2.0, seed=1)
    assert several.y is not None
    y = several.y.clone()
    y[0, 0] = -1
    return replace(several, y=y)


def bare(graph: Graph) -> Graph:
    schema = replace(graph.schema, edge_features=0, timed=False)
    return replace(graph, edge_attr=None, edge_time=None, schema=schema)


def isolated(graph: Graph) -> Graph:
    none = torch.zeros(2, 0, dtype=torch.int64)
    return replace(bare(graph), edge_index=none)


GRAPHS: list[Callable[[Graph], Graph]] = [
    lambda graph: graph, sparse, wide, words, mixed, unlabelled_silo, edge_labels, some_edges_unlabelled, yes_or_no,
    bare, isolated,
]  # fmt: skip


@pytest.mark.parametrize("owner", [THREE, NO_SECOND], ids=["three silos", "one empty"])
@pytest.mark.parametrize("change", GRAPHS, ids=lambda change: change.__name__)
def test_what_is_written_is_read_again(change: Callable[[Graph], Graph], owner: Tensor, tmp_path: Path) -> None:
    silos = split_graph(change(small_graph()), owner, 3, ["b", "a", "c"])
    write_parts(silos, tmp_path / "parts")
    assert is_parts(str(tmp_path / "parts"))
    names = member_names(tmp_path / "parts")
    assert names == ["b", "a", "c"]  # the order of the list, not of the alphabet
    again = [read_part(tmp_path / "parts", names, number) for number in range(3)]
    for silo, read in zip(silos, again, strict=True):
        assert_same_silo(silo, read)
    assert len({read.schema for read in again}) == 1


def assert_same_silo(a: Silo, b: Silo) -> None:
    for field in fields(Silo):
        x, y = getattr(a, field.name), getattr(b, field.name)
        if field.name == "schema":
            given = {k: v for k, v in vars(x).items() if v or not k.endswith("names")}  # columns get a name
            assert given == {k: getattr(y, k) for k in given}
        elif isinstance(x, np.ndarray):
            assert x.dtype.kind == y.dtype.kind or not len(x), field.name
            assert x.tolist() == y.tolist(), field.name
        elif isinstance(x, SparseRows):
            assert isinstance(y, SparseRows) and x.shape == y.shape
            assert all(torch.equal(getattr(x, part), getattr(y, part)) for part in ("ptr", "index", "value"))
        elif isinstance(x, Tensor):
            assert x.dtype == y.dtype and torch.equal(x, y), field.name
        else:
            assert x == y, field.name


def test_a_host_opens_its_own_folder_only(tmp_path: Path) -> None:
    silos = split_graph(small_graph(), THREE, 3)
    write_parts(silos, tmp_path)
    shutil.rmtree(tmp_path / "silo-0")
    for name in ("silo.toml", "nodes.parquet", "edges.parquet"):
        (tmp_path / "silo-2" / name).write_bytes(b"\xff garbage")
    assert_same_silo(silos[1], read_part(tmp_path, member_names(tmp_path), 1))
    for absent in (0, 2):
        with pytest.raises(IsthmusError, match=f"silo-{absent}"):
            read_part(tmp_path, member_names(tmp_path), absent)


def test_far_ends_without_a_column_of_owners_are_told(tmp_path: Path) -> None:
    names = [f"bank-{number}" for number in range(30)]
    (tmp_path / "bank-0").mkdir()
    (tmp_path / "bank-0" / "silo.toml").write_text('name = "bank-0"')
    (tmp_path / "bank-0" / "nodes.csv").write_text("id,x0\na,1\n")
    (tmp_path / "bank-0" / "edges.csv").write_text("source,target\na,b\n")
    with pytest.raises(IsthmusError, match="no column 'owner'.*bank-0, bank-1, bank-2 and 27 others"):
        read_part(tmp_path, names, 0)


def test_a_feature_must_not_hide_a_column_of_the_format(tmp_path: Path) -> None:
    graph = small_graph()
    graph = replace(graph, schema=replace(graph.schema, edge_feature_names=("amount", "owner")))
    with pytest.raises(IsthmusError, match="'owner'.*rename"):
        write_parts(split_graph(graph, THREE, 3), tmp_path / "parts")
    assert list(tmp_path.iterdir()) == []


# Training on parts


def split_like(parts: Path, *options: str) -> None:
    data = [x for x in SMALL if str(x).startswith("data.")]
    sets = [word for x in data for word in ("--set", str(x))]
    succeed("split", "blocks", "--silos", 3, *sets, *options, "--out", parts)


def on_parts(parts: Path) -> list[Any]:
    return ["run", "--data", parts, "--epochs", 4, "--set", "model.hidden=8"]


@pytest.mark.parametrize("method", ["fedavg", "sync-sgd"])
@pytest.mark.parametrize("split", ["louvain", "label:0.3"])
def test_parts_train_like_the_split_that_made_them(method: str, split: str, tmp_path: Path) -> None:
    options = ("--method", method, "--set", "train.batch=16", "--set", "train.fanout=3")
    split_like(tmp_path / "parts", "--split", split)
    succeed(*on_parts(tmp_path / "parts"), *options, "--out", tmp_path / "a")
    succeed(*SMALL, "--split", split, *options, "--out", tmp_path / "b")
    for name in ("metrics.jsonl", "model.safetensors"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert metrics(tmp_path / "a")["silos"] == 3


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-6), ("float64", 1e-10)])
def test_centralised_on_parts_is_centralised_on_the_whole(dtype: str, tolerance: float, tmp_path: Path) -> None:
    options = ("--method", "centralised", "--dtype", dtype)
    split_like(tmp_path / "parts")
    succeed(*on_parts(tmp_path / "parts"), *options, "--out", tmp_path / "parts-run")
    succeed(*SMALL, *options, "--silos", 1, "--out", tmp_path / "whole")
    assert losses(tmp_path / "parts-run") == pytest.approx(losses(tmp_path / "whole"), rel=tolerance)
    assert metrics(tmp_path / "parts-run")["silos"] == 1


def test_parts_of_patterns_train_like_the_patterns(tmp_path: Path) -> None:
    """Pattern graphs have several yes/no labels, times, ports and both directions."""
    graph, train = ("--set", "data.nodes=40"), ("--set", "model.layers=2", "--set", "model.hidden=8")
    train += ("--set", "train.batch=16", "--set", "train.fanout=3", "--epochs", "2", "--method", "sync-sgd")
    train += ("--model", "multi-pna", "--set", "train.lr=0.001")
    succeed("split", "patterns", "--silos", 2, *graph, "--out", tmp_path / "parts")
    succeed("run", "--data", tmp_path / "parts", *train, "--out", tmp_path / "a")
    succeed("run", "--data", "patterns", "--silos", 2, *graph, *train, "--out", tmp_path / "b")
    assert (tmp_path / "a" / "metrics.jsonl").read_bytes() == (tmp_path / "b" / "metrics.jsonl").read_bytes()


# Parts by hand

NODES = {
    "bank-a": "id,label,split,age\na1,honest,train,3\na2,fraud,train,4\na3,honest,valid,5\na4,fraud,test,1\n",
    "bank-b": "id,label,split,age\nb7,honest,train,1\nb9,mule,train,9\nb8,mule,test,2\nb5,honest,valid,2\n",
}
EDGES = {
    "bank-a": "source,target,owner,amount\na1,a2,,10.0\na2,b7,bank-b,99.5\na3,a4,,1\n",
    "bank-b": "source,target,owner,amount\na2,b7,bank-a,99.5\nb7,b9,,3.0\nb8,b5,,1\n",
}


def by_hand(root: Path, listed: bool = True, **changed: dict[str, str]) -> Path:
    nodes, edges = NODES | changed.get("nodes", {}), EDGES | changed.get("edges", {})
    for name in nodes:
        (root / name).mkdir(parents=True)
        (root / name / "nodes.csv").write_text(nodes[name])
        (root / name / "edges.csv").write_text(edges[name])
        (root / name / "silo.toml").write_text(changed.get("toml", {}).get(name, f'name = "{name}"\n'))
    if listed:
        (root / "federation.toml").write_text(f"silos = {list(nodes)}\n")
    return root


@pytest.mark.parametrize("listed", [True, False])
def test_parts_that_somebody_wrote_by_hand(listed: bool, tmp_path: Path) -> None:
    root = by_hand(tmp_path / "parts", listed)
    a, b = (read_part(root, member_names(root), number) for number in range(2))
    assert (a.ids.tolist(), a.halo_ids.tolist(), a.halo_owner.tolist()) == (["a1", "a2", "a3", "a4"], ["b7"], [1])
    assert (b.ids.tolist(), b.halo_ids.tolist(), b.halo_owner.tolist()) == (["b7", "b9", "b8", "b5"], ["a2"], [0])
    assert a.edge_index.tolist() == [[0, 1, 2], [1, 4, 3]]
    assert (a.schema.feature_names, a.schema.edge_feature_names) == (("age",), ("amount",))
    succeed(*on_parts(root), "--out", tmp_path / "run")
    found = metrics(tmp_path / "run")
    assert found["labels"] == ["fraud", "honest", "mule"]  # the union of both
    others = [note.split(":")[0] for note in found["notes"] if "told by name" not in note]
    assert others in (TOLD, TOLD[:3]) and len(others) == len(found["notes"]) - 2  # rare labels of both parts
    assert found["silo_nodes"] == {
        "bank-a": {"nodes": 4, "halo": 1, "train": 2, "table_bytes": 0},
        "bank-b": {"nodes": 4, "halo": 1, "train": 2, "table_bytes": 0},
    }


def test_what_training_does_not_use_of_a_part_is_told(tmp_path: Path) -> None:
    nodes = {"bank-a": "id,label,split,age,city\na1,honest,train,1,Bonn\na2,fraud,train,2,Rome\n"}
    edges = {"bank-a": "source,target,owner,amount\na1,a2,,10.0\na2,b7,bank-b,98\n"}
    root = by_hand(tmp_path / "parts", nodes=nodes, edges=edges)
    for method in ("fedavg", "centralised"):
        succeed(*on_parts(root), "--method", method, "--out", tmp_path / method)
        told = metrics(tmp_path / method)["notes"]
        assert f"{root}/bank-a/nodes.csv: column 'city' is no feature: it has 2 different words in 2 rows." in told
        [differs] = [note for note in told if note.startswith("1 cross edges")]
        assert "a2 -> b7: 98 in bank-a, 99.5 in bank-b" in differs
    named = {"bank-a": 'name = "bank-a"\n[schema]\nattributes = ["city"]\nlabels = ["fraud", "honest"]\n'}
    assert (
        read_part(by_hand(tmp_path / "named", nodes=nodes, edges=edges, toml=named), ["bank-a", "bank-b"], 0).notes
        == ()
    )


def test_a_class_that_two_silos_spell_in_two_ways_is_named(tmp_path: Path) -> None:
    nodes = {"bank-b": NODES["bank-b"].replace("honest", "Honest ")}
    root = by_hand(tmp_path / "parts", nodes=nodes)
    says = "spell a label in two ways: bank-a has 'honest', bank-b has 'Honest '"
    refuse(*on_parts(root), "--out", tmp_path / "run", says=[says])
    both = '[schema]\nlabels = ["fraud", "honest", "Honest ", "mule"]\n'
    declared = by_hand(tmp_path / "declared", nodes=nodes, toml={name: f'name = "{name}"\n{both}' for name in NODES})
    succeed(*on_parts(declared), "--out", tmp_path / "run")


def test_what_was_found_to_say_of_a_graph_stays_with_its_parts(tmp_path: Path) -> None:
    graph = replace(small_graph(), notes=("Half of the columns are empty.",))
    write_parts(split_graph(graph, THREE, 3), tmp_path / "parts")
    assert read_part(tmp_path / "parts", member_names(tmp_path / "parts"), 1).notes == graph.notes


def test_labels_of_parts_keep_their_names_when_merged(tmp_path: Path) -> None:
    """Both silos number their classes on their own: honest is 1 in bank-a and 0 in bank-b."""
    nodes = {name: text.replace("train", "test").replace("test", "train", 1) for name, text in NODES.items()}
    root = by_hand(tmp_path / "parts", nodes=nodes)
    whole = tmp_path / "whole"
    whole.mkdir()
    rows = [line for text in nodes.values() for line in text.splitlines()[1:]]
    (whole / "nodes.csv").write_text("\n".join(["id,label,split,age", *rows]))
    (whole / "edges.csv").write_text("source,target,amount\na1,a2,10\na3,a4,1\na2,b7,99.5\nb7,b9,3\nb8,b5,1\n")
    options = ("--method", "centralised", "--dtype", "float64", "--out")
    succeed(*on_parts(root), *options, tmp_path / "a")
    succeed("run", "--data", whole, "--silos", 1, "--epochs", 4, "--set", "model.hidden=8", *options, tmp_path / "b")
    assert losses(tmp_path / "a") == pytest.approx(losses(tmp_path / "b"), rel=1e-10)
    a, b = metrics(tmp_path / "a"), metrics(tmp_path / "b")
    assert (a["labels"], a["test_pooled"]) == (b["labels"], b["test_pooled"])


def test_a_silo_without_labels_or_without_nodes_takes_part(tmp_path: Path) -> None:
    nodes = {
        "bank-b": "id,age\nb7,1\nb9,9\n",
        "bank-c": "id,label,split,age\n",
    }
    edges = {"bank-b": "source,target,owner,amount\na2,b7,bank-a,99.5\n", "bank-c": "source,target,owner,amount\n"}
    root = by_hand(tmp_path / "parts", nodes=nodes, edges=edges)
    for method in ("fedavg", "local", "centralised"):
        succeed(*on_parts(root), "--method", method, "--out", tmp_path / method)
    for method in ("fedavg", "local"):
        notes = " ".join(metrics(tmp_path / method)["notes"])
        assert "bank-c owns no nodes" in notes
        assert "bank-b, bank-c have no labelled train nodes" in notes
    assert len(history(tmp_path / "fedavg")) == 8


def test_edge_labels_by_hand_and_a_silo_that_has_none(tmp_path: Path) -> None:
    edges = {
        "bank-a": "source,target,owner,label,split\na1,a2,,ok,train\na2,b7,bank-b,bad,train\na3,a4,,ok,valid\n",
        "bank-b": "source,target,owner\na2,b7,bank-a\nb7,b9,\n",
    }
    nodes = {"bank-a": "id,age\na1,1\na2,2\na3,3\na4,4\n", "bank-b": "id,age\nb7,1\nb9,9\n"}
    toml = {"bank-b": 'name = "bank-b"\n[schema]\ntarget = "edge"\n'}
    root = by_hand(tmp_path / "parts", nodes=nodes, edges=edges, toml=toml)
    b = read_part(root, member_names(root), 1)
    assert b.schema.target == "edge" and b.edge_y is not None and b.edge_y.tolist() == [-1, -1]
    succeed(*on_parts(root), "--out", tmp_path / "run")
    assert metrics(tmp_path / "run")["schema"]["target"] == "edge"


def test_edges_that_one_side_does_not_list_are_told(tmp_path: Path) -> None:
    root = by_hand(tmp_path / "parts", edges={"bank-b": "source,target,owner,amount\nb7,b9,,3.0\n"})
    said = succeed(*on_parts(root), "--out", tmp_path / "run").out
    note = "bank-a lists 1 edges that bank-b does not list, e.g. a2 -> b7. They take no part."
    assert note in metrics(tmp_path / "run")["notes"]
    assert note in said.replace("\n", " ").replace("  ", " ")


def test_parts_are_split_already(tmp_path: Path) -> None:
    root = by_hand(tmp_path / "parts")
    refuse(*on_parts(root), "--silos", 5, "--out", tmp_path / "run", says=["2 silos", "--silos"])
    refuse(*on_parts(root), "--split", "random", "--out", tmp_path / "run", says=["split already"])
    refuse(*on_parts(root), "--set", "data.nodes=5", "--out", tmp_path / "run", says=["data.nodes"])
    assert not (tmp_path / "run").exists()
    succeed(*on_parts(root), "--silos", 2, "--out", tmp_path / "run")


# Parts that are wrong


def refused(root: Path, *says: str, method: str = "fedavg", options: tuple[str, ...] = ()) -> None:
    out = root.with_name("refused")
    refuse(*on_parts(root), "--method", method, *options, "--out", out, says=says)
    assert not out.exists()


LONG = 2**53 + 1
UNREADABLE: dict[str, tuple[str, str, pa.Array]] = {
    f"{LONG} has more digits": ("nodes", "age", pa.array([LONG, 1, 2, 3])),
    "is no word": ("nodes", "label", pa.array([["honest"], [], [], []])),
    "(binary) is no word": ("nodes", "label", pa.array([b"\xff", b"a", b"a", b"a"])),
    "does not fit into 64 bits": ("edges", "time", pa.array([2**63, 1, 2], pa.uint64())),
}


@pytest.mark.parametrize("says", UNREADABLE)
def test_values_that_no_array_holds_leave_no_folder(says: str, tmp_path: Path) -> None:
    root = by_hand(tmp_path / "parts")
    stem, column, values = UNREADABLE[says]
    table = pa_csv.read_csv(root / "bank-a" / f"{stem}.csv")
    (root / "bank-a" / f"{stem}.csv").unlink()
    kept = table.drop_columns([column]) if column in table.column_names else table
    pq.write_table(kept.append_column(column, values), root / "bank-a" / f"{stem}.parquet")
    refused(root, f"bank-a/{stem}.parquet, column '{column}', row 1", says)


WRONG: dict[str, tuple[dict[str, dict[str, str]], list[str]]] = {
    "an edge to a node that its owner does not have": (
        {"edges": {"bank-a": "source,target,owner,amount\na2,b77,bank-b,99.5\n"}},
        ["bank-a", "b77", "bank-b", "does not own"],
    ),
    "an edge of strangers": (
        {"edges": {"bank-a": "source,target,owner,amount\nb9,b7,bank-b,99.5\n"}},
        ["edges.csv", "row 1", "neither end"],
    ),
    "an unknown owner": (
        {"edges": {"bank-a": "source,target,owner,amount\na1,a2,,1\na2,b7,bank-x,99.5\n"}},
        ["edges.csv", "row 2", "'bank-x'", "bank-a, bank-b"],
    ),
    "a far end without an owner": (
        {"edges": {"bank-a": "source,target,owner,amount\na2,b7,,99.5\n"}},
        ["edges.csv", "row 1", "owner", "bank-a, bank-b"],
    ),
    "an owner for an inner edge": (
        {"edges": {"bank-a": "source,target,owner,amount\na1,a2,bank-b,99.5\n"}},
        ["edges.csv", "row 1", "leave it empty"],
    ),
    "this silo as the owner of a node that it does not have": (
        {"edges": {"bank-a": "source,target,owner,amount\na1,a9,bank-a,99.5\n"}},
        ["edges.csv", "row 1", "no such node"],
    ),
    "two owners of one node": (
        {"nodes": {"bank-b": NODES["bank-b"] + "a1,honest,train,3\n"}},
        ["1 nodes have two owners", "'a1'", "bank-a and bank-b"],
    ),
    "one node twice": (
        {"nodes": {"bank-b": NODES["bank-b"] + "b7,honest,train,3\n"}},
        ["bank-b", "'b7' appears in rows 1 and 5"],
    ),
    "other feature columns": (
        {"nodes": {"bank-b": NODES["bank-b"].replace("age", "height")}},
        ["feature names", 'bank-a has ["age"]', 'bank-b has ["height"]'],
    ),
    "fewer edge features": (
        {"edges": {"bank-b": "source,target,owner\na2,b7,bank-a\nb7,b9,\n"}},
        ["edge features", "bank-a has 1", "bank-b has 0"],
    ),
    "whole numbers against text": (
        {
            "nodes": {"bank-b": "id,label,split,age\n7,honest,train,1\n9,mule,train,9\n"},
            "edges": {"bank-a": "source,target,owner,amount\na1,a2,,1\n", "bank-b": "source,target,owner,amount\n"},
        },
        ["ids", 'bank-a has "text"', 'bank-b has "integer"'],
    ),
    "an infinite edge feature": (
        {"edges": {"bank-b": "source,target,owner,amount\na2,b7,bank-a,99.5\nb7,b9,,inf\n"}},
        ["edges.csv", "'amount'", "row 2", "inf"],
    ),
    "a label that was not declared": (
        {"toml": {"bank-b": 'name = "bank-b"\n[schema]\nlabels = ["honest", "fraud"]\n'}},
        ["'mule'", "honest, fraud", "silo.toml"],
    ),
    "an unknown key in the schema": (
        {"toml": {"bank-b": 'name = "bank-b"\n[schema]\nlabel = ["honest"]\n'}},
        ["silo.toml", "'label'", "'labels'"],
    ),
    "an unknown target": (
        {"toml": {"bank-b": 'name = "bank-b"\n[schema]\ntarget = "edges"\n'}},
        ["silo.toml", "'edges'", "edge, node"],
    ),
    "a schema that is no table": ({"toml": {"bank-b": 'schema = "node"\n'}}, ["silo.toml", "[schema]"]),
    "silo.toml of somebody else": ({"toml": {"bank-b": 'name = "bank-c"\n'}}, ["'bank-c'", "'bank-b'"]),
    "silo.toml that is no TOML": ({"toml": {"bank-b": "name = bank-b\n"}}, ["bank-b/silo.toml", "not valid TOML"]),
    "a cell that is no number": (
        {"nodes": {"bank-b": NODES["bank-b"].replace(",9\n", ",nine\n")}},
        ["bank-b/nodes.csv, column 'age', row 2", "'nine' is not a number, while 3 of 4", "attributes", "silo.toml"],
    ),
    "a label that reads like a missing one": (
        {"nodes": {"bank-b": NODES["bank-b"].replace("mule", "NA")}},
        ["bank-b/nodes.csv, column 'label', row 2", "'NA' reads like a missing value"],
    ),
    "fewer features than declared": (
        {"toml": {"bank-b": 'name = "bank-b"\n[schema]\nfeatures = 3\n'}},
        ["bank-b/silo.toml declares features = 3", "nodes.csv has 1 (age)"],
    ),
    "features by another name": (
        {"toml": {"bank-b": 'name = "bank-b"\n[schema]\nfeature_names = ["height"]\n'}},
        ["silo.toml declares the feature 'height'", "has 'age'"],
    ),
    "features that do not count up": (
        {"toml": {"bank-b": 'name = "bank-b"\n[schema]\nfeatures = 2\nfeature_names = ["age"]\n'}},
        ["silo.toml declares features = 2 and 1 feature_names"],
    ),
    "whole numbers that are declared and not there": (
        {"toml": {"bank-b": 'name = "bank-b"\n[schema]\nids = "integer"\n'}},
        ["bank-b/nodes.csv, column 'id', row 1", "'b7' is no whole number", "silo.toml declares integer ids"],
    ),
    "tasks without names": (
        {"toml": {"bank-b": 'name = "bank-b"\n[schema]\ntask = "tasks"\n'}},
        ['silo.toml declares task = "tasks" without labels'],
    ),
    "tasks in a part with classes": (
        {"toml": {"bank-b": 'name = "bank-b"\n[schema]\ntask = "tasks"\nlabels = ["age"]\n'}},
        ["bank-b/nodes.csv has a column 'label'", 'task = "tasks"'],
    ),
    "a yes/no label in a part with classes": (
        {"nodes": {"bank-b": NODES["bank-b"].replace("age", "label:age")}},
        ["bank-b/nodes.csv, column 'label:age'", "would be a feature"],
    ),
    "labels of nodes where edges are declared": (
        {"toml": {"bank-b": 'name = "bank-b"\n[schema]\ntarget = "edge"\n'}},
        ['silo.toml declares target = "edge"', "only the nodes of the part have labels"],
    ),
    "an unknown split": (
        {"nodes": {"bank-b": NODES["bank-b"].replace("valid", "validate")}},
        ["nodes.csv", "'validate'", "train, valid, test"],
    ),
    "no labels anywhere": (
        {"nodes": {"bank-a": "id,age\na1,1\na2,2\na3,1\na4,1\n", "bank-b": "id,age\nb7,1\nb9,2\nb8,2\nb5,1\n"}},
        ["No silo has a label"],
    ),
    "no training nodes anywhere": (
        {"nodes": {name: text.replace("train", "test") for name, text in NODES.items()}},
        ["No silo has a labelled training node"],
    ),
}


@pytest.mark.parametrize("method", ["fedavg", "centralised"])
@pytest.mark.parametrize("case", WRONG)
def test_wrong_parts_are_refused_before_training(case: str, method: str, tmp_path: Path) -> None:
    changed, says = WRONG[case]
    options: tuple[str, ...] = ()
    if case == "an edge to a node that its owner does not have":
        says = ["bank-a", "b77", "no silo owns"] if method == "centralised" else says
        options = ("--set", "data.edges=claimed")  # edges that only one side lists take no part otherwise
    refused(by_hand(tmp_path / "parts", **changed), *says, method=method, options=options)


def test_a_missing_or_damaged_part(tmp_path: Path) -> None:
    root = by_hand(tmp_path / "parts")
    (root / "federation.toml").write_text('silos = ["bank-a", "bank-b", "bank-a"]')
    refused(root, "Two silos are called 'bank-a'")
    (root / "federation.toml").write_text("silos = 2")
    refused(root, "federation.toml", "by name")
    (root / "federation.toml").write_text('silos = ["bank-a", "bank-b"]')
    (root / "bank-b" / "edges.csv").unlink()
    refused(root, "bank-b", "edges.parquet", "edges.csv", "neither")
    (root / "bank-b" / "edges.parquet").write_bytes(b"PAR1 not really PAR1")
    refused(root, "edges.parquet", "cannot be read")
    shutil.rmtree(root / "bank-b")
    refused(root, "'bank-b'", "put that silo's part there")


def rewrite(path: Path, change: Callable[[dict[str, list[Any]]], None]) -> None:
    columns = pq.read_table(path).to_pydict()
    change(columns)
    pq.write_table(pa.table(columns), path)


@pytest.mark.parametrize(
    ("column", "value", "says"),
    [
        ("x_value", [float("nan")], "NaN or infinite"),
        ("x_value", [1.0, 2.0], "2 values for 1 columns"),
        ("x_index", [5], "outside 0..4"),
        ("x_index", [-1], "outside 0..4"),
    ],
)
def test_damaged_sparse_features(column: str, value: list[float], says: str, tmp_path: Path) -> None:
    graph = replace(small_graph(), x=SparseRows.from_dense(torch.eye(5)[torch.arange(12) % 5]))
    write_parts(split_graph(graph, THREE, 3), tmp_path / "parts")
    rewrite(tmp_path / "parts" / "silo-1" / "nodes.parquet", lambda columns: columns[column].__setitem__(2, value))
    refused(tmp_path / "parts", "silo-1/nodes.parquet", column, "row 3", says)


def test_a_yes_or_no_label_that_is_neither(tmp_path: Path) -> None:
    write_parts(split_graph(yes_or_no(small_graph()), THREE, 3), tmp_path / "parts")
    nodes = tmp_path / "parts" / "silo-2" / "nodes.parquet"
    rewrite(nodes, lambda columns: columns["label:C3"].__setitem__(1, 2))
    refused(tmp_path / "parts", "silo-2/nodes.parquet", "'label:C3'", "row 2", "the label 2")
    rewrite(nodes, lambda columns: columns["label:C3"].__setitem__(1, None))  # a gap is an unknown label
    read = read_part(tmp_path / "parts", member_names(tmp_path / "parts"), 2)
    assert int(read.y[1, read.schema.labels.index("C3")]) == -1

import re
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from isthmus.core.errors import IsthmusError
from isthmus.data import load, load_folder
from isthmus.data.split import random_split
from isthmus.graph.cut import split_graph
from isthmus.graph.graph import TEST, TRAIN, UNUSED, VALID, Graph
from isthmus.graph.partition import partition

NODES = """id,label,split,age,city
7,b,train,1.5,Bonn
3,a,valid,2,Rome
5,,test,-3,Bonn
"""
EDGES = """source,target,time,amount
7,3,10,0.5
3,5,11,1.5
7,3,10,2.5
"""


def write(folder: Path, nodes: str = NODES, edges: str = EDGES) -> str:
    (folder / "nodes.csv").write_text(nodes, encoding="utf-8")
    (folder / "edges.csv").write_text(edges, encoding="utf-8")
    return str(folder)


def write_parquet(folder: Path, nodes: dict, edges: dict) -> str:
    parquet.write_table(pa.table(nodes), folder / "nodes.parquet")
    parquet.write_table(pa.table(edges), folder / "edges.parquet")
    return str(folder)


def fails(folder: Path, *says: str, **files: str) -> None:
    with pytest.raises(IsthmusError) as caught:
        load_folder(write(folder, **files))
    message = str(caught.value)
    assert "\n" not in message
    for text in says:
        assert text in message, message


def test_a_folder_of_csv_files(tmp_path: Path):
    graph = load(write(tmp_path))
    assert graph.ids.tolist() == [7, 3, 5] and graph.ids.dtype == np.int64
    assert graph.x.tolist() == [[1.5], [2.0], [-3.0]]
    assert graph.edge_index.tolist() == [[0, 1, 0], [1, 2, 1]]
    assert graph.edge_attr.tolist() == [[0.5], [1.5], [2.5]]
    assert graph.edge_time.tolist() == [10, 11, 10]
    assert graph.y.tolist() == [1, 0, -1]
    assert graph.split.tolist() == [TRAIN, VALID, UNUSED]  # without a label there is nothing to test
    assert graph.columns["city"].tolist() == ["Bonn", "Rome", "Bonn"]
    schema = graph.schema
    assert (schema.labels, schema.target, schema.timed) == (("a", "b"), "node", True)
    assert (schema.feature_names, schema.edge_feature_names) == (("age",), ("amount",))
    assert partition(graph, "attribute:city", 2).tolist() == [0, 1, 0]


def test_parquet_and_csv_give_the_same_graph(tmp_path: Path):
    (tmp_path / "csv").mkdir()
    from_csv = load_folder(write(tmp_path / "csv"))
    nodes = {"id": [7, 3, 5], "label": ["b", "a", None], "split": ["train", "valid", "test"]}
    nodes |= {"age": [1.5, 2, -3], "city": pa.array(["Bonn", "Rome", "Bonn"]).dictionary_encode()}
    edges = {"source": [7, 3, 7], "target": [3, 5, 3], "time": [10, 11, 10], "amount": [0.5, 1.5, 2.5]}
    graph = load_folder(write_parquet(tmp_path, nodes, edges))
    assert graph.ids.tolist() == from_csv.ids.tolist() and graph.schema == from_csv.schema
    for name in ("x", "edge_index", "y", "split", "edge_attr", "edge_time"):
        assert torch.equal(getattr(graph, name), getattr(from_csv, name)), name
    assert graph.columns["city"].tolist() == from_csv.columns["city"].tolist()


@pytest.mark.parametrize(
    ("ids", "whole"),
    [
        (["1", "2", "10"], True),
        (["-5", "0", "9007199254740993"], True),  # beyond what a double holds
        (["9223372036854775807", "-9223372036854775808", "1"], True),
        (["9223372036854775808", "1", "2"], False),  # beyond 64 bits
        (["007", "7", "8"], False),
        (["+1", "2", "3"], False),
        (["-0", "0", "1"], False),
        (["1.0", "2", "3"], False),
        (["NA", "null", "nan"], False),
        (["Zoë Ø", "a b", "京都"], False),
    ],
)
def test_odd_ids(tmp_path: Path, ids: list[str], whole: bool):
    nodes = "id,f\n" + "".join(f"{i},{row}\n" for row, i in enumerate(ids))
    edges = f"source,target\n{ids[0]},{ids[2]}\n{ids[1]},{ids[0]}\n"
    graph = load_folder(write(tmp_path, nodes, edges))
    assert graph.ids.tolist() == [int(i) if whole else i for i in ids]
    assert graph.edge_index.tolist() == [[0, 1], [2, 0]]


def test_ids_are_text_if_any_end_of_an_edge_is(tmp_path: Path):
    fails(
        tmp_path,
        "edges.csv",
        "column 'target', row 1",
        "'03'",
        nodes="id\n7\n3\n",
        edges="source,target\n7,03\n",
    )


def test_whole_numbers_meet_text_of_the_same_number(tmp_path: Path):
    folder = write_parquet(tmp_path, {"id": [1, 2]}, {"source": ["1"], "target": ["2"]})
    assert load_folder(folder).edge_index.tolist() == [[0], [1]]


def test_lists_attributes_and_timestamps(tmp_path: Path):
    stamp = pa.array(["1970-01-01T00:01:00", "1970-01-02"]).cast(pa.timestamp("ms"))
    nodes = {"id": ["u", "v"], "x": [[1, 2], [3, 4]], "bank": [30, 20], "vip": [True, False]}
    folder = write_parquet(tmp_path, nodes, {"source": ["u", "v"], "target": ["v", "u"], "time": stamp})
    graph = load_folder(folder, attributes=("bank",))
    assert graph.x.tolist() == [[1, 2, 1], [3, 4, 0]]
    assert graph.schema.feature_names == ("x0", "x1", "vip")
    assert graph.columns["bank"].tolist() == [30, 20]
    assert graph.edge_time.tolist() == [60, 86400]
    assert (graph.y, graph.edge_attr, graph.schema.labels) == (None, None, ())


def test_attributes_of_csv_files_keep_their_zeros(tmp_path: Path):
    graph = load_folder(write(tmp_path, nodes="id,bank\n7,01\n3,1\n5,01\n"), attributes=("bank",))
    assert graph.columns["bank"].tolist() == ["01", "1", "01"]
    assert graph.x.tolist() == [[1.0]] * 3  # no feature left: a single 1


def test_labels_sort_as_numbers_where_they_are(tmp_path: Path):
    nodes = "id,label\n" + "".join(f"{row},{label}\n" for row, label in enumerate(["10", "2", "x", "", "-1"]))
    graph = load_folder(write(tmp_path, nodes, "source,target\n0,1\n"))
    assert graph.schema.labels == ("-1", "2", "10", "x")
    assert graph.y.tolist() == [2, 1, 3, -1, 0]


def test_whole_number_labels_with_gaps(tmp_path: Path):
    nodes = {"id": [0, 1, 2], "label": [1.0, None, float("nan")]}
    graph = load_folder(write_parquet(tmp_path, nodes, {"source": [0], "target": [1]}))
    assert (graph.schema.labels, graph.y.tolist()) == (("1",), [0, -1, -1])


def test_labels_on_edges(tmp_path: Path):
    edges = "source,target,label,split\n7,3,ok,train\n3,5,fraud,test\n5,7,,train\n"
    graph = load_folder(write(tmp_path, "id,f\n7,1\n3,2\n5,3\n", edges))
    assert (graph.schema.target, graph.schema.labels, graph.y) == ("edge", ("fraud", "ok"), None)
    assert graph.edge_y.tolist() == [1, 0, -1]
    assert graph.edge_split.tolist() == [TRAIN, TEST, UNUSED]
    both = write(tmp_path, edges=edges)
    assert load_folder(both).schema.target == "node"
    assert load_folder(both, target="edge").schema.target == "edge"


def test_a_graph_without_edges(tmp_path: Path):
    graph = load_folder(write(tmp_path, edges="source,target,time,amount\n"))
    assert graph.edge_index.shape == (2, 0) and graph.edge_attr.shape == (0, 1)


def test_a_late_fraction_does_not_break_a_long_column_of_whole_numbers(tmp_path: Path):
    edges = "source,target,amount\n" + "7,3,1\n" * 300_000 + "7,3,1.5\n"
    assert load_folder(write(tmp_path, edges=edges)).edge_attr[-1].item() == 1.5


@settings(max_examples=25, deadline=None)
@given(st.permutations(range(40)), st.integers(0, 3))
def test_the_random_split_belongs_to_the_id_not_the_row(order: list[int], seed: int):
    keys = torch.arange(40) * 31
    whole = random_split(keys, seed)
    assert torch.equal(whole[order], random_split(keys[order], seed))
    assert torch.equal(whole[:10], random_split(keys[:10], seed))


def test_the_random_split_meets_its_shares():
    split = random_split(torch.arange(100_000), 0, labelled=torch.arange(100_000) % 2 == 0)
    assert (torch.bincount(split.long()) / 100_000).tolist() == pytest.approx([0.5, 0.3, 0.1, 0.1], abs=0.005)


def test_errors_about_folders_and_files(tmp_path: Path):
    with pytest.raises(IsthmusError, match="There is no folder .*nowhere"):
        load(str(tmp_path / "nowhere"))
    with pytest.raises(IsthmusError, match="one of nodes.parquet and nodes.csv, and it holds neither"):
        load_folder(str(tmp_path))
    write(tmp_path)
    (tmp_path / "edges.parquet").write_bytes(b"PAR1 cut off")
    with pytest.raises(IsthmusError, match="it holds both"):
        load_folder(str(tmp_path))
    (tmp_path / "edges.csv").unlink()
    with pytest.raises(IsthmusError, match="^.*edges.parquet cannot be read: .*Repair"):
        load_folder(str(tmp_path))


@pytest.mark.parametrize(
    ("nodes", "says"),
    [
        ("", ["nodes.csv cannot be read"]),
        ("id,label\n", ["nodes.csv has no rows"]),
        ("id,f\n7,1\n3\n", ["nodes.csv cannot be read", "Expected 2 columns"]),
        ("key,f\n7,1\n", ["no column 'id'", "'key', 'f'"]),
        ("id,f,f\n7,1,2\n", ["two columns named 'f'"]),
        (",id,f\n0,7,1\n1,3,2\n2,5,3\n", ["column 1 has no name", "row numbers", "index=False"]),
        ("id,Unnamed: 0\n7,0\n3,1\n5,2\n", ["column 2 has no name"]),
        ("id,label\n7,Fraud\n3,ok\n5,fraud\n", ["column 'label', row 3", "'Fraud' and 'fraud' differ in case"]),
        ("id,label\n7,ok\n3,ok \n5,b\n", ["column 'label', row 2", "'ok' and 'ok '"]),
        ("id,f\n7,1\n3,2\n7,3\n5,4\n", ["column 'id'", "7 appears in rows 1 and 3"]),
        ("id,f\n7,1\n,2\n", ["column 'id', row 2", "missing id"]),
        ("id,f\n7,1\n3,inf\n5,2\n", ["column 'f', row 2", "the value inf"]),
        ("id,f\n7,1\n3,1e300\n5,2\n", ["column 'f', row 2", "the value 1e+300"]),
        (
            "id,split,label\n7,train,a\n3,validate,a\n5,,a\n",
            ["column 'split', row 2", "'validate'", "train, valid, test"],
        ),
        ("id,f,label:C2\n7,1,0\n3,1,1\n5,2,0\n", ["column 'label:C2'", "yes/no label", "silo.toml"]),
    ],
)
def test_errors_about_nodes(tmp_path: Path, nodes: str, says: list[str]):
    fails(tmp_path, *says, nodes=nodes)


@pytest.mark.parametrize(
    ("edges", "says"),
    [
        ("source,to\n7,3\n", ["edges.csv has no column 'target'", "'to'"]),
        ("source,target\n7,3\n7,9\n", ["column 'target', row 2", "9 is not among the ids"]),
        ("source,target,time\n7,3,noon\n", ["column 'time', row 1", "'noon' is not a time"]),
        ("source,target,time\n7,3,4\n3,5,noon\n", ["column 'time', row 2", "'noon' is not a time"]),
        ("source,target,time\n7,3,4\n3,5,4.5\n", ["column 'time', row 2", "4.5 is not a time"]),
        (f"source,target,time\n7,3,4\n3,5,{2**63 + 5}\n", ["column 'time', row 2", "is not a time"]),
        ("source,target,time\n7,3,1\n7,3,\n", ["column 'time', row 2", "missing time"]),
        ("id,source,target\n1,7,3\n1,7,3\n", ["column 'id', row 2", "'1' appears in rows 1 and 2"]),
        ("id,source,target\n1,7,3\n,7,3\n", ["column 'id', row 2", "a missing id"]),
    ],
)
def test_errors_about_edges(tmp_path: Path, edges: str, says: list[str]):
    fails(tmp_path, *says, edges=edges)


def test_errors_about_parquet_types(tmp_path: Path):
    edges = {"source": [1], "target": [2]}
    with pytest.raises(IsthmusError, match="column 'id', row 1: 1.5 .*cannot be an id"):
        load_folder(write_parquet(tmp_path, {"id": [1.5, 2.0]}, edges))
    with pytest.raises(IsthmusError, match="column 'x', row 2: 1 numbers, where row 1 has 2"):
        load_folder(write_parquet(tmp_path, {"id": [1, 2], "x": [[1, 2], [3]]}, edges))
    with pytest.raises(IsthmusError, match="column 'x', row 2: 0 numbers"):
        load_folder(write_parquet(tmp_path, {"id": [1, 2], "x": [[1, 2], None]}, edges))
    with pytest.raises(IsthmusError, match="column 'x', row 2: a missing or infinite number"):
        load_folder(write_parquet(tmp_path, {"id": [1, 2], "x": [[1, 2], [3, None]]}, edges))


def test_errors_about_options(tmp_path: Path):
    folder = write(tmp_path)
    with pytest.raises(IsthmusError, match="Unknown data option 'atributes'. Did you mean 'attributes'?"):
        load(folder, atributes=("city",))
    with pytest.raises(IsthmusError, match="Unknown attribute column of nodes.csv 'town'.*age, city"):
        load(folder, attributes=("town",))
    with pytest.raises(IsthmusError, match="Unknown target 'node_'"):
        load(folder, target="node_")
    with pytest.raises(IsthmusError, match="edges in .* have no column 'label'"):
        load(folder, target="edge")


# ---- cells that would change meaning in silence


def column(cells: list[str], name: str = "income") -> str:
    """A table of nodes with one more column, which is quoted."""
    return f"id,{name}\n" + "".join(f'{row},"{cell}"\n' for row, cell in enumerate(cells))


def loads(folder: Path, cells: list[str], name: str = "income", **options: str) -> Graph:
    return load_folder(write(folder, column(cells, name), "source,target\n0,1\n"), **options)


@pytest.mark.parametrize(
    ("cells", "row", "cell"),
    [
        (["1", "2", "3 apples", "4"], 3, "3 apples"),
        (["12 %", "13 %"], 1, "12 %"),
    ],
)
def test_numbers_with_a_cell_that_is_none_are_refused_by_row(tmp_path: Path, cells: list[str], row: int, cell: str):
    says = rf"column 'income', row {row}: '{re.escape(cell)}' is not a number, while .*data.attributes=income"
    with pytest.raises(IsthmusError, match=says):
        loads(tmp_path, cells)
    assert loads(tmp_path, cells, attributes="income").columns["income"].tolist() == cells


@pytest.mark.parametrize("cells", [["Bonn", "Rome", "12"], ["3a", "4", "5b", "6c"], ["", "x"]])
def test_words_stay_attributes(tmp_path: Path, cells: list[str]):
    assert loads(tmp_path, cells).columns["income"].tolist() == cells


def test_columns_of_words_are_told_of(tmp_path: Path):
    graph = load_folder(write(tmp_path))
    why = "it has 2 different words in 3 rows"
    assert graph.notes[0] == f"{tmp_path / 'nodes.csv'}: column 'city' is no feature: {why}."
    assert not [note for note in load_folder(str(tmp_path), attributes=("city",)).notes if "city" in note]


def test_numbers_that_are_typed_as_text_are_numbers_and_told_of(tmp_path: Path):
    edges = {"source": [1], "target": [2]}
    graph = load_folder(write_parquet(tmp_path, {"id": [1, 2], "age": ["40", "50"], "city": ["Bonn", "Rome"]}, edges))
    note, other = graph.notes
    assert graph.x.tolist() == [[40], [50]] and graph.schema.feature_names == ("age",)
    assert other.endswith("nodes.parquet: column 'city' is no feature: it has 2 different words in 2 rows.")
    assert note.endswith("column 'age' has numbers that are typed as text.")
    assert split_graph(graph, torch.zeros(2, dtype=torch.int64), 1)[0].notes == graph.notes


@pytest.mark.parametrize("word", ["NA", "NaN", "null", "N/A", " ", "?", "-"])
def test_a_label_that_reads_like_a_missing_one_is_no_class(tmp_path: Path, word: str):
    with pytest.raises(
        IsthmusError, match=rf"column 'label', row 2: the label '{re.escape(word)}' reads like a missing value"
    ):
        loads(tmp_path, ["a", word, "b", word], "label")


def test_a_minus_one_beside_numbered_classes_is_an_unknown_label(tmp_path: Path):
    with pytest.raises(IsthmusError, match="column 'label', row 2: the label '-1' reads like a missing value"):
        loads(tmp_path, ["0", "-1", "1", "-1"], "label")
    assert loads(tmp_path, ["1", "-1", "1", "-1"], "label").schema.labels == ("-1", "1")


def test_a_class_called_unknown_is_learnt_and_told_of(tmp_path: Path):
    graph = loads(tmp_path, ["1", "unknown", "2", "unknown"], "label")
    assert "unknown" in graph.schema.labels
    assert any("2 rows have one of the labels none, missing, unknown, which is learnt" in note for note in graph.notes)


def test_numbers_that_would_be_a_class_each_are_told_of(tmp_path: Path):
    graph = loads(tmp_path, [f"{i}.5" for i in range(20)], "label")
    assert any("20 labels have 20 different values, each of which is learnt as a class" in note for note in graph.notes)
    assert graph.notes != () and loads(tmp_path, ["a", "b"] * 10, "label").notes == ()


def test_whole_numbers_are_one_class_however_they_are_spelt(tmp_path: Path):
    graph = loads(tmp_path, ["0.0", "1.0", "", "1"], "label")
    assert (graph.schema.labels, graph.y.tolist()) == (("0", "1"), [0, 1, -1, 1])
    assert loads(tmp_path, ["0.5", "1.0", "1"], "label").schema.labels == ("0.5", "1", "1.0")


def test_labels_of_edges_that_nobody_learns_are_counted(tmp_path: Path):
    edges = "source,target,label\n7,3,ok\n3,5,fraud\n"
    graph = load_folder(write(tmp_path, edges=edges))
    [unused] = [note for note in graph.notes if "2 of edges are not used" in note]
    assert unused not in load_folder(write(tmp_path, edges=edges), target="node").notes


# ---- types and sizes that Arrow cannot turn into arrays

EDGES_OF_TWO: dict[str, Any] = {"source": [1], "target": [2]}
LONG = 2**53 + 1


@pytest.mark.parametrize(
    ("nodes", "edges", "says"),
    [
        ({"f": [1, LONG]}, {}, f"nodes.parquet, column 'f', row 2: {LONG} has more digits than a feature can hold"),
        ({"x": [[1, 2], [3, LONG]]}, {}, f"column 'x', row 2: {LONG} has more digits"),
        ({"label": [["a"], ["b"]]}, {}, r"column 'label', row 1: \['a'\] \(list.*\) is no word"),
        ({"label": [b"a", b"\xff"]}, {}, r"column 'label', row 2: b'\\xff' \(binary\) is no word"),
        ({"split": [["train"], None]}, {}, "column 'split', row 1"),
        ({}, {"time": pa.array([2**63], pa.uint64())}, "edges.parquet, column 'time', row 1: 9223372036854775808 does"),
        ({}, {"amount": [LONG]}, f"edges.parquet, column 'amount', row 1: {LONG}"),
        ({}, {"label": [{"a": 1}]}, "edges.parquet, column 'label', row 1"),
    ],
)
def test_values_that_no_array_holds_are_named(tmp_path: Path, nodes: dict, edges: dict, says: str):
    with pytest.raises(IsthmusError, match=says):
        load_folder(write_parquet(tmp_path, {"id": [1, 2], "label": ["a", "b"], **nodes}, {**EDGES_OF_TWO, **edges}))


def test_a_header_of_megabytes_is_a_header(tmp_path: Path):
    names = ["f" * 600_000 + str(i) for i in range(4)]
    graph = load_folder(write(tmp_path, f"id,{','.join(names)}\n7,1,2,3,4\n3,1,2,3,4\n5,1,2,3,4\n"))
    assert graph.x.shape == (3, 4)


def test_a_small_file_that_would_fill_the_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    rows = 200_000
    folder = write_parquet(tmp_path, {"id": list(range(rows)), "f": [1.0] * rows}, {"source": [1], "target": [2]})
    small = psutil.virtual_memory()._replace(available=2_000_000)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: small)
    with pytest.raises(IsthmusError, match=r"nodes.parquet holds 200,000 rows, 0.0 GB in memory.*larger machine"):
        load_folder(folder)

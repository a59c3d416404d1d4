"""Untidy tables are read as they are meant, and what was guessed is said; what may mean two things is refused."""

from pathlib import Path

import numpy as np
import pytest
import torch

from isthmus.core.errors import IsthmusError
from isthmus.data import load_folder
from isthmus.data.feature_columns import Reading
from isthmus.data.parts import read_part
from isthmus.federation.encodings import described_columns, is_told_columns
from isthmus.federation.federation import open_federation
from isthmus.graph.encoding import UNUSED
from isthmus.graph.graph import Graph
from isthmus.graph.silo import Silo
from isthmus.wire.local import LocalWire

NAN = float("nan")


def folder(root: Path, cells: list[str], header: str = "id,f", edges: str = "source,target\n0,1\n", **options) -> Graph:
    rows = "".join(f'{row},"{cell}"\n' for row, cell in enumerate(cells))
    (root / "nodes.csv").write_text(f"{header}\n{rows}", encoding="utf-8")
    (root / "edges.csv").write_text(edges, encoding="utf-8")
    return load_folder(str(root), **options)


@pytest.mark.parametrize(
    ("cells", "numbers", "says"),
    [
        (["1", "2", "25,5"], [1, 2, 25.5], "1 numbers with a decimal comma"),
        (["25,5", "1.234,56", "7,0"], [25.5, 1234.56, 7], "3 numbers with a decimal comma"),
        (["1.234,56", "1.234"], [1234.56, 1234], "decimal comma"),
        (["1,234.5", "1,234"], [1234.5, 1234], "marks between thousands"),
        (["1 234,5", "2,5"], [1234.5, 2.5], "decimal comma"),
        (["1'234.5", "2.5"], [1234.5, 2.5], "marks between thousands"),
        (["1.5", "25,5"], [1.5, 25.5], "1 numbers with a decimal comma"),
        (["-3,5", "+4,25"], [-3.5, 4.25], "decimal comma"),
        (["1e3", "2,5"], [1000, 2.5], "decimal comma"),
        (["1", "-", "3"], [1, NAN, 3], "1 cells such as '-' that stand for nothing"),
        (["1", "n/a", "?", "4"], [1, NAN, NAN, 4], "2 cells such as"),
        (["1", "", "3"], [1, NAN, 3], "cells are missing in 'f' (1)"),
    ],
)
def test_numbers_are_read_as_they_are_written(cells: list[str], numbers: list[float], says: str, tmp_path: Path):
    graph = folder(tmp_path, cells)
    gaps = np.isnan(numbers)
    wanted = np.where(gaps, np.mean([n for n in numbers if n == n]), numbers)
    assert np.allclose(graph.x[:, 0].numpy(), wanted)
    assert graph.schema.feature_names == (("f", "f missing") if gaps.any() else ("f",))
    if gaps.any():
        assert graph.x[:, 1].tolist() == gaps.astype(float).tolist()
    assert any(says in note for note in graph.notes), graph.notes


@pytest.mark.parametrize(
    ("cells", "row", "says"),
    [
        (["1,234", "2"], 1, "'1,234' may be 1234 or 1.234"),
        (["1.500", "25,5"], 1, "'1.500' may be 1500 or 1.500"),
        (["2.5", "1,234"], 2, "'1,234' may be 1234 or 1.234"),
        (["2.5", "25,5", "1,234"], 3, "may be"),
        (["1", "2", "3 apples", "4"], 3, "'3 apples' is not a number, while 3 of 4 cells are"),
        (["12 %", "13 %"], 1, "'12 %' is not a number"),
    ],
)
def test_what_may_mean_two_things_is_refused_by_row(cells: list[str], row: int, says: str, tmp_path: Path):
    with pytest.raises(IsthmusError) as caught:
        folder(tmp_path, cells)
    assert f"column 'f', row {row}: " in str(caught.value) and says in str(caught.value)
    assert folder(tmp_path, cells, attributes=("f",)).columns["f"].tolist() == cells


def test_a_word_becomes_a_feature_and_a_gap_another(tmp_path: Path):
    graph = folder(tmp_path, ["app", "card", "", "App ", "card", "card"])
    assert graph.schema.feature_names == ("f=App", "f=card", "f missing")
    assert graph.x.argmax(1).tolist() == [0, 1, 2, 0, 1, 1] and graph.x.sum(1).tolist() == [1] * 6
    assert any("a feature for each word of 'f' (App, card)" in note for note in graph.notes)
    assert any("in case or blanks alone are taken for the same word: 'f' (1)." in note for note in graph.notes)


@pytest.mark.parametrize(
    ("cells", "options", "why"),
    [
        ([f"w{i % 21}" for i in range(60)], {}, "21 different words, and data.categories = 20 is the most"),
        (["a", "b", "a", "b"], {"categories": 1}, "2 different words, and data.categories = 1 is the most"),
        (["a", "b", "c", "a"], {}, "3 different words in 4 rows"),
        (["2020-01-01"] * 4, {}, "it holds dates, which are neither numbers nor words"),
        (["12:30:00"] * 4, {}, "it holds times of day, which are neither numbers nor words"),
        (["", "", ""], {}, "all its cells are empty"),
    ],
)
def test_a_column_that_is_not_used_is_named_with_why(cells: list[str], options: dict, why: str, tmp_path: Path):
    text = "\n".join([*(f"{row},{cell},{row}" for row, cell in enumerate(cells))])
    (tmp_path / "nodes.csv").write_text(f"id,f,g\n{text}\n")
    (tmp_path / "edges.csv").write_text("source,target\n0,1\n")
    graph = load_folder(str(tmp_path), **options)
    assert graph.schema.feature_names == ("g",)
    assert [note for note in graph.notes if "column 'f' is no feature" in note and why in note], graph.notes


def test_columns_that_are_named_as_words_are_words(tmp_path: Path):
    graph = folder(tmp_path, ["5411", "5812", "5411"], words=("f",))
    assert graph.schema.feature_names == ("f=5411", "f=5812") and graph.x.argmax(1).tolist() == [0, 1, 0]
    with pytest.raises(IsthmusError, match="Unknown column of words .data.words. 'mcc'"):
        folder(tmp_path, ["1", "2"], words=("mcc",))


def test_gaps_are_refused_where_that_is_asked_for(tmp_path: Path):
    for cells in (["1", "", "3"], ["a", "a", "", "b", "b", "b"]):
        with pytest.raises(IsthmusError, match="row [23]: a missing .*data.missing=impute"):
            folder(tmp_path, cells, missing="refuse")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1", "cp1252", "utf-16", "utf-16-le"])
@pytest.mark.parametrize("mark", [",", ";", "\t", "|"])
def test_encodings_and_marks_between_columns_are_found_out(encoding: str, mark: str, tmp_path: Path):
    word = "Genève – Süd" if encoding not in ("latin-1",) else "Genève Süd"
    rows = [["id", "city", "f"], ["a", word, "1,5" if mark != "," else "1.5"], ["b", word, "2"], ["c", "x", "3"]]
    text = "\n".join(mark.join(row) for row in [*rows, ["d", "x", "4"]]) + "\n"
    (tmp_path / "nodes.csv").write_bytes(text.encode(encoding))
    (tmp_path / "edges.csv").write_text("source,target\na,b\n")
    graph = load_folder(str(tmp_path))
    assert graph.schema.feature_names == (f"city={word}", "city=x", "f") and graph.x[:, 2].tolist() == [1.5, 2, 3, 4]
    said = " ".join(graph.notes)
    known = {"latin-1": "as Latin-1", "cp1252": "as Windows-1252", "utf-16": "as UTF-16", "utf-16-le": "as UTF-16"}
    assert ("was read" in said) == (encoding in known or mark != ",")
    assert known.get(encoding, "") in said


@pytest.mark.parametrize(
    ("start", "says"),
    [
        (b"PK\x03\x04\x14\x00", "is an Excel workbook or a ZIP archive.*as CSV in UTF-8"),
        (b"\x1f\x8b\x08\x00", "is compressed"),
        (b"PAR1\x15\x04", "is a Parquet file"),
        ("id,銀行\na,東京\n".encode("shift_jis"), "byte 0x8d is no text in UTF-8.*Write it again in UTF-8"),
    ],
)
def test_what_is_no_text_is_called_by_its_kind(start: bytes, says: str, tmp_path: Path):
    (tmp_path / "nodes.csv").write_bytes(start)
    (tmp_path / "edges.csv").write_text("source,target\na,b\n")
    with pytest.raises(IsthmusError, match=says):
        load_folder(str(tmp_path))


def test_tables_beside_the_ones_that_are_read_are_named(tmp_path: Path):
    (tmp_path / "nodes.xlsx").write_bytes(b"PK")
    with pytest.raises(IsthmusError, match="it holds neither, but nodes.xlsx"):
        load_folder(str(tmp_path))
    for name in ("north", "south"):
        (tmp_path / "banks" / name).mkdir(parents=True)
        (tmp_path / "banks" / name / "nodes.csv").write_text("id\na\n")
    with pytest.raises(IsthmusError, match=r'federation.toml with silos = \["north", "south"\]'):
        load_folder(str(tmp_path / "banks"))


def test_words_in_too_few_rows_are_none_of_the_words(tmp_path: Path):
    graph = folder(tmp_path, ["app", "card", "", "App ", "card", "ftan"], rarest=2)
    assert graph.schema.feature_names == ("f=App", "f=card", "f missing")
    assert graph.x.tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 0], [0, 1, 0], [0, 0, 0]]
    said = "words in fewer rows than data.rarest are none of the words of 'f' (1)."
    assert any(note.endswith(said) for note in graph.notes)
    none = folder(tmp_path, ["a", "b", "a", "b"], rarest=3)
    assert none.schema.feature_names == ("one",) and any("data.rarest = 3" in note for note in none.notes)
    with pytest.raises(IsthmusError, match="data.rarest is 0; it must be a whole number of rows"):
        folder(tmp_path, ["a", "b"], rarest=0)


# ---- silos read alone, and agree

NODES = {
    "a": "id,city,age\na1,Bonn,1\na2,Rome,\na3,Bonn,5\na4,Rome,3\n",
    "b": "id,city,age\nb1,ROME,10\nb2,Oslo,20\nb3,rome,30\nb4,Oslo,20\n",
    "c": "id,city,age\n",
}
EDGES = {
    "a": "source,target,owner,kind,label\na1,a2,,x,0\na2,a3,,y,1\na1,b1,b,x,1\na4,a1,,y,0\n",
    "b": "source,target,owner,kind,label\na1,b1,a,x,true\nb1,b2,,z,false\nb3,b4,,z,true\nb4,b1,,x,false\n",
    "c": "source,target,owner,kind,label\n",
}


def parts(root: Path, nodes: dict[str, str] = NODES, edges: dict[str, str] = EDGES) -> list[Silo]:
    for name in nodes:
        (root / name).mkdir(parents=True, exist_ok=True)
        (root / name / "nodes.csv").write_text(nodes[name])
        (root / name / "edges.csv").write_text(edges[name])
        (root / name / "silo.toml").write_text(f'name = "{name}"\n[schema]\nids = "text"\ntarget = "edge"\n')
    return [read_part(root, list(nodes), number) for number in range(len(nodes))]


def test_silos_agree_on_words_gaps_and_the_spelling_of_labels(tmp_path: Path):
    wire = LocalWire(3)
    federation = open_federation(wire, parts(tmp_path))
    schema = federation.schema
    assert schema.feature_names == ("city=Bonn", "city=Oslo", "city=ROME", "age", "age missing")
    assert schema.edge_feature_names == ("kind=x", "kind=y", "kind=z") and schema.labels == ("0", "1")
    a, b, c = federation.silos
    mean = (1 + 5 + 3 + 10 + 20 + 30 + 20) / 7
    assert [note for note in federation.notes if "in case alone" in note] == [
        "a: rows have words that others write otherwise, in case alone: 'city' (2)."
    ]
    assert a.x[1].tolist() == pytest.approx([0, 0, 1, mean, 1]) and b.x[0].tolist() == [0, 0, 1, 10, 0]
    assert c.x.shape == (0, 5) and {silo.schema for silo in federation.silos} == {schema}
    assert a.edge_y is not None and b.edge_y is not None
    assert a.edge_y.tolist() == [0, 1, 1, 0] and b.edge_y.tolist() == [1, 0, 1, 0]
    kinds = wire.ledger.by_kind()
    assert kinds["statistics"] > 0 and kinds["schema"] > 0


@pytest.mark.parametrize(("rarest", "told"), [(1, True), (2, False)])
def test_a_word_that_one_node_has_is_told_unless_that_is_refused(rarest: int, told: bool, tmp_path: Path):
    nodes = {**NODES, "a": NODES["a"].replace("a4,Rome", "a4,Ftan") + "a5,Bonn,1\na6,Rome,1\n"}
    parts(tmp_path, nodes)
    silos = [read_part(tmp_path, list(nodes), number, Reading(rarest=rarest)) for number in range(3)]
    said = str(described_columns(silos[0]))
    assert "Bonn" in said and ("Ftan" in said) == told
    names = open_federation(LocalWire(3), silos).schema.feature_names
    assert ("city=Ftan" in names) == told and "city=Bonn" in names


@pytest.mark.parametrize("wrong", [{"why": ["x"]}, {"gaps": "no"}, {"words": [1]}, {"kind": "table"}, {"name": 3}])
def test_columns_that_a_peer_describes_wrongly_are_seen(wrong: dict, tmp_path: Path):
    told = described_columns(parts(tmp_path)[0])["node_columns"]
    assert is_told_columns(told) and not is_told_columns([{**told[0], **wrong}])


def test_tidy_silos_tell_nothing_more(tmp_path: Path):
    nodes = {name: "id,age\n" + "".join(f"{name}{i},{i}\n" for i in range(1, 5)) for name in ("a", "b")}
    edges = {"a": "source,target,owner,w,label\na1,a2,,1,0\n", "b": "source,target,owner,w,label\n"}
    wire = LocalWire(2)
    federation = open_federation(wire, parts(tmp_path, nodes, edges | {"b": edges["b"] + "b1,b2,,2,1\n"}))
    assert federation.columns == {} and federation.schema.feature_names == ("age",)
    assert "statistics" not in wire.ledger.by_kind()


def test_what_one_silo_cannot_use_no_silo_uses(tmp_path: Path):
    many = "id,city,age\n" + "".join(f"b{i},word {i},1\n" for i in range(1, 5))
    federation = open_federation(LocalWire(3), parts(tmp_path, {**NODES, "b": many}))
    assert federation.schema.feature_names == ("age", "age missing")
    assert [c.name for c in federation.columns["node_columns"] if c.kind == UNUSED] == ["city"]
    assert any(
        note.startswith("a: column 'city' is no feature: in b it has 4 different words") for note in federation.notes
    )


def test_silos_that_differ_are_told_all_of_it_at_once(tmp_path: Path):
    nodes = {**NODES, "b": NODES["b"].replace("age", "years")}
    edges = {**EDGES, "b": EDGES["b"].replace("kind", "sort")}
    with pytest.raises(IsthmusError) as caught:
        open_federation(LocalWire(3), parts(tmp_path, nodes, edges))
    assert "columns of nodes: a has 'age' and b has not" in str(caught.value)
    assert "columns of edges: a has 'kind' and b has not" in str(caught.value)


def test_numbers_here_and_words_there_are_refused(tmp_path: Path):
    nodes = {**NODES, "b": NODES["b"].replace("30", "old").replace("20", "young").replace("10", "old")}
    with pytest.raises(IsthmusError, match="column 'age': a has numbers, b has words"):
        open_federation(LocalWire(3), parts(tmp_path, nodes))


def test_one_class_alone_is_refused(tmp_path: Path):
    edges = {
        name: text.replace("true", "0").replace("false", "0").replace(",1\n", ",0\n") for name, text in EDGES.items()
    }
    with pytest.raises(IsthmusError, match="Every label of all silos is '0', and one class alone cannot be learnt"):
        open_federation(LocalWire(3), parts(tmp_path, NODES, edges))


def test_edges_keep_their_ids_wherever_they_go(tmp_path: Path):
    edges = {
        "a": "id,source,target,owner,label\n007,a1,a2,,0\n8,a2,b1,b,1\n",
        "b": "id,source,target,owner,label\nx9,a2,b1,a,1\n",
    }
    nodes = {"a": "id,f\na1,1\na2,2\n", "b": "id,f\nb1,1\n"}
    first, second = parts(tmp_path, nodes, edges)
    assert first.edge_ids is not None and first.edge_ids.tolist() == ["007", "8"]
    federation = open_federation(LocalWire(2), [first, second])
    ids = [silo.edge_ids.tolist() for silo in federation.silos if silo.edge_ids is not None]
    assert ids == [["007", "8"], ["x9"]] and torch.equal(federation.silos[0].edge_index, first.edge_index)

"""Odd files, columns, labels and options: no traceback, nothing in silence, and ``check`` says it as a run does."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from isthmus.methods.catalogue import get
from tests.helpers.command import Outcome, isthmus

pytestmark = pytest.mark.usefixtures("no_report")

NODES = "id,label,age,city\n" + "".join(f"n{i},{i % 2},{i},{'Bonn' if i % 3 else 'Rome'}\n" for i in range(12))
EDGES = "source,target,w\n" + "".join(f"n{i},n{(i + 1) % 12},{i}\n" for i in range(12))
OF_EDGES = "id,source,target,time,label\n" + "".join(f"e{i},n{i},n{(i + 5) % 12},{i},{i % 2}\n" for i in range(12))
BARE = "id,age\n" + "".join(f"n{i},{i}\n" for i in range(12))
RUN = ("--silos", 2, "--split", "random", "--epochs", 1, "--set", "model.hidden=4", "--overwrite")


def cell(text: str, row: int, column: int, value: str) -> str:
    """A table with another value in one cell; rows are counted from 1."""
    lines = [line.split(",") for line in text.strip().splitlines()]
    lines[row][column] = value
    return "\n".join(",".join(line) for line in lines) + "\n"


def column(text: str, place: int, values: list[str]) -> str:
    """A table with other values in a column."""
    for row, value in enumerate(values, 1):
        text = cell(text, row, place, value)
    return text


def folder(root: Path, nodes: str | bytes = NODES, edges: str | bytes = EDGES) -> Path:
    root.mkdir(exist_ok=True)
    for name, content in (("nodes", nodes), ("edges", edges)):
        (root / f"{name}.csv").write_bytes(content if isinstance(content, bytes) else content.encode())
    return root


# what is refused: the tables, and words that the message has
REFUSED: dict[str, tuple[dict[str, Any], list[str]]] = {
    "an empty file": ({"nodes": ""}, ["nodes.csv", "cannot be read"]),
    "a header alone": ({"nodes": "id,label\n"}, ["nodes.csv has no rows"]),
    "a row too short": ({"nodes": NODES + "n12,1\n"}, ["nodes.csv cannot be read"]),
    "a row too long": ({"edges": EDGES + "n1,n2,3,4\n"}, ["edges.csv cannot be read"]),
    "zeros": ({"nodes": b"\x00" * 300}, ["nodes.csv"]),
    "noise": ({"nodes": bytes(range(256)) * 3}, ["nodes.csv"]),
    "a lone surrogate in UTF-16": ({"nodes": "\ufeffid,x\n".encode("utf-16-le") + b"\x00\xd8"}, ["nodes.csv"]),
    "UTF-16 cut off": ({"nodes": NODES.encode("utf-16")[:-1]}, ["nodes.csv"]),
    "no id column": ({"nodes": NODES.replace("id,", "key,", 1)}, ["no column 'id'", "'key'"]),
    "an id with other case": ({"nodes": NODES.replace("id,", "ID,", 1)}, ["no column 'id'", "'ID'"]),
    "no source": ({"edges": EDGES.replace("source", "from")}, ["no column 'source'"]),
    "two columns of one name": ({"nodes": NODES.replace("city", "age")}, ["two columns named 'age'"]),
    "a column without a name": ({"nodes": NODES.replace("city", "")}, ["column 4 has no name"]),
    "a row number": ({"nodes": NODES.replace("city", "Unnamed: 0")}, ["column 4 has no name"]),
    "an id twice": ({"nodes": NODES + "n3,1,4,Bonn\n"}, ["column 'id', row 13", "'n3'"]),
    "a missing id": ({"nodes": cell(NODES, 4, 0, "")}, ["column 'id', row 4", "missing id"]),
    "a missing source": ({"edges": cell(EDGES, 4, 0, "")}, ["column 'source', row 4"]),
    "an unknown end": ({"edges": cell(EDGES, 4, 1, "n99")}, ["column 'target', row 4", "'n99'"]),
    "a blank in an id": ({"edges": cell(EDGES, 4, 1, "n5 ")}, ["column 'target', row 4", "'n5 '"]),
    "an edge id twice": ({"nodes": BARE, "edges": cell(OF_EDGES, 4, 0, "e0")}, ["column 'id', row 4", "'e0'"]),
    "a missing edge id": ({"nodes": BARE, "edges": cell(OF_EDGES, 4, 0, "")}, ["column 'id', row 4"]),
    "an infinite number": ({"nodes": cell(NODES, 3, 2, "inf")}, ["column 'age', row 3", "inf"]),
    "a number beyond float32": ({"nodes": cell(NODES, 3, 2, "1e39")}, ["column 'age', row 3"]),
    "a number too long": ({"nodes": cell(NODES, 3, 2, str(2**53 + 1))}, ["column 'age', row 3", "digits"]),
    "a word among numbers": ({"nodes": cell(NODES, 3, 2, "three")}, ["column 'age', row 3", "'three'"]),
    "a unit": ({"nodes": cell(NODES, 3, 2, "3 kg")}, ["column 'age', row 3", "'3 kg'"]),
    "per cent": ({"nodes": cell(NODES, 3, 2, "3 %")}, ["column 'age', row 3"]),
    "a currency": ({"nodes": cell(NODES, 3, 2, "€3")}, ["column 'age', row 3"]),
    "a thousand or one": ({"nodes": NODES.replace("n3,1,3,", 'n3,1,"1,234",')}, ["'age', row 4", "1234 or 1.234"]),
    "a label NaN": ({"nodes": cell(NODES, 3, 1, "NaN")}, ["column 'label', row 3", "missing value"]),
    "a label of blanks": ({"nodes": cell(NODES, 3, 1, "  ")}, ["column 'label', row 3"]),
    "a label -1": ({"nodes": cell(NODES, 3, 1, "-1")}, ["column 'label', row 3", "-1"]),
    "labels in two spellings": (
        {"nodes": column(NODES, 1, ["Fraud", "ok", "fraud"] * 4)},
        ["column 'label'", "'Fraud' and 'fraud'"],
    ),
    "one class": ({"nodes": column(NODES, 1, ["1"] * 12)}, ["Every label of all silos is '1'"]),
    "no labels": ({"nodes": column(NODES, 1, [""] * 12)}, ["No silo has a label"]),
    "no label column": ({"nodes": BARE}, ["No silo has a label"]),
    "a column label:NAME": ({"nodes": NODES.replace("age", "label:C1")}, ["column 'label:C1'"]),
    "an unknown split": ({"nodes": NODES.replace("city", "split")}, ["column 'split', row 1", "train, valid, test"]),
    "nothing to train": (
        {"nodes": column(NODES.replace("city", "split"), 3, ["test"] * 12)},
        ["No silo has a labelled training node"],
    ),
    "a time of noon": ({"nodes": BARE, "edges": cell(OF_EDGES, 2, 3, "noon")}, ["column 'time', row 2", "noon"]),
    "a missing time": ({"nodes": BARE, "edges": cell(OF_EDGES, 2, 3, "")}, ["column 'time', row 2"]),
    "a time of halves": ({"nodes": BARE, "edges": cell(OF_EDGES, 2, 3, "2.5")}, ["column 'time', row 2"]),
    "a date of another country": ({"nodes": BARE, "edges": cell(OF_EDGES, 2, 3, "01.02.2026")}, ["'time', row 2"]),
}

# what is read: the tables, and words that are said of it
READ: dict[str, tuple[dict[str, Any], list[str]]] = {
    "a byte order mark": ({"nodes": "\ufeff" + NODES}, []),
    "lines that end as on Windows": ({"nodes": NODES.replace("\n", "\r\n")}, []),
    "no newline at the end": ({"nodes": NODES.rstrip("\n")}, []),
    "quotes": ({"nodes": NODES.replace("Bonn", '"Bonn"')}, []),
    "Latin-1": ({"nodes": NODES.replace("Bonn", "Köln").encode("latin-1")}, ["as Latin-1"]),
    "Windows-1252": ({"nodes": NODES.replace("Bonn", "Bonn – Süd").encode("cp1252")}, ["as Windows-1252"]),
    "UTF-16": ({"nodes": NODES.encode("utf-16")}, ["as UTF-16"]),
    "semicolons": ({"nodes": NODES.replace(",", ";")}, ["with semicolons"]),
    "tabs": ({"edges": EDGES.replace(",", "\t")}, ["with tabs"]),
    "a decimal comma": ({"nodes": NODES.replace("n3,1,3,", 'n3,1,"3,5",')}, ["1 numbers with a decimal comma"]),
    "a dash for nothing": ({"nodes": cell(NODES, 3, 2, "-")}, ["'-' that stand for nothing", "missing in 'age' (1)"]),
    "an empty cell": ({"nodes": cell(NODES, 3, 2, "")}, ["missing in 'age' (1)"]),
    "a missing word": ({"nodes": cell(NODES, 3, 3, "")}, ["missing in 'city' (1)"]),
    "a column of nothing": ({"nodes": column(NODES, 3, [""] * 12)}, ["'city' is no feature", "empty"]),
    "a word for each row": ({"nodes": column(NODES, 3, [f"w{i}" for i in range(12)])}, ["no feature", "12 different"]),
    "dates": ({"nodes": column(NODES, 3, ["2026-01-01"] * 12)}, ["'city' is no feature", "it holds dates"]),
    "one word in two spellings": ({"nodes": NODES.replace("Rome", "BONN")}, ["columns of nodes: 'city': all cells"]),
    "words in two spellings": ({"nodes": cell(NODES, 3, 3, "BONN")}, ["in case or blanks alone", "'city' (1)"]),
    "a word with a blank": ({"nodes": cell(NODES, 3, 3, " Bonn")}, ["in case or blanks alone", "'city' (1)"]),
    "a number in every row": ({"edges": column(EDGES, 2, ["1"] * 12)}, ["columns of edges: 'w': all cells"]),
    "words of edges": ({"edges": column(EDGES, 2, ["card", "app"] * 6)}, ["each word of 'w' (app, card)"]),
    "labels 0.0 and 1": ({"nodes": column(NODES, 1, ["0.0", "1"] * 6)}, []),
    "labels true and 0": ({"nodes": column(NODES, 1, ["true", "0"] * 6)}, []),
    "a class called unknown": ({"nodes": cell(NODES, 3, 1, "unknown")}, ["learnt as a class"]),
    "a label of one row": ({"nodes": cell(NODES, 3, 1, "2")}, ["by name to the server and all silos", "'2' (1)"]),
    "labels of nodes and of edges": ({"edges": OF_EDGES}, ["nodes and edges have labels"]),
    "labels of edges": ({"nodes": BARE, "edges": OF_EDGES}, []),
    "an edge to oneself": ({"edges": EDGES + "n1,n1,1\n"}, []),
    "an edge twice": ({"edges": EDGES + "n1,n2,1\n"}, []),
    "no edges": ({"edges": "source,target,w\n"}, []),
    "ids with leading zeros": ({"nodes": NODES.replace("n", "00"), "edges": EDGES.replace("n", "00")}, []),
    "ids in another script": ({"nodes": NODES.replace("n", "京"), "edges": EDGES.replace("n", "京")}, []),
}


def honest(told: Outcome) -> None:
    """A command that ended by itself, with one line where it refuses."""
    assert told.code in (0, 1, 2) and "Traceback" not in told.err + told.out
    if told.code == 2:
        assert told.err.strip().splitlines()[-1].startswith("isthmus: ")


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_is_named_by_run_and_by_check(case: str, tmp_path: Path) -> None:
    tables, says = REFUSED[case]
    data = folder(tmp_path / "data", **tables)
    run = isthmus("run", "--data", data, *RUN, "--out", tmp_path / "run")
    honest(run)
    assert run.code == 2, run.out
    for words in says:
        assert words in run.err, run.err
    assert not (tmp_path / "run").exists()
    check = isthmus("check", data, "--silos", 2, "--split", "random", "--json")
    honest(check)
    if case != "nothing to train":
        assert check.code == 1, check.out


@pytest.mark.parametrize("case", READ)
def test_what_is_read_otherwise_than_it_stands_there_is_said(case: str, tmp_path: Path) -> None:
    tables, says = READ[case]
    data = folder(tmp_path / "data", **tables)
    told = isthmus("check", data, "--json")
    honest(told)
    assert told.code == 0, told.out
    for words in says:
        assert words in told.out, told.out


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--set", "data.categories=-1"], "data.categories is -1"),
        (["--set", "data.categories=many"], "data.categories"),
        (["--set", "data.missing=ignore"], "Unknown data.missing 'ignore'"),
        (["--set", "data.missings=impute"], "Did you mean 'missing'"),
        (["--set", "data.attributes=town"], "Unknown attribute column"),
        (["--set", "data.target=edges"], "Unknown target 'edges'"),
        (["--set", "train.top=0"], "train.top"),
        (["--set", "train.alerts=-1"], "train.alerts is -1"),
        (["--set", "train.top=ten"], "train.top"),
        (["--split", "attribute:town"], "Unknown attribute column of nodes.csv 'town'"),
        (["--split", "attribute:"], "attribute:COLUMN"),
        (["--split", "attribute:city", "--silos", "9"], "has 2 values for 9 silos"),
        (["--silos", "0"], "--silos is 0"),
        (["--silos", "99"], "12 nodes between 99 silos"),
    ],
)
def test_odd_options(options: list[str], says: str, tmp_path: Path) -> None:
    data = folder(tmp_path / "data")
    base = [word for word in RUN if not (word in ("--silos", 2) and "--silos" in options)]
    base = [word for word in base if not (word in ("--split", "random") and "--split" in options)]
    told = isthmus("run", "--data", data, *base, *options, "--out", tmp_path / "run")
    honest(told)
    assert told.code == 2 and says in told.err, told.err


@pytest.mark.parametrize(
    ("nodes", "says"),
    [
        ({"when": pa.array([1] * 4, pa.time32("s"))}, "'when' is no feature"),
        ({"pair": [[1], [2], [3], [4]]}, "'pair' is no feature"),
        ({"raw": [b"a", b"\xff", b"c", b"d"]}, "'raw' is no feature"),
        ({"map": [{"a": 1}] * 4}, "'map' is no feature"),
        ({"whole": pa.array([1, 2, None, 4], pa.decimal128(9, 2))}, "missing in 'whole' (1)"),
        ({"kind": pa.array(["a", "b", "a", "b"]).dictionary_encode()}, "a feature for each word of 'kind'"),
        ({"none": pa.nulls(4)}, "'none' is no feature"),
        ({"yes": [True, None, False, True]}, "missing in 'yes' (1)"),
    ],
)
def test_odd_types_of_parquet(nodes: dict[str, Any], says: str, tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1, 2, 3, 4], "label": ["a", "b", "a", "b"], **nodes}), tmp_path / "nodes.parquet")
    pq.write_table(pa.table({"source": [1], "target": [2]}), tmp_path / "edges.parquet")
    told = isthmus("check", tmp_path, "--json")
    honest(told)
    assert told.code == 0 and says in told.out, told.out


def test_an_interrupted_run_promises_no_checkpoint_that_is_not_there(tmp_path: Path, monkeypatch: Any) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    data = folder(tmp_path / "data")
    with monkeypatch.context() as early:
        early.setattr("isthmus.train.loop.begin_round", interrupt)
        told = isthmus("run", "--data", data, *RUN, "--out", tmp_path / "run")
    assert told.code == 2 and "before the first checkpoint" in told.err
    with monkeypatch.context() as late:
        late.setattr("isthmus.train.loop.finish", interrupt)
        told = isthmus("run", "--data", data, *RUN, "--out", tmp_path / "run")
    assert told.code == 2 and "continues from its last checkpoint with --resume" in told.err


def test_a_folder_that_is_not_here_is_called_one(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    told = isthmus("run", "--data", "exports", "--out", tmp_path / "run")
    assert told.code == 2 and "There is no folder of that name here either" in told.err


def test_exact_is_another_name_of_the_exact_method() -> None:
    assert get("exact").name == "sync-sgd+fwd-bwd-le"

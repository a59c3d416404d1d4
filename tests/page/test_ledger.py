"""Ledgers on the page: what a run that goes on has counted so far, and the lines that a filter asks for."""

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from isthmus.core.errors import IsthmusError
from isthmus.page.books import Books
from isthmus.page.crossed import by_epoch, crossed
from isthmus.page.explorer import LINES, Filter, choices, lines
from isthmus.page.federation_drawing import edges
from isthmus.page.live_ledger import read_live
from tests.helpers.command import SMALL, succeed
from tests.helpers.pages import begun, reader, words
from tests.helpers.reports import THREE, make_run, make_seeds


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real run, whose last checkpoint is one epoch older than its end."""
    path = tmp_path_factory.mktemp("real") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("isthmus.commands.run.write_report", lambda folder: folder.path)
        succeed(*SMALL, "--method", "swift-fedgnn", "--out", path)
    return path


def test_a_run_that_goes_on_has_the_lines_that_its_end_will_have(run: Path) -> None:
    live, note = read_live(run, 3, 1)
    whole = pq.read_table(run / "ledger.parquet")
    assert live is not None and "after epoch 4" in note and 0 < len(live) < len(whole)
    words = [name for name in live.column_names if name != "model"]
    assert live.select(words).equals(whole.slice(0, len(live)).select(words))
    assert not {"end", "test, as trained"} & set(live["purpose"].to_pylist())


@pytest.mark.hosts
def test_hosts_are_added_up_while_they_go_on(tmp_path: Path, no_report: None) -> None:
    succeed(*SMALL, "--method", "swift-fedgnn", "--hosts", 2, "--out", tmp_path / "run")
    live, _ = read_live(tmp_path / "run", 3, 2)
    last = {"end", "test, as trained"}
    keys = ("epoch", "step", "purpose", "sender", "receiver", "kind", "event", "messages", "rows", "bytes")

    def counted(table: Any) -> Counter[tuple[Any, ...]]:
        return Counter(tuple(row[key] for key in keys) for row in table.to_pylist() if row["purpose"] not in last)

    assert live is not None and counted(live) == counted(pq.read_table(tmp_path / "run" / "ledger.parquet"))


def test_a_run_with_many_pairs_is_counted_whole_while_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_report: None, run: Path
) -> None:
    monkeypatch.setattr("isthmus.wire.books.DETAILED", 60)
    succeed(*SMALL, "--method", "swift-fedgnn", "--out", tmp_path / "run")
    summed, _ = read_live(tmp_path / "run", 3, 1)
    single, _ = read_live(run, 3, 1)
    assert summed is not None and single is not None and len(summed) < len(single)
    assert crossed(summed) == crossed(single)


def test_without_a_checkpoint_nothing_is_counted_and_a_cut_one_is_not_read(run: Path, tmp_path: Path) -> None:
    going = tmp_path / "run"
    shutil.copytree(run, going)
    (going / "ledger.parquet").unlink()
    assert Books().of(going).table == read_live(run, 3, 1)[0]
    newest = max((going / "checkpoint").glob("epoch-*"))
    (newest / "host-0.json").write_text('{"pages": ')  # half written: the one before it serves
    table, note = read_live(going, 3, 1)
    assert table is not None and "after epoch 3" in note
    (going / "checkpoint" / "ledger-host-0.bin").write_bytes(b"short")
    with pytest.raises(IsthmusError, match="shorter than its checkpoint says"):
        Books().of(going)
    shutil.rmtree(going / "checkpoint")
    assert Books().of(going).table is None and "There is no checkpoint yet" in Books().of(going).notes[0]


def test_bytes_of_a_run_that_goes_on_are_those_that_its_hosts_tell(run: Path, tmp_path: Path) -> None:
    crossed_by = {"step": 7, "kinds": {"parameters": [4, 4, 4_000_000]}, "parties": {"silo-0": [4_000_000, 0]}}
    going, other = tmp_path / "going", json.loads(json.dumps(crossed_by).replace("silo-0", "silo-1"))
    begun(going, crossed=crossed_by)
    client = reader(tmp_path)
    said = words(client.get("/run?folder=going").text)
    assert "4 MB crossed so far" in said and "model weights 4 4 MB" in said and "Counted at step 7;" in said
    assert "There is no checkpoint yet" in said
    told = json.loads((going / "status-host-0.json").read_text())
    (going / "status-host-1.json").write_text(json.dumps({**told, "host": 1, "crossed": {**other, "step": 6}}))
    shutil.copytree(run / "checkpoint", going / "checkpoint")
    said = words(client.get("/run?folder=going").text)
    assert "8 MB crossed so far" in said and "Counted at step 6; the curve, the drawing and the ledger" in said
    assert "silo-0 4 MB 0 B silo-1 4 MB 0 B" in said and "As of the checkpoint after epoch 4" in said
    assert "8 MB" in words(client.get("/").text)
    less = {**crossed_by, "kinds": {"parameters": [1, 1, 1]}}  # a checkpoint is newer: it has counted more
    for host in (0, 1):
        (going / f"status-host-{host}.json").write_text(json.dumps({**told, "host": host, "crossed": less}))
    assert "Counted at step" not in client.get("/run?folder=going").text
    (going / "status-host-1.json").write_text(json.dumps({**told, "host": 1, "crossed": {}}))  # it has not counted yet
    assert "Counted at step" not in client.get("/run?folder=going").text
    (going / "status-host-1.json").write_text(json.dumps({**told, "host": 1, "crossed": {"kinds": {"x": ["y"]}}}))
    assert client.get("/run?folder=going").status_code == 200


def test_a_ledger_is_read_again_when_it_has_changed(run: Path, tmp_path: Path) -> None:
    going, books = tmp_path / "run", Books()
    shutil.copytree(run, going)
    first = books.of(going)
    assert books.of(going) is first
    pq.write_table(pq.read_table(going / "ledger.parquet").slice(0, 3), going / "ledger.parquet")
    assert len(books.of(going).table) == 3


def test_several_seeds_are_added_up(tmp_path: Path) -> None:
    make_seeds(tmp_path / "run")
    book = Books().of(tmp_path / "run")
    one = pq.read_table(tmp_path / "run" / "seed-0" / "ledger.parquet")
    assert crossed(book.table).total == 2 * crossed(one).total and book.notes == ("Sums over 2 seeds.",)


def test_sums_are_those_of_the_ledger(run: Path) -> None:
    table = pq.read_table(run / "ledger.parquet")
    rows, found = table.to_pylist(), crossed(table)
    kinds, sent, received, pairs = Counter[str](), Counter[str](), Counter[str](), Counter[tuple[str, ...]]()
    for row in rows:
        kinds[row["kind"]] += row["bytes"]
        sent[row["sender"]] += row["bytes"]
        received[row["receiver"]] += row["bytes"]
        pairs[tuple(sorted((row["sender"], row["receiver"])))] += row["bytes"]
    assert {each.kind: each.bytes for each in found.kinds} == kinds
    assert {each.party: (each.sent, each.received) for each in found.parties} == {
        p: (sent[p], received[p]) for p in sent
    }
    assert {tuple(sorted((each.first, each.second))): each.bytes for each in edges(found)} == pairs
    epochs, curves = by_epoch(table)
    assert epochs == sorted({row["epoch"] for row in rows})
    assert {kind: curve[-1] for kind, curve in curves.items()} == kinds


ASKED: list[dict[str, str]] = [
    {}, {"kind": "partials"}, {"sender": "silo-0", "purpose": "validation"}, {"receiver": "server", "from": "2"},
    {"from": "1", "to": "3", "kind": "ids"}, {"to": "0"}, {"kind": "nothing"}, {"from": " 1,000 "},
]  # fmt: skip


@pytest.mark.parametrize("asked", ASKED, ids=str)
def test_a_filter_lets_through_what_it_says(asked: dict[str, str], run: Path) -> None:
    table = pq.read_table(run / "ledger.parquet")

    def passes(row: dict[str, object]) -> bool:
        alike = all(row[name] == asked[name] for name in ("kind", "sender", "receiver", "purpose") if name in asked)
        first, last = (int(asked.get(name, usual).replace(",", "")) for name, usual in (("from", "0"), ("to", "999")))
        return alike and first <= int(str(row["step"])) <= last

    wanted = [row for row in table.to_pylist() if passes(row)]
    found = [lines(table, Filter.of({**asked, "page": str(page)})) for page in range(1, len(wanted) // LINES + 2)]
    assert [row for each in found for row in each.rows] == wanted
    for each in found:
        assert each.count == len(wanted) and each.bytes == sum(row["bytes"] for row in wanted)
        assert each.messages == sum(row["messages"] for row in wanted)


def test_an_address_says_what_its_filter_asks_for(tmp_path: Path) -> None:
    asked = {"kind": "ids", "sender": "a&b", "from": "3", "to": "7", "page": "2"}
    assert Filter.of(asked).parameters() == asked and Filter.of({}).parameters() == {}
    assert Filter.of(asked).parameters(page=1) == {key: value for key, value in asked.items() if key != "page"}
    make_run(tmp_path / "run", THREE)
    found = choices(pq.read_table(tmp_path / "run" / "ledger.parquet"))
    assert found["sender"] == ["server", "silo-0", "silo-1", "silo-2"] and found["kind"] == ["parameters", "schema"]


@pytest.mark.parametrize(
    ("asked", "says"),
    [({"from": "x"}, "first step is 'x'"), ({"to": "-3"}, "last step is '-3'"), ({"page": "1.5"}, "page is '1.5'"),
     ({"from": "9", "to": "2"}, "exchange them"), ({"from": "9" * 30}, "give a whole number")],
)  # fmt: skip
def test_a_filter_that_makes_no_sense_is_refused_in_words(asked: dict[str, str], says: str) -> None:
    with pytest.raises(IsthmusError, match=says):
        Filter.of(asked)


def test_the_explorer_speaks_of_kinds_in_plain_words(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "run")
    said = words(reader(tmp_path).get("/ledger?folder=run&kind=schema&from=9&to=2").text)
    assert "column names and label names" in said and "schema" not in said
    assert "exchange them. Shown is everything." in said

"""Transaction files of the public anti-money-laundering data as graphs."""

from pathlib import Path

import numpy as np
import pytest
import torch

from isthmus.core.errors import IsthmusError
from isthmus.data import load
from isthmus.data.aml_file import COLUMNS
from isthmus.graph.graph import TEST, TRAIN, VALID, Graph
from isthmus.graph.partition import partition
from tests.helpers.command import refuse, succeed

HEADER = ",".join(COLUMNS)


def row(
    day: int = 1, hour: str = "00:20", ends: str = "010,A1,020,B1", amount: object = 10, currency: str = "Euro",
    way: str = "ACH", label: object = 0,
) -> str:  # fmt: skip
    """One line; days are counted from 1, as in a calendar."""
    return f"2022/09/{day:02} {hour},{ends},{amount},{currency},{amount},{currency},{way},{label}"


PLAIN = [row(1), row(2, amount=1000), row(9, label=1), row(10)]


def write(folder: Path, lines: list[str], header: str = HEADER) -> str:
    path = folder / "some_Trans.csv"
    path.write_text("\n".join([header, *lines]) + "\n")
    return str(path)


def read(folder: Path, lines: list[str], header: str = HEADER, **options: float) -> Graph:
    return load("aml", path=write(folder, lines, header), **options)


def column(graph: Graph, name: str) -> torch.Tensor:
    assert graph.edge_attr is not None
    return graph.edge_attr[:, graph.schema.edge_feature_names.index(name)]


def test_accounts_are_nodes_and_transactions_are_edges(tmp_path: Path) -> None:
    ends = ["010,A1,020,B1", "020,B1,010,A1", "020,B1,020,B1", "010,A1,020,B1"]
    graph = read(tmp_path, [row(day, ends=who) for day, who in zip((1, 2, 9, 10), ends, strict=True)])
    assert graph.ids.tolist() == ["010:A1", "020:B1"]
    assert graph.columns["bank"].tolist() == ["010", "020"]
    assert graph.edge_index.tolist() == [[0, 1, 1, 0], [1, 0, 1, 1]]
    assert graph.x.tolist() == [[1.0], [1.0]] and graph.schema.feature_names == ("one",)
    assert graph.schema.target == "edge" and graph.schema.labels == ("normal", "laundering") and graph.schema.timed


def test_an_account_number_at_two_banks_is_two_accounts(tmp_path: Path) -> None:
    graph = read(tmp_path, [*PLAIN, row(10, ends="020,A1,10,A1")])
    assert graph.ids.tolist() == ["010:A1", "020:A1", "020:B1", "10:A1"]  # 010 and 10 are two names as well
    assert len(set(graph.columns["bank"])) == 3


def test_labels_and_times_are_those_of_the_file(tmp_path: Path) -> None:
    graph = read(tmp_path, PLAIN)
    assert graph.edge_y is not None and graph.edge_y.tolist() == [0, 0, 1, 0]
    start = int(np.datetime64("2022-09-01T00:20", "s").astype(np.int64))
    assert graph.edge_time is not None
    assert graph.edge_time.tolist() == [start + 86400 * day for day in (0, 1, 8, 9)]


def test_columns_may_be_shuffled_renamed_by_pandas_and_accompanied(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    plain = read(tmp_path, PLAIN)
    header = ",".join(["note", *COLUMNS[:4:-1], "Account.1", *COLUMNS[3::-1]])  # backwards, the receiver comes first
    other = read(tmp_path / "b", [",".join(["x", *line.split(",")[::-1]]) for line in PLAIN], header)
    assert other.ids.tolist() == plain.ids.tolist() and torch.equal(other.edge_index, plain.edge_index)
    assert other.schema == plain.schema
    assert torch.equal(other.edge_attr, plain.edge_attr)


def test_amounts_are_scaled_by_training_transactions_alone(tmp_path: Path) -> None:
    amounts = [1, 50, 7000, 3, 1e9]
    graph = read(tmp_path, [row(day, amount=a) for day, a in zip((1, 3, 8, 9, 10), amounts, strict=True)])
    logs = np.log1p(amounts)
    expected = (logs - logs[:3].mean()) / logs[:3].std()
    for name in ("log_received", "log_paid"):
        assert np.allclose(column(graph, name), expected, rtol=1e-6), name


def test_time_is_scaled_by_training_transactions_alone(tmp_path: Path) -> None:
    days = np.array([1, 3, 8, 9, 10])
    graph = read(tmp_path, [row(int(day)) for day in days])
    assert np.allclose(column(graph, "time"), (days - days[:3].mean()) / days[:3].std(), rtol=1e-6)


def test_received_and_paid_are_told_apart(tmp_path: Path) -> None:
    line = "2022/09/02 00:20,1,a,2,b,3.5,Yen,70,Rupee,Wire,0"
    graph = read(tmp_path, [row(1), line, row(9), row(10)])
    assert column(graph, "received:Yen").tolist() == [0, 1, 0, 0] == column(graph, "paid:Rupee").tolist()
    assert column(graph, "format:Wire").tolist() == [0, 1, 0, 0]
    assert column(graph, "log_received")[1] < 0 < column(graph, "log_paid")[1]


def test_equal_amounts_stay_finite(tmp_path: Path) -> None:
    assert column(read(tmp_path, [row(1), row(2), row(9), row(10)]), "log_paid").tolist() == [0, 0, 0, 0]


def test_words_unknown_in_training_are_other(tmp_path: Path) -> None:
    lines = [row(1), row(2, currency="Yen"), row(9, currency="Doubloon"), row(10, way="Carrier Pigeon")]
    graph = read(tmp_path, lines)
    names = graph.schema.edge_feature_names
    assert names[5:] == (
        "received:Euro", "received:Yen", "received:other", "paid:Euro", "paid:Yen", "paid:other",
        "format:ACH", "format:other",
    )  # fmt: skip
    for title in ("received", "paid"):
        assert column(graph, f"{title}:other").tolist() == [0, 0, 1, 0]
        assert column(graph, f"{title}:Yen").tolist() == [0, 1, 0, 0]
    assert column(graph, "format:other").tolist() == [0, 0, 0, 1]
    assert graph.edge_attr is not None and (graph.edge_attr[:, 5:].sum(1) == 3).all()  # one of each kind


def test_other_days_bring_other_words(tmp_path: Path) -> None:
    lines = [row(1), row(2, currency="Yen"), row(3), row(4)]
    known = [read(tmp_path, lines, valid_from=day, test_from=3).schema.edge_feature_names for day in (1, 2)]
    assert ["paid:Yen" in names for names in known] == [False, True]


def test_hours_lie_on_a_circle(tmp_path: Path) -> None:
    graph = read(tmp_path, [row(1, "00:00"), row(2, "06:00"), row(9, "12:00"), row(10, "18:00")])
    assert torch.allclose(column(graph, "hour_sin"), torch.tensor([0.0, 1, 0, -1]), atol=1e-6)
    assert torch.allclose(column(graph, "hour_cos"), torch.tensor([1.0, 0, -1, 0]), atol=1e-6)


def parts(graph: Graph) -> list[int]:
    assert graph.edge_split is not None
    return graph.edge_split.tolist()


def test_the_split_follows_the_days(tmp_path: Path) -> None:
    lines = [row(8, "23:59"), row(9, "00:00"), row(9, "23:59"), row(10, "00:00"), row(18), row(1, "23:00")]
    assert parts(read(tmp_path, lines)) == [TRAIN, VALID, VALID, TEST, TEST, TRAIN]
    assert parts(read(tmp_path, lines, valid_from=9, test_from=17)) == [TRAIN, TRAIN, TRAIN, VALID, TEST, TRAIN]


def test_the_split_follows_shares_and_never_divides_a_minute(tmp_path: Path) -> None:
    minutes = [0, 1, 2, 3, 4, 5, 5, 5, 8, 9]
    lines = [row(1, f"00:{minute:02}") for minute in minutes[::-1]]
    assert parts(read(tmp_path, lines, valid_from=0.7, test_from=0.8))[::-1] == [TRAIN] * 5 + [VALID] * 3 + [TEST] * 2


@pytest.mark.parametrize("days", [(9, 8), (8, 8), (0, 9), (-1, 5), (0.5, 9), (8.5, 9.5), (0.8, 0.6), (0.0, 0.5)])
def test_cuts_that_make_no_sense(tmp_path: Path, days: tuple[float, float]) -> None:
    with pytest.raises(IsthmusError, match=r"data\.valid_from is .* two shares between 0 and 1"):
        read(tmp_path, PLAIN, valid_from=days[0], test_from=days[1])


@pytest.mark.parametrize(("days", "part"), [((20, 30), "valid"), ((2, 30), "test"), ((3, 4), "valid")])
def test_every_part_needs_transactions(tmp_path: Path, days: tuple[float, float], part: str) -> None:
    with pytest.raises(IsthmusError, match=rf"days 0 to 9.*no transactions for '{part}'.*data\.valid_from=0\.6"):
        read(tmp_path, PLAIN, valid_from=days[0], test_from=days[1])


GOOD = row(1)
BAD_LINES = {
    "time": (GOOD.replace("2022/09/01 00:20", "yesterday"), "'Timestamp': 'yesterday' is not a time; write it like"),
    "day": (GOOD.replace("09/01", "02/31"), "'Timestamp': '2022/02/31 00:20' is not a time"),
    "no time": (GOOD.replace("2022/09/01 00:20", ""), "'Timestamp': nothing is written there"),
    "amount": (row(1, amount="a lot"), "'Amount Received': 'a lot' is not an amount; write a number like"),
    "no amount": (row(1, amount=""), "'Amount Received': nothing is written there"),
    "debt": (row(1, amount=-5), "'Amount Received': the amount is -5; amounts are 0 or more"),
    "endless": (row(1, amount="inf"), "'Amount Received': the amount is inf"),
    "label": (row(1, label=2), "'Is Laundering': the label is '2'; write 0 (ordinary) or 1 (laundering)"),
    "word": (row(1, label="yes"), "'Is Laundering': the label is 'yes'"),
    "account": (row(1, ends="010,A1,020,"), "'Account': nothing is written there; fill it in or remove the line"),
    "bank": (row(1, ends="010,A1,,B1"), "'To Bank': nothing is written there"),
    "currency": (row(1, currency=""), "'Receiving Currency': nothing is written there"),
}


@pytest.mark.parametrize("name", BAD_LINES)
def test_a_bad_value_is_named_with_its_line(tmp_path: Path, name: str) -> None:
    line, says = BAD_LINES[name]
    with pytest.raises(IsthmusError) as error:
        read(tmp_path, [*PLAIN, line, *PLAIN])
    assert f"some_Trans.csv, line 6, column {says}" in str(error.value)


def test_a_short_line_is_named(tmp_path: Path) -> None:
    with pytest.raises(IsthmusError, match=r"some_Trans\.csv cannot be read: .*Expected 11 columns, got 2.*Repair"):
        read(tmp_path, [*PLAIN, "2022/09/01 00:20,1"])


@pytest.mark.parametrize("name", [name for name in COLUMNS if name != "Account"])
def test_a_missing_column_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(IsthmusError, match=rf"exactly one column '{name}'; it has: .*The first line must name: Time"):
        read(tmp_path, PLAIN, HEADER.replace(name, "Something"))


def test_the_second_account_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(IsthmusError, match="a second column 'Account'"):
        read(tmp_path, PLAIN, HEADER.replace("To Bank,Account", "To Bank,Holder"))


def test_empty_files(tmp_path: Path) -> None:
    with pytest.raises(IsthmusError, match="has a header but no transactions"):
        read(tmp_path, [])
    (tmp_path / "some_Trans.csv").write_text("")
    with pytest.raises(IsthmusError, match="is empty; its first line must be: Timestamp,From Bank,Account"):
        load("aml", path=str(tmp_path / "some_Trans.csv"))


def test_files_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(IsthmusError, match=r"x\.csv cannot be read.*CSV file in UTF-8"):
        load(str(tmp_path / "x.csv"))
    path = Path(write(tmp_path, [*PLAIN * 100, row(1, way="ODD")]))
    path.write_bytes(path.read_bytes().replace(b"ODD", b"\xff\xfe"))
    with pytest.raises(IsthmusError, match=r"some_Trans\.csv cannot be read: .*invalid UTF8.*Repair"):
        load(str(tmp_path / "some_Trans.csv"))


def test_a_file_is_found_by_name_by_path_and_in_the_data_folder(tmp_path: Path) -> None:
    (tmp_path / "IBM-AML").mkdir()
    path = write(tmp_path / "IBM-AML", PLAIN)
    found = [load(path), load("aml", path=path), load("aml", folder=str(tmp_path), path="some_Trans.csv")]
    assert [(graph.m, graph.name) for graph in found] == [(4, "some_Trans")] * 3
    with pytest.raises(IsthmusError, match="no file HI-Small_Trans.csv or .*IBM-AML.HI-Small.*simulate-aml"):
        load("aml", folder=str(tmp_path))
    with pytest.raises(IsthmusError, match="Unknown data option 'nodes'.*test_from, valid_from"):
        load(path, nodes=5)


def test_silos_may_be_banks(tmp_path: Path) -> None:
    graph = read(tmp_path, PLAIN)
    assert partition(graph, "attribute:bank", 2).tolist() == [0, 1]
    out = succeed("split", write(tmp_path, PLAIN), "--silos", 2, "--split", "attribute:bank", "--json").out
    assert '"cross_pairs": 1' in out


def test_a_run_by_bank_takes_its_options(tmp_path: Path, no_report: None) -> None:
    pairs = ("010,A1,020,B1", "010,A1,010,A2", "020,B1,020,B2")
    path = write(tmp_path, [row(day, ends=ends, label=day % 2) for day in range(1, 11) for ends in pairs])
    arguments = ("--silos", 2, "--split", "attribute:bank", "--epochs", 1, "--method", "fedavg", "--model", "sage")
    options = ("--set", "data.valid_from=5", "--set", "data.test_from=7", "--set", "model.hidden=4")
    succeed("run", "--data", path, *arguments, *options, "--out", tmp_path / "a")
    succeed("run", "--data", "aml", "--set", f"data.path={path}", *arguments, *options, "--out", tmp_path / "b")
    first, second = ((tmp_path / name / "metrics.jsonl").read_text() for name in "ab")
    assert first == second
    refuse("run", "--data", path, *arguments, "--set", "data.valid_from=7", "--set", "data.test_from=5",
           "--out", tmp_path / "c", says=["data.valid_from is 7"])  # fmt: skip


def test_the_public_sample(data_folder: Path) -> None:
    path = data_folder / "IBM-AML" / "IBM-Small_Trans_10000.csv"
    if not path.is_file():
        pytest.skip(f"no public sample: {path}")
    graph = load(str(path), valid_from=0.6, test_from=0.8)
    assert (graph.n, graph.m) == (8330, 10_000)
    assert graph.edge_y is not None and int(graph.edge_y.sum()) == 1
    assert len(set(graph.columns["bank"])) == 661
    assert torch.equal(torch.tensor(parts(graph)).bincount(minlength=4), torch.tensor([0, 5984, 1703, 2313]))

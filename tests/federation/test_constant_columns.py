"""A column that holds the same in all rows of all silos is no feature, and a note says so; any other stays one."""

from pathlib import Path

import pytest
import torch

from isthmus.core.errors import PeerError
from isthmus.data.parts import read_part
from isthmus.federation import constant_columns
from isthmus.federation.federation import Federation, open_federation
from isthmus.wire.local import LocalWire
from tests.helpers.command import refuse, succeed

NAMES = ["a", "b"]


def part(root: Path, name: str, cells: list[str], toml: str = "", weight: str = "1") -> None:
    """A part of nodes ``a0, a1, ..`` with an age that differs and one more column of ``cells``."""
    folder = root / name
    folder.mkdir()
    rows = "".join(f"{name}{at},{at % 2},{at},{cell}\n" for at, cell in enumerate(cells))
    (folder / "nodes.csv").write_text(f"id,label,age,f\n{rows}")
    edges = f"{name}0,{name}1,{weight}\n" + f"{name}1,{name}2,{weight}\n" * 4
    (folder / "edges.csv").write_text("source,target,w\n" + (edges if cells else ""))
    (folder / "silo.toml").write_text(toml)


def federation(root: Path, number: int = 2) -> Federation:
    """The federation of the parts in a folder."""
    silos = [read_part(root, NAMES[:number], place) for place in range(number)]
    return open_federation(LocalWire(number), silos)


@pytest.mark.parametrize(
    ("a", "b", "features"),
    [
        (["3"] * 6, ["3"] * 6, ("age",)),
        (["3"] * 6, ["4"] * 6, ("age", "f")),
        (["3"] * 6, ["3", "3", "3", "3", "3", "4"], ("age", "f")),
        (["CH"] * 6, ["ch"] * 6, ("age",)),
        (["CH"] * 6, ["DE"] * 6, ("age", "f=CH", "f=DE")),
        (["3"] * 6, [""] * 6, ("age", "f", "f missing")),
        (["3"] * 6, [], ("age",)),
        (["3"] * 4, ["3"] * 4, ("age", "f")),
    ],
    ids=["alike", "another value", "differing there", "a word", "two words", "gaps there", "no rows there", "few rows"],
)
def test_a_column_is_left_out_where_all_cells_of_all_silos_are_alike(
    a: list[str], b: list[str], features: tuple[str, ...], tmp_path: Path
) -> None:
    part(tmp_path, "a", a)
    part(tmp_path, "b", b, weight="2")
    agreed = federation(tmp_path)
    assert agreed.schema.feature_names == features and agreed.schema.edge_feature_names == (("w",) if b else ())
    assert [silo.x.shape[1] for silo in agreed.silos] == [len(features)] * 2
    said = [note for note in agreed.notes if "No feature is made of these columns of nodes: 'f': all cells" in note]
    assert len(said) == (len(features) == 1)


def test_columns_of_edges_are_left_out_too_and_nodes_without_features_have_a_one(tmp_path: Path) -> None:
    for name in NAMES:
        part(tmp_path, name, ["3"] * 6)
        text = "".join(f"{name}{at},{at % 2},{'train' if at < 4 else 'test'},3\n" for at in range(6))
        (tmp_path / name / "nodes.csv").write_text(f"id,label,split,f\n{text}")
    agreed = federation(tmp_path)
    assert agreed.schema.feature_names == ("one",) and agreed.schema.edge_features == 0
    assert all(silo.x.tolist() == [[1.0]] * 6 and silo.edge_attr is None for silo in agreed.silos)


def test_features_that_a_party_declares_stay(tmp_path: Path) -> None:
    part(tmp_path, "a", ["3"] * 6, '[schema]\nfeature_names = ["age", "f"]\n')
    part(tmp_path, "b", ["3"] * 6)
    assert federation(tmp_path).schema.feature_names == ("age", "f")


def test_a_value_is_told_only_where_it_stands_in_all_silos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[torch.Tensor] = []
    values = constant_columns._values
    monkeypatch.setattr(constant_columns, "_values", lambda *given: asked.append(values(*given)) or asked[-1])
    part(tmp_path, "a", ["3"] * 6)
    part(tmp_path, "b", ["3", "4", "3", "3", "3", "3"], weight="2")
    federation(tmp_path)
    assert [each.tolist() for each in asked] == [[[1.0]], [[2.0]]]  # of the column w of edges, and not of f


def test_a_peer_that_tells_something_else_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        part(tmp_path, name, ["3"] * 6)
    monkeypatch.setattr(constant_columns, "_values", lambda *given: torch.zeros(1, 7, dtype=torch.float64))
    with pytest.raises(PeerError, match="sent something else than the values of 2 columns"):
        federation(tmp_path)


@pytest.mark.usefixtures("no_report")
def test_check_runs_and_scores_say_it_of_a_whole_graph(tmp_path: Path) -> None:
    data = tmp_path / "graph"
    data.mkdir()
    (data / "nodes.csv").write_text("id,label,age,f\n" + "".join(f"{at},{at % 2},{at},7\n" for at in range(20)))
    (data / "edges.csv").write_text("source,target\n" + "".join(f"{at},{(at + 1) % 20}\n" for at in range(20)))
    checked = succeed("check", data).out
    told = "No feature is made of these columns of nodes: 'f': all cells"
    assert told in checked
    run = ("run", "--data", data, "--silos", 2, "--split", "random", "--epochs", 1, "--out", tmp_path / "run")
    assert told in succeed(*run).out
    (data / "nodes.csv").write_text("id,age,f\n" + "".join(f"{at},{at},{at}\n" for at in range(20)))
    assert "20 predictions" in succeed("score", tmp_path / "run", "--data", data).out
    (data / "nodes.csv").write_text("id,f\n" + "".join(f"{at},{at}\n" for at in range(20)))
    refuse("score", tmp_path / "run", "--data", data, says=["lacks the column 'age'"])

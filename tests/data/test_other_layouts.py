"""A folder or a file of another layout than nodes and edges: the error says which data set reads it, and that works."""

from pathlib import Path

import pytest

from isthmus.core.errors import IsthmusError
from isthmus.data import find, load

NODES = "nodeid,isFraud,init_balance,fraudStep\n0,0,184.4,-1\n1,1,175.8,3\n2,0,10.0,-1\n"
TRANSACTIONS = "sourceNodeId,targetNodeId,value,time\n0,1,103.5,1\n1,2,9.5,2\n"
IBM = (
    "Timestamp,From Bank,Account,To Bank,Account,Amount Received,Receiving Currency,Amount Paid,Payment Currency,"
    "Payment Format,Is Laundering\n"
)


@pytest.fixture
def amlsim(tmp_path: Path) -> Path:
    """A folder of AMLSim's two tables."""
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "transactions.csv").write_text(TRANSACTIONS)
    return tmp_path


@pytest.mark.parametrize("read", [find, load])
def test_an_amlsim_folder_is_named(read, amlsim: Path):
    with pytest.raises(IsthmusError, match=f"'amlsim' reads them: .* --set data.path={amlsim}"):
        read(str(amlsim))


def test_what_the_error_says_reads_the_folder(amlsim: Path):
    graph = load("amlsim", path=str(amlsim))
    assert graph.ids.tolist() == [0, 1, 2]
    assert graph.edge_index.tolist() == [[0, 1], [1, 2]]
    assert graph.y.tolist() == [0, 1, 0]


def test_a_path_without_tables(tmp_path: Path):
    with pytest.raises(IsthmusError, match="There is no file .*nodes.csv; data.path of amlsim is a folder"):
        find("amlsim", path=str(tmp_path))


@pytest.mark.parametrize("read", [find, load])
def test_a_folder_of_transactions_like_ibms(read, tmp_path: Path):
    (tmp_path / "HI-Small_Trans.csv").write_text(IBM)
    with pytest.raises(IsthmusError, match=f"instead of the folder: {tmp_path}/HI-Small_Trans.csv"):
        read(str(tmp_path))


def test_a_file_that_is_no_csv(tmp_path: Path):
    (tmp_path / "HI-Small_Patterns.txt").write_text("BEGIN LAUNDERING ATTEMPT\n")
    with pytest.raises(IsthmusError, match="is a file; give the folder"):
        load(str(tmp_path / "HI-Small_Patterns.txt"))


def test_other_tables_are_not_taken_for_them(tmp_path: Path):
    (tmp_path / "nodes.csv").write_text("id\n1\n")
    (tmp_path / "transactions.csv").write_text("from,to\n1,1\n")
    with pytest.raises(IsthmusError, match=r"one of edges.parquet and edges.csv"):
        load(str(tmp_path))

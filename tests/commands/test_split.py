"""``isthmus split`` says what its columns count."""

from pathlib import Path

import pytest

from isthmus.data.feature_columns import Reading
from isthmus.data.parts import read_part
from tests.helpers.command import isthmus, refuse

EDGES = "source,target,label,split\na,b,0,train\nb,c,1,train\nc,d,0,valid\nd,a,1,test\n"


def tables(folder: Path, labelled: str, plain: str) -> None:
    (folder / "nodes.csv").write_text(labelled)
    (folder / "edges.csv").write_text(plain)


def test_training_edges_between_two_silos_are_said_to_count_in_both(tmp_path: Path) -> None:
    tables(tmp_path, "id,bank\na,x\nb,x\nc,y\nd,y\n", EDGES)
    told = isthmus("split", tmp_path, "--split", "attribute:bank")
    assert told.code == 0 and "both silos of a cross edge count it under train" in " ".join(told.out.split())


def test_training_nodes_count_once(tmp_path: Path) -> None:
    tables(tmp_path, "id,bank,label\na,x,0\nb,x,1\nc,y,0\nd,y,1\n", "source,target\na,b\nb,c\n")
    told = isthmus("split", tmp_path, "--split", "attribute:bank")
    assert told.code == 0 and "count it under train" not in told.out


def test_words_of_a_written_part_may_be_named_again_as_scoring_does(tmp_path: Path) -> None:
    nodes = "id,bank,kind,label\na,x,shop,0\nb,x,shop,1\nc,y,home,0\nd,y,home,1\n"
    tables(tmp_path, nodes, "source,target\na,b\nb,c\n")
    assert isthmus("split", tmp_path, "--split", "attribute:bank", "--out", tmp_path / "parts").code == 0
    part = read_part(tmp_path / "parts", ["x", "y"], 0, Reading(words=("kind",)))
    assert set(part.schema.feature_names) == {"kind=shop", "kind=home"}


@pytest.mark.parametrize("silos", [0, -1, 1_000_001])
def test_a_number_of_silos_that_no_federation_has_is_refused(silos: int, tmp_path: Path) -> None:
    says = [f"--silos is {silos}", "a federation has at"]
    for command in (("split", "blocks"), ("split", "blocks", "--split", "attribute:block"), ("check", "blocks")):
        refuse(*command, "--silos", silos, says=says)
    refuse("split", "blocks", "--set", f"data.silos={silos}", says=says)

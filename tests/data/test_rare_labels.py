"""Names of labels that hardly a row has: a note says that all silos hear them, and ``data.rarest`` refuses them."""

from pathlib import Path

import pytest

from isthmus.core.errors import IsthmusError
from isthmus.data import load_folder
from isthmus.data.feature_columns import Reading
from isthmus.data.parts import read_part

RARE = "id,label\na1,ok\na2,ok\na3,ok\na4,crook\n"


@pytest.mark.parametrize(("toml", "refused"), [("", True), ('[schema]\nlabels = ["ok", "crook"]\n', False)])
def test_a_label_of_too_few_rows_is_not_told(toml: str, refused: bool, tmp_path: Path):
    folder = tmp_path / "a"
    folder.mkdir()
    (folder / "silo.toml").write_text(toml)
    (folder / "nodes.csv").write_text(RARE)
    (folder / "edges.csv").write_text("source,target\na1,a2\n")
    if refused:
        with pytest.raises(IsthmusError, match="column 'label', row 4: the label 'crook' is in 1 rows.*silo.toml"):
            read_part(tmp_path, ["a"], 0, Reading(rarest=2))
    assert read_part(tmp_path, ["a"], 0, Reading(rarest=2 - refused)).schema.labels[-1] in ("ok", "crook")
    notes = read_part(tmp_path, ["a"], 0).notes
    assert (
        any("told by name to the server and all silos" in note and "'crook' (1)" in note for note in notes) == refused
    )


def test_of_a_whole_graph_the_labels_that_are_learnt_count(tmp_path: Path):
    (tmp_path / "nodes.csv").write_text(RARE)
    (tmp_path / "edges.csv").write_text("source,target,label\n" + "a1,a2,x\n" * 3 + "a2,a3,y\n")
    said = "labels that fewer than 3 rows have are told by name"
    assert [note for note in load_folder(str(tmp_path)).notes if said in note and "'crook' (1)" in note]
    assert [note for note in load_folder(str(tmp_path), target="edge").notes if said in note and "'y' (1)" in note]
    with pytest.raises(IsthmusError, match="edges.csv, column 'label', row 4: the label 'y' is in 1 rows"):
        load_folder(str(tmp_path), target="edge", rarest=2)

"""``isthmus check`` names all problems at once, and what a run would do is what a run does."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from isthmus.core.errors import IsthmusError
from tests.data.test_messy import EDGES, NODES, parts
from tests.helpers.command import isthmus, metrics, refuse, succeed

pytestmark = pytest.mark.usefixtures("no_report")


def check(*words: Any, code: int = 0) -> dict[str, Any]:
    told = isthmus("check", *words, "--json")
    assert told.code == code, told
    found: dict[str, Any] = json.loads(told.out)
    return found


def test_all_problems_are_named_at_once_with_file_row_and_remedy(tmp_path: Path) -> None:
    nodes = {**NODES, "a": NODES["a"].replace(",5\n", ",inf\n").replace("a4", "a3")}
    edges = {**EDGES, "b": EDGES["b"].replace("b,true", "b,NaN").replace("true", "?").replace(",a,x", ",nobody,x")}
    with pytest.raises(IsthmusError, match="column"):
        parts(tmp_path, nodes, edges)
    found = check(tmp_path, code=1)["problems"]
    places = {(Path(each["file"]).parent.name, Path(each["file"]).name, each["column"], each["row"]) for each in found}
    assert ("a", "nodes.csv", "age", 3) in places  # inf
    assert ("b", "edges.csv", "label", 1) in places  # ?
    assert ("b", "edges.csv", "owner", 1) in places  # nobody
    assert ("a", "nodes.csv", "id", 4) in places  # a3 again
    assert all(each["remedy"] for each in found) and len(found) >= 4
    text = isthmus("check", tmp_path)
    assert text.code == 1 and f"{len(found)} problems: a run would refuse this data." in text.out


def test_a_table_of_pandas_with_row_numbers_gets_the_whole_remedy(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text(",id,f\n0,a,1\n1,b,2\n")
    (tmp_path / "edges.csv").write_text("source,target\na,b\n")
    [problem] = check(tmp_path, code=1)["problems"]
    assert problem["remedy"].startswith("write the table without them (in pandas index=False)")


def test_a_folder_without_edges_is_no_problem_between_silos(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text("id,f\na,1\n")
    told = isthmus("check", tmp_path)
    assert told.code == 1 and "the data as given" in told.out and "between silos" not in told.out


def test_problems_between_silos_are_named_beside_those_of_tables(tmp_path: Path) -> None:
    nodes = {**NODES, "b": NODES["b"].replace("age", "years")}
    edges = {**EDGES, "b": EDGES["b"].replace("kind", "sort")}
    parts(tmp_path, nodes, edges)
    [problem] = check(tmp_path, code=1)["problems"]
    assert "'age'" in problem["what"] and "'kind'" in problem["what"] and not problem["file"]
    assert "between silos" in isthmus("check", tmp_path).out


def test_a_bank_checks_its_own_part_without_the_others(tmp_path: Path) -> None:
    parts(tmp_path / "all")
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "federation.toml").write_text('silos = ["a", "b", "c"]\n')
    shutil.copytree(tmp_path / "all" / "b", mine / "b")
    found = check(mine, "--silo", "b")
    assert [silo["silo"] for silo in found["silos"]] == ["b"] and found["problems"] == []
    assert found["silos"][0]["classes"] == {"false": 2, "true": 2}
    others = check(mine, code=1)["problems"]
    assert len(others) == 2 and all("no folder" in each["what"] + each["remedy"] for each in others)


def test_what_is_foretold_is_what_a_run_does(tmp_path: Path) -> None:
    """Columns, labels, scaling, and the seeds of two methods that see different edges."""
    folder = tmp_path / "parts"
    folder.mkdir()
    rows = {name: "".join(f"{name}{i},{i},{'x' if i % 3 else 'y'}\n" for i in range(20)) for name in ("a", "b")}
    cross = [(f"a{i}", f"b{i}") for i in range(0, 20, 2)]
    split = ["train"] * 12 + ["valid"] * 4 + ["test"] * 4
    edges = {}
    for name, other in (("a", "b"), ("b", "a")):
        inner = [f"{name}{i},{name}{(i + 1) % 20},,{i % 2},{split[i]}\n" for i in range(20)]
        leaves = [f"{s},{t},{other},{i % 2},{'train' if i < 6 else 'test'}\n" for i, (s, t) in enumerate(cross)]
        edges[name] = "".join([*inner, *leaves])
    for name in rows:
        (folder / name).mkdir()
        (folder / name / "nodes.csv").write_text("id,size,kind\n" + rows[name])
        (folder / name / "edges.csv").write_text("source,target,owner,label,split\n" + edges[name])
        (folder / name / "silo.toml").write_text(f'name = "{name}"\n')
    found = check(folder)
    kinds = {each["column"]: each["what"] for each in found["columns"]}
    assert kinds == {"size": "a feature", "kind": "2 features, one a word"}
    seeds = {each["method"]: each.get("seeds") for each in found["methods"]}
    assert seeds["fedavg"] == {"train": 24, "valid": 8, "test": 8}
    assert seeds["sync-sgd+fwd-bwd-le"] == seeds["centralised"] == {"train": 30, "valid": 8, "test": 12}
    assert seeds["swift-fedgnn"] is None and "refused" in next(
        m for m in found["methods"] if m["method"] == "swift-fedgnn"
    )
    for method in ("fedavg", "sync-sgd+fwd-bwd-le"):
        out = tmp_path / method
        succeed("run", "--data", folder, "--method", method, "--epochs", 1, "--set", "model.hidden=4", "--out", out)
        assert sum(metrics(out)["seeds_scored"]) == seeds[method]["test"]
        assert metrics(out)["scale"]["x"]["how"] == found["scaling"]["nodes"]["how"]
    assert set(found["silos"][0]["classes"]) == {"0", "1"} and found["rare"] in ("0", "1")


def test_silos_by_a_column_are_as_many_as_it_has_values_and_called_by_them(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text(
        "id,bank,f,label\n" + "".join(f"n{i},{'alpen' if i % 3 else 'bern'},{i},{i % 2}\n" for i in range(12))
    )
    (tmp_path / "edges.csv").write_text("source,target\n" + "".join(f"n{i},n{(i + 1) % 12}\n" for i in range(12)))
    by_bank = ("--split", "attribute:bank")
    assert [silo["silo"] for silo in check(tmp_path, *by_bank)["silos"]] == ["alpen", "bern"]
    succeed("split", tmp_path, *by_bank, "--out", tmp_path / "parts")
    assert sorted(path.name for path in (tmp_path / "parts").iterdir() if path.is_dir()) == ["alpen", "bern"]
    out, options = tmp_path / "run", ("--epochs", 1, "--set", "model.hidden=4")
    succeed("run", "--data", tmp_path, *by_bank, *options, "--out", out)
    told = metrics(out)
    assert list(told["test"]["silos"]) == ["alpen", "bern"] and told["schema"]["feature_names"] == ["f"]
    succeed("score", out, "--data", tmp_path, "--out", tmp_path / "scores.csv")
    few = ("--split", "attribute:bank", "--silos", 1)
    succeed("run", "--data", tmp_path, *few, *options, "--out", tmp_path / "packed")
    assert list(metrics(tmp_path / "packed")["test"]["silos"]) == ["silo-0"]


def test_questions_that_mean_nothing_are_refused(tmp_path: Path) -> None:
    parts(tmp_path / "parts")
    refuse("check", tmp_path / "parts", "--silos", 2, says=["split already"])
    refuse("check", "blocks", "--silo", "a", says=["holds no parts"])
    refuse("check", tmp_path / "parts", "--set", "train.lr=1", says=["data.… keys only"])

"""Which runs may stand side by side, in words why others may not, and what the comparison shows."""

import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the extra isthmus[page] is not installed")

from tests.helpers.pages import DIGESTS, reader, scored_run, words
from tests.helpers.reports import THREE

FOUR = {**THREE, "silo-3": 0.4}
SPLIT: dict[str, Any] = {"accuracy": 0.5, "silos": {}}


def config(run: Path, old: str, new: str) -> None:
    text = (run / "config.toml").read_text()
    assert old in text
    (run / "config.toml").write_text(text.replace(old, new))


def compared(root: Path, *names: str) -> str:
    return reader(root).get("/compare", params={"run": list(names)}).text


def test_runs_on_one_footing_stand_side_by_side(tmp_path: Path) -> None:
    scored_run(tmp_path / "a", sees=("own", "across"))
    scored_run(tmp_path / "b", method="local", sees=("own",))
    text = compared(tmp_path, "a", "b")
    assert "2 runs on blocks: test accuracy" in text and "Test, own edges" in text and "Test, across" not in text
    table = re.search(r'id="comparison">(.*?)</table>', text, re.DOTALL)
    assert table and " a fedavg 50.0 % " in words(table[1]) and " b local 50.0 % " in words(table[1])
    assert "Crossed in training Crossed per step Time of training Worst ε" in words(text)
    assert "Validation accuracy by epoch." in text
    assert text.count("<polyline") == 2 and reader(tmp_path).get("/apart?run=a").json() == {}


OTHERS: dict[str, tuple[dict[str, Any], str]] = {
    "digest": ({"data_digests": {**DIGESTS, "silo-0": {"nodes": "x"}}}, "the same data set with other content"),
    "data": ({"data": "cora"}, "other data"),
    "silos": ({"tests": FOUR}, "other data|another number of silos"),
    "metric": ({"metric": "macro_f1"}, "another metric"),
    "mean": ({"average": "silos"}, "another mean"),
    "sight": ({"sees": ("across",)}, "scores that saw other edges"),
    "version": ({"data_digests": {}}, "no digest of its data"),
}  # fmt: skip


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_a_run_on_another_footing_is_refused_in_words(other: tuple[dict[str, Any], str], tmp_path: Path) -> None:
    changes, why = other
    scored_run(tmp_path / "a")
    scored_run(tmp_path / "b", **changes)
    text = compared(tmp_path, "a", "b")
    assert re.search(f"&#39;b&#39; does not stand beside the others: .*({why})", text) and "<polyline" not in text
    assert re.search(why, reader(tmp_path).get("/apart?run=a").json()["b"])


def test_another_split_or_seed_of_the_data_is_another_footing(tmp_path: Path) -> None:
    for name in "abc":
        scored_run(tmp_path / name)
    config(tmp_path / "b", '"louvain"', '"random"')
    config(tmp_path / "c", "[data]", "[data]\nseed = 7")
    apart = reader(tmp_path).get("/apart?run=a").json()
    assert set(apart) == {"b", "c"}


def test_three_runs_need_a_score_that_all_have(tmp_path: Path) -> None:
    for name, sees in (("a", ("own", "across")), ("b", ("own", "trained")), ("c", ("across", "trained"))):
        scored_run(tmp_path / name, sees=sees)
    assert reader(tmp_path).get("/apart?run=a").json() == {}
    assert "no score that saw what" in reader(tmp_path).get("/apart", params={"run": ["a", "b"]}).json()["c"]


def test_a_merged_run_stands_beside_those_of_its_data(tmp_path: Path) -> None:
    scored_run(tmp_path / "a")
    scored_run(tmp_path / "merged", method="centralised", sees=("global",), data_digests={"silo-0": {"nodes": "all"}})
    text = compared(tmp_path, "a", "merged")
    assert "for orientation" in text and "merged" in words(text) and text.count("<polyline") == 2
    config(tmp_path / "merged", '"louvain"', '"random"')
    assert "does not stand beside" in compared(tmp_path, "a", "merged")


def test_columns_with_other_numbers_of_scored_nodes_are_left_out(tmp_path: Path) -> None:
    scored_run(tmp_path / "a", sees=("own", "across"))
    few = {"valid": SPLIT, "test": SPLIT, "best_epoch": [2], "bytes": 1}
    counts = {"own": [1, 2, 3], "across": [10, 10, 10]}
    scored_run(tmp_path / "b", scored={saw: {"sees": saw, "seeds_scored": n, **few} for saw, n in counts.items()})
    text = compared(tmp_path, "a", "b")
    assert "The column &#39;own edges&#39; is left out" in text and "Test, across" in text
    assert "<th>Test, own edges" not in text


def test_what_cannot_be_compared_with_anything(tmp_path: Path) -> None:
    scored_run(tmp_path / "a")
    (scored_run(tmp_path / "going") / "metrics.json").unlink()
    (scored_run(tmp_path / "broken") / "metrics.json").write_text("{")
    assert reader(tmp_path).get("/apart?run=a").json() == {"going": "it has not finished", "broken": "a damaged folder"}
    assert "tick two or more" in compared(tmp_path, "a") and "tick two or more" in compared(tmp_path)
    assert "There is no run of that name" in compared(tmp_path, "a", "../a")

"""Tables as CSV, LaTeX and Markdown: every value in its place, whatever names are like."""

import csv
import io
import re

import pytest

from isthmus.core.errors import IsthmusError
from isthmus.report.pivot import blocks, read_layout, usual_layout
from isthmus.report.run_scores import scores_by_footing
from isthmus.report.score_table import ScoreEntry, ScoreTable
from isthmus.report.table_files import table_text, tex

ODD = ["a_b", "R&D", "100%", "<script>alert(1)</script>", "x|y", "$5^2~{#1}\\", "[a]", "*bold*", "two\nlines", "`tick`"]
SPLITS = ["louvain", "ra_nd&om"]


def table(names: list[str] = ODD, measures: tuple[str, ...] = ("across", "own edges")) -> ScoreTable:
    entries = [
        ScoreEntry({"split": split, "method": name}, measure, {s: 10.0 * i + j + 5 * k + s for s in range(3)})
        for j, split in enumerate(SPLITS)
        for i, name in enumerate(names)
        for k, measure in enumerate(measures)
    ]
    return ScoreTable("Odd & ends_", "test accuracy, %", ("split", "method"), "method", tuple(entries))


def test_latex_escapes_every_name() -> None:
    text = table_text(table(), usual_layout(table()), "latex")
    body = "\n".join(line for line in text.splitlines() if not line.startswith("%"))
    for bare in (r"(?<!\\)%", r"(?<!\\)#", r"(?<!\\)_", r"[<>~^|`]{1}(?<!`)", "script>"):
        assert not re.search(bare, body), bare
    assert r"a\_b" in body and r"R\&D" in body and r"100\%" in body and r"\textbackslash{}" in body
    rows = [line for line in body.splitlines() if line.endswith(r"\\")]
    assert len(rows) == 2 * (1 + len(ODD))  # a table for each footing: names with line breaks break no row
    assert {len(re.findall(r"(?<!\\)&", row)) for row in rows} == {len(SPLITS)}
    unescaped = re.sub(r"\\[{}]", "", body)
    assert unescaped.count("{") == unescaped.count("}") and body.count("$") % 2 == body.count(r"\$") % 2
    labels = re.findall(r"\\label{(.*)}", body)
    assert len(set(labels)) == 2 and all(re.fullmatch("tab:[a-z0-9-]+", label) for label in labels)
    for command in ("toprule", "midrule", "bottomrule", "begin{table}", "end{table}"):
        assert body.count(f"\\{command}") == 2
    assert tex("a [b] – c…") == r"a {[}b{]} -- c\dots{}"


def test_markdown_escapes_every_name() -> None:
    text = table_text(table(), usual_layout(table()), "markdown")
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {len(SPLITS) + 2}
    assert "<script" not in text and r"\*bold\*" in text and r"x\|y" in text and "**" in text


def test_csv_has_every_value_whatever_the_layout() -> None:
    one = table_text(table(), usual_layout(table()), "csv")
    assert one == table_text(table(), read_layout("split:method,score", ("split", "method")), "csv")
    lines = list(csv.DictReader(io.StringIO(one)))
    assert [(line["split"], line["method"], line["score"]) for line in lines] == [
        (split, name, measure) for split in SPLITS for name in ODD for measure in ("across", "own edges")
    ]
    assert lines[0]["mean"] == "1" and lines[0]["deviation"] == "1" and lines[0]["seeds"] == "3"


@pytest.mark.parametrize(
    "pivot", ["method:split", "split:method", "method,split:score", "method:score", "split,method:score"]
)
def test_every_pivot_has_every_value_once(pivot: str) -> None:
    found = table(["x", "y", "z"])
    printed = blocks(found, read_layout(pivot, found.keys))
    cells = [each.entry for block in printed for each in block.judged]
    assert sorted(map(id, cells)) == sorted(map(id, found.entries))
    marks = {id(each.entry): each.mark for each in found.judged}
    assert all(each.mark == marks[id(each.entry)] for block in printed for each in block.judged)  # layout moves no mark


def test_footings_never_share_a_column() -> None:
    found = table(["x", "y"], ("across", "own edges", "across, pooled", "across, mean over silos"))
    for pivot in ("method:split", "split:method", "method:split,score", "method:score,split", "split,method:score"):
        for block in blocks(found, read_layout(pivot, found.keys)):
            for column in block.columns:
                seen = {each.entry.measure for (_, at), each in block.cells.items() if at == column}
                assert len(seen) == 1, (pivot, seen)
    with pytest.raises(IsthmusError, match="different footing would share a column"):
        read_layout("method,score:split", found.keys)


@pytest.mark.parametrize(
    ("pivot", "says"),
    [("method", "like method:split"), ("methods:split", "Did you mean|Choose from"), ("a:b:c", "like method:split"),
     (":split", "both sides have one"), ("method:method", "every key stands once")],
)  # fmt: skip
def test_a_pivot_that_means_nothing_is_refused(pivot: str, says: str) -> None:
    with pytest.raises(IsthmusError, match=says):
        read_layout(pivot, ("split", "method"))


def test_several_keys_in_columns_have_heads_of_their_own() -> None:
    text = table_text(table(["x"]), read_layout("method:split,score", ("split", "method")), "latex")
    assert r" & \multicolumn{2}{c}{louvain} & \multicolumn{2}{c}{ra\_nd\&om} \\" in text
    assert r"\cmidrule(lr){2-3} \cmidrule(lr){4-5}" in text
    assert "method & own edges & across & own edges & across" in text


def test_scores_are_told_apart_by_what_they_saw_and_by_which_mean() -> None:
    way = {"sees": "own", "test": {"pr_auc": 0.5, "accuracy": 0.9}, "test_pooled": {"pr_auc": 0.4, "accuracy": 0.9}}
    run = {"scored": {"trained": way, "across": {**way, "sees": "across"}}, "average": "seeds", "merged": False}
    assert scores_by_footing(run, "accuracy") == {"own edges": 0.9, "across": 0.9}
    means = {"own edges, mean over silos": 0.5, "across, mean over silos": 0.5}
    assert scores_by_footing(run, "pr_auc") == {**means, "own edges, pooled": 0.4, "across, pooled": 0.4}
    assert "own edges, mean over silos" in scores_by_footing({**run, "average": "silos"}, "accuracy")
    one = {"scored": {"trained": {**way, "sees": "global", "test_pooled": {}}}, "average": "seeds", "merged": True}
    assert scores_by_footing(one, "pr_auc") == {"across, pooled": 0.5}  # never beside means over silos
    assert scores_by_footing(one, "accuracy") == {"across": 0.9}

"""A study's table: the paper's columns, pooled scores apart from means over silos, names that no page trips over."""

from typing import Any

from isthmus.studies.results import ComparedValue, Findings, RowResult
from isthmus.studies.score_tables import paper_files, paper_section, score_table
from isthmus.studies.study import Study, StudyRow, Value, score_column

COLUMN = score_column("PR-AUC", "macro_pr_auc")
ODD = "<script>alert('R&D_1')</script>"


def run(mean: float, pooled: float, merged: bool = False) -> dict[str, Any]:
    """The metrics of a run of three tasks."""
    split = {"test": {"macro_pr_auc": mean}, "test_pooled": {"macro_pr_auc": pooled}}
    return {**split, "metric": "macro_pr_auc", "average": "silos", "merged": merged}


def findings(rows: dict[str, list[dict[str, Any]]], metric: str = "macro_pr_auc") -> Findings:
    """Findings with a line for each row, whose runs have the seeds 0, 1, ..."""
    column = score_column("PR-AUC", metric)
    lines = [
        RowResult(
            StudyRow(label, {}, {"PR-AUC": Value(50.0, 1.0)} if label == "fedavg" else {}),
            {"PR-AUC": ComparedValue(None, None, None, tuple(column.read(each) for each in runs))},
            tuple(range(len(runs))),
            None,
            runs=tuple(runs),
        )
        for label, runs in rows.items()
    ]
    words = {"name": "x", "title": "T", "summary": "s", "source": "Nobody 1999", "measure": "test PR-AUC, %"}
    study = Study(**words, columns=(column,), rows=tuple(line.row for line in lines), base={})  # type: ignore[arg-type]
    return Findings(study, tuple(lines), {"seeds": 2})


THREE = {
    "fedavg": [run(0.5, 0.4), run(0.6, 0.5)],
    ODD: [run(0.7, 0.6), run(0.8, 0.7)],
    "centralised": [run(0.9, 0.9, True), run(0.95, 0.95, True)],
}


def test_means_over_silos_and_pooled_scores_have_columns_of_their_own() -> None:
    table = score_table(findings(THREE))
    found = {
        (each.at("row"), each.measure): [round(v, 6) for v in each.values.values()]
        for each in table.entries
        if each.values
    }
    assert found == {
        ("fedavg", "PR-AUC"): [50, 60],
        ("fedavg", "PR-AUC, pooled"): [40, 50],
        (ODD, "PR-AUC"): [70, 80],
        (ODD, "PR-AUC, pooled"): [60, 70],
        ("centralised", "PR-AUC, pooled"): [90, 95],
    }
    [paper] = [each for each in table.entries if each.given]
    assert (paper.measure, paper.mean, paper.deviation) == ("PR-AUC, paper", 50.0, 1.0)
    best = [each.entry.at("row") for each in table.judged if each.mark == "best"]
    assert best == [ODD, ODD]  # all data in one place is no rival


def test_odd_names_stay_text_in_every_file() -> None:
    files, section = paper_files(findings(THREE)), paper_section(findings(THREE))
    assert "<script" not in section and "&lt;script&gt;" in section
    assert '<td class="best"' in section
    assert rb"\textless{}script\textgreater{}" in files["table.tex"] and rb"R\&D\_1" in files["table.tex"]
    assert b"<script" not in files["table.md"] and ODD.encode() in files["table.csv"]


def test_a_study_without_runs_has_a_table_all_the_same() -> None:
    files = paper_files(findings({"fedavg": []}))
    assert files["table.csv"].decode().startswith("row,score,mean") and b"50.00" in files["table.tex"]
